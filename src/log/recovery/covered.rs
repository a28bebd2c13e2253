//! What the images cover, and what is taken for granted of segments that are not scanned.

use crate::format::{Class, ImageRef, PartitionImages, SegmentHeader, SegmentId};

use super::super::State;
use super::{Found, Replay, header_of};

impl Replay<'_> {
    /// Headers of the segments whose frames the images do not cover, by opening group.
    pub(super) fn segments_to_scan(&self) -> Vec<SegmentHeader> {
        let covered = if self.used_older {
            &self.root.covered_by_older
        } else {
            &self.root.covered_by_newest
        };
        let mut to_scan: Vec<SegmentHeader> = self
            .headers
            .iter()
            .filter_map(|found| match found {
                Found::Header(header) if matches!(header.class, Class::Data(_)) => Some(*header),
                _ => None,
            })
            .filter(|header| !self.is_covered(covered, header.segment))
            .collect();
        to_scan.sort_by_key(|header| header.group);
        to_scan
    }

    /// Partitions unknown to the root: their owner is new to the store, so there was nothing
    /// in them. They get images of no pieces, as good as those of the others.
    pub(super) fn add_partitions(&mut self, count: u32) {
        if self.root.partitions.is_empty() {
            return;
        }
        let empty = |horizon| ImageRef {
            sequence: 0,
            horizon,
            bytes: 0,
            pieces: Vec::new(),
        };
        let images = PartitionImages {
            newest: Some(empty(self.root.newest_horizon)),
            older: Some(empty(self.root.older_horizon)),
        };
        self.root.partitions.resize(count as usize, images);
    }

    /// Notes of segments that were not scanned what replay may need of them.
    pub(super) fn note_covered(&self, has_operations: bool) {
        let older_horizon = self.root.older_horizon;
        let last = self.horizon.saturating_sub(1);
        for (id, segment) in self.log.table.iter() {
            if segment.state() != State::Sealed || segment.last_seqno() > 0 {
                continue;
            }
            if self.is_covered(&self.root.covered_by_older, id) {
                segment.set_last_seqno(older_horizon.saturating_sub(1).min(last));
                continue;
            }
            segment.set_last_seqno(last);
            // It may have tombstones and operations that the older images need.
            if last >= older_horizon {
                segment.add_tombstone(last, 1);
                if has_operations {
                    segment.add_pinned(last);
                }
            }
        }
    }

    /// Whether a bitmap of the root has the segment as it is now.
    fn is_covered(&self, bitmap: &[u64], segment: SegmentId) -> bool {
        let word = bitmap.get(segment as usize / 64).copied().unwrap_or(0);
        let header = self.headers.get(segment as usize).and_then(header_of);
        word >> (segment % 64) & 1 == 1
            && header.is_some_and(|header| header.opened_seqno < self.root.next_seqno)
    }
}
