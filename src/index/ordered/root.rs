//! A map of keys to words, whatever these mean: nothing, one leaf, or a top.

use super::Edge;
use super::branch::Branch;
use super::edit::Inserted;
use super::leaf::Leaf;
use super::top::Top;
use crate::sync::SharedArc;

/// What a map consists of. Most maps of objects are empty or one leaf.
#[derive(Clone, Default)]
pub(super) enum Root {
    /// No entry.
    #[default]
    Empty,
    /// Entries that fit in a leaf.
    One(Leaf),
    /// More, boxed so that an empty map is small.
    Many(Box<Top>),
}

impl Root {
    /// A map of branches that are in order.
    fn of(branches: Vec<SharedArc<Branch>>) -> Self {
        if branches.is_empty() {
            return Self::Empty;
        }
        let mut top = Top::new(branches);
        top.settle_ends();
        let mut root = Self::Many(Box::new(top));
        root.settle();
        root
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(leaf) => leaf.count(),
            Self::Many(top) => top.len(),
        }
    }

    /// Bytes of memory beside the root itself.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(leaf) => leaf.memory(),
            Self::Many(top) => top.memory(),
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<u64> {
        match self {
            Self::Empty => None,
            Self::One(leaf) => leaf.get(key),
            Self::Many(top) => top.get(key),
        }
    }

    /// Sets the value of a key and returns the one before.
    pub(super) fn insert(&mut self, key: &[u8], word: u64) -> Option<u64> {
        match self {
            Self::Empty => {
                *self = Self::One(Leaf::single(key, word));
                None
            }
            Self::One(leaf) => match leaf.insert(key, word) {
                Inserted::Replaced(old) => Some(old),
                Inserted::Added => None,
                Inserted::Split(right) => {
                    let branch = Branch::new(vec![leaf.clone(), right]);
                    *self = Self::Many(Box::new(Top::new(vec![SharedArc::new(branch)])));
                    None
                }
            },
            Self::Many(top) => top.insert(key, word),
        }
    }

    /// Sets the value of a key if it is `old`.
    pub(super) fn update(&mut self, key: &[u8], old: u64, new: u64) -> bool {
        match self {
            Self::Empty => false,
            Self::One(leaf) => leaf.update(key, old, new),
            Self::Many(top) => top.update(key, old, new),
        }
    }

    /// Removes a key and returns its value.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<u64> {
        let word = match self {
            Self::Empty => None,
            Self::One(leaf) => leaf.remove(key).map(|(word, _)| word),
            Self::Many(top) => top.remove(key),
        }?;
        self.settle();
        Some(word)
    }

    /// Removes what is after `first` and before `last` (or the end), and returns it.
    pub(super) fn remove_range(&mut self, first: Edge<'_>, last: Option<Edge<'_>>) -> Self {
        let removed = match self {
            Self::Empty => Self::Empty,
            Self::One(leaf) => {
                let from = leaf.before(first);
                let to = last.map_or(leaf.count(), |last| leaf.before(last));
                if from >= to {
                    return Self::Empty;
                }
                Self::One(leaf.cut(from..to))
            }
            Self::Many(top) => {
                let from = top.position(first);
                let to = last.map_or_else(|| top.end(), |last| top.position(last));
                if from >= to {
                    return Self::Empty;
                }
                Self::of(top.remove_between(from, to))
            }
        };
        self.settle();
        removed
    }

    /// Adds a leaf whose keys are after all others.
    pub(super) fn push(&mut self, leaf: Leaf) {
        match self {
            Self::Empty => *self = Self::One(leaf),
            Self::One(first) => {
                let branch = Branch::new(vec![first.clone(), leaf]);
                *self = Self::Many(Box::new(Top::new(vec![SharedArc::new(branch)])));
            }
            Self::Many(top) => top.push(leaf),
        }
    }

    /// The last leaf.
    pub(super) fn last_leaf(&self) -> Option<&Leaf> {
        match self {
            Self::Empty => None,
            Self::One(leaf) => Some(leaf),
            Self::Many(top) => top.last_leaf(),
        }
    }

    /// The leaves from the one on that a key belongs to.
    pub(super) fn leaves_from<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = &'a Leaf> {
        let (leaves, branches): (&[Leaf], &[SharedArc<Branch>]) = match self {
            Self::Empty => (&[], &[]),
            Self::One(leaf) => (std::slice::from_ref(leaf), &[]),
            Self::Many(top) => {
                let at = top.find(key);
                let branch = &top.branches()[at];
                let leaves = &branch.leaves()[branch.find(key)..];
                (leaves, &top.branches()[at + 1..])
            }
        };
        let rest = branches.iter().flat_map(|branch| branch.leaves());
        leaves.iter().chain(rest)
    }

    /// Calls `f` for the entries after an edge until it returns false.
    pub(super) fn each(&self, first: Edge<'_>, f: &mut dyn FnMut(&[u8], u64) -> bool) {
        let mut key = Vec::new();
        for (number, leaf) in self.leaves_from(first.key).enumerate() {
            let from = if number == 0 { leaf.before(first) } else { 0 };
            if !leaf.each(from, &mut key, f) {
                return;
            }
        }
    }

    /// Becomes the least form after removals.
    fn settle(&mut self) {
        let least = match self {
            Self::Empty => return,
            Self::One(leaf) if leaf.count() == 0 => Self::Empty,
            Self::One(_) => return,
            Self::Many(top) if top.branches().is_empty() => Self::Empty,
            Self::Many(top) => match top.only_leaf() {
                Some(leaf) => Self::One(leaf.clone()),
                None => return,
            },
        };
        *self = least;
    }
}
