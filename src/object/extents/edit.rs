//! Changes of one map: a new extent over what was there, or nothing in its place.
//!
//! A change rewrites the leaves it touches into new ones. A leaf that only this map has
//! lets go of what the change covers; one that is shared stays with the others, and what
//! this map keeps of it is then referred to once more.

use std::ops::Range;

use super::draft::Draft;
use super::leaf::{Head, LEAF_BLOCKS_MAX, LEAF_EXTENTS_MAX, Leaf};
use super::{BLOCKS_MAX, Dead, Extent, ExtentMap, Leaves, References, Slot, Unit};

/// Leaves that are together no larger than this become one: well below the limits, so that
/// the next write does not split it again.
const JOINED_EXTENTS_MAX: usize = LEAF_EXTENTS_MAX * 3 / 4;
const JOINED_BLOCKS_MAX: usize = LEAF_BLOCKS_MAX * 3 / 4;

impl ExtentMap {
    /// Maps the blocks of `extent`, newly stored, in place of what they were.
    ///
    /// # Panics
    /// If a field of the extent is out of its range.
    pub(crate) fn replace(
        &mut self,
        extent: Extent<'_>,
        references: &mut References,
        dead: &mut Dead<'_>,
    ) {
        extent.assert_valid(references.unit());
        if !self.overwrite(extent, references, dead) {
            let touched = self.touched_by(extent);
            self.edit(
                touched,
                (extent.first, extent.end()),
                Some(extent),
                references,
                dead,
            );
        }
    }

    /// Maps the blocks `first..end` to nothing; an `end` of [`BLOCKS_MAX`] truncates.
    pub(crate) fn unmap(
        &mut self,
        first: u32,
        end: u64,
        references: &mut References,
        dead: &mut Dead<'_>,
    ) {
        let mut touched = self.leaves_in(first, end);
        // A leaf may have a hole where the window is: it stays as it is, and shared.
        let is_hit = |index: usize| {
            let leaf = self.leaf(index);
            let extent = leaf.search(first);
            extent < leaf.extents() && leaf.clipped(extent, u64::from(first), end).is_some()
        };
        if touched.len() == 1 && !is_hit(touched.start) {
            touched = 0..0;
        }
        if !touched.is_empty() {
            self.edit(touched, (first, end), None, references, dead);
        }
    }

    /// Takes a member out of its family: what only its leaves referred to dies.
    pub(crate) fn release(self, references: &mut References, dead: &mut Dead<'_>) {
        for leaf in self.each_leaf().filter(|leaf| !leaf.is_shared()) {
            for (head, _) in leaf.iter() {
                references.piece_dropped(&head, dead);
            }
        }
    }

    /// The leaves a new extent goes into: those it overlaps, else one beside it with room.
    fn touched_by(&self, extent: Extent<'_>) -> Range<usize> {
        let overlapped = self.leaves_in(extent.first, extent.end());
        if !overlapped.is_empty() || self.is_empty() {
            return overlapped;
        }
        let after = overlapped.start;
        let has_room = |index: &usize| {
            let leaf = self.leaf(*index);
            leaf.extents() < LEAF_EXTENTS_MAX
                && leaf.blocks() + extent.checksums.len() <= LEAF_BLOCKS_MAX
        };
        // The one before is next in a sequential write, and can merge.
        let before = after.checked_sub(1);
        match before.filter(has_room) {
            Some(index) => index..index + 1,
            None if after < self.leaf_count() && has_room(&after) => after..after + 1,
            None => after..after,
        }
    }

    /// Replaces one whole extent by another in place, which random overwrites mostly are;
    /// false when a leaf is shared or has to change its shape.
    fn overwrite(
        &mut self,
        extent: Extent<'_>,
        references: &mut References,
        dead: &mut Dead<'_>,
    ) -> bool {
        let index = self.leaf_at(extent.first);
        let leaf = match &mut self.leaves {
            Leaves::Many(None) => return false,
            Leaves::One(leaf) => leaf,
            Leaves::Many(Some(slots)) => &mut slots[index].leaf,
        };
        let at = leaf.search(extent.first);
        if leaf.is_shared() || at == leaf.extents() {
            return false;
        }
        let (old, _) = leaf.head(at);
        let new = head_of(extent);
        if (old.first, old.count) != (new.first, new.count) {
            return false;
        }
        let unit = references.unit();
        let merges_back = at > 0 && leaf.head(at - 1).0.continues_with(&new, unit);
        let merges_on = at + 1 < leaf.extents() && new.continues_with(&leaf.head(at + 1).0, unit);
        if merges_back || merges_on {
            return false;
        }
        references.piece_dropped(&old, dead);
        leaf.overwrite(at, &new, extent.checksums)
    }

    /// Rewrites the `touched` leaves without the blocks of `window`, and with `extent`.
    fn edit(
        &mut self,
        touched: Range<usize>,
        window: (u32, u64),
        extent: Option<Extent<'_>>,
        references: &mut References,
        dead: &mut Dead<'_>,
    ) {
        let unit = references.unit();
        let mut change = Change {
            first: u64::from(window.0),
            end: window.1,
            pending: extent,
            draft: Draft::new(unit),
        };
        let leaves = if touched.len() == 1 {
            change.patch(self.leaf(touched.start), references, dead)
        } else {
            for index in touched.clone() {
                let leaf = self.leaf(index);
                change.take(leaf, 0..leaf.extents(), references, dead);
            }
            let is_appended = change.finish();
            change.draft.leaves(is_appended)
        };
        let (from, count) = (touched.start, leaves.len());
        self.splice(touched, leaves);
        self.join_small(from..from + count, unit);
    }

