//! Changes of one map: a new extent over what was there, or nothing in its place.
//!
//! A change rewrites the leaves it touches into new ones. A leaf that only this map has
//! lets go of what the change covers; one that is shared stays with the others, and what
//! this map keeps of it is then referred to once more.

use std::ops::Range;

use super::leaf::{
    HEAD_WORDS, Head, LEAF_BLOCKS_MAX, LEAF_EXTENTS_MAX, LEAF_WORDS_MAX, Leaf, first_word,
};
use super::{BLOCKS_MAX, Dead, Extent, ExtentMap, Leaves, References, SECTORS_MAX, Slot, Unit};

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
            Leaves::None => return false,
            Leaves::One(leaf) => leaf,
            Leaves::Many(slots) => &mut slots[index].leaf,
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
        let (first, end) = (u64::from(window.0), window.1);
        let mut draft = Draft::new(unit);
        let mut pending = extent;
        for index in touched.clone() {
            let leaf = self.leaf(index);
            debug_assert!(leaf.unit() == unit, "one store has one unit");
            let is_shared = leaf.is_shared();
            for (head, checksums) in leaf.iter() {
                if u64::from(head.first) >= end
                    && let Some(extent) = pending.take()
                {
                    draft.push(head_of(extent), extent.checksums);
                }
                if let Some(covered) = head.clip(first, end, unit)
                    && !is_shared
                {
                    references.piece_dropped(&covered, dead);
                }
                if let Some(kept) = head.clip(0, first, unit) {
                    draft.push(kept, &checksums[..kept.count as usize]);
                    if is_shared {
                        references.piece_added(&kept);
                    }
                }
                if let Some(kept) = head.clip(end, BLOCKS_MAX, unit) {
                    if let Some(extent) = pending.take() {
                        draft.push(head_of(extent), extent.checksums);
                    }
                    draft.push(kept, &checksums[(head.count - kept.count) as usize..]);
                    if is_shared {
                        references.piece_added(&kept);
                    }
                }
            }
        }
        let is_appended = pending.is_some();
        if let Some(extent) = pending {
            draft.push(head_of(extent), extent.checksums);
        }
        let leaves = draft.leaves(is_appended);
        let (from, count) = (touched.start, leaves.len());
        self.splice(touched, leaves);
        self.join_small(from..from + count, unit);
    }

    /// Puts `leaves` in the place of those at `range`.
    pub(super) fn splice(&mut self, range: Range<usize>, mut leaves: Vec<Leaf>) {
        match &mut self.leaves {
            Leaves::Many(slots) => {
                if range.len() == 1 && leaves.len() == 1 {
                    slots[range.start] = Slot::new(leaves.remove(0));
                    return;
                }
                slots.splice(range, leaves.into_iter().map(Slot::new));
                if slots.len() == 1 {
                    let leaf = slots[0].leaf.clone();
                    self.leaves = Leaves::One(leaf);
                } else if slots.is_empty() {
                    self.leaves = Leaves::None;
                } else if slots.capacity() > 8 + slots.len() * 3 / 2 {
                    slots.shrink_to(slots.len() + slots.len() / 4);
                }
            }
            Leaves::None | Leaves::One(_) => {
                let mut all: Vec<Leaf> = Vec::new();
                if let Leaves::One(leaf) = std::mem::take(&mut self.leaves) {
                    all.push(leaf);
                }
                all.splice(range, leaves);
                self.leaves = match all.len() {
                    0 => Leaves::None,
                    1 => Leaves::One(all.remove(0)),
                    _ => Leaves::Many(all.into_iter().map(Slot::new).collect()),
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

/// Extents that are to become leaves. They are merged as they come; one may have more
/// blocks than a leaf holds.
pub(super) struct Draft {
    unit: Unit,
    heads: Vec<Head>,
    checksums: Vec<u32>,
}

impl Draft {
    /// An empty draft.
    pub(super) fn new(unit: Unit) -> Self {
        Self {
            unit,
            heads: Vec::with_capacity(LEAF_EXTENTS_MAX + 2),
            checksums: Vec::with_capacity(LEAF_BLOCKS_MAX),
        }
    }

    /// Adds an extent after all others.
    pub(super) fn push(&mut self, head: Head, checksums: &[u32]) {
        debug_assert!(head.count as usize == checksums.len());
        self.checksums.extend_from_slice(checksums);
        match self.heads.last_mut() {
            Some(last) if last.continues_with(&head, self.unit) => {
                last.count += head.count;
                last.tail_sectors = head.tail_sectors;
            }
            last => {
                debug_assert!(last.is_none_or(|last| last.end() <= u64::from(head.first)));
                self.heads.push(head);
            }
        }
    }

    /// The leaves of the draft: as few as can be, and equally full unless a sequential
    /// write at the end is about to fill the last.
    pub(super) fn leaves(&self, is_appended: bool) -> Vec<Leaf> {
        let (extents, blocks) = (self.heads.len(), self.checksums.len());
        let count = extents
            .div_ceil(LEAF_EXTENTS_MAX)
            .max(blocks.div_ceil(LEAF_BLOCKS_MAX));
        let mut leaves = Vec::with_capacity(count);
        let (extents_most, blocks_most) = if is_appended || count <= 1 {
            (LEAF_EXTENTS_MAX, LEAF_BLOCKS_MAX)
        } else {
            (extents.div_ceil(count), blocks.div_ceil(count))
        };
        let mut packer = Packer::new(self);
        for &head in &self.heads {
            let mut rest = Some(head);
            while let Some(head) = rest {
                let room = LEAF_BLOCKS_MAX - packer.blocks;
                let fits = head.count as usize <= room;
                // An extent is cut in two only where the leaf would be left half empty.
                let leaves_half =
                    packer.blocks >= LEAF_BLOCKS_MAX / 2 && head.count as usize <= LEAF_BLOCKS_MAX;
                if packer.extents >= extents_most
                    || packer.blocks >= blocks_most
                    || (!fits && leaves_half)
                {
                    leaves.push(packer.leaf());
                    continue;
                }
                let cut = u64::from(head.first) + room as u64;
                rest = head.clip(cut, BLOCKS_MAX, self.unit);
                if let Some(part) = head.clip(0, cut, self.unit) {
                    packer.push(&part);
                }
            }
        }
        if packer.extents > 0 {
            leaves.push(packer.leaf());
        }
        leaves
    }
}

/// Packs the extents of a draft, leaf after leaf.
struct Packer<'a> {
    draft: &'a Draft,
    words: Vec<u32>,
    extents: usize,
    blocks: usize,
    /// Checksums of the draft that are in leaves already.
    packed: usize,
}

impl<'a> Packer<'a> {
    fn new(draft: &'a Draft) -> Self {
        let mut words = Vec::with_capacity(LEAF_WORDS_MAX);
        words.push(0);
        Self {
            draft,
            words,
            extents: 0,
            blocks: 0,
            packed: 0,
        }
    }

    /// Adds an extent to the next leaf.
    fn push(&mut self, head: &Head) {
        debug_assert!((1..=SECTORS_MAX).contains(&head.tail_sectors));
        self.words.extend_from_slice(&head.pack(self.blocks));
        self.extents += 1;
        self.blocks += head.count as usize;
    }

    /// The leaf of the extents since the last.
    fn leaf(&mut self) -> Leaf {
        debug_assert!(self.words.len() == 1 + self.extents * HEAD_WORDS);
        self.words[0] = first_word(self.extents, self.draft.unit);
        let checksums = &self.draft.checksums[self.packed..self.packed + self.blocks];
        self.words.extend_from_slice(checksums);
        self.packed += self.blocks;
        let leaf = Leaf::new(&self.words);
        self.words.truncate(1);
        (self.extents, self.blocks) = (0, 0);
        leaf
    }
}
