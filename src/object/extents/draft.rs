//! Extents on their way into leaves: merged where they meet, and packed.

use std::ops::Range;

use super::leaf::{
    HEAD_WORDS, Head, LEAF_BLOCKS_MAX, LEAF_EXTENTS_MAX, LEAF_WORDS_MAX, Leaf, first_word,
    shift_before,
};
use super::{BLOCKS_MAX, SECTORS_MAX, Unit};

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
            // Enough for a change of one block: it, what it cuts and what it may merge with.
            heads: Vec::with_capacity(8),
            checksums: Vec::with_capacity(16),
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

    /// The leaf after the draft took the place of its extents `replaced`; `None` when that
    /// is nothing, or more than a leaf.
    pub(super) fn patched(&self, leaf: &Leaf, replaced: Range<usize>) -> Option<Leaf> {
        let extents = leaf.extents() - replaced.len() + self.heads.len();
        let (before, after) = (leaf.before(replaced.start), leaf.before(replaced.end));
        let blocks = leaf.blocks() - (after - before) + self.checksums.len();
        if extents == 0 || extents > LEAF_EXTENTS_MAX || blocks > LEAF_BLOCKS_MAX {
            return None;
        }
        let mut words = Vec::with_capacity(LEAF_WORDS_MAX);
        words.push(first_word(extents, self.unit));
        words.extend_from_slice(leaf.head_words(0..replaced.start));
        let mut packed = before;
        for head in &self.heads {
            words.extend_from_slice(&head.pack(packed));
            packed += head.count as usize;
        }
        let rest = words.len();
        words.extend_from_slice(leaf.head_words(replaced.end..leaf.extents()));
        shift_before(&mut words[rest..], packed as i32 - after as i32);
        words.extend_from_slice(&leaf.checksums()[..before]);
        words.extend_from_slice(&self.checksums);
        words.extend_from_slice(&leaf.checksums()[after..]);
        Some(Leaf::new(&words))
    }

    /// The draft with the extents of a leaf around it, except those at `replaced`.
    pub(super) fn widened(&self, leaf: &Leaf, replaced: Range<usize>) -> Self {
        let mut wide = Self {
            unit: self.unit,
            heads: Vec::with_capacity(LEAF_EXTENTS_MAX + 2),
            checksums: Vec::with_capacity(LEAF_BLOCKS_MAX + self.checksums.len()),
        };
        for (head, checksums) in leaf.iter_of(0..replaced.start) {
            wide.push(head, checksums);
        }
        let mut checksums = self.checksums.as_slice();
        for &head in &self.heads {
            let (own, rest) = checksums.split_at(head.count as usize);
            wide.push(head, own);
            checksums = rest;
        }
        for (head, checksums) in leaf.iter_of(replaced.end..leaf.extents()) {
            wide.push(head, checksums);
        }
        wide
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
    /// One that has packed nothing yet.
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
