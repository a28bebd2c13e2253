//! Where the acknowledged frames of a segment must end, told from what other frames say.
//!
//! Every frame says how far each head's open segment was durable one group earlier, so the
//! newest frame of an epoch shows which unsealed segments have lost their tail (the rule
//! of recovery's `check_ends`, here for every epoch that is left on media).

use std::collections::BTreeMap;

use crate::format::{Cut, Extent, HEAD_COUNT, SegmentHeader, Superblock};

use super::walk::End;

/// A segment whose last frame does not say that it is the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsealed {
    pub(super) header: SegmentHeader,
    pub(super) end: End,
}

#[derive(Default)]
struct Epoch {
    group: u64,
    extents: [Extent; HEAD_COUNT],
}

/// What is known of the ends of segments.
#[derive(Default)]
pub(super) struct Ends {
    epochs: BTreeMap<u64, Epoch>,
    /// The epoch that ended in order: it left no segment unsealed.
    pub(super) clean_epoch: Option<u64>,
    pub(super) unsealed: Vec<Unsealed>,
}

impl Ends {
    pub(super) fn new(superblock: Option<&Superblock>) -> Self {
        let clean = superblock.filter(|superblock| superblock.clean.is_some());
        Self {
            clean_epoch: clean.map(|superblock| superblock.epoch),
            ..Self::default()
        }
    }

    /// Notes a frame of an epoch.
    pub(super) fn saw(&mut self, epoch: u64, group: u64, extents: &[Extent; HEAD_COUNT]) {
        let newest = self.epochs.entry(epoch).or_default();
        if group >= newest.group {
            newest.group = group;
            newest.extents = *extents;
        }
    }

    /// The byte offset in an unsealed segment up to which there must be frames; at most
    /// the end found when nothing is missing.
    pub(super) fn expected(&self, unsealed: &Unsealed, cuts: &[Cut]) -> u64 {
        let header = &unsealed.header;
        if Some(header.epoch) == self.clean_epoch {
            return header.geometry.segment_bytes;
        }
        let cut = cuts.iter().find(|cut| cut.epoch == header.epoch);
        let (flushed_group, extents) = match (cut, self.epochs.get(&header.epoch)) {
            (Some(cut), _) => (cut.group, &cut.extents),
            (None, Some(newest)) => (newest.group.saturating_sub(1), &newest.extents),
            (None, None) => return 0,
        };
        let known = extents
            .iter()
            .find(|extent| extent.end > 0 && extent.segment == header.segment);
        match known {
            Some(extent) => u64::from(extent.end).min(header.geometry.segment_bytes),
            // Not open any more when a later group was written: it was sealed.
            None if header.group <= flushed_group => header.geometry.segment_bytes,
            None => 0,
        }
    }
}
