//! One bucket: a few slots under a version that lock-free readers check.
//!
//! ```text
//! meta    u64   version 31 | overflow 1 | displaced 16 | aged 16
//! tags    u32 x slots, in words; with an odd number of slots the last word's upper half
//!               holds the first four middle bytes
//! middles u8  x the rest, in words
//! words   u64 x slots
//! ```
//!
//! An entry lives in its home bucket or, *displaced*, in another (`probe.rs`); `overflow`
//! says that some entry of this home is displaced.
//!
//! The protocol is a seqlock over atomics. The writer, alone under its shard's lock, makes
//! the version odd, writes, and makes it even again; a reader takes what it read only if
//! the version was even and the same before and after. A version of 31 bits comes round
//! after 2^30 writes to one bucket, which a reader would have to sleep through to the very
//! write.

use super::SLOTS_MAX;
use super::entry::{Entry, Slot, high};
use super::unit::Unit;
use crate::sync::{AtomicU64, Ordering, fence, pause};

const VERSION: u64 = (1 << 31) - 1;
const WRITING: u64 = 1;
const OVERFLOW: u64 = 1 << 31;
const DISPLACED_SHIFT: usize = 32;
const AGED_SHIFT: usize = 48;
const _: () = assert!(DISPLACED_SHIFT + SLOTS_MAX <= AGED_SHIFT);
const _: () = assert!(AGED_SHIFT + SLOTS_MAX <= 64);

/// Middle bytes that fit in the upper half of the last tag word.
const MIDDLES_IN_HALF: usize = 4;

/// Words of tags of a bucket with `slots` slots.
const fn tag_words(slots: usize) -> usize {
    slots.div_ceil(2)
}

/// Where the slots' words begin.
const fn words_at(slots: usize) -> usize {
    let in_half = (slots % 2) * MIDDLES_IN_HALF;
    1 + tag_words(slots) + slots.saturating_sub(in_half).div_ceil(8)
}

/// Words of a bucket with `slots` slots.
pub(super) const fn bucket_words(slots: usize) -> usize {
    words_at(slots) + slots
}

/// Whether an entry is at home or displaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// The bucket is its home.
    This,
    /// Its home is another bucket.
    Elsewhere,
}

/// The flags of a bucket at one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta(u64);

impl Meta {
    /// Whether entries of this home are in the next bucket.
    pub(super) fn overflow(self) -> bool {
        self.0 & OVERFLOW != 0
    }

    fn home(self, slot: usize) -> Home {
        if self.0 >> (DISPLACED_SHIFT + slot) & 1 == 0 {
            Home::This
        } else {
            Home::Elsewhere
        }
    }

    fn aged(self, slot: usize) -> bool {
        self.0 >> (AGED_SHIFT + slot) & 1 != 0
    }

    fn set_flag(&mut self, bit: usize, on: bool) {
        self.0 = self.0 & !(1 << bit) | u64::from(on) << bit;
    }
}

/// A bucket of a unit.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    unit: &'a Unit,
    /// The number of its first word in the unit.
    start: usize,
    slots: usize,
}

impl<'a> Bucket<'a> {
    /// The bucket that begins at word `start`.
    pub(super) fn new(unit: &'a Unit, start: usize, slots: usize) -> Self {
        Self { unit, start, slots }
    }

