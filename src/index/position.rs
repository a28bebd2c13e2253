//! Which bits of a hash select what, and positions in the order of hashes.
//!
//! From the top: [`SHARD_BITS`] select the shard, as many bits as the unit is deep the
//! unit, [`BUCKET_BITS`] the bucket, [`TAG_BITS`] are the tag. A position is the top 64
//! bits of a hash; buckets, units and shards are ranges of positions, in this order, and a
//! split cuts ranges in two without moving an entry from one half to the other.

use super::entry::TAG_BITS;
use super::{BUCKET_BITS, DEPTH_MAX, SHARD_BITS};
use crate::format::KeyHash;

const _: () = assert!(SHARD_BITS + DEPTH_MAX + BUCKET_BITS + TAG_BITS <= 128);
const _: () = assert!(SHARD_BITS + DEPTH_MAX + BUCKET_BITS <= 64);

/// Bits of a position below the shard's.
const OFFSET_BITS: u32 = 64 - SHARD_BITS;

/// One past the last offset in a shard.
pub(super) const OFFSET_END: u64 = 1 << OFFSET_BITS;

/// A place in the order of hashes, from which a scan or an image goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScanPosition(u64);

impl ScanPosition {
    /// The first position.
    pub(crate) const START: Self = Self(0);

    /// The first position of a shard.
    pub(crate) fn of_shard(shard: usize) -> Self {
        Self((shard as u64) << OFFSET_BITS)
    }

    /// The position of a hash.
    pub(crate) fn of(hash: KeyHash) -> Self {
        Self((hash.bits() >> 64) as u64)
    }

    /// The position as a number, ascending in scan order.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The position with this number.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The shard.
    pub(crate) fn shard(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    /// The position within the shard.
    pub(super) fn offset(self) -> u64 {
        self.0 & (OFFSET_END - 1)
    }

    /// The position `offset` after the start of this one's shard; `None` past the end.
    pub(super) fn at_offset(self, offset: u64) -> Option<Self> {
        (self.0 - self.offset()).checked_add(offset).map(Self)
    }

    /// The bucket that covers the position in a unit of this depth.
    pub(super) fn bucket(self, depth: u32) -> usize {
        top(
            u128::from(self.offset()) << (SHARD_BITS + 64),
            depth,
            BUCKET_BITS,
        ) as usize
    }
}

/// Offsets that a unit of this depth covers.
pub(super) fn unit_span(depth: u32) -> u64 {
    OFFSET_END >> depth
}

/// Offsets that a bucket of a unit of this depth covers.
pub(super) fn bucket_span(depth: u32) -> u64 {
    OFFSET_END >> (depth + BUCKET_BITS)
}

/// Where in a unit of some depth a hash belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) bucket: usize,
    pub(super) tag: u64,
}

impl Place {
    pub(super) fn of(hash: KeyHash, depth: u32) -> Self {
        let bits = hash.bits() << SHARD_BITS << depth;
        Self {
            bucket: top(bits, 0, BUCKET_BITS) as usize,
            tag: top(bits, BUCKET_BITS, TAG_BITS),
        }
    }
}

/// The cell of a directory of this depth that `offset` falls into.
pub(super) fn cell_of(offset: u64, depth: u32) -> usize {
    // At most OFFSET_BITS, so that the shift is in range.
    (offset >> (OFFSET_BITS - depth)) as usize
}

/// `count` bits of `bits` after the top `skip`; at least one.
fn top(bits: u128, skip: u32, count: u32) -> u64 {
    (bits << skip >> (128 - count)) as u64
}
