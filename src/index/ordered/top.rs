//! The top of a map of more than one leaf: its branches, each shared with copies of the map.

use super::Edge;
use super::branch::{Branch, LEAVES_MAX, Position};
use super::guide::{Guide, shrink};
use super::leaf::{Leaf, allocated};
use crate::sync::SharedArc;

/// The top. It has a branch, except for a moment after its last was removed.
#[derive(Clone)]
pub(super) struct Top {
    guide: Guide,
    branches: Vec<SharedArc<Branch>>,
    /// Entries of all branches.
    len: usize,
    /// Bytes of memory of all branches.
    branch_bytes: usize,
}

impl Top {
    /// A top of branches that are in order.
    pub(super) fn new(branches: Vec<SharedArc<Branch>>) -> Self {
        Self {
            guide: Guide::new(branches.len(), |branch| branches[branch].first_key()),
            len: branches.iter().map(|branch| branch.len()).sum(),
            branch_bytes: branches.iter().map(|branch| branch.memory()).sum(),
            branches,
        }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory, the allocator's and the box of the top included.
    pub(super) fn memory(&self) -> usize {
        let pointers = allocated(self.branches.capacity() * size_of::<SharedArc<Branch>>());
        allocated(size_of::<Self>()) + pointers + self.guide.memory() + self.branch_bytes
    }

    /// Its branches.
    pub(super) fn branches(&self) -> &[SharedArc<Branch>] {
        &self.branches
    }

    /// The only leaf, if there is no other.
    pub(super) fn only_leaf(&self) -> Option<&Leaf> {
        match &self.branches[..] {
            [branch] if branch.leaves().len() == 1 => branch.leaves().first(),
            _ => None,
        }
    }

    /// The last leaf.
    pub(super) fn last_leaf(&self) -> Option<&Leaf> {
        self.branches.last()?.leaves().last()
    }

    /// The branch that a key belongs to.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.guide
            .find(key, |branch| self.branches[branch].first_key())
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<u64> {
        self.branches[self.find(key)].get(key)
    }

    /// Sets the value of a key if it is `old`.
    pub(super) fn update(&mut self, key: &[u8], old: u64, new: u64) -> bool {
        let at = self.find(key);
        // What is shared is not copied for nothing.
        if is_shared(&self.branches[at]) && self.branches[at].get(key) != Some(old) {
            return false;
        }
        self.edit(at, |branch| branch.update(key, old, new))
    }

    /// Sets the value of a key and returns the one before.
    pub(super) fn insert(&mut self, key: &[u8], word: u64) -> Option<u64> {
        let at = self.find(key);
        let (old, right) = self.edit(at, |branch| branch.insert(key, word));
        if at == 0 {
            // A key before all others goes to the first branch, and to no other.
            self.refresh(0);
        }
        if let Some(right) = right {
            self.insert_branch(at + 1, right);
        }
        old
    }

    /// Adds a leaf after all others.
    pub(super) fn push(&mut self, leaf: Leaf) {
        let last = self.branches.len() - 1;
        let right = self.edit(last, |branch| {
            branch.insert_leaf(branch.leaves().len(), leaf)
        });
        if let Some(right) = right {
            self.insert_branch(last + 1, right);
        }
    }

    /// Removes a key and returns its value.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<u64> {
        let at = self.find(key);
        if is_shared(&self.branches[at]) {
            self.branches[at].get(key)?;
        }
        let (word, changed) = self.edit(at, |branch| branch.remove(key))?;
        if changed {
            self.settle(at);
        }
        Some(word)
    }

    /// The position of the first entry after an edge.
    pub(super) fn position(&self, edge: Edge<'_>) -> (usize, Position) {
        let at = self.find(edge.key);
        let branch = &self.branches[at];
        let leaf = branch.find(edge.key);
        (at, (leaf, branch.leaves()[leaf].before(edge)))
    }

    /// The position after all entries.
    pub(super) fn end(&self) -> (usize, Position) {
        let last = self.branches.len() - 1;
        (last, (self.branches[last].leaves().len(), 0))
    }

