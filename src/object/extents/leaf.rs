//! A leaf of an extent map: up to 64 extents and their checksums in one allocation.
//!
//! ```text
//! word 0          extents in the leaf 8 | log2 of the address unit 8 | 0
//! 3 words each    first block 32
//!                 address 31..=0
//!                 address 36..=32 | tail sectors - 1, 3 bits | exponent 3
//!                   | blocks - 1, 8 bits | checksums before, 8 bits
//! then            one checksum a block, in the order of the blocks
//! ```
//!
//! A leaf never changes while two maps have it; so it is compared and counted by its
//! address in memory. Extents are in ascending order, do not overlap, and only the last
//! block of each may be short.

use std::cell::Cell;
use std::ops::Range;

use super::{BLOCK_BYTES, BlockRef, Extent, SECTOR_BYTES, SECTORS_MAX, Unit};
use crate::format::{ADDRESS_BITS, Address, Invalid};
use crate::sync::SharedArc;

/// Most extents of a leaf: copying one costs about a kilobyte then.
pub(super) const LEAF_EXTENTS_MAX: usize = 64;

/// Most blocks of a leaf. A write to a sequential object that a clone shares copies as many
/// checksums, so 256 and not more: a leaf's own 64 bytes are 0.25 a block already.
pub(super) const LEAF_BLOCKS_MAX: usize = 256;

/// Words of an extent without its checksums: 12 bytes.
pub(super) const HEAD_WORDS: usize = 3;

/// Most words of a leaf.
pub(super) const LEAF_WORDS_MAX: usize = 1 + LEAF_EXTENTS_MAX * HEAD_WORDS + LEAF_BLOCKS_MAX;

/// What an `Arc` and the allocator add to a leaf's words.
const ARC_BYTES: usize = 16 + 8;

thread_local! {
    /// Bytes of the leaves that this thread has made, less those that it freed.
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
}

/// By how much this changes while a family is locked is what happened to its memory, whoever
/// shares what.
pub(crate) fn allocated_bytes() -> i64 {
    ALLOCATED.get()
}

const HIGH_BITS: u32 = ADDRESS_BITS - u32::BITS;
const TAIL_SHIFT: u32 = HIGH_BITS;
const EXPONENT_SHIFT: u32 = TAIL_SHIFT + 3;
const COUNT_SHIFT: u32 = EXPONENT_SHIFT + 3;
const BEFORE_SHIFT: u32 = COUNT_SHIFT + 8;
const _: () = assert!(BEFORE_SHIFT + 8 <= u32::BITS);
const _: () = assert!(LEAF_BLOCKS_MAX == 1 << 8);
const _: () = assert!(LEAF_EXTENTS_MAX < 1 << 8);

/// An extent without its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// First logical block.
    pub(super) first: u32,
    /// Blocks, 1 to [`LEAF_BLOCKS_MAX`].
    pub(super) count: u32,
    /// Where the first block is stored, in units.
    pub(super) address: u64,
    /// Sectors stored of the last block, 1 to 8.
    pub(super) tail_sectors: u8,
    /// The rewrite-interval exponent, 0 to 7.
    pub(super) exponent: u8,
}

impl Head {
    /// The block after the last.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.count)
    }

    /// Bytes stored.
    pub(super) fn bytes(&self) -> u64 {
        stored_bytes(self.count, self.tail_sectors)
    }

    /// The part in the blocks `first..end`; `None` when there is none.
    pub(super) fn clip(&self, first: u64, end: u64, unit: Unit) -> Option<Self> {
        let from = first.max(u64::from(self.first));
        let until = end.min(self.end());
        if from >= until {
            return None;
        }
        let skipped = from - u64::from(self.first);
        Some(Self {
            first: from as u32,
            count: (until - from) as u32,
            address: self.address + skipped * unit.block_units(),
            tail_sectors: if until == self.end() {
                self.tail_sectors
            } else {
                SECTORS_MAX
            },
            exponent: self.exponent,
        })
    }

    /// Whether `next` continues this extent, on the device as in the object.
    pub(super) fn continues_with(&self, next: &Self, unit: Unit) -> bool {
        self.end() == u64::from(next.first)
            && self.tail_sectors == SECTORS_MAX
            && self.exponent == next.exponent
            && self.address + u64::from(self.count) * unit.block_units() == next.address
    }

    /// The head as stored, of an extent that has `before` checksums before its own.
    pub(super) fn pack(&self, before: usize) -> [u32; HEAD_WORDS] {
        debug_assert!(before < LEAF_BLOCKS_MAX);
        let tail = u32::from(self.tail_sectors) - 1;
        [
            self.first,
            self.address as u32,
            (self.address >> u32::BITS) as u32
                | tail << TAIL_SHIFT
                | u32::from(self.exponent) << EXPONENT_SHIFT
                | (self.count - 1) << COUNT_SHIFT
                | (before as u32) << BEFORE_SHIFT,
        ]
    }

    /// The head from its stored form, and the checksums before its own.
    fn unpack(words: [u32; HEAD_WORDS]) -> (Self, usize) {
        let [first, low, rest] = words;
        let high = rest & ((1 << HIGH_BITS) - 1);
        let head = Self {
            first,
            count: (rest >> COUNT_SHIFT & 0xff) + 1,
            address: u64::from(low) | u64::from(high) << u32::BITS,
            tail_sectors: (rest >> TAIL_SHIFT & 7) as u8 + 1,
            exponent: (rest >> EXPONENT_SHIFT & 7) as u8,
        };
        (head, (rest >> BEFORE_SHIFT & 0xff) as usize)
    }
}

