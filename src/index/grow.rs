//! Growing units: one more slot per bucket, or at the most slots a split in two.
//!
//! The work is one copy of a unit's entries, some tens of microseconds. A unit of `s` slots
//! per bucket grows by 1/s, so that memory follows the number of entries at any size.

use super::position::ScanPosition;
use super::probe::Homed;
use super::unit::{Unit, capacity};
use super::{BUCKETS, SLOTS_MAX};
use crate::format::{KeyHash, Seqno};

/// A unit with these entries, of the fewest slots per bucket, at least `least`, that leave
/// room for `more`. `None` if the most slots are too few for the entries; when they are too
/// few only for `more`, whoever inserts these grows the unit again.
pub(super) fn build(
    entries: &[Homed],
    more: usize,
    least: usize,
    depth: u32,
    horizon: Seqno,
) -> Option<Unit> {
    let least = (least..SLOTS_MAX).find(|&slots| entries.len() + more <= capacity(slots));
    let slots = least.unwrap_or(SLOTS_MAX)..=SLOTS_MAX;
    slots
        .into_iter()
        .find_map(|slots| fill(entries, Unit::new(slots, depth, horizon)))
}

/// Fills an empty unit; `None` if they do not fit.
fn fill(entries: &[Homed], unit: Unit) -> Option<Unit> {
    if entries.len() > capacity(unit.slots()) {
        return None;
    }
    let mut filled = [0; BUCKETS];
    let mut rest = Vec::new();
    for &(home, slot) in entries {
        let index = &mut filled[home];
        if *index == unit.slots() {
            rest.push((home, slot));
            continue;
        }
        unit.bucket(home).fill_private(*index, slot);
        *index += 1;
    }
    for (bucket, &filled) in filled.iter().enumerate() {
        unit.set_vacant(bucket, filled < unit.slots());
    }
    unit.set_count(entries.len() - rest.len());
    rest.iter()
        .all(|&(home, slot)| unit.place(home, slot))
        .then_some(unit)
}

/// What takes a full unit's place.
#[expect(
    clippy::large_enum_variant,
    reason = "lives for one call, never in a collection"
)]
pub(super) enum Grown {
    /// A unit of the same depth with more slots.
    Larger(Unit),
    /// Two units, one bit deeper.
    Split([Unit; 2]),
}

/// Makes what takes the place of `unit`, with room for `wanted` besides its entries: hashes
/// of its range that it does not hold. `None` if its entries cannot be arranged in two units
/// either: only hashes made for that, or damage that made them, bring it about.
pub(super) fn grow(unit: &Unit, wanted: &[KeyHash]) -> Option<Grown> {
    let (depth, horizon) = (unit.depth(), unit.horizon());
    let entries = unit.entries();
    let total = entries.len() + wanted.len();
    if unit.slots() < SLOTS_MAX && total <= capacity(SLOTS_MAX) {
        let least = unit.slots() + 1;
        if let Some(unit) = build(&entries, wanted.len(), least, depth, horizon) {
            return Some(Grown::Larger(unit));
        }
    }
    let mut children = [Vec::new(), Vec::new()];
    for (home, slot) in entries {
        let (slot, bit) = slot.split();
        // The bucket's top bit selects the child, the tag's becomes the bucket's lowest.
        let child = &mut children[home / (BUCKETS / 2)];
        child.push((home % (BUCKETS / 2) * 2 + bit, slot));
    }
    let second = |hash: &&KeyHash| ScanPosition::of(**hash).bucket(depth) >= BUCKETS / 2;
    let second = wanted.iter().filter(second).count();
    let more = [wanted.len() - second, second];
    let child = |child: usize| build(&children[child], more[child], 1, depth + 1, horizon);
    Some(Grown::Split([child(0)?, child(1)?]))
}
