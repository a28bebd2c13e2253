//! The last pass of a rebuild: takes chunks without their head and heads without their
//! chunks out of the new index, and lists the keys that are in doubt or lost.

use std::collections::HashSet;

use crate::Result;
use crate::device::AlignedBuf;
use crate::format::{Kind, SegmentHeader, SegmentId, Seqno};
use crate::kv::{Belonging, LargeValue};

use super::check::{last_group, read_life};
use super::ends::Tail;
use super::order::Order;
use super::rebuild::Rebuild;
use super::report::Progress;
use super::walk::{Item, Life, claimed};

/// The head of a large value, and where it is.
struct Head {
    value: LargeValue,
    segment: SegmentId,
    offset: u64,
    bytes: u64,
    seqno: Seqno,
    exact: bool,
}

impl Rebuild<'_> {
    /// Takes out what is incomplete and lists what is in doubt.
    pub(super) fn tidy(
        &mut self,
        cuts: &[crate::format::Cut],
        order: &Order,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let mut heads = Vec::new();
        let mut buffer = AlignedBuf::new();
        let segment_bytes = self.media.geometry.segment_bytes;
        let total_bytes = self.media.data_segments().count() as u64 * segment_bytes;
        let mut done_bytes = 0;
        let loose: HashSet<(SegmentId, u32)> = order
            .loose
            .iter()
            .map(|loose| (loose.segment, loose.offset))
            .collect();
        let media = self.media;
        for header in media.data_segments() {
            let life = read_life(media, header, last_group(cuts, header.epoch), &mut buffer);
            let end = life.walk(&mut |item| {
                self.tidy_item(&header, item, &mut heads);
                Ok(())
            })?;
            // Records behind the last frame, which the survey decided to count.
            if loose.iter().any(|(segment, _)| *segment == header.segment) {
                let tail = Tail {
                    to: segment_bytes,
                    before: Seqno::MAX,
                    certain: true,
                };
                life.tail(end, tail, &mut |item| {
                    self.tidy_item(&header, item, &mut heads);
                    Ok(())
                })?;
            }
            done_bytes += segment_bytes;
            progress(Progress {
                done_bytes,
                total_bytes,
            });
        }
        for head in heads {
            self.tidy_head(&head);
        }
        for (segment, gap) in order.gaps.iter().filter(|(_, gap)| gap.loses) {
            self.name_lost(*segment, gap.from, gap.to);
        }
        Ok(())
    }

    fn tidy_item(&mut self, header: &SegmentHeader, item: Item<'_>, heads: &mut Vec<Head>) {
        let Item::Record(found) = item else { return };
        let record = &found.record;
        let address = header.geometry.address(header.segment, found.offset);
        let entry = self.owners.kv.entry_of(record);
        let is_live = entry.is_some_and(|entry| entry.address == address);
        if !is_live || record.kind.is_tombstone() {
            return;
        }
        match record.kind {
            Kind::Chunk => {
                if self.owners.kv.belonging(self.log, record) == Belonging::Orphan {
                    self.owners.kv.drop_entry(self.log, record, address);
                }
            }
            Kind::Head => match self.owners.kv.large_value(record) {
                Some(value) => heads.push(Head {
                    value,
                    segment: header.segment,
                    offset: found.offset,
                    bytes: self.log.record_bytes(record.length),
                    seqno: found.seqno,
                    exact: found.exact,
                }),
                None => {
                    self.owners.kv.drop_entry(self.log, record, address);
                    self.report.lose(record.key);
                }
            },
            Kind::Extent | Kind::Object | Kind::OmapValue => {}
            Kind::Put | Kind::Delete | Kind::TrimChunks => {
                let partition = self.owners.kv.partition_of(record).unwrap_or(0);
                if self.doubt.doubts(partition, found.seqno, found.exact) {
                    self.report.doubt(record.key);
                }
            }
        }
    }

    /// Lists the key that a damaged record claims, if nothing is left of it.
    fn name_lost(&mut self, segment: SegmentId, from: u64, to: u64) {
        let geometry = &self.media.geometry;
        let at = geometry.segment_offset(segment) + from;
        let Some(bytes) = self.media.read_around(at, to.saturating_sub(from)) else {
            return;
        };
        if let Some((Kind::Put | Kind::Head, key)) = claimed(&bytes)
            && self.owners.kv.entry_of_key(key).is_none()
        {
            self.report.lose(key);
        }
    }

    fn tidy_head(&mut self, head: &Head) {
        let geometry = &self.media.geometry;
        let at = geometry.segment_offset(head.segment) + head.offset;
        let Some(header) = self.media.header(head.segment).copied() else {
            return;
        };
        let Some(bytes) = self.media.read_around(at, head.bytes) else {
            return;
        };
        let life = Life {
            bytes: &bytes,
            base: head.offset,
            header,
            last_group: u64::MAX,
            has_payload: true,
        };
        let Ok(record) = life.record_at(head.offset, head.offset + head.bytes) else {
            return;
        };
        let partition = self.owners.kv.partition_of(&record).unwrap_or(0);
        let doubts = self.doubt.doubts(partition, head.seqno, head.exact);
        if self.owners.kv.missing_chunk(&head.value).is_none() {
            if doubts {
                self.report.doubt(record.key);
            }
            return;
        }
        // Of a deleted value, chunks have been cleaned away; else one is damaged.
        let address = geometry.address(head.segment, head.offset);
        self.owners.kv.drop_chunks(self.log, &head.value);
        self.owners.kv.drop_entry(self.log, &record, address);
        if !doubts || self.doubt.may_be_damaged(head.seqno) {
            self.report.lose(record.key);
        }
    }
}
