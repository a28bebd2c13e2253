//! Leaves made of leaves: parts of one, and two joined.

use super::leaf::{BODY_MAX, ENTRIES_MAX, Leaf, VALUE_BYTES, entry_at, head, in_common};
use std::ops::Range;

/// The most entries of a leaf that is joined of two: below [`ENTRIES_MAX`], so that the next
/// insert does not split it again.
const JOINED_MAX: usize = ENTRIES_MAX * 3 / 4;
/// The most bytes of keys after the first of a leaf that is joined of two.
const JOINED_BODY_MAX: usize = BODY_MAX * 3 / 4;

impl Leaf {
    /// A leaf of some of the entries.
    pub(super) fn extract(&self, range: Range<usize>) -> Self {
        assert!(!range.is_empty(), "a leaf has an entry");
        let keys = self.keys();
        let (key, first) = self.key_at(range.start);
        let mut end = first.end;
        for _ in range.start + 1..range.end {
            end = entry_at(keys, end).end;
        }
        let values = &self.values()[VALUE_BYTES * range.start..VALUE_BYTES * range.end];
        let head = head(0, key.len());
        let pieces = [head.bytes(), &key, &keys[first.end..end]];
        Self::build(range.len(), &pieces, &[values])
    }

    /// The entry at which to split the leaf in two, of about as many bytes: some entry on
    /// either side.
    pub(super) fn middle(&self) -> usize {
        let keys = self.keys();
        let first = entry_at(keys, 0).end;
        let half = (keys.len() - first + VALUE_BYTES * self.count()) / 2;
        let mut end = first;
        let mut index = 1;
        while index + 1 < self.count() && end - first + VALUE_BYTES * index < half {
            end = entry_at(keys, end).end;
            index += 1;
        }
        index
    }

    /// Takes a range of entries out and returns them; all of them leave an empty leaf.
    pub(super) fn cut(&mut self, range: Range<usize>) -> Self {
        let count = self.count();
        let cut = self.extract(range.clone());
        *self = match (range.start, range.end) {
            (0, end) if end == count => Self::build(0, &[], &[]),
            (0, end) => self.extract(end..count),
            (start, end) if end == count => self.extract(0..start),
            (start, end) => Self::join(&self.extract(0..start), &self.extract(end..count)),
        };
        cut
    }

    /// Whether two neighbours would be one good leaf. The second's first key will share with
    /// the first's last at least what it shares with the first's first.
    pub(super) fn may_join(left: &Self, right: &Self) -> bool {
        if left.count() + right.count() > JOINED_MAX {
            return false;
        }
        let (first, second) = (left.first_key(), right.first_key());
        let suffix = second.len() - in_common(first, second);
        left.body_bytes() + suffix + right.body_bytes() <= JOINED_BODY_MAX
    }

    /// One leaf of two neighbours.
    pub(super) fn join(left: &Self, right: &Self) -> Self {
        let first = right.first_key();
        let spot = left.search(first);
        assert_eq!(spot.index, left.count(), "leaves are in order");
        let suffix = &first[spot.shared..];
        let rest = &right.keys()[entry_at(right.keys(), 0).end..];
        Self::build(
            left.count() + right.count(),
            &[
                left.keys(),
                head(spot.shared, suffix.len()).bytes(),
                suffix,
                rest,
            ],
            &[left.values(), right.values()],
        )
    }
}
