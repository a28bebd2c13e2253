//! Units: 256 buckets, and the pointer through which readers find them.
//!
//! The buckets' words follow each other through *chunks* of one size, a whole number of
//! them: since all of the index's memory is in allocations of this size, what one unit
//! frees another takes, and growing leaves no holes. (Units in one piece each, of a size
//! that grows with them, cost 16% more resident memory than they held.)
//!
//! A unit's slots and depth never change; to grow, the holder of the shard's lock fills a
//! new unit and puts it in the old one's place. It never writes to the old one again, so a
//! reader that still has it sees its last state. That is a right answer: the reader took
//! the pointer during its call, when the unit was in place, so the last state was the
//! state of the index at some moment of the call. Hence there is no mark to check.
//!
//! This file is the index's only one with unsafe code. It rests on two invariants:
//! - U1: a unit is pointed to by cells of directories only: in the shard's current one by
//!   all cells of its prefix and no other, and it is retired once, when these have been
//!   changed ([`replace`]), under the shard's lock.
//! - U2: a reader pins an epoch before it loads the directory. If that directory is no
//!   longer the current one by the time a unit is retired, the reader pinned before the
//!   new one was published, and so before the retirement.

use super::bucket::{Bucket, bucket_words};
use super::{BUCKETS, SLOTS_MAX};
use crate::format::Seqno;
use crate::sync::epoch::{Atomic, Guard, Owned, Shared};
use crate::sync::{AtomicU64, Life, Ordering};

/// Words of a chunk. As many as buckets: a unit is then as many chunks as a bucket words.
const CHUNK_WORDS: usize = BUCKETS;
/// Chunks of the largest unit.
const CHUNKS_MAX: usize = bucket_words(SLOTS_MAX);
const DEPTH_SHIFT: u32 = 8;
const COUNT_SHIFT: u32 = 16;

const VACANT_WORDS: usize = BUCKETS.div_ceil(64);

type Chunk = [AtomicU64; CHUNK_WORDS];

/// Entries a unit with `slots` slots per bucket may hold: about as many as find room without
/// long chains of moves, so that a unit with fewer has room for one more nearly always.
pub(super) const fn capacity(slots: usize) -> usize {
    if crate::sync::MODEL {
        return BUCKETS * slots;
    }
    let load_64ths = match slots {
        1 => 36,
        2 => 48,
        3 => 54,
        4 => 57,
        _ => 60,
    };
    BUCKETS * slots * load_64ths / 64
}

/// Bytes of memory for a unit with `slots` slots: the allocator adds 8 bytes to each piece
/// and rounds up to 16.
pub(super) const fn unit_bytes(slots: usize) -> u64 {
    let chunk = (size_of::<Chunk>() + 8).next_multiple_of(16);
    let unit = (size_of::<Unit>() + 8).next_multiple_of(16);
    (unit + bucket_words(slots) * chunk) as u64
}

/// A unit.
pub(super) struct Unit {
    /// Slots per bucket 8, depth 8, entries 16 and more. Slots and depth never change; the
    /// number of entries is for the holder of the lock.
    shape: AtomicU64,
    /// For the holder of the lock.
    horizon: Seqno,
    /// A bit for each bucket with an empty slot, for the holder of the lock: looking for room
    /// in many buckets would miss the cache in each.
    vacant: [AtomicU64; VACANT_WORDS],
    chunks: [Option<Box<Chunk>>; CHUNKS_MAX],
    life: Life,
}