    #[inline]
    fn at(&self, word: usize) -> &'a AtomicU64 {
        self.unit.word(self.start + word)
    }

    // Relaxed everywhere below `snapshot` and `write`: under the lock there is no race, and
    // a reader's loads are ordered by the version protocol alone.

    #[inline]
    fn word(&self, slot: usize) -> u64 {
        self.at(words_at(self.slots) + slot).load(Ordering::Relaxed)
    }

    /// Word and shift of the slot's middle byte.
    #[inline]
    fn middle_at(&self, slot: usize) -> (usize, usize) {
        let tags = tag_words(self.slots);
        let in_half = (self.slots % 2) * MIDDLES_IN_HALF;
        if slot < in_half {
            return (tags, 32 + slot * 8);
        }
        let slot = slot - in_half;
        (1 + tags + slot / 8, slot % 8 * 8)
    }

    #[inline]
    fn slot(&self, meta: Meta, slot: usize) -> Slot {
        let tags = self.at(1 + slot / 2).load(Ordering::Relaxed);
        let (at, shift) = self.middle_at(slot);
        Slot {
            word: self.word(slot),
            high: (tags >> (slot % 2 * 32)) as u32,
            middle: (self.at(at).load(Ordering::Relaxed) >> shift) as u8,
            aged: meta.aged(slot),
        }
    }

    #[inline]
    fn search(&self, meta: Meta, tag: u64, home: Home) -> Option<(usize, u64)> {
        let high = high(tag);
        for pair in 0..tag_words(self.slots) {
            let tags = self.at(1 + pair).load(Ordering::Relaxed);
            for (half, found) in [tags as u32, (tags >> 32) as u32].into_iter().enumerate() {
                let index = 2 * pair + half;
                if found != high || index >= self.slots {
                    continue;
                }
                let slot = self.slot(meta, index);
                if slot.word != 0 && meta.home(index) == home && slot.matches(tag) {
                    return Some((index, slot.word));
                }
            }
        }
        None
    }

    /// Runs `read` on a state of the bucket that existed.
    fn snapshot<T>(&self, mut read: impl FnMut(Meta) -> T) -> (Meta, T) {
        for round in 0.. {
            // Acquire: with the Release store that ends `write`.
            let meta = self.at(0).load(Ordering::Acquire);
            if meta & WRITING == 0 {
                let result = read(Meta(meta));
                // With the Release fence in `write`: if a load above saw a write's store,
                // the load below sees that write's odd version or a later one.
                fence(Ordering::Acquire);
                if self.at(0).load(Ordering::Relaxed) == meta {
                    return (Meta(meta), result);
                }
            }
            pause(round);
        }
        unreachable!("rounds do not end")
    }

    /// The word under `tag`, without a lock.
    pub(super) fn probe(&self, tag: u64, home: Home) -> (Meta, Option<u64>) {
        self.snapshot(|meta| self.search(meta, tag, home).map(|(_, word)| word))
    }

    /// Appends the entries that `wanted` accepts by whether they are at home and the high
    /// part of their tag, without a lock.
    pub(super) fn collect(&self, wanted: impl Fn(Home, u32) -> bool, out: &mut Vec<Entry>) -> Meta {
        let start = out.len();
        let (meta, ()) = self.snapshot(|meta| {
            out.truncate(start);
            for index in 0..self.slots {
                let slot = self.slot(meta, index);
                if wanted(meta.home(index), slot.high) {
                    out.extend(Slot::entry(slot.word));
                }
            }
        });
        meta
    }

    /// Whether nothing was written since `meta` was read by a snapshot. Ordered after the
    /// loads of any snapshot in between by that snapshot's fence.
    pub(super) fn unchanged(&self, meta: Meta) -> bool {
        self.at(0).load(Ordering::Relaxed) == meta.0
    }

    // The rest is for the holder of the shard's lock.

    /// The flags.
    pub(super) fn meta(&self) -> Meta {
        Meta(self.at(0).load(Ordering::Relaxed))
    }

    /// The slot and word under `tag`.
    pub(super) fn find(&self, tag: u64, home: Home) -> Option<(usize, u64)> {
        self.search(self.meta(), tag, home)
    }

    /// The occupied slots of one home.
    pub(super) fn occupied(self, home: Home) -> impl Iterator<Item = (usize, Slot)> + 'a {
        let meta = self.meta();
        (0..self.slots).filter_map(move |index| {
            if meta.home(index) != home || self.word(index) == 0 {
                return None;
            }
            Some((index, self.slot(meta, index)))
        })
    }

    /// All occupied slots.
    pub(super) fn entries(self) -> impl Iterator<Item = (usize, Slot, Home)> + 'a {
        let meta = self.meta();
        (0..self.slots).filter_map(move |index| {
            let slot = self.slot(meta, index);
            (slot.word != 0).then_some((index, slot, meta.home(index)))
        })
    }

    /// The high parts of all slots of a full bucket.
    pub(super) fn highs(self) -> impl Iterator<Item = (usize, u32, Home)> + 'a {
        let meta = self.meta();
        (0..self.slots).map(move |index| {
            let tags = self.at(1 + index / 2).load(Ordering::Relaxed);
            (index, (tags >> (index % 2 * 32)) as u32, meta.home(index))
        })
    }

    /// One slot.
    pub(super) fn entry(&self, index: usize) -> (Slot, Home) {
        let meta = self.meta();
        (self.slot(meta, index), meta.home(index))
    }

    /// An empty slot.
    pub(super) fn vacancy(&self) -> Option<usize> {
        (0..self.slots).find(|&slot| self.word(slot) == 0)
    }

    /// Fills a slot.
    pub(super) fn put(&self, index: usize, slot: Slot, home: Home) {
        self.write(|meta| self.fill(meta, index, slot, home));
    }

    /// Empties a slot and sets `overflow` in the same step.
    pub(super) fn clear(&self, index: usize, overflow: bool) {
        self.write(|meta| {
            meta.set_flag(OVERFLOW.trailing_zeros() as usize, overflow);
            self.at(words_at(self.slots) + index)
                .store(0, Ordering::Relaxed);
        });
    }

    /// Sets `overflow`.
    pub(super) fn set_overflow(&self, overflow: bool) {
        if self.meta().overflow() != overflow {
            self.write(|meta| meta.set_flag(OVERFLOW.trailing_zeros() as usize, overflow));
        }
    }

    /// Fills a slot of a bucket that no reader has seen yet, with an entry at home.
    pub(super) fn fill_private(&self, index: usize, slot: Slot) {
        let mut meta = self.meta();
        self.fill(&mut meta, index, slot, Home::This);
        self.at(0).store(meta.0, Ordering::Relaxed);
    }

    fn fill(&self, meta: &mut Meta, index: usize, slot: Slot, home: Home) {
        meta.set_flag(DISPLACED_SHIFT + index, home == Home::Elsewhere);
        meta.set_flag(AGED_SHIFT + index, slot.aged);
        self.merge(
            1 + index / 2,
            index % 2 * 32,
            u64::from(u32::MAX),
            slot.high.into(),
        );
        let (at, shift) = self.middle_at(index);
        self.merge(at, shift, u64::from(u8::MAX), slot.middle.into());
        self.at(words_at(self.slots) + index)
            .store(slot.word, Ordering::Relaxed);
    }

    fn merge(&self, at: usize, shift: usize, mask: u64, bits: u64) {
        let word = self.at(at).load(Ordering::Relaxed);
        let word = word & !(mask << shift) | bits << shift;
        self.at(at).store(word, Ordering::Relaxed);
    }

    /// Changes the bucket in one step as readers see it.
    fn write(&self, change: impl FnOnce(&mut Meta)) {
        let mut meta = self.meta();
        debug_assert!(meta.0 & WRITING == 0);
        self.at(0).store(meta.0 | WRITING, Ordering::Relaxed);
        // With the Acquire fence in `snapshot`.
        fence(Ordering::Release);
        change(&mut meta);
        let version = (meta.0 + 2) & VERSION;
        // Release: with the Acquire load in `snapshot`.
        self.at(0)
            .store(meta.0 & !VERSION | version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_do_not_overlap() {
        for slots in 1..=SLOTS_MAX {
            let unit = Unit::new(slots, 0, 0);
            let bucket = unit.bucket(0);
            let mut last = 0;
            for slot in 0..slots {
                let (at, shift) = bucket.middle_at(slot);
                assert!(at < words_at(slots) && shift <= 56);
                assert!(at * 64 + shift > last, "bytes in order");
                last = at * 64 + shift;
            }
            // 13 bytes a slot, 8 of meta, and less than one word of padding.
            assert!(bucket_words(slots) * 8 < 8 + 13 * slots + 8, "{slots}");
        }
    }
}
