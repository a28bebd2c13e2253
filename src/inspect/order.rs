//! Which frames of the log count, and in which order their records were written.
//!
//! Groups are numbered in the order of writing over all epochs, and seqnos ascend with
//! them; within a group the frames of several heads interleave. A list of frames, a few
//! dozen bytes each, sorted by group is therefore all that a replay needs.

use std::collections::BTreeMap;

use crate::Result;
use crate::device::AlignedBuf;
use crate::format::{Cut, Extent, HEAD_COUNT, SegmentId, Seqno};

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
    /// Records of a frame that is gone have lower seqnos; 0 when there is none.
    pub(super) missing_before: Seqno,
    pub(super) last_seqno: Seqno,
    pub(super) last_group: u64,
    pub(super) clock: u64,
    /// The cut of the last epoch.
    pub(super) cut: Option<Cut>,
}

/// What is known of the ends of epochs before the log is read.
pub(super) struct Settled {
    pub(super) cuts: Vec<Cut>,
    /// The epoch whose last group may be incomplete.
    pub(super) unsettled: Option<u64>,
    /// Older epochs may have such groups too: the cuts are lost, or images that made cuts
    /// superfluous are.
    pub(super) others: bool,
    /// Every lower seqno is in an image, and so was committed.
    pub(super) committed_below: Seqno,
}

/// Reads the log.
pub(super) fn survey(
    media: &Media,
    settled: &Settled,
    progress: &mut dyn FnMut(Progress),
) -> Result<Order> {
    let mut order = Order::default();
    let mut ends = Ends::new(media, settled.unsettled, true);
    let mut buffer = AlignedBuf::new();
    let segment_bytes = media.geometry.segment_bytes;
    let total_bytes = media.data_segments().count() as u64 * segment_bytes;
    let mut done_bytes = 0;
    for header in media.data_segments() {
        let life = read_life(
            media,
            header,
            last_group(&settled.cuts, header.epoch),
            &mut buffer,
        );
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
        if let Some(tail) = ends.tail(unsealed, &settled.cuts) {
            let segment = unsealed.header.segment;
            let life = read_life(media, unsealed.header, u64::MAX, &mut buffer);
            life.tail(unsealed.end, tail, &mut |item| {
                order.item(media, segment, item);
                Ok(())
            })?;
        }
    }
    order.finish(media, settled, &ends);
    Ok(order)
}

/// What is made of a last group.
enum Verdict {
    Counts,
    /// It counts, and what is missing of it, below this seqno, is damage.
    Damaged(Seqno),
    /// Its seqnos: a power cut may have left it so.
    Incomplete((Seqno, Seqno)),
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

    fn finish(&mut self, media: &Media, settled: &Settled, ends: &Ends) {
        self.frames
            .sort_by_key(|frame| (frame.group, frame.base_seqno));
        self.loose.sort_by_key(|loose| loose.seqno);
        self.complete_from = self.find_complete();
        let newest = media.used_headers().map(|header| header.group).max();
        let frames_newest = self.frames.last().map(|frame| frame.group);
        self.last_group = newest.max(frames_newest).unwrap_or(0);
        // The last group of each epoch.
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for frame in &self.frames {
            if let Some(header) = media.header(frame.segment) {
                last.insert(header.epoch, frame.group);
            }
        }
        let mut dropped = Vec::new();
        for (epoch, group) in &last {
            let is_unsettled = Some(*epoch) == settled.unsettled;
            if is_unsettled || settled.others {
                match self.judge(media, settled, *epoch, *group) {
                    Verdict::Counts => {}
                    Verdict::Damaged(before) => self.missing_before = before,
                    // A crash may have left it so; or frames are damaged, or their segments
                    // were freed since.
                    Verdict::Incomplete(range) if !is_unsettled => self.weak.push(range),
                    Verdict::Incomplete(_) => dropped.push(*group),
                }
            }
        }
        self.drop_groups(&dropped);
        let epoch = settled.unsettled.filter(|epoch| last.contains_key(epoch));
        self.cut = epoch.map(|epoch| self.make_cut(media, epoch, ends));
    }

    /// What to make of the last group of an epoch.
    fn judge(&self, media: &Media, settled: &Settled, epoch: u64, group: u64) -> Verdict {
        let (mut count, mut wanted, mut whole) = (0, 0, true);
        let mut range = (Seqno::MAX, 0);
        for frame in self.frames.iter().filter(|frame| frame.group == group) {
            count += 1;
            wanted = usize::from(frame.frame_count);
            whole &= frame.is_whole;
            range = (range.0.min(frame.base_seqno), range.1.max(frame.last_seqno));
        }
        if count == wanted && whole {
            return Verdict::Counts;
        }
        // A later header, or an image with its records, proves that it was complete.
        let mut of_epoch = media.used_headers().filter(|header| header.epoch == epoch);
        if of_epoch.any(|header| header.group > group) || range.0 < settled.committed_below {
            return Verdict::Damaged(range.1.saturating_add(1));
        }
        Verdict::Incomplete(range)
    }

    /// Takes out groups that do not count, and the damage in them.
    fn drop_groups(&mut self, dropped: &[u64]) {
        let frames = &self.frames;
        let is_dropped = |segment: SegmentId, gap: &Gap| {
            frames.iter().any(|frame| {
                dropped.contains(&frame.group)
                    && frame.segment == segment
                    // In it, or a frame of the same group before it.
                    && (u64::from(frame.offset) == gap.to
                        || u64::from(frame.offset) <= gap.from
                            && gap.from < u64::from(frame.offset) + u64::from(frame.bytes))
            })
        };
        self.gaps
            .retain(|(segment, gap)| !is_dropped(*segment, gap));
        self.frames.retain(|frame| !dropped.contains(&frame.group));
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
