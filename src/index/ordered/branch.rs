//! A branch: up to [`LEAVES_MAX`] neighbouring leaves, shared as one by copies of the map.

use super::edit::Inserted;
use super::guide::{Guide, shrink};
use super::leaf::{ENTRIES_MAX, Leaf, allocated};

/// The most leaves of a branch. A write to a branch that is shared copies so many pointers,
/// some 5 us; and a branch covers up to 8192 keys, so that the top has few.
pub(super) const LEAVES_MAX: usize = 128;
/// The most leaves of a branch that is joined of two.
const JOINED_MAX: usize = LEAVES_MAX * 3 / 4;

/// A branch. It has a leaf, except for a moment after its last was removed.
#[derive(Clone)]
pub(super) struct Branch {
    guide: Guide,
    leaves: Vec<Leaf>,
    /// Entries of all leaves.
    len: usize,
    /// Bytes of memory of all leaves.
    leaf_bytes: usize,
}

/// Where an entry is in a branch: the leaf and the entry in it. The end is the leaf after the
/// last, or the entry after the last of a leaf.
pub(super) type Position = (usize, usize);

impl Branch {
    /// A branch of leaves that are in order.
    pub(super) fn new(leaves: Vec<Leaf>) -> Self {
        Self {
            guide: Guide::new(leaves.len(), |leaf| leaves[leaf].first_key()),
            len: leaves.iter().map(Leaf::count).sum(),
            leaf_bytes: leaves.iter().map(Leaf::memory).sum(),
            leaves,
        }
    }

    /// Its leaves.
    pub(super) fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// Gives up its leaves.
    pub(super) fn into_leaves(self) -> Vec<Leaf> {
        self.leaves
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory, the allocator's and the counts of its `Arc` included.
    pub(super) fn memory(&self) -> usize {
        let pointers = allocated(self.leaves.capacity() * size_of::<Leaf>());
        let own = allocated(size_of::<Self>() + 2 * size_of::<usize>());
        own + pointers + self.guide.memory() + self.leaf_bytes
    }

    /// The first key.
    pub(super) fn first_key(&self) -> &[u8] {
        self.leaves[0].first_key()
    }

    /// The leaf that a key belongs to.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.guide.find(key, |leaf| self.leaves[leaf].first_key())
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<u64> {
        self.leaves[self.find(key)].get(key)
    }

    /// Sets the value of a key if it is `old`.
    pub(super) fn update(&mut self, key: &[u8], old: u64, new: u64) -> bool {
        let leaf = self.find(key);
        self.edit(leaf, |leaf| leaf.update(key, old, new))
    }

    /// Sets the value of a key and returns the one before. When this makes too many leaves,
    /// some go to another branch that follows this.
    pub(super) fn insert(&mut self, key: &[u8], word: u64) -> (Option<u64>, Option<Self>) {
        let at = self.find(key);
        let inserted = self.edit(at, |leaf| leaf.insert(key, word));
        if at == 0 {
            // A key before all others goes to the first leaf, and to no other.
            self.refresh(0);
        }
        match inserted {
            Inserted::Replaced(old) => (Some(old), None),
            Inserted::Added => (None, None),
            Inserted::Split(right) => (None, self.insert_leaf(at + 1, right)),
        }
    }

    /// Inserts a leaf; with too many, returns a branch of the last.
    pub(super) fn insert_leaf(&mut self, at: usize, leaf: Leaf) -> Option<Self> {
        self.len += leaf.count();
        self.leaf_bytes += leaf.memory();
        self.leaves.insert(at, leaf);
        let leaves = &self.leaves;
        self.guide
            .insert(at, leaves.len(), |leaf| leaves[leaf].first_key());
        if leaves.len() <= LEAVES_MAX {
            return None;
        }
        // Keys that come in order leave full branches behind.
        let middle = if at == LEAVES_MAX {
            LEAVES_MAX
        } else {
            LEAVES_MAX / 2
        };
        let right = Self::new(self.leaves.split_off(middle));
        self.guide.remove(middle..LEAVES_MAX + 1);
        self.len -= right.len;
        self.leaf_bytes -= right.leaf_bytes;
        Some(right)
    }

    /// Removes a key and returns its value, with whether the leaves changed in number or the
    /// first key did.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<(u64, bool)> {
        let at = self.find(key);
        let (word, index) = self.edit(at, |leaf| leaf.remove(key))?;
        let before = self.leaves.len();
        self.settle(at, index == 0);
        let changed = self.leaves.len() < before || (at == 0 && index == 0);
        Some((word, changed))
    }

