//! Where the acknowledged frames of a segment must end, told from what other frames and
//! headers say.
//!
//! Frames and headers say how far each head's open segment was durable one group earlier, so
//! the newest of an epoch shows which unsealed segments have lost their tail (the rule
//! of recovery's `check_ends`, here for every epoch that is left on media). A header says
//! that all groups before its own were flushed, and comes with the first frame of its
//! segment.
//!
//! Of an epoch that a later one follows and that has no cut, either the stop was in order,
//! and every segment was sealed; or it crashed, and the cut has gone since two generations
//! of images cover it. Which of the two matters only where images are lost: then the tail
//! of an unsealed segment may be missing.

use std::collections::BTreeMap;

use crate::format::{Cut, Extent, HEAD_COUNT, SegmentHeader, Seqno};

use super::media::Media;
use super::walk::End;

/// A segment whose last frame does not say that it is the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsealed {
    pub(super) header: SegmentHeader,
    pub(super) end: End,
}

/// Where there should be frames behind the end of a segment, or may have been.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    /// Byte offset in the segment up to which there are.
    pub(super) to: u64,
    /// Records in it have lower seqnos.
    pub(super) before: Seqno,
    /// Whether there were, for sure.
    pub(super) certain: bool,
}

#[derive(Default)]
struct Epoch {
    group: u64,
    extents: [Extent; HEAD_COUNT],
    /// Every group up to it was flushed, as headers say.
    flushed: u64,
}

/// What is known of the ends of segments.
#[derive(Default)]
pub(super) struct Ends {
    epochs: BTreeMap<u64, Epoch>,
    /// The epoch that ended in order: it left no segment unsealed.
    clean: Option<u64>,
    /// The epoch whose last group may be incomplete.
    unsettled: Option<u64>,
    /// Whether images may be missing, so that every frame there was matters.
    whole_log: bool,
    /// The lowest seqno that headers of an epoch say was next.
    opened: BTreeMap<u64, Seqno>,
    pub(super) unsealed: Vec<Unsealed>,
}

impl Ends {
    pub(super) fn new(media: &Media, unsettled: Option<u64>, whole_log: bool) -> Self {
        let clean = media
            .superblock
            .as_ref()
            .filter(|found| found.clean.is_some());
        let mut ends = Self {
            clean: clean.map(|superblock| superblock.epoch),
            unsettled,
            whole_log,
            ..Self::default()
        };
        for header in media.used_headers() {
            let epoch = ends.epochs.entry(header.epoch).or_default();
            epoch.flushed = epoch.flushed.max(header.group.saturating_sub(1));
            // A header that was told from its segment's content may say 1 for not known.
            if header.opened_seqno > 1 {
                let opened = ends.opened.entry(header.epoch).or_insert(Seqno::MAX);
                *opened = header.opened_seqno.min(*opened);
            }
            if let Some(extents) = &header.extents {
                ends.saw(header.epoch, header.group, extents);
            }
        }
        ends
    }

    /// Notes what a frame or header of an epoch says.
    pub(super) fn saw(&mut self, epoch: u64, group: u64, extents: &[Extent; HEAD_COUNT]) {
        let newest = self.epochs.entry(epoch).or_default();
        if group >= newest.group {
            newest.group = group;
            newest.extents = *extents;
        }
    }

    /// What should follow the end of an unsealed segment; `None` when nothing is missing.
    pub(super) fn tail(&self, unsealed: &Unsealed, cuts: &[Cut]) -> Option<Tail> {
        let header = &unsealed.header;
        let segment_bytes = header.geometry.segment_bytes;
        let certain = self.expected(unsealed, cuts);
        let has_cut = cuts.iter().any(|cut| cut.epoch == header.epoch);
        let is_open = has_cut || Some(header.epoch) == self.unsettled;
        let to = if self.whole_log && !is_open {
            segment_bytes
        } else {
            certain
        };
        let mut later = self.opened.range(header.epoch.saturating_add(1)..);
        (to > unsealed.end.offset).then(|| Tail {
            to,
            before: later.next().map_or(Seqno::MAX, |(_, seqno)| *seqno),
            certain: certain > unsealed.end.offset,
        })
    }

    /// The byte offset in an unsealed segment up to which there must be frames; at most
    /// the end found when nothing is missing.
    fn expected(&self, unsealed: &Unsealed, cuts: &[Cut]) -> u64 {
        let header = &unsealed.header;
        let segment_bytes = header.geometry.segment_bytes;
        if Some(header.epoch) == self.clean {
            return segment_bytes;
        }
        let cut = cuts.iter().find(|cut| cut.epoch == header.epoch);
        let (flushed, begun, extents) = match (cut, self.epochs.get(&header.epoch)) {
            (Some(cut), _) => (cut.group, cut.group, &cut.extents),
            (None, Some(newest)) => {
                let before = newest.group.saturating_sub(1);
                (before, newest.flushed.max(before), &newest.extents)
            }
            (None, None) => return 0,
        };
        let known = extents
            .iter()
            .find(|extent| extent.end > 0 && extent.segment == header.segment);
        let has_frames = unsealed.end.offset > header.geometry.header_bytes();
        match known {
            Some(extent) => u64::from(extent.end).min(segment_bytes),
            // Not open any more when a later group was written: it was sealed.
            None if header.group <= flushed => segment_bytes,
            // The first frame was written with the header, and that was flushed.
            None if header.group <= begun && !has_frames => segment_bytes,
            None => 0,
        }
    }
}
