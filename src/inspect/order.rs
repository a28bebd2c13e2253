//! Which frames of the log count, and in which order their records were written.
//!
//! Groups are numbered in the order of writing over all epochs, and seqnos ascend with
//! them; within a group the frames of several heads interleave. A list of frames, a few
//! dozen bytes each, sorted by group is therefore all that a replay needs.

use std::collections::BTreeMap;

use crate::Result;
use crate::device::AlignedBuf;
use crate::format::{Cut, Extent, HEAD_COUNT, SegmentId, Seqno};
use crate::log::Found;

use super::check::{last_group, read_life};
use super::ends::{Ends, Unsealed};
use super::media::Media;
use super::report::Progress;
use super::walk::{Gap, Item};

/// A frame on media.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameRef {
    pub(super) group: u64,
    pub(super) base_seqno: Seqno,
    pub(super) last_seqno: Seqno,
    pub(super) segment: SegmentId,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) records: u32,
    frame_count: u16,
    is_whole: bool,
}

/// A record outside every frame that verifies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loose {
    /// At least this.
    pub(super) seqno: Seqno,
    pub(super) segment: SegmentId,
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// The log as it is on media.
#[derive(Default)]
pub(super) struct Order {
    /// Frames that count, by group.
    pub(super) frames: Vec<FrameRef>,
    /// By seqno.
    pub(super) loose: Vec<Loose>,
    pub(super) gaps: Vec<(SegmentId, Gap)>,
    /// Ranges of seqnos of groups of which it is not known whether they count.
    pub(super) weak: Vec<(Seqno, Seqno)>,
    /// Every seqno from here on that was ever given is on media, or below `dropped`.
    pub(super) complete_from: Seqno,
    pub(super) last_seqno: Seqno,
    pub(super) last_group: u64,
    pub(super) clock: u64,
    /// The cut of the last epoch.
    pub(super) cut: Option<Cut>,
}

