//! The extents of an object: which of its blocks are stored, and where.
//!
//! A pure data structure: no I/O, no locks. Objects that were cloned from one another make
//! a *family*; their maps share leaves until one of them writes. A [`References`] for each
//! family says which stored bytes die when a leaf lets go of them. Everything of a family
//! is under one lock, so a leaf's reference count in memory tells how many maps have it:
//! every clone of a map counts as a member until [`ExtentMap::release`] takes it back, and
//! a piece of payload is referred to for the same logical blocks in all of them.

mod draft;
mod edit;
mod image;
mod leaf;
mod references;
mod relocate;
#[cfg(test)]
mod tests;

pub(crate) use image::{LeafReader, LeafWriter};
pub(crate) use leaf::allocated_bytes;
pub(crate) use references::References;
pub(crate) use relocate::{Move, relocate};

use crate::format::{ADDRESS_BITS, Address};
use leaf::{Leaf, stored_bytes};

/// Bytes of a logical block.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Bytes of a sector: the last block of an extent is stored in as many as it needs.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Sectors of a whole block.
pub(crate) const SECTORS_MAX: u8 = (BLOCK_BYTES / SECTOR_BYTES) as u8;

/// Blocks an object can have: they are numbered in 32 bits.
pub(crate) const BLOCKS_MAX: u64 = 1 << u32::BITS;

/// What hears of pieces that nobody refers to any more.
pub(crate) type Dead<'a> = dyn FnMut(Dropped) + 'a;

/// How many bytes a unit of addresses has, as its logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit(u8);

impl Unit {
    /// The unit of a store (`Geometry::unit_bytes`).
    ///
    /// # Panics
    /// If it is not a power of two that divides a sector.
    pub(crate) fn new(unit_bytes: u32) -> Self {
        assert!(unit_bytes.is_power_of_two(), "unit is no power of two");
        assert!(u64::from(unit_bytes) <= SECTOR_BYTES, "unit too large");
        Self(unit_bytes.trailing_zeros() as u8)
    }

    /// The unit as [`Self::log2`] gave it.
    fn from_log2(log2: u8) -> Self {
        Self(log2)
    }

    /// The logarithm of the unit's bytes.
    fn log2(self) -> u8 {
        self.0
    }

    /// Units of a logical block.
    fn block_units(self) -> u64 {
        BLOCK_BYTES >> self.0
    }

    /// The units that `bytes` take.
    pub(crate) fn units(self, bytes: u64) -> u64 {
        bytes >> self.0
    }

    /// The bytes of `units`.
    fn bytes(self, units: u64) -> u64 {
        units << self.0
    }
}

/// Blocks of an object that are stored one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent<'a> {
    /// First logical block.
    pub(crate) first: u32,
    /// Where the first block is stored.
    pub(crate) address: Address,
    /// Sectors stored of the last block, 1 to [`SECTORS_MAX`]; all others are whole.
    pub(crate) tail_sectors: u8,
    /// The rewrite-interval exponent, 0 to 7.
    pub(crate) exponent: u8,
    /// The checksum of each block.
    pub(crate) checksums: &'a [u32],
}

impl Extent<'_> {
    /// Number of blocks.
    pub(crate) fn count(&self) -> u32 {
        self.checksums.len() as u32
    }

    /// The block after the last.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.first) + self.checksums.len() as u64
    }

    /// Bytes stored.
    pub(crate) fn bytes(&self) -> u64 {
        stored_bytes(self.count(), self.tail_sectors)
    }

    /// Panics unless every field is in its range: a map never holds what it could not pack.
    fn assert_valid(&self, unit: Unit) {
        assert!(!self.checksums.is_empty(), "an extent has blocks");
        assert!(self.end() <= BLOCKS_MAX, "an object ends at block 2^32");
        assert!((1..=SECTORS_MAX).contains(&self.tail_sectors), "tail");
        assert!(self.exponent < 8, "exponent out of range");
        let units = self.checksums.len() as u64 * unit.block_units();
        assert!(
            self.address.units() + units <= 1 << ADDRESS_BITS,
            "extent past the last address"
        );
    }
}

/// Where one block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockRef {
    /// Where it is stored.
    pub(crate) address: Address,
    /// Bytes stored, 512 to 4096; the rest of the block is zero.
    pub(crate) bytes: u32,
    /// Its checksum.
    pub(crate) checksum: u32,
    /// The rewrite-interval exponent, 0 to 7.
    pub(crate) exponent: u8,
}

/// Stored bytes that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Where they begin.
    pub(crate) address: Address,
    /// How many they are.
    pub(crate) bytes: u64,
}

/// A leaf and its first block, which a search then reads without touching the leaf.
#[derive(Clone)]
struct Slot {
    first: u32,
    leaf: Leaf,
}

impl Slot {
    /// The slot of a leaf.
    fn new(leaf: Leaf) -> Self {
        let first = leaf.first();
        Self { first, leaf }
    }
}

/// The leaves of a map, in the order of their blocks. Most objects have one at most.
#[derive(Clone)]
enum Leaves {
    One(Leaf),
    /// None, or two at least.
    #[expect(clippy::box_collection, reason = "so that a map is two words")]
    Many(Option<Box<Vec<Slot>>>),
}

impl Default for Leaves {
    fn default() -> Self {
        Self::Many(None)
    }
}

/// The extents of an object; see the module. What is not mapped is zero.
///
/// A clone shares all leaves and is one more member of the family.
#[derive(Clone, Default)]
pub(crate) struct ExtentMap {
    leaves: Leaves,
}

/// The box of a list of leaves and its allocator's words, and those of the list.
const VEC_BYTES: usize = 32 + 8;

