//! Images of units in checkpoints.
//!
//! ```text
//! position  u64   first position of the unit
//! horizon   u64   the image has every write up to this seqno
//! depth     u8
//! zero      u8
//! count     u16   entries; the rest is absent when 0
//! homes     256 x u8          entries of each home bucket
//! buckets   of each home:     aged flags, 1 bit an entry, ceil(n / 8) bytes;
//!                             n x 13 bytes: word, high, middle
//! ```
//!
//! All numbers are little-endian. An image carries no checksum: what frames it does.
//! Images of a shard load in the order of positions and must join without gap or overlap,
//! which also holds when the shard changed between them: a unit's image ends where the
//! next position begins, and splits keep positions.

use super::entry::{Entry, Slot, TAG_BITS};
use super::grow::build;
use super::position::{OFFSET_END, ScanPosition, unit_span};
use super::unit::{Unit, unit_bytes};
use super::{BUCKETS, DEPTH_MAX, Index, SHARDS, SLOTS_MAX, ShardGuard};
use crate::format::{Invalid, Seqno};
use crate::sync::epoch;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 13;

/// Known bits that an aged tag must have: all of its high part.
const KNOWN_BITS_MIN: u32 = 32;
const _: () = assert!(TAG_BITS - DEPTH_MAX >= KNOWN_BITS_MIN);

/// Bytes of a unit's image besides its entries, at most: head, homes, aged flags.
const UNIT_IMAGE_BYTES: u64 = 20 + 2 * BUCKETS as u64;

impl Index {
    /// Bytes that images of all units take, at most. By what the index holds, not by its
    /// memory: that never shrinks, and is many times its entries in a small store.
    pub(crate) fn image_bytes(&self) -> u64 {
        let least = unit_bytes(1);
        let units = self.memory_bytes().max(SHARDS as u64 * least) / least;
        self.len() * ENTRY_BYTES as u64 + units * UNIT_IMAGE_BYTES
    }
}

impl ShardGuard<'_> {
    /// Appends an image of the unit at `position`, which must begin a unit of this shard,
    /// and returns the position after it; `None` when that is the shard's end.
    ///
    /// `horizon` is the seqno up to which the caller knows the unit to hold every write.
    pub(crate) fn image_unit(
        &self,
        position: ScanPosition,
        horizon: Seqno,
        out: &mut Vec<u8>,
    ) -> Option<ScanPosition> {
        assert_eq!(position.shard(), self.number(), "a position of this shard");
        let guard = epoch::pin();
        let directory = self.shard().directory.load();
        let unit = directory.unit(position.offset(), &guard);
        let depth = unit.map_or(directory.depth(), |unit| unit.depth());
        let count = unit.map_or(0, |unit| unit.count());
        assert_eq!(position.offset() % unit_span(depth), 0, "a unit's position");

        out.extend_from_slice(&position.bits().to_le_bytes());
        out.extend_from_slice(&horizon.to_le_bytes());
        out.extend_from_slice(&[depth as u8, 0]);
        out.extend_from_slice(&(count as u16).to_le_bytes());
        if let Some(unit) = unit
            && count > 0
        {
            let homes = out.len();
            out.resize(homes + BUCKETS, 0);
            for home in 0..BUCKETS {
                let count = unit.homed(home).count();
                out[homes + home] = count as u8;
                let flags = out.len();
                out.resize(flags + count.div_ceil(8), 0);
                for (index, slot) in unit.homed(home).enumerate() {
                    out[flags + index / 8] |= u8::from(slot.aged) << (index % 8);
                    out.extend_from_slice(&slot.word.to_le_bytes());
                    out.extend_from_slice(&slot.high.to_le_bytes());
                    out.push(slot.middle);
                }
            }
        }
        let end = position.offset() + unit_span(depth);
        if end == OFFSET_END {
            return None;
        }
        position.at_offset(end)
    }

    /// Loads the image at the start of `bytes` into this shard, calls `f` for each entry,
    /// and returns the image's length. The shard must be new or cleared, its images come in
    /// the order of positions, and [`Self::finish_load`] after the last.
    ///
    /// # Errors
    /// [`Invalid`] when the bytes are no image or not of the unit that is next. `f` may
    /// have been called; the shard keeps the images loaded before.
    pub(crate) fn load_unit(
        &mut self,
        bytes: &[u8],
        f: &mut dyn FnMut(Entry),
    ) -> Result<usize, Invalid> {
        let mut rest = bytes;
        let position = ScanPosition::from_bits(u64::from_le_bytes(take(&mut rest)?));
        let horizon = Seqno::from_le_bytes(take(&mut rest)?);
        let [depth, zero] = take(&mut rest)?;
        let count = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let depth = u32::from(depth);
        if depth > DEPTH_MAX {
            return Err(Invalid::Field("depth of an index image"));
        }
        if zero != 0 {
            return Err(Invalid::Field("reserved byte of an index image"));
        }
        let offset = position.offset();
        if position.shard() != self.number()
            || offset != self.loaded()
            || !offset.is_multiple_of(unit_span(depth))
            || !self.is_vacant(offset, depth)
        {
            return Err(Invalid::Field("position of an index image"));
        }
        let unit = if count == 0 {
            Unit::new(1, depth, horizon)
        } else {
            fill(&mut rest, count, depth, horizon, f)?
        };
        self.install_loaded(offset, unit);
        Ok(bytes.len() - rest.len())
    }

    /// Checks that the images loaded cover the shard.
    ///
    /// # Errors
    /// [`Invalid::Missing`] when they end before the shard does.
    pub(crate) fn finish_load(&self) -> Result<(), Invalid> {
        if self.loaded() == OFFSET_END {
            Ok(())
        } else {
            Err(Invalid::Missing("index image"))
        }
    }
}

