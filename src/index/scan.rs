//! Scanning the index in the order of hashes while it changes.
//!
//! A step returns the entries of the home bucket at a position and the position after it.
//! Splits only cut home buckets' ranges in two, so a position that began a bucket always
//! begins one, and an entry never changes sides: one that is there throughout is returned
//! exactly once. One that comes, goes or is replaced meanwhile may be seen or not.

use super::Index;
use super::entry::Entry;
use super::position::{ScanPosition, bucket_span, unit_span};
use crate::sync::epoch;

impl Index {
    /// Appends to `out` the entries whose home is the bucket at `position`, and returns the
    /// position after it; `None` at the end. Lock-free.
    pub(crate) fn scan_bucket(
        &self,
        position: ScanPosition,
        out: &mut Vec<Entry>,
    ) -> Option<ScanPosition> {
        let offset = position.offset();
        let guard = epoch::pin();
        let directory = self.shards[position.shard()].directory.load();
        let span = match directory.unit(offset, &guard) {
            None => unit_span(directory.depth()),
            Some(unit) => {
                unit.collect(position.bucket(unit.depth()), out);
                bucket_span(unit.depth())
            }
        };
        position.at_offset(offset - offset % span + span)
    }
}