    /// Removes the entries between two positions and returns them as leaves.
    pub(super) fn remove_between(&mut self, from: Position, to: Position) -> Vec<Leaf> {
        let (mut begin, first) = from;
        let (mut end, last) = to;
        if begin == end {
            let cut = self.edit(begin, |leaf| leaf.cut(first..last));
            self.settle(begin, true);
            return vec![cut];
        }
        let mut removed = Vec::with_capacity(end - begin + 1);
        if first > 0 {
            let count = self.leaves[begin].count();
            if first < count {
                removed.push(self.edit(begin, |leaf| leaf.cut(first..count)));
            }
            begin += 1;
        }
        let head = (last > 0).then(|| self.edit(end, |leaf| leaf.cut(0..last)));
        let rest_changed = head.is_some();
        if rest_changed && self.leaves[end].count() == 0 {
            end += 1;
        }
        for leaf in &self.leaves[begin..end] {
            self.len -= leaf.count();
            self.leaf_bytes -= leaf.memory();
        }
        self.guide.remove(begin..end);
        let whole = self.leaves.drain(begin..end);
        removed.extend(whole.filter(|leaf| leaf.count() > 0));
        removed.extend(head);
        if begin < self.leaves.len() {
            self.settle(begin, rest_changed);
        }
        if begin > 0 {
            self.settle(begin - 1, false);
        }
        self.shrink();
        removed
    }

    /// Whether two neighbours would be one good branch.
    pub(super) fn may_join(left: &Self, right: &Self) -> bool {
        left.leaves.len() + right.leaves.len() <= JOINED_MAX
    }

    /// Takes over the leaves of the branch that follows.
    pub(super) fn join(&mut self, right: Self) {
        let mut leaves = std::mem::take(&mut self.leaves);
        leaves.extend(right.leaves);
        *self = Self::new(leaves);
    }

    /// Changes a leaf and keeps count.
    fn edit<T>(&mut self, at: usize, change: impl FnOnce(&mut Leaf) -> T) -> T {
        let leaf = &mut self.leaves[at];
        let (count, bytes) = (leaf.count(), leaf.memory());
        let result = change(leaf);
        self.len = self.len - count + leaf.count();
        self.leaf_bytes = self.leaf_bytes - bytes + leaf.memory();
        result
    }

    /// Puts right what a removal from a leaf may have left: an empty leaf, another first key,
    /// or two neighbours with few entries.
    fn settle(&mut self, at: usize, first_changed: bool) {
        let count = self.leaves[at].count();
        if count == 0 {
            self.forget(at);
            self.remove_leaf(at);
            return;
        }
        if first_changed {
            self.refresh(at);
        }
        // Only then is a look at the neighbours worth its cache misses.
        if count <= ENTRIES_MAX / 2 && !self.join_leaves(at) && at > 0 {
            self.join_leaves(at - 1);
        }
    }

    /// Joins a leaf and the next if they are small.
    fn join_leaves(&mut self, at: usize) -> bool {
        let [left, right] = self.leaves.get(at..at + 2).unwrap_or_default() else {
            return false;
        };
        if !Leaf::may_join(left, right) {
            return false;
        }
        let joined = Leaf::join(left, right);
        // The edit counts the second leaf's entries in the first.
        self.forget(at + 1);
        self.edit(at, |leaf| *leaf = joined);
        self.remove_leaf(at + 1);
        true
    }

    /// Takes a leaf that is about to go out of the counts.
    fn forget(&mut self, at: usize) {
        self.len -= self.leaves[at].count();
        self.leaf_bytes -= self.leaves[at].memory();
    }

    /// Removes a leaf that is out of the counts.
    fn remove_leaf(&mut self, at: usize) {
        self.leaves.remove(at);
        self.guide.remove(at..at + 1);
        self.shrink();
    }

    fn shrink(&mut self) {
        shrink(&mut self.leaves);
        self.guide.shrink();
    }

    fn refresh(&mut self, at: usize) {
        let leaves = &self.leaves;
        self.guide
            .refresh(at, leaves.len(), |leaf| leaves[leaf].first_key());
    }
}