/// Fills a unit with the entries of an image.
fn fill(
    rest: &mut &[u8],
    count: usize,
    depth: u32,
    horizon: Seqno,
    f: &mut dyn FnMut(Entry),
) -> Result<Unit, Invalid> {
    let homes: [u8; BUCKETS] = take(rest)?;
    let total: usize = homes.iter().map(|&count| usize::from(count)).sum();
    if total != count || count > BUCKETS * SLOTS_MAX {
        return Err(Invalid::Field("count of an index image"));
    }
    let mut homed = Vec::with_capacity(count);
    for (home, &count) in homes.iter().enumerate() {
        let count = usize::from(count);
        let mut flags = [0; 32];
        let flag_bytes = split(rest, count.div_ceil(8))?;
        for (flag, byte) in flags.iter_mut().zip(flag_bytes) {
            *flag = *byte;
        }
        let entries = split(rest, count * ENTRY_BYTES)?;
        for (index, mut entry) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
            let flag = flags.get_mut(index / 8).ok_or(Invalid::Truncated)?;
            let slot = Slot {
                word: u64::from_le_bytes(take(&mut entry)?),
                high: u32::from_le_bytes(take(&mut entry)?),
                middle: u8::from_le_bytes(take(&mut entry)?),
                aged: *flag & 1 != 0,
            };
            *flag >>= 1;
            if index % 8 == 7 && *flag != 0 {
                return Err(Invalid::Field("flags of an index image"));
            }
            let entry = Slot::entry(slot.word).ok_or(Invalid::Field("address of an entry"))?;
            if slot.known_bits().is_none_or(|known| known < KNOWN_BITS_MIN) {
                return Err(Invalid::Field("tag of an entry"));
            }
            f(entry);
            homed.push((home, slot));
        }
        if flags.iter().any(|&flag| flag != 0) {
            return Err(Invalid::Field("flags of an index image"));
        }
    }
    // Entries that do not fit in the largest unit were never in one.
    build(&homed, 0, 1, depth, horizon).ok_or(Invalid::Field("homes of an index image"))
}

/// The next `len` bytes.
fn split<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Invalid> {
    let (head, tail) = rest.split_at_checked(len).ok_or(Invalid::Truncated)?;
    *rest = tail;
    Ok(head)
}

/// The next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Invalid> {
    let (head, tail) = rest.split_first_chunk().ok_or(Invalid::Truncated)?;
    *rest = tail;
    Ok(*head)
}
