//! Payload that the cleaner moved: all members of a family follow it.

use std::collections::HashMap;
use std::ops::Range;

use super::draft::Draft;
use super::leaf::{Head, Leaf};
use super::{BLOCKS_MAX, ExtentMap, References, Unit};
use crate::format::{ADDRESS_BITS, Address};

/// A move of payload: blocks of an object from one place of the device to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    /// First logical block.
    pub(crate) first: u32,
    /// Number of blocks.
    pub(crate) count: u32,
    /// Where the first block was.
    pub(crate) old: Address,
    /// Where it is now.
    pub(crate) new: Address,
    /// The rewrite-interval exponent it has now.
    pub(crate) exponent: u8,
}

/// Moves those blocks that are still exactly where they were, in all maps of a family, and
/// returns how many stored bytes that are: as many died where they were.
///
/// Leaves that maps share stay shared.
///
/// # Panics
/// If the move is out of the range of blocks or addresses.
pub(crate) fn relocate(
    maps: &mut [&mut ExtentMap],
    change: Move,
    references: &mut References,
) -> u64 {
    let plan = Plan::new(change, references.unit());
    let mut moved = Vec::new();
    // Both the old and the new leaves stay until all maps have changed, so that no leaf is
    // taken for another that was at its place in memory.
    let mut rewritten: HashMap<*const u32, (Leaf, Vec<Leaf>)> = HashMap::new();
    for map in &mut *maps {
        // From the back, since a leaf may become two.
        for index in map.leaves_in(change.first, plan.end).rev() {
            let leaf = map.leaf(index);
            if let Some((_, leaves)) = rewritten.get(&leaf.identity()) {
                let leaves = leaves.clone();
                map.splice(index..index + 1, leaves);
            } else if plan.concerns(leaf) {
                let leaves = plan.rewrite(leaf, &mut moved);
                rewritten.insert(leaf.identity(), (leaf.clone(), leaves.clone()));
                map.splice(index..index + 1, leaves);
            }
        }
    }
    if rewritten.is_empty() {
        return 0;
    }
    drop(rewritten);
    for map in maps {
        let range = map.leaves_in(change.first, plan.end);
        map.join_small(range, plan.unit);
    }
    let mut units = 0;
    for piece in union(moved) {
        let length = piece.end - piece.start;
        references.moved(piece.start, plan.new_of(piece.start), length);
        units += length;
    }
    plan.unit.bytes(units)
}

/// The pieces of `ranges`, each unit once, in order.
fn union(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut pieces: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match pieces.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => pieces.push(range),
        }
    }
    pieces
}

/// A move and what follows from it.
struct Plan {
    change: Move,
    unit: Unit,
    /// The block after the last.
    end: u64,
}

impl Plan {
    /// Checks the ranges of a move.
    fn new(change: Move, unit: Unit) -> Self {
        let end = u64::from(change.first) + u64::from(change.count);
        assert!(end <= BLOCKS_MAX, "an object ends at block 2^32");
        let units = u64::from(change.count) * unit.block_units();
        assert!(
            change.new.units() + units <= 1 << ADDRESS_BITS,
            "move past the last address"
        );
        assert!(change.exponent < 8, "exponent out of range");
        Self { change, unit, end }
    }

    /// The new place of what was at `old`.
    fn new_of(&self, old: u64) -> u64 {
        old - self.change.old.units() + self.change.new.units()
    }

    /// The part of an extent that moves, as it was.
    fn part(&self, head: &Head) -> Option<Head> {
        let first = u64::from(self.change.first);
        let part = head.clip(first, self.end, self.unit)?;
        let skipped = u64::from(part.first) - first;
        let expected = self.change.old.units() + skipped * self.unit.block_units();
        (part.address == expected).then_some(part)
    }

    /// Whether something of the leaf moves.
    fn concerns(&self, leaf: &Leaf) -> bool {
        leaf.iter().any(|(head, _)| self.part(&head).is_some())
    }

    /// The leaf after the move; adds to `moved` the units that it referred to.
    fn rewrite(&self, leaf: &Leaf, moved: &mut Vec<Range<u64>>) -> Vec<Leaf> {
        let mut draft = Draft::new(self.unit);
        for (head, checksums) in leaf.iter() {
            let Some(part) = self.part(&head) else {
                draft.push(head, checksums);
                continue;
            };
            let units = self.unit.units(part.bytes());
            moved.push(part.address..part.address + units);
            let (before, rest) = checksums.split_at((part.first - head.first) as usize);
            let (own, after) = rest.split_at(part.count as usize);
            if let Some(kept) = head.clip(0, u64::from(part.first), self.unit) {
                draft.push(kept, before);
            }
            let placed = Head {
                address: self.new_of(part.address),
                exponent: self.change.exponent,
                ..part
            };
            draft.push(placed, own);
            if let Some(kept) = head.clip(part.end(), BLOCKS_MAX, self.unit) {
                draft.push(kept, after);
            }
        }
        draft.leaves(false)
    }
}