/// Reads the log. `unsettled` is the epoch whose last group may be incomplete; `others` says
/// that older epochs may have such groups too, since the cuts are lost.
pub(super) fn survey(
    media: &Media,
    cuts: &[Cut],
    unsettled: Option<u64>,
    others: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Order> {
    let mut order = Order::default();
    let mut ends = Ends::new(media.superblock.as_ref());
    let mut buffer = AlignedBuf::new();
    let segment_bytes = media.geometry.segment_bytes;
    let total_bytes = media.data_segments().count() as u64 * segment_bytes;
    let mut done_bytes = 0;
    for header in media.data_segments() {
        let life = read_life(media, header, last_group(cuts, header.epoch), &mut buffer);
        let end = life.walk(&mut |item| {
            if let Item::Frame(frame) = &item {
                ends.saw(header.epoch, frame.header.group, &frame.header.extents);
            }
            order.item(media, header.segment, item);
            Ok(())
        })?;
        if !end.sealed {
            ends.unsealed.push(Unsealed { header, end });
        }
        done_bytes += segment_bytes;
        progress(Progress {
            done_bytes,
            total_bytes,
        });
    }
    for unsealed in &ends.unsealed {
        let expected = ends.expected(unsealed, cuts);
        if expected > unsealed.end.offset {
            let segment = unsealed.header.segment;
            let life = read_life(media, unsealed.header, u64::MAX, &mut buffer);
            life.tail(unsealed.end, expected, &mut |item| {
                order.item(media, segment, item);
                Ok(())
            })?;
        }
    }
    order.finish(media, unsettled, others, &ends);
    Ok(order)
}

impl Order {
    fn item(&mut self, media: &Media, segment: SegmentId, item: Item<'_>) {
        match item {
            Item::Frame(frame) => {
                let header = &frame.header;
                self.clock = self.clock.max(header.clock);
                self.last_seqno = self.last_seqno.max(header.last_seqno);
                self.frames.push(FrameRef {
                    group: header.group,
                    base_seqno: header.base_seqno,
                    last_seqno: header.last_seqno,
                    segment,
                    offset: frame.offset as u32,
                    bytes: header.frame_bytes,
                    records: header.record_count,
                    frame_count: header.frame_count,
                    is_whole: frame.is_whole,
                });
            }
            Item::Record(located) => {
                // Records of frames come with their frame.
                let in_frame = self.frames.last().is_some_and(|frame| {
                    frame.segment == segment
                        && located.offset < u64::from(frame.offset) + u64::from(frame.bytes)
                });
                if !in_frame {
                    let unit = u64::from(media.geometry.unit_bytes);
                    self.last_seqno = self.last_seqno.max(located.seqno);
                    self.loose.push(Loose {
                        seqno: located.seqno,
                        segment,
                        offset: located.offset as u32,
                        bytes: (located.record.length.units() * unit) as u32,
                    });
                }
            }
            Item::Gap(gap) => self.gaps.push((segment, gap)),
        }
    }

    fn finish(&mut self, media: &Media, unsettled: Option<u64>, others: bool, ends: &Ends) {
        self.frames
            .sort_by_key(|frame| (frame.group, frame.base_seqno));
        self.loose.sort_by_key(|loose| loose.seqno);
        self.complete_from = self.find_complete();
        let all_headers = || {
            media.headers.iter().filter_map(|found| match found {
                Found::Header(header) => Some(header),
                _ => None,
            })
        };
        let newest = all_headers().map(|header| header.group).max();
        let frames_newest = self.frames.last().map(|frame| frame.group);
        self.last_group = newest.max(frames_newest).unwrap_or(0);
        let epoch_of = |frame: &FrameRef| media.header(frame.segment).map(|header| header.epoch);
        // The last group of each epoch.
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for frame in &self.frames {
            if let Some(epoch) = epoch_of(frame) {
                last.insert(epoch, frame.group);
            }
        }
        let mut dropped = Vec::new();
        for (epoch, group) in &last {
            let is_unsettled = Some(*epoch) == unsettled;
            if !is_unsettled && !others {
                continue;
            }
            let frames = self.frames.iter().filter(|frame| frame.group == *group);
            let (mut count, mut wanted, mut whole) = (0, 0, true);
            let mut range = (Seqno::MAX, 0);
            for frame in frames {
                count += 1;
                wanted = usize::from(frame.frame_count);
                whole &= frame.is_whole;
                range = (range.0.min(frame.base_seqno), range.1.max(frame.last_seqno));
            }
            let of_epoch = || all_headers().filter(|header| header.epoch == *epoch);
            let flushed = of_epoch().any(|header| header.group > *group);
            if (count == wanted && whole) || flushed {
                continue;
            }
            // Frames may be missing because their segment was freed since.
            let freed = all_headers().any(|header| header.epoch > *epoch && header.generation > 1);
            if is_unsettled || !freed {
                dropped.push(*group);
            } else {
                self.weak.push(range);
            }
        }
        let is_dropped = |segment: SegmentId, gap: &Gap| {
            self.frames.iter().any(|frame| {
                dropped.contains(&frame.group)
                    && frame.segment == segment
                    && u64::from(frame.offset) <= gap.from
                    && gap.from < u64::from(frame.offset) + u64::from(frame.bytes)
            })
        };
        let gaps = std::mem::take(&mut self.gaps);
        let gaps = gaps.into_iter();
        self.gaps = gaps
            .filter(|(segment, gap)| !is_dropped(*segment, gap))
            .collect();
        let last_epoch = unsettled.filter(|epoch| last.contains_key(epoch));
        self.frames.retain(|frame| !dropped.contains(&frame.group));
        self.cut = last_epoch.map(|epoch| self.make_cut(media, epoch, ends));
    }

    fn make_cut(&self, media: &Media, epoch: u64, ends: &Ends) -> Cut {
        let of_epoch = |segment| {
            media
                .header(segment)
                .is_some_and(|header| header.epoch == epoch)
        };
        let counted = || self.frames.iter().filter(|frame| of_epoch(frame.segment));
        let mut extents = [Extent::default(); HEAD_COUNT];
        let unsealed = ends.unsealed.iter().filter(|unsealed| {
            let segment = unsealed.header.segment;
            of_epoch(segment) && counted().any(|frame| frame.segment == segment)
        });
        for (extent, unsealed) in extents.iter_mut().zip(unsealed) {
            let segment = unsealed.header.segment;
            let frames = counted().filter(|frame| frame.segment == segment);
            let end = frames.map(|frame| frame.offset + frame.bytes).max();
            *extent = Extent {
                segment,
                end: end.unwrap_or(0),
            };
        }
        Cut {
            epoch,
            group: counted().map(|frame| frame.group).max().unwrap_or(0),
            seqno: counted().map(|frame| frame.last_seqno).max().unwrap_or(0),
            extents,
        }
    }

    /// The lowest seqno from which on frames have every seqno, by their headers.
    fn find_complete(&self) -> Seqno {
        let mut complete_from = 1;
        let mut next = 1;
        for group in self.frames.chunk_by(|one, other| one.group == other.group) {
            let with_records = || group.iter().filter(|frame| frame.records > 0);
            let Some(first) = with_records().map(|frame| frame.base_seqno).min() else {
                continue;
            };
            let last = with_records()
                .map(|frame| frame.last_seqno)
                .max()
                .unwrap_or(first);
            let records: u64 = with_records().map(|frame| u64::from(frame.records)).sum();
            let span = last.saturating_sub(first).saturating_add(1);
            if first != next {
                complete_from = first;
            }
            if records != span {
                complete_from = last.saturating_add(1);
            }
            next = last.saturating_add(1);
        }
        complete_from
    }
}
