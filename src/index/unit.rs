//! Units: 32 buckets in one allocation, and the pointer through which readers find them.
//!
//! ```text
//! shape    u64   slots per bucket 8 | depth 8 | entries 16
//! horizon  u64
//! buckets  32 x bucket_words(slots)
//! ```
//!
//! A unit's slots and depth never change; to grow, the holder of the shard's lock fills a
//! new unit and puts it in the old one's place. It never writes to the old one again, so a
//! reader that still has it sees its last state. That is a right answer: the reader took
//! the pointer during its call, when the unit was in place, so the last state was the
//! state of the index at some moment of the call. Hence there is no mark to check.
//!
//! This file is the index's only one with unsafe code. It rests on three invariants:
//! - U1: every word of a unit is initialised before the unit is reachable ([`NewUnit`]).
//! - U2: a unit is pointed to by cells of directories only: in the shard's current one by
//!   all cells of its prefix and no other, and it is retired once, when these have
//!   been changed ([`replace`]), under the shard's lock.
//! - U3: a reader pins an epoch before it loads the directory. If that directory is no
//!   longer the current one by the time a unit is retired, the reader pinned before the
//!   new one was published, and so before the retirement.

use std::mem::MaybeUninit;

use super::bucket::{Bucket, bucket_words};
use super::{BUCKETS, SLOTS_MAX};
use crate::format::Seqno;
use crate::sync::epoch::{Atomic, Guard, Owned, Shared};
use crate::sync::{AtomicU64, Ordering};

/// Words before the first bucket. With the length that the allocation starts with and the
/// allocator's own 8 bytes they make 32.
const HEADER_WORDS: usize = 2;
const DEPTH_SHIFT: u32 = 8;
const COUNT_SHIFT: u32 = 16;

type Words = [MaybeUninit<AtomicU64>];

/// Entries a unit with `slots` slots per bucket may hold: 92% of its slots, so that few
/// entries are displaced and inserting seldom has to move others.
pub(super) const fn capacity(slots: usize) -> usize {
    if crate::sync::MODEL {
        return BUCKETS * slots;
    }
    BUCKETS * slots * LOAD_64THS / 64
}

const LOAD_64THS: usize = 59;

/// Bytes of memory for a unit with `slots` slots: the allocator adds 8 bytes and rounds up
/// to 16, and the allocation starts with its length.
pub(super) const fn unit_bytes(slots: usize) -> u64 {
    let words = 1 + HEADER_WORDS + BUCKETS * bucket_words(slots);
    ((words * 8 + 8).next_multiple_of(16)) as u64
}

/// A view of a unit.
#[derive(Clone, Copy)]
pub(super) struct Unit<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Unit<'a> {
    fn shape(self) -> u64 {
        // Relaxed: slots and depth came with the pointer; the count is under the lock.
        self.words[0].load(Ordering::Relaxed)
    }

    /// Slots per bucket.
    pub(super) fn slots(self) -> usize {
        (self.shape() & 0xff) as usize
    }

    /// Bits of the hash after the shard's that all its entries share.
    pub(super) fn depth(self) -> u32 {
        (self.shape() >> DEPTH_SHIFT & 0xff) as u32
    }

    /// Number of entries; under the lock.
    pub(super) fn count(self) -> usize {
        (self.shape() >> COUNT_SHIFT) as usize
    }

    /// Sets the number of entries; under the lock.
    pub(super) fn set_count(self, count: usize) {
        debug_assert!(count <= BUCKETS * SLOTS_MAX);
        let shape = self.shape() & ((1 << COUNT_SHIFT) - 1);
        self.words[0].store(shape | (count as u64) << COUNT_SHIFT, Ordering::Relaxed);
    }

    /// The unit's horizon; under the lock.
    pub(super) fn horizon(self) -> Seqno {
        self.words[1].load(Ordering::Relaxed)
    }

    /// One of the [`BUCKETS`] buckets.
    pub(super) fn bucket(self, bucket: usize) -> Bucket<'a> {
        let slots = self.slots();
        let words = bucket_words(slots);
        let start = HEADER_WORDS + bucket * words;
        Bucket::new(&self.words[start..start + words], slots)
    }
}