/// What every object pays.
const _: () = assert!(size_of::<ExtentMap>() <= 16);

impl ExtentMap {
    /// A map of nothing.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is mapped.
    pub(crate) fn is_empty(&self) -> bool {
        self.leaf_count() == 0
    }

    /// Where `block` is; `None` when it is not mapped.
    pub(crate) fn get(&self, block: u32) -> Option<BlockRef> {
        match &self.leaves {
            Leaves::Many(None) => None,
            Leaves::One(leaf) => leaf.get(block),
            Leaves::Many(Some(slots)) => {
                let after = slots.partition_point(|slot| slot.first <= block);
                slots[after.checked_sub(1)?].leaf.get(block)
            }
        }
    }

    /// The extents of the blocks `first..end` that are mapped, clipped to them, in order.
    pub(crate) fn range(&self, first: u32, end: u64) -> Range<'_> {
        let leaf = self.leaf_at(first);
        let extent = if leaf < self.leaf_count() {
            self.leaf(leaf).search(first)
        } else {
            0
        };
        Range {
            map: self,
            leaf,
            extent,
            first: u64::from(first),
            end,
        }
    }

    /// All extents, in order.
    pub(crate) fn iter(&self) -> Range<'_> {
        self.range(0, BLOCKS_MAX)
    }

    /// Number of blocks that are mapped.
    #[cfg(test)]
    pub(crate) fn len_blocks(&self) -> u64 {
        self.each_leaf().map(|leaf| leaf.blocks() as u64).sum()
    }

    /// The block after the last that is mapped.
    pub(crate) fn end_block(&self) -> u64 {
        match self.leaf_count() {
            0 => 0,
            count => self.leaf(count - 1).end(),
        }
    }

    /// Bytes stored of all mapped blocks, counting what is shared with other members.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.iter().map(|extent| extent.bytes()).sum()
    }

    /// Bytes of memory below the map, counting leaves that are shared with other members.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots_bytes() + self.each_leaf().map(Leaf::memory_bytes).sum::<usize>()
    }

    /// Bytes of memory of the leaves of maps, each once.
    pub(crate) fn leaves_bytes<'a>(maps: impl IntoIterator<Item = &'a Self>) -> u64 {
        let mut seen = std::collections::HashSet::new();
        let leaves = maps.into_iter().flat_map(Self::each_leaf);
        let once = leaves.filter(|leaf| !leaf.is_shared() || seen.insert(leaf.identity()));
        once.map(|leaf| leaf.memory_bytes() as u64).sum()
    }

    /// Bytes of memory of the list of leaves.
    pub(crate) fn slots_bytes(&self) -> usize {
        match &self.leaves {
            Leaves::Many(None) | Leaves::One(_) => 0,
            Leaves::Many(Some(slots)) => VEC_BYTES + slots.capacity() * size_of::<Slot>(),
        }
    }

    /// Number of leaves.
    fn leaf_count(&self) -> usize {
        match &self.leaves {
            Leaves::Many(None) => 0,
            Leaves::One(_) => 1,
            Leaves::Many(Some(slots)) => slots.len(),
        }
    }

    /// A leaf.
    fn leaf(&self, index: usize) -> &Leaf {
        match &self.leaves {
            Leaves::Many(None) => unreachable!("an empty map has no leaf"),
            Leaves::One(leaf) => leaf,
            Leaves::Many(Some(slots)) => &slots[index].leaf,
        }
    }

    /// All leaves.
    fn each_leaf(&self) -> impl Iterator<Item = &Leaf> + use<'_> {
        (0..self.leaf_count()).map(|index| self.leaf(index))
    }

    /// Index of the last leaf that begins at or before `block`, else of the first.
    fn leaf_at(&self, block: u32) -> usize {
        match &self.leaves {
            Leaves::Many(None) | Leaves::One(_) => 0,
            Leaves::Many(Some(slots)) => slots
                .partition_point(|slot| slot.first <= block)
                .saturating_sub(1),
        }
    }

    /// Indexes of the leaves that have blocks in `first..end`.
    fn leaves_in(&self, first: u32, end: u64) -> std::ops::Range<usize> {
        let mut from = self.leaf_at(first);
        if from < self.leaf_count() && self.leaf(from).end() <= u64::from(first) {
            from += 1;
        }
        let begins_before = |index: &usize| u64::from(self.leaf_first(*index)) < end;
        let until = match &self.leaves {
            Leaves::Many(Some(slots)) => slots.partition_point(|slot| u64::from(slot.first) < end),
            _ => (0..self.leaf_count()).filter(begins_before).count(),
        };
        from..until.max(from)
    }

    /// First block of a leaf.
    fn leaf_first(&self, index: usize) -> u32 {
        match &self.leaves {
            Leaves::Many(Some(slots)) => slots[index].first,
            _ => self.leaf(index).first(),
        }
    }
}

/// See [`ExtentMap::range`].
pub(crate) struct Range<'a> {
    map: &'a ExtentMap,
    leaf: usize,
    extent: usize,
    first: u64,
    end: u64,
}

impl<'a> Iterator for Range<'a> {
    type Item = Extent<'a>;

    fn next(&mut self) -> Option<Extent<'a>> {
        while self.leaf < self.map.leaf_count() {
            let leaf = self.map.leaf(self.leaf);
            if self.extent < leaf.extents() {
                // Extents are in order, so one that is outside is the first after the window.
                let clipped = leaf.clipped(self.extent, self.first, self.end)?;
                self.extent += 1;
                return Some(clipped);
            }
            self.leaf += 1;
            self.extent = 0;
        }
        None
    }
}