/// Makes stored heads have `shift` more checksums before their own.
pub(super) fn shift_before(heads: &mut [u32], shift: i32) {
    for words in heads.as_chunks_mut::<HEAD_WORDS>().0 {
        // The sum is in the field's range, and above the field are zeros: a carry is lost.
        words[2] = words[2].wrapping_add((shift as u32) << BEFORE_SHIFT);
    }
}

/// Bytes stored of `count` blocks, the last of which has `tail_sectors`.
pub(super) fn stored_bytes(count: u32, tail_sectors: u8) -> u64 {
    (u64::from(count) - 1) * BLOCK_BYTES + u64::from(tail_sectors) * SECTOR_BYTES
}

/// The first word of a leaf of `extents` extents.
pub(super) fn first_word(extents: usize, unit: Unit) -> u32 {
    extents as u32 | u32::from(unit.log2()) << 8
}

/// See the module.
#[derive(Clone)]
pub(super) struct Leaf(SharedArc<[u32]>);

impl Leaf {
    /// The leaf of `words`, which are laid out as the module says.
    pub(super) fn new(words: &[u32]) -> Self {
        debug_assert!(words.len() <= LEAF_WORDS_MAX);
        let leaf = Self(SharedArc::from(words));
        ALLOCATED.set(ALLOCATED.get() + leaf.memory_bytes() as i64);
        leaf
    }

    /// The leaf of `words` from media.
    ///
    /// # Errors
    /// [`Invalid`] when they are not a leaf, or not one of a store with this unit.
    pub(super) fn checked(words: &[u32], unit: Unit) -> Result<Self, Invalid> {
        let extents = words.first().ok_or(Invalid::Truncated)? & 0xff;
        let extents = extents as usize;
        if words[0] != first_word(extents, unit) || !(1..=LEAF_EXTENTS_MAX).contains(&extents) {
            return Err(Invalid::Field("extents of a leaf"));
        }
        let heads = words
            .get(1..1 + extents * HEAD_WORDS)
            .ok_or(Invalid::Truncated)?;
        let mut end = 0;
        let mut blocks = 0;
        for &words in heads.as_chunks::<HEAD_WORDS>().0 {
            let (head, before) = Head::unpack(words);
            let units = u64::from(head.count) * unit.block_units();
            if before != blocks || words[2] >> (BEFORE_SHIFT + 8) != 0 {
                return Err(Invalid::Field("checksums of an extent"));
            }
            if u64::from(head.first) < end || head.end() > 1 << u32::BITS {
                return Err(Invalid::Field("first block of an extent"));
            }
            if head.address == 0 || head.address + units > 1 << ADDRESS_BITS {
                return Err(Invalid::Field("address of an extent"));
            }
            end = head.end();
            blocks += head.count as usize;
        }
        if blocks > LEAF_BLOCKS_MAX || words.len() != 1 + heads.len() + blocks {
            return Err(Invalid::Field("blocks of a leaf"));
        }
        Ok(Self::new(words))
    }

    /// Words of a leaf from media that has these first words; `None` when they are too few.
    pub(super) fn words_expected(words: impl Fn(usize) -> Option<u32>) -> Option<usize> {
        let extents = (words(0)? & 0xff) as usize;
        let last = 1 + extents.checked_sub(1)? * HEAD_WORDS;
        let (head, before) = Head::unpack([0, 0, words(last + 2)?]);
        Some(last + HEAD_WORDS + before + head.count as usize)
    }

    /// All words.
    pub(super) fn words(&self) -> &[u32] {
        &self.0
    }

    /// Number of extents.
    pub(super) fn extents(&self) -> usize {
        (self.0[0] & 0xff) as usize
    }

    /// The unit of its addresses.
    pub(super) fn unit(&self) -> Unit {
        Unit::from_log2((self.0[0] >> 8) as u8)
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.0.len() - 1 - self.extents() * HEAD_WORDS
    }

    /// The first block.
    pub(super) fn first(&self) -> u32 {
        self.0[1]
    }

    /// The block after the last.
    pub(super) fn end(&self) -> u64 {
        self.head(self.extents() - 1).0.end()
    }

    /// An extent, and the checksums before its own.
    pub(super) fn head(&self, index: usize) -> (Head, usize) {
        let at = 1 + index * HEAD_WORDS;
        Head::unpack([self.0[at], self.0[at + 1], self.0[at + 2]])
    }