impl Unit {
    /// An empty unit.
    pub(super) fn new(slots: usize, depth: u32, horizon: Seqno) -> Self {
        assert!((1..=SLOTS_MAX).contains(&slots), "slots out of range");
        let chunk = |index| {
            let used = index < bucket_words(slots);
            used.then(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))))
        };
        Self {
            shape: AtomicU64::new(slots as u64 | u64::from(depth) << DEPTH_SHIFT),
            horizon,
            vacant: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            chunks: std::array::from_fn(chunk),
            life: Life::new(),
        }
    }

    fn shape(&self) -> u64 {
        self.life.touch();
        // Relaxed: slots and depth came with the pointer; the count is under the lock.
        self.shape.load(Ordering::Relaxed)
    }

    /// Slots per bucket.
    pub(super) fn slots(&self) -> usize {
        (self.shape() & 0xff) as usize
    }

    /// Bits of the hash after the shard's that all its entries share.
    pub(super) fn depth(&self) -> u32 {
        (self.shape() >> DEPTH_SHIFT & 0xff) as u32
    }

    /// Number of entries; under the lock.
    pub(super) fn count(&self) -> usize {
        (self.shape() >> COUNT_SHIFT) as usize
    }

    /// Sets the number of entries; under the lock.
    pub(super) fn set_count(&self, count: usize) {
        debug_assert!(count <= BUCKETS * SLOTS_MAX);
        let shape = self.shape() & ((1 << COUNT_SHIFT) - 1);
        self.shape
            .store(shape | (count as u64) << COUNT_SHIFT, Ordering::Relaxed);
    }

    /// The unit's horizon; under the lock.
    pub(super) fn horizon(&self) -> Seqno {
        self.horizon
    }

    /// Whether a bucket has an empty slot; under the lock.
    pub(super) fn is_vacant(&self, bucket: usize) -> bool {
        self.vacant[bucket / 64].load(Ordering::Relaxed) >> (bucket % 64) & 1 != 0
    }

    /// Sets whether a bucket has an empty slot; under the lock.
    pub(super) fn set_vacant(&self, bucket: usize, vacant: bool) {
        let word = &self.vacant[bucket / 64];
        let bits = word.load(Ordering::Relaxed) & !(1 << (bucket % 64));
        word.store(bits | u64::from(vacant) << (bucket % 64), Ordering::Relaxed);
    }

    /// One of the [`BUCKETS`] buckets.
    pub(super) fn bucket(&self, bucket: usize) -> Bucket<'_> {
        let slots = self.slots();
        Bucket::new(self, bucket * bucket_words(slots), slots)
    }

    /// One of the buckets' words.
    #[inline]
    pub(super) fn word(&self, word: usize) -> &AtomicU64 {
        self.life.touch();
        match &self.chunks[word / CHUNK_WORDS] {
            Some(chunk) => &chunk[word % CHUNK_WORDS],
            None => unreachable!("a word of a bucket"),
        }
    }
}

/// A directory's pointer to a unit, null where nothing was inserted yet.
pub(super) struct UnitCell(Atomic<Unit>);

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
    pub(super) fn load<'g>(&self, guard: &'g Guard) -> Option<&'g Unit> {
        view(self.shared(guard))
    }

    fn shared<'g>(&self, guard: &'g Guard) -> Shared<'g, Unit> {
        // Acquire: with the Release store in `replace`.
        self.0.load(Ordering::Acquire, guard)
    }
}

#[expect(unsafe_code, reason = "dereferences an epoch-protected pointer")]
fn view<'g>(shared: Shared<'g, Unit>) -> Option<&'g Unit> {
    // SAFETY: U1 and U2: what a cell held after pinning is not freed before unpinning.
    unsafe { shared.as_ref() }
}

/// Puts `parts` in the place of the unit that `cells` point to, each in an equal share, and
/// retires that unit, if any. `cells` must be all cells with that unit of the shard's
/// current directory, and the caller the holder of the shard's lock.
pub(super) fn replace<const PARTS: usize>(cells: &[UnitCell], parts: [Unit; PARTS], guard: &Guard) {
    let old = cells[0].shared(guard);
    assert!(cells.iter().all(|cell| cell.shared(guard) == old)); // U1
    if PARTS == 0 {
        for cell in cells {
            cell.0.store(Shared::null(), Ordering::Release);
        }
    } else {
        assert_eq!(cells.len() % PARTS, 0, "equal shares");
        let share = cells.len() / PARTS;
        for (part, cells) in parts.into_iter().zip(cells.chunks(share)) {
            let part = Owned::new(part);
            part.life.begin();
            let part = part.into_shared(guard);
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
fn retire(unit: Shared<'_, Unit>, guard: &Guard) {
    // SAFETY: U1: the only caller has just unlinked it; U2: whoever still has it pinned.
    unsafe { guard.defer_destroy(unit) }
    // At once to the shared queue: the thread's own would keep 64 units, 3 MiB, in each.
    guard.flush();
}