/// A unit that no reader can see yet.
pub(super) struct NewUnit(Owned<Words>);

impl NewUnit {
    /// An empty unit.
    pub(super) fn new(slots: usize, depth: u32, horizon: Seqno) -> Self {
        assert!((1..=SLOTS_MAX).contains(&slots), "slots out of range");
        let words = HEADER_WORDS + BUCKETS * bucket_words(slots);
        let mut owned = Owned::<Words>::init(words);
        for word in owned.iter_mut() {
            word.write(AtomicU64::new(0)); // U1
        }
        let new = Self(owned);
        let shape = slots as u64 | u64::from(depth) << DEPTH_SHIFT;
        new.view().words[0].store(shape, Ordering::Relaxed);
        new.view().words[1].store(horizon, Ordering::Relaxed);
        new
    }

    /// A view to fill the unit through.
    pub(super) fn view(&self) -> Unit<'_> {
        Unit {
            words: initialised(&self.0),
        }
    }
}

#[expect(
    unsafe_code,
    reason = "slices of MaybeUninit have no safe reader in this toolchain"
)]
fn initialised(words: &Words) -> &[AtomicU64] {
    // SAFETY: U1; the layouts are the same.
    unsafe { &*(std::ptr::from_ref(words) as *const [AtomicU64]) }
}

/// A directory's pointer to a unit, null where nothing was inserted yet.
pub(super) struct UnitCell(Atomic<Words>);

impl UnitCell {
    /// A cell without a unit.
    pub(super) fn null() -> Self {
        Self(Atomic::null())
    }

    /// A cell with the unit of `other`. For the holder of the shard's lock.
    pub(super) fn copy(other: &Self, guard: &Guard) -> Self {
        let cell = Self::null();
        // Relaxed: the directory it is for is published by a Release store.
        cell.0
            .store(other.0.load(Ordering::Relaxed, guard), Ordering::Relaxed);
        cell
    }

    /// The unit, as long as `guard` lives.
    pub(super) fn load<'g>(&self, guard: &'g Guard) -> Option<Unit<'g>> {
        view(self.shared(guard))
    }

    fn shared<'g>(&self, guard: &'g Guard) -> Shared<'g, Words> {
        // Acquire: with the Release store in `replace`.
        self.0.load(Ordering::Acquire, guard)
    }
}

#[expect(unsafe_code, reason = "dereferences an epoch-protected pointer")]
fn view<'g>(shared: Shared<'g, Words>) -> Option<Unit<'g>> {
    // SAFETY: U2 and U3: what a cell held after pinning is not freed before unpinning.
    let words = unsafe { shared.as_ref() };
    words.map(|words| Unit {
        words: initialised(words),
    })
}

/// Puts `parts` in the place of the unit that `cells` point to, each in an equal share, and
/// retires that unit, if any. `cells` must be all cells with that unit of the shard's
/// current directory, and the caller the holder of the shard's lock.
pub(super) fn replace<const PARTS: usize>(
    cells: &[UnitCell],
    parts: [NewUnit; PARTS],
    guard: &Guard,
) {
    let old = cells[0].shared(guard);
    assert!(cells.iter().all(|cell| cell.shared(guard) == old)); // U2
    if PARTS == 0 {
        for cell in cells {
            cell.0.store(Shared::null(), Ordering::Release);
        }
    } else {
        assert_eq!(cells.len() % PARTS, 0, "equal shares");
        let share = cells.len() / PARTS;
        for (part, cells) in parts.into_iter().zip(cells.chunks(share)) {
            let part = part.0.into_shared(guard);
            for cell in cells {
                // Release: with the Acquire load in `shared`.
                cell.0.store(part, Ordering::Release);
            }
        }
    }
    if view(old).is_some() {
        retire(old, guard);
    }
}

#[expect(
    unsafe_code,
    reason = "hands an unreachable unit to the epoch collector"
)]
fn retire(unit: Shared<'_, Words>, guard: &Guard) {
    // SAFETY: U2: the only caller has just unlinked it; U3: whoever still has it pinned.
    unsafe { guard.defer_destroy(unit) }
}
