//! Growing units: one more slot per bucket, or at the most slots a split in two.
//!
//! The work is one copy of a unit's entries, a few microseconds. A unit of `s` slots per
//! bucket grows by 1/s, so that memory follows the number of entries closely at any size.

use super::bucket::Home;
use super::entry::Slot;
use super::position::{Place, ScanPosition};
use super::unit::{NewUnit, Unit, capacity};
use super::{BUCKETS, SLOTS_MAX, next_bucket};
use crate::format::{KeyHash, Seqno};

/// Entries by home bucket.
pub(super) type Counts = [u16; BUCKETS];

/// How entries by home fit in buckets: each bucket passes on as few as it can.
#[derive(Debug, Clone, Copy)]
struct Arrangement {
    /// Of each home, the entries that are displaced.
    displaced: Counts,
}

impl Arrangement {
    /// The arrangement of `counts` in buckets of `slots`, if there is one.
    fn of(counts: &Counts, slots: usize) -> Option<Self> {
        let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
        if total > BUCKETS * slots {
            return None;
        }
        let mut displaced = [0; BUCKETS];
        // What the last bucket passes to the first is known after one round.
        let mut carry = 0;
        for _ in 0..2 {
            for (count, passed) in counts.iter().zip(displaced.iter_mut()) {
                if carry > slots {
                    return None;
                }
                carry = (carry + usize::from(*count)).saturating_sub(slots);
                *passed = carry as u16;
            }
        }
        (carry <= slots).then_some(Self { displaced })
    }
}

/// The fewest slots per bucket, at least `least`, at which a unit has room for `counts`.
pub(super) fn slots_for(counts: &Counts, least: usize) -> Option<usize> {
    let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
    (least..=SLOTS_MAX)
        .find(|&slots| total <= capacity(slots) && Arrangement::of(counts, slots).is_some())
}

/// A new unit being filled with entries whose homes are known beforehand.
pub(super) struct Filler {
    unit: NewUnit,
    /// Of each home, the entries that are still to come and stay at home.
    kept: Counts,
    /// Of each bucket, the slots filled.
    filled: Counts,
}

impl Filler {
    /// A unit for entries of these homes; `None` if they do not fit in `slots`.
    pub(super) fn new(counts: &Counts, slots: usize, depth: u32, horizon: Seqno) -> Option<Self> {
        let arrangement = Arrangement::of(counts, slots)?;
        let mut kept = *counts;
        for (kept, displaced) in kept.iter_mut().zip(&arrangement.displaced) {
            *kept -= displaced;
        }
        Some(Self {
            unit: NewUnit::new(slots, depth, horizon),
            kept,
            filled: [0; BUCKETS],
        })
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, home: usize, slot: Slot) {
        let (bucket, kind) = if self.kept[home] > 0 {
            self.kept[home] -= 1;
            (home, Home::This)
        } else {
            (next_bucket(home), Home::Previous)
        };
        let index = usize::from(self.filled[bucket]);
        self.filled[bucket] += 1;
        self.unit
            .view()
            .bucket(bucket)
            .fill_private(index, slot, kind);
        if kind == Home::Previous {
            self.unit.view().bucket(home).overflow_private();
        }
    }

    /// The unit.
    pub(super) fn finish(self) -> NewUnit {
        debug_assert!(self.kept.iter().all(|&kept| kept == 0), "all entries came");
        let count = self.filled.iter().map(|&filled| usize::from(filled)).sum();
        self.unit.view().set_count(count);
        self.unit
    }
}

/// Entries of a unit by home; under the lock.
pub(super) fn counts(unit: Unit<'_>) -> Counts {
    std::array::from_fn(|home| unit.homed(home).count() as u16)
}

/// Every entry of a unit with its home; under the lock.
fn entries(unit: Unit<'_>) -> impl Iterator<Item = (usize, Slot)> {
    (0..BUCKETS).flat_map(move |home| unit.homed(home).map(move |slot| (home, slot)))
}

/// What takes a full unit's place.
pub(super) enum Grown {
    /// A unit of the same depth with more slots.
    Larger(NewUnit),
    /// Two units, one bit deeper.
    Split([NewUnit; 2]),
}

/// Makes what takes the place of `unit`, with room for `wanted` besides its entries: hashes
/// of its range that it does not hold.
pub(super) fn grow(unit: Unit<'_>, wanted: &[KeyHash]) -> Grown {
    let depth = unit.depth();
    let counts = counts(unit);
    let mut with_wanted = counts;
    for hash in wanted {
        with_wanted[Place::of(*hash, depth).bucket] += 1;
    }
    if let Some(slots) = slots_for(&with_wanted, unit.slots() + 1)
        && let Some(mut filler) = Filler::new(&counts, slots, depth, unit.horizon())
    {
        for (home, slot) in entries(unit) {
            filler.push(home, slot);
        }
        return Grown::Larger(filler.finish());
    }
    Grown::Split(split(unit, wanted))
}

/// The child and the home there of an entry with this home in the parent.
fn descend(home: usize, slot: Slot) -> (usize, usize, Slot) {
    let (slot, bit) = slot.split();
    let child = home / (BUCKETS / 2);
    (child, home % (BUCKETS / 2) * 2 + bit, slot)
}

fn split(unit: Unit<'_>, wanted: &[KeyHash]) -> [NewUnit; 2] {
    let depth = unit.depth() + 1;
    let mut counts = [[0; BUCKETS]; 2];
    for (home, slot) in entries(unit) {
        let (child, home, _) = descend(home, slot);
        counts[child][home] += 1;
    }
    let mut with_wanted = counts;
    for hash in wanted {
        let child = ScanPosition::of(*hash).bucket(depth - 1) / (BUCKETS / 2);
        with_wanted[child][Place::of(*hash, depth).bucket] += 1;
    }
    let mut fillers = [0, 1].map(|child| {
        // A child too full even so is split in turn by whoever asked for room.
        let slots = slots_for(&with_wanted[child], 1).unwrap_or(SLOTS_MAX);
        let filler = Filler::new(&counts[child], slots, depth, unit.horizon());
        filler.expect("the entries of a unit fit in two")
    });
    for (home, slot) in entries(unit) {
        let (child, home, slot) = descend(home, slot);
        fillers[child].push(home, slot);
    }
    fillers.map(Filler::finish)
}