    /// Puts `leaves` in the place of those at `range`.
    pub(super) fn splice(&mut self, range: Range<usize>, mut leaves: Vec<Leaf>) {
        match &mut self.leaves {
            Leaves::Many(Some(slots)) => {
                if range.len() == 1 && leaves.len() == 1 {
                    slots[range.start] = Slot::new(leaves.remove(0));
                    return;
                }
                slots.splice(range, leaves.into_iter().map(Slot::new));
                if slots.len() == 1 {
                    let leaf = slots[0].leaf.clone();
                    self.leaves = Leaves::One(leaf);
                } else if slots.is_empty() {
                    self.leaves = Leaves::Many(None);
                } else if slots.capacity() > 8 + slots.len() * 3 / 2 {
                    slots.shrink_to(slots.len() + slots.len() / 4);
                }
            }
            Leaves::Many(None) | Leaves::One(_) => {
                let mut all: Vec<Leaf> = Vec::new();
                if let Leaves::One(leaf) = std::mem::take(&mut self.leaves) {
                    all.push(leaf);
                }
                all.splice(range, leaves);
                self.leaves = match all.len() {
                    0 => Leaves::Many(None),
                    1 => Leaves::One(all.remove(0)),
                    _ => Leaves::Many(Some(Box::new(all.into_iter().map(Slot::new).collect()))),
                };
            }
        }
    }

    /// Joins the leaves at `range` with their neighbours where both are small. Those that
    /// other maps have stay: joining would copy them.
    pub(super) fn join_small(&mut self, range: Range<usize>, unit: Unit) {
        let from = range.start.saturating_sub(1);
        let mut index = range.end.min(self.leaf_count().saturating_sub(1));
        while index > from {
            index -= 1;
            let (left, right) = (self.leaf(index), self.leaf(index + 1));
            let is_small = left.extents() + right.extents() <= JOINED_EXTENTS_MAX
                && left.blocks() + right.blocks() <= JOINED_BLOCKS_MAX;
            if !is_small || left.is_shared() || right.is_shared() {
                continue;
            }
            let mut draft = Draft::new(unit);
            for (head, checksums) in left.iter().chain(right.iter()) {
                draft.push(head, checksums);
            }
            let leaves = draft.leaves(true);
            self.splice(index..index + 2, leaves);
        }
    }
}

/// A change of some blocks, on its way through the leaves that have them.
struct Change<'a> {
    /// The first block that changes.
    first: u64,
    /// The block after the last.
    end: u64,
    /// The new extent, until its place is reached.
    pending: Option<Extent<'a>>,
    draft: Draft,
}

impl Change<'_> {
    /// Takes extents of a leaf into the draft, except what the change covers.
    fn take(
        &mut self,
        leaf: &Leaf,
        extents: Range<usize>,
        references: &mut References,
        dead: &mut Dead<'_>,
    ) {
        let unit = references.unit();
        debug_assert!(leaf.unit() == unit, "one store has one unit");
        let is_shared = leaf.is_shared();
        for (head, checksums) in leaf.iter_of(extents) {
            if u64::from(head.first) >= self.end {
                self.finish();
            }
            if let Some(covered) = head.clip(self.first, self.end, unit)
                && !is_shared
            {
                references.piece_dropped(&covered, dead);
            }
            if let Some(kept) = head.clip(0, self.first, unit) {
                self.draft.push(kept, &checksums[..kept.count as usize]);
                if is_shared {
                    references.piece_added(&kept);
                }
            }
            if let Some(kept) = head.clip(self.end, BLOCKS_MAX, unit) {
                self.finish();
                let skipped = (head.count - kept.count) as usize;
                self.draft.push(kept, &checksums[skipped..]);
                if is_shared {
                    references.piece_added(&kept);
                }
            }
        }
    }

    /// Puts the new extent where it belongs, if it is not there; whether it was missing.
    fn finish(&mut self) -> bool {
        let Some(extent) = self.pending.take() else {
            return false;
        };
        self.draft.push(head_of(extent), extent.checksums);
        true
    }

    /// Changes one leaf. Only the extents about the change go through the draft, with one
    /// more on each side to merge with; the others are copied as words.
    fn patch(
        &mut self,
        leaf: &Leaf,
        references: &mut References,
        dead: &mut Dead<'_>,
    ) -> Vec<Leaf> {
        let about = leaf.about(self.first, self.end);
        if leaf.is_shared() {
            let beside = leaf
                .iter_of(0..about.start)
                .chain(leaf.iter_of(about.end..leaf.extents()));
            for (head, _) in beside {
                references.piece_added(&head);
            }
        }
        self.take(leaf, about.clone(), references, dead);
        let is_appended = self.finish() && about.end == leaf.extents();
        match self.draft.patched(leaf, about.clone()) {
            Some(patched) => vec![patched],
            None => self.draft.widened(leaf, about).leaves(is_appended),
        }
    }
}

/// The head of an extent.
fn head_of(extent: Extent<'_>) -> Head {
    Head {
        first: extent.first,
        count: extent.count(),
        address: extent.address.units(),
        tail_sectors: extent.tail_sectors,
        exponent: extent.exponent,
    }
}