    /// All checksums.
    pub(super) fn checksums(&self) -> &[u32] {
        &self.0[1 + self.extents() * HEAD_WORDS..]
    }

    /// The stored form of some extents.
    pub(super) fn head_words(&self, extents: Range<usize>) -> &[u32] {
        &self.0[1 + extents.start * HEAD_WORDS..1 + extents.end * HEAD_WORDS]
    }

    /// Number of checksums before those of an extent; of all at the end.
    pub(super) fn before(&self, index: usize) -> usize {
        if index == self.extents() {
            self.blocks()
        } else {
            self.head(index).1
        }
    }

    /// The extents that a change of the blocks `first..end` can concern: those that have
    /// some of them, and one on each side.
    pub(super) fn about(&self, first: u64, end: u64) -> Range<usize> {
        let heads = self.head_words(0..self.extents());
        let heads = heads.as_chunks::<HEAD_WORDS>().0;
        let from = heads.partition_point(|words| u64::from(words[0]) < first);
        let until = heads.partition_point(|words| u64::from(words[0]) < end);
        // The extent before `from` may reach into the window; then it has a neighbour too.
        from.saturating_sub(2)..(until + 1).min(self.extents())
    }

    /// All extents with their checksums.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Head, &[u32])> {
        self.iter_of(0..self.extents())
    }

    /// Some extents with their checksums.
    pub(super) fn iter_of(&self, extents: Range<usize>) -> impl Iterator<Item = (Head, &[u32])> {
        let mut checksums = &self.checksums()[self.before(extents.start)..];
        let heads = self.head_words(extents);
        heads.as_chunks::<HEAD_WORDS>().0.iter().map(move |&words| {
            let (head, _) = Head::unpack(words);
            let (own, rest) = checksums.split_at(head.count as usize);
            checksums = rest;
            (head, own)
        })
    }

    /// Index of the first extent that ends after `block`.
    pub(super) fn search(&self, block: u32) -> usize {
        let heads = self.head_words(0..self.extents());
        let heads = heads.as_chunks::<HEAD_WORDS>().0;
        let after = heads.partition_point(|words| words[0] <= block);
        match after.checked_sub(1) {
            Some(index) if self.head(index).0.end() > u64::from(block) => index,
            _ => after,
        }
    }

    /// Where `block` is.
    pub(super) fn get(&self, block: u32) -> Option<BlockRef> {
        let index = self.search(block);
        if index == self.extents() {
            return None;
        }
        let (head, before) = self.head(index);
        let skipped = block.checked_sub(head.first)?;
        let sectors = if skipped + 1 == head.count {
            head.tail_sectors
        } else {
            SECTORS_MAX
        };
        Some(BlockRef {
            address: Address::new(head.address + u64::from(skipped) * self.unit().block_units()),
            bytes: u32::from(sectors) * SECTOR_BYTES as u32,
            checksum: self.checksums()[before + skipped as usize],
            exponent: head.exponent,
        })
    }

    /// The part of an extent in the blocks `first..end`; `None` when there is none.
    pub(super) fn clipped(&self, index: usize, first: u64, end: u64) -> Option<Extent<'_>> {
        let (head, before) = self.head(index);
        let part = head.clip(first, end, self.unit())?;
        let from = before + (part.first - head.first) as usize;
        Some(Extent {
            first: part.first,
            address: Address::new(part.address),
            tail_sectors: part.tail_sectors,
            exponent: part.exponent,
            checksums: &self.checksums()[from..from + part.count as usize],
        })
    }

    /// Overwrites an extent with one of as many blocks; false when other maps have the leaf.
    pub(super) fn overwrite(&mut self, index: usize, head: &Head, checksums: &[u32]) -> bool {
        let (old, before) = self.head(index);
        assert!(old.first == head.first && old.count as usize == checksums.len());
        let own = 1 + self.extents() * HEAD_WORDS + before;
        let at = 1 + index * HEAD_WORDS;
        let Some(words) = SharedArc::get_mut(&mut self.0) else {
            return false;
        };
        words[at..at + HEAD_WORDS].copy_from_slice(&head.pack(before));
        words[own..own + checksums.len()].copy_from_slice(checksums);
        true
    }

    /// Whether other maps have this leaf.
    pub(super) fn is_shared(&self) -> bool {
        SharedArc::strong_count(&self.0) > 1
    }

    /// What tells this leaf from others while it is there.
    pub(super) fn identity(&self) -> *const u32 {
        self.0.as_ptr()
    }

    /// Bytes of memory: the allocator deals in 16.
    pub(super) fn memory_bytes(&self) -> usize {
        (ARC_BYTES + size_of_val(&*self.0)).next_multiple_of(16)
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // All maps that may have it are under one lock.
        if !self.is_shared() {
            ALLOCATED.set(ALLOCATED.get() - self.memory_bytes() as i64);
        }
    }
}
