//! A compact ordered map from byte strings to values of eight bytes, in memory.
//!
//! It is for omaps and for the names of a space: there are many maps, most of them empty or
//! tiny, a few with millions of keys that are much alike. With keys of 31 bytes that differ in
//! the last few it takes 14 bytes a key, whether they come in order or not, and up to 17 after
//! random removals. A map of one such key takes 104.
//!
//! - **Leaves** (`leaf.rs`) hold up to 64 entries, each key without what it has in common with
//!   the one before. `edit.rs` changes an entry in place, `reshape.rs` cuts and joins leaves.
//! - **Branches** (`branch.rs`) hold up to 128 leaves, the **top** (`top.rs`) the branches.
//!   Both look children up by eight bytes of their first keys (`guide.rs`).
//! - `root.rs` is the map as such: nothing, a leaf, or a top. `image.rs` is its form on media.
//!
//! Leaves and branches are shared: a snapshot copies the top's pointers alone, and a write
//! copies the branch's pointers and the leaf that it touches if a snapshot still has them.
//!
//! There are no locks: whoever holds the map holds the lock of what it is part of.

#![expect(dead_code, reason = "the object layer will use it")]

mod branch;
mod edit;
mod guide;
mod image;
mod leaf;
mod reshape;
mod root;
mod top;

#[cfg(all(test, not(loom)))]
mod tests;

use crate::format::{Invalid, KEY_BYTES_MAX};
use root::Root;
use std::marker::PhantomData;
use std::ops::Bound;

/// A place between keys: before a key, or after it.
#[derive(Debug, Clone, Copy)]
struct Edge<'a> {
    key: &'a [u8],
    after: bool,
}

impl<'a> Edge<'a> {
    /// Where a range with this lower bound begins. No key is before the empty one.
    fn first(bound: Bound<&'a [u8]>) -> Self {
        match bound {
            Bound::Included(key) => Self { key, after: false },
            Bound::Excluded(key) => Self { key, after: true },
            Bound::Unbounded => Self {
                key: &[],
                after: false,
            },
        }
    }

    /// Where a range with this upper bound ends, if it does before all keys do.
    fn last(bound: Bound<&'a [u8]>) -> Option<Self> {
        match bound {
            Bound::Included(key) => Some(Self { key, after: true }),
            Bound::Excluded(key) => Some(Self { key, after: false }),
            Bound::Unbounded => None,
        }
    }

    /// Whether a key is before it.
    fn is_after(self, key: &[u8]) -> bool {
        key < self.key || (self.after && key == self.key)
    }
}

/// An ordered map from keys of up to 64 KiB to values of eight bytes.
pub(crate) struct OrderedMap<V = u64> {
    root: Root,
    values: PhantomData<V>,
}

// What an object without an omap pays.
const _: () = assert!(size_of::<OrderedMap>() <= 24);

impl<V> Default for OrderedMap<V> {
    fn default() -> Self {
        Self::of(Root::Empty)
    }
}

impl<V> OrderedMap<V> {
    fn of(root: Root) -> Self {
        Self {
            root,
            values: PhantomData,
        }
    }

    /// A copy that later changes of either do not change in the other. It takes time for the
    /// pointers to the branches, of which there is one for 2000 keys and more.
    pub(crate) fn snapshot(&self) -> Self {
        Self::of(self.root.clone())
    }

    /// Takes everything out.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.root.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, the map itself and what the allocator adds included. What it shares
    /// with snapshots counts in each. It takes no time to speak of.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.root.memory()
    }

    /// Removes the entries of a range and returns them. It takes time for the leaves at the
    /// edges and for the pointers to what is in between, not for each entry.
    pub(crate) fn remove_range(&mut self, first: Bound<&[u8]>, last: Bound<&[u8]>) -> Self {
        let (first, last) = (Edge::first(first), Edge::last(last));
        Self::of(self.root.remove_range(first, last))
    }

    /// Writes the map as one chunk of bytes per leaf, in order. Each says how long it is.
    pub(crate) fn encode_leaves(&self, sink: &mut dyn FnMut(&[u8])) {
        for leaf in self.root.leaves_from(&[]) {
            sink(leaf.image());
        }
    }

    /// Adds the leaf that `bytes` begin with, whose keys must be after all others, and returns
    /// how long it is there.
    ///
    /// # Errors
    /// [`Invalid`] when it is not a sound leaf or out of order: the map is as before.
    pub(crate) fn decode_leaf(&mut self, bytes: &[u8]) -> Result<usize, Invalid> {
        let leaf = image::decode(bytes, self.root.last_leaf())?;
        let length = leaf.image().len();
        self.root.push(leaf);
        Ok(length)
    }
}

impl<V: Copy + From<u64> + Into<u64>> OrderedMap<V> {
    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<V> {
        self.root.get(key).map(V::from)
    }

    /// Sets the value of a key and returns the one before.
    ///
    /// # Panics
    /// If the key is longer than 64 KiB.
    pub(crate) fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        assert!(key.len() <= KEY_BYTES_MAX, "a key of at most 64 KiB");
        self.root.insert(key, value.into()).map(V::from)
    }

    /// Sets the value of a key if it has one and that is `old`: a relocation, which must not
    /// undo a change or a removal since.
    pub(crate) fn update(&mut self, key: &[u8], old: V, new: V) -> bool {
        self.root.update(key, old.into(), new.into())
    }

    /// Removes a key and returns its value.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<V> {
        self.root.remove(key).map(V::from)
    }

    /// The first entry whose key is `key` or greater.
    pub(crate) fn first_at_or_after(&self, key: &[u8]) -> Option<(Vec<u8>, V)> {
        self.next(Bound::Included(key))
    }

    /// The first entry whose key is greater than `key`.
    pub(crate) fn first_after(&self, key: &[u8]) -> Option<(Vec<u8>, V)> {
        self.next(Bound::Excluded(key))
    }

    fn next(&self, bound: Bound<&[u8]>) -> Option<(Vec<u8>, V)> {
        let mut found = None;
        self.visit((bound, Bound::Unbounded), &mut |key, value| {
            found = Some((key.to_vec(), value));
            false
        });
        found
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Option<(Vec<u8>, V)> {
        let leaf = self.root.last_leaf()?;
        let value = leaf.value(leaf.count() - 1);
        Some((leaf.last_key(), V::from(value)))
    }

    /// Appends up to `max` entries from a lower bound on to `out`.
    pub(crate) fn read_from(&self, bound: Bound<&[u8]>, max: usize, out: &mut Vec<(Vec<u8>, V)>) {
        let end = out.len().saturating_add(max);
        if max == 0 {
            return;
        }
        self.visit((bound, Bound::Unbounded), &mut |key, value| {
            out.push((key.to_vec(), value));
            out.len() < end
        });
    }

    /// Calls `f` for the entries of a range, in order, until it returns false.
    pub(crate) fn visit(
        &self,
        (first, last): (Bound<&[u8]>, Bound<&[u8]>),
        f: &mut dyn FnMut(&[u8], V) -> bool,
    ) {
        let last = Edge::last(last);
        self.root.each(Edge::first(first), &mut |key, word| {
            last.is_none_or(|last| last.is_after(key)) && f(key, V::from(word))
        });
    }
}