    /// Removes the entries between two positions, and returns them as branches.
    pub(super) fn remove_between(
        &mut self,
        (first, from): (usize, Position),
        (last, to): (usize, Position),
    ) -> Vec<SharedArc<Branch>> {
        if first == last {
            let leaves = self.edit(first, |branch| branch.remove_between(from, to));
            self.settle(first);
            return branch_of(leaves).into_iter().collect();
        }
        let head = self.edit(first, |branch| {
            branch.remove_between(from, (branch.leaves().len(), 0))
        });
        // Nothing to remove from the last is no reason to copy it.
        let tail = if to == (0, 0) {
            Vec::new()
        } else {
            self.edit(last, |branch| branch.remove_between((0, 0), to))
        };
        let mut removed: Vec<_> = branch_of(head).into_iter().collect();
        self.guide.remove(first + 1..last);
        let whole = self.branches.drain(first + 1..last);
        for branch in whole {
            self.len -= branch.len();
            self.branch_bytes -= branch.memory();
            removed.push(branch);
        }
        removed.extend(branch_of(tail));
        // The later first, which keeps the place of the other. An empty branch must not be
        // looked at, so the earlier goes before the later's first key is.
        if self.branches[first].leaves().is_empty() {
            self.settle(first);
            self.settle(first);
        } else {
            self.settle(first + 1);
            self.settle(first);
        }
        removed
    }

    /// Joins small branches at either end, which a removal of a range leaves in what it
    /// returns.
    pub(super) fn settle_ends(&mut self) {
        self.settle(self.branches.len() - 1);
        self.settle(0);
    }

    /// Changes a branch, copied first if it is shared, and keeps count.
    fn edit<T>(&mut self, at: usize, change: impl FnOnce(&mut Branch) -> T) -> T {
        let (len, bytes) = (self.branches[at].len(), self.branches[at].memory());
        let branch = SharedArc::make_mut(&mut self.branches[at]);
        let result = change(branch);
        self.len = self.len - len + branch.len();
        self.branch_bytes = self.branch_bytes - bytes + branch.memory();
        result
    }

    fn insert_branch(&mut self, at: usize, branch: Branch) {
        self.len += branch.len();
        self.branch_bytes += branch.memory();
        self.branches.insert(at, SharedArc::new(branch));
        let branches = &self.branches;
        self.guide
            .insert(at, branches.len(), |branch| branches[branch].first_key());
    }

    /// Puts right what removals from a branch may have left: no leaf, another first key, or
    /// two neighbours with few leaves.
    fn settle(&mut self, at: usize) {
        let leaves = self.branches[at].leaves().len();
        if leaves == 0 {
            self.remove_branch(at);
            return;
        }
        self.refresh(at);
        if leaves <= LEAVES_MAX / 2 && !self.join(at) && at > 0 {
            self.join(at - 1);
        }
    }

    /// Joins a branch and the next if they are small.
    fn join(&mut self, at: usize) -> bool {
        let [left, right] = self.branches.get(at..at + 2).unwrap_or_default() else {
            return false;
        };
        if !Branch::may_join(left, right) {
            return false;
        }
        let right = self.remove_branch(at + 1);
        self.edit(at, |left| left.join(SharedArc::unwrap_or_clone(right)));
        true
    }

    fn remove_branch(&mut self, at: usize) -> SharedArc<Branch> {
        let branch = self.branches.remove(at);
        self.len -= branch.len();
        self.branch_bytes -= branch.memory();
        self.guide.remove(at..at + 1);
        shrink(&mut self.branches);
        self.guide.shrink();
        branch
    }

    fn refresh(&mut self, at: usize) {
        let branches = &self.branches;
        self.guide
            .refresh(at, branches.len(), |branch| branches[branch].first_key());
    }
}

/// Whether a copy of the map has the branch too.
fn is_shared(branch: &SharedArc<Branch>) -> bool {
    SharedArc::strong_count(branch) > 1
}

/// A branch of leaves, if there are any.
fn branch_of(leaves: Vec<Leaf>) -> Option<SharedArc<Branch>> {
    (!leaves.is_empty()).then(|| SharedArc::new(Branch::new(leaves)))
}
