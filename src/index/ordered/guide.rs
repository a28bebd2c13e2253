//! What tells a branch and the top which child a key belongs to, without a look at children.
//!
//! It is the prefix that the children's first keys have in common and, for each child, the
//! eight bytes of its first key that follow, as a number: these order as the keys do as far
//! as they differ. Only among children with the same eight bytes must first keys be compared.
//!
//! The prefix is what they had in common when it was computed. Children that came since have
//! it too, or it was computed anew.

use super::leaf::{allocated, in_common};
use std::ops::Range;

/// A guide.
#[derive(Clone)]
pub(super) struct Guide {
    prefix: Box<[u8]>,
    fragments: Vec<u64>,
}

/// So many fragments, a kilobyte, are all looked at: processors fetch them at once where they
/// would fetch what a binary search looks at one after the other.
const COUNTED_MAX: usize = 128;

/// The first eight bytes, with zeros for what is missing.
fn fragment(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_be_bytes(*eight);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

impl Guide {
    /// A guide to `count` children with these first keys.
    pub(super) fn new<'a>(count: usize, first_key: impl Fn(usize) -> &'a [u8]) -> Self {
        assert!(count > 0, "a guide guides somewhere");
        let (first, last) = (first_key(0), first_key(count - 1));
        let prefix = &first[..in_common(first, last)];
        let fragments = (0..count).map(|child| fragment(&first_key(child)[prefix.len()..]));
        Self {
            prefix: prefix.into(),
            fragments: fragments.collect(),
        }
    }

    /// The child that a key belongs to: the last whose first key is not greater, or the first.
    pub(super) fn find<'a>(&self, key: &[u8], first_key: impl Fn(usize) -> &'a [u8]) -> usize {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            let after = *key > *self.prefix;
            return if after { self.fragments.len() - 1 } else { 0 };
        };
        let wanted = fragment(rest);
        let mut low = self.less_than(wanted);
        if self.fragments.get(low) == Some(&wanted) {
            let same = self.fragments[low..].partition_point(|&other| other == wanted);
            let mut high = low + same;
            while low < high {
                let middle = low.midpoint(high);
                if first_key(middle) <= key {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
        }
        low.saturating_sub(1)
    }

    /// How many fragments are less.
    fn less_than(&self, wanted: u64) -> usize {
        let (mut low, mut high) = (0, self.fragments.len());
        while high - low > COUNTED_MAX {
            let middle = low.midpoint(high);
            if self.fragments[middle] < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let near = &self.fragments[low..high];
        low + near.iter().filter(|other| **other < wanted).count()
    }

    /// A child was inserted. `count` and `first_key` are of the children as they are now.
    pub(super) fn insert<'a>(
        &mut self,
        child: usize,
        count: usize,
        first_key: impl Fn(usize) -> &'a [u8],
    ) {
        match first_key(child).strip_prefix(&*self.prefix) {
            Some(rest) => self.fragments.insert(child, fragment(rest)),
            None => *self = Self::new(count, first_key),
        }
    }

    /// The first key of a child may have changed.
    pub(super) fn refresh<'a>(
        &mut self,
        child: usize,
        count: usize,
        first_key: impl Fn(usize) -> &'a [u8],
    ) {
        match first_key(child).strip_prefix(&*self.prefix) {
            Some(rest) => self.fragments[child] = fragment(rest),
            None => *self = Self::new(count, first_key),
        }
    }

    /// Children were removed.
    pub(super) fn remove(&mut self, children: Range<usize>) {
        self.fragments.drain(children);
    }

    /// Gives memory back when there are much fewer children than there were.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.fragments);
    }

    /// Bytes of memory beside the guide itself, the allocator's included.
    pub(super) fn memory(&self) -> usize {
        allocated(self.prefix.len()) + allocated(self.fragments.capacity() * size_of::<u64>())
    }
}

/// Halves a vector's memory when it uses less than a quarter.
pub(super) fn shrink<T>(vector: &mut Vec<T>) {
    if vector.capacity() > 8 && vector.len() * 4 < vector.capacity() {
        vector.shrink_to(vector.capacity() / 2);
    }
}
