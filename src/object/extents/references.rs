//! How many leaves of a family refer to each stored byte.
//!
//! Only what more than one refers to is written down, in pieces that do not overlap: a
//! leaf may hold all of an extent and its copy the ends that were not overwritten. What is
//! not written down and is in some leaf has one reference. A family of one object has no
//! pieces, and a family of many has as many as its members differ in.

use std::collections::{BTreeMap, HashSet};

use super::leaf::Head;
use super::{Dead, Dropped, ExtentMap, Unit};
use crate::format::Address;

/// A piece that more than one leaf refers to; its place is its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Its length in units.
    units: u32,
    /// How many refer to it: 2 or more.
    count: u32,
}

/// What is written down of a range, and beside it.
struct Found {
    /// The count of all of it: 1 when nothing is written down; `None` when it is mixed.
    count: Option<u32>,
    /// The counts of the pieces that end where it begins and begin where it ends.
    beside: [Option<u32>; 2],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct References {
    unit: Unit,
    pieces: BTreeMap<u64, Piece>,
}

impl References {
    /// Those of a family in which nothing is shared.
    pub(crate) fn new(unit: Unit) -> Self {
        Self {
            unit,
            pieces: BTreeMap::new(),
        }
    }

    /// Counts those of a whole family, and tells `live` of every stored byte once.
    pub(crate) fn count<'a>(
        unit: Unit,
        maps: impl IntoIterator<Item = &'a ExtentMap>,
        live: &mut Dead<'_>,
    ) -> Self {
        let mut seen = HashSet::new();
        let mut edges = Vec::new();
        for leaf in maps.into_iter().flat_map(ExtentMap::each_leaf) {
            if seen.insert(leaf.identity()) {
                for (head, _) in leaf.iter() {
                    let units = unit.units(head.bytes());
                    edges.push((head.address, 1));
                    edges.push((head.address + units, -1));
                }
            }
        }
        edges.sort_unstable();
        let mut references = Self::new(unit);
        let (mut from, mut count) = (0, 0);
        for (at, step) in edges {
            if at > from && count > 0 {
                live(references.dropped(from, at - from));
            }
            if at > from && count > 1 {
                let units = (at - from) as u32;
                references.pieces.insert(from, Piece { units, count });
                references.coalesce(from);
            }
            from = at;
            count = count.wrapping_add_signed(step);
        }
        references
    }

    /// The unit of the store's addresses.
    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// Whether every byte has one reference.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether both say the same of every byte.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.pieces == other.pieces
    }

    /// Test hook: counts one reference of a map's first extent too many.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn miscount(&mut self, map: &ExtentMap) {
        let first = map.each_leaf().next().and_then(|leaf| leaf.iter().next());
        if let Some((head, _)) = first {
            self.piece_added(&head);
        }
    }

    /// Bytes of memory, about: a node of a B-tree is two thirds full.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pieces.len() * (size_of::<u64>() + size_of::<Piece>()) * 3 / 2
    }

    /// One more leaf refers to a piece, which some other refers to already.
    pub(super) fn piece_added(&mut self, head: &Head) {
        let (start, end) = self.bounds(head);
        if self.recount(start, end, |count| count.saturating_add(1)) {
            return;
        }
        self.split(start);
        self.split(end);
        // Where nothing is written down the other is the only one.
        let mut gaps = Vec::new();
        let mut at = start;
        for (&from, piece) in self.pieces.range_mut(start..end) {
            if from > at {
                gaps.push((at, from - at));
            }
            piece.count = piece.count.saturating_add(1);
            at = from + u64::from(piece.units);
        }
        if end > at {
            gaps.push((at, end - at));
        }
        for (from, units) in gaps {
            let piece = Piece {
                units: units as u32,
                count: 2,
            };
            self.pieces.insert(from, piece);
        }
        // Neighbours inside differed by their counts before, and still do.
        self.coalesce(start);
        self.coalesce(end);
    }

    /// One leaf less refers to a piece: `dead` hears of what no other refers to.
    pub(super) fn piece_dropped(&mut self, head: &Head, dead: &mut Dead<'_>) {
        let (start, end) = self.bounds(head);
        if self.pieces.is_empty() {
            dead(self.dropped(start, end - start));
            return;
        }
        let mut before = 0;
        if self.recount(start, end, |count| {
            before = count;
            (count - 1).max(1)
        }) {
            if before == 1 {
                dead(self.dropped(start, end - start));
            }
            return;
        }
        self.split(start);
        self.split(end);
        let unit = self.unit;
        let mut single = Vec::new();
        let mut at = start;
        for (&from, piece) in self.pieces.range_mut(start..end) {
            if from > at {
                dead(dropped(unit, at, from - at));
            }
            piece.count -= 1;
            if piece.count == 1 {
                single.push(from);
            }
            at = from + u64::from(piece.units);
        }
        if end > at {
            dead(dropped(unit, at, end - at));
        }
        for from in single {
            self.pieces.remove(&from);
        }
        self.coalesce(start);
        self.coalesce(end);
    }

    /// Counts a range anew if it has one count and has it alone, before and after: most
    /// often it is one piece or none, and then this is one search and not six.
    fn recount(&mut self, start: u64, end: u64, anew: impl FnOnce(u32) -> u32) -> bool {
        let found = self.find(start, end);
        let Some(old) = found.count else {
            return false;
        };
        let count = anew(old);
        if count > 1 && found.beside.contains(&Some(count)) {
            return false;
        }
        match (old, count) {
            (1, 1) => {}
            (_, 1) => {
                self.pieces.remove(&start);
            }
            _ => {
                let units = (end - start) as u32;
                self.pieces.insert(start, Piece { units, count });
            }
        }
        true
    }

    /// Looks a range up.
    fn find(&self, start: u64, end: u64) -> Found {
        let mut found = Found {
            count: Some(1),
            beside: [None, None],
        };
        for (&from, piece) in self.pieces.range(..=end).rev() {
            let until = from + u64::from(piece.units);
            if from == end {
                found.beside[1] = Some(piece.count);
            } else if until <= start {
                found.beside[0] = (until == start).then_some(piece.count);
                break;
            } else if (from, until) == (start, end) {
                found.count = Some(piece.count);
            } else {
                found.count = None;
                break;
            }
        }
        found
    }

    /// The `units` at `old` are at `new` from now on, for all that refer to them.
    pub(super) fn moved(&mut self, old: u64, new: u64, units: u64) {
        if self.pieces.is_empty() {
            return;
        }
        let moved = self.take(old, units);
        // Nothing refers to a place before it is written, except in a replay of a log whose
        // segments were reused; counts are made afresh after that.
        self.take(new, units);
        for (from, piece) in moved {
            self.pieces.insert(new + (from - old), piece);
            self.coalesce(new + (from - old));
        }
        self.coalesce(new + units);
        self.coalesce(old);
    }

    /// Takes out the pieces of a range.
    fn take(&mut self, start: u64, units: u64) -> Vec<(u64, Piece)> {
        let end = start + units;
        self.split(start);
        self.split(end);
        let taken: Vec<_> = self
            .pieces
            .range(start..end)
            .map(|(&from, &piece)| (from, piece))
            .collect();
        for (from, _) in &taken {
            self.pieces.remove(from);
        }
        taken
    }

    /// Where the stored bytes of an extent begin and end, in units.
    fn bounds(&self, head: &Head) -> (u64, u64) {
        (head.address, head.address + self.unit.units(head.bytes()))
    }

    /// Makes a piece begin at `at` if one spans it.
    fn split(&mut self, at: u64) {
        let Some((&from, piece)) = self.pieces.range_mut(..at).next_back() else {
            return;
        };
        let end = from + u64::from(piece.units);
        if end > at {
            piece.units = (at - from) as u32;
            let rest = Piece {
                units: (end - at) as u32,
                count: piece.count,
            };
            self.pieces.insert(at, rest);
        }
    }

    /// Joins the pieces that meet at `at` if they have the same count.
    fn coalesce(&mut self, at: u64) {
        let mut around = self.pieces.range_mut(..=at);
        let Some((&from, &mut right)) = around.next_back() else {
            return;
        };
        if from != at {
            return;
        }
        let Some((&from, left)) = around.next_back() else {
            return;
        };
        let meets = from + u64::from(left.units) == at && left.count == right.count;
        if meets && let Some(units) = left.units.checked_add(right.units) {
            left.units = units;
            self.pieces.remove(&at);
        }
    }

    /// See [`dropped`].
    fn dropped(&self, start: u64, units: u64) -> Dropped {
        dropped(self.unit, start, units)
    }

    /// Every piece: first unit, units, count.
    #[cfg(test)]
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, u64, u32)> {
        self.pieces
            .iter()
            .map(|(&from, piece)| (from, u64::from(piece.units), piece.count))
    }
}

/// The bytes of some units.
fn dropped(unit: Unit, start: u64, units: u64) -> Dropped {
    Dropped {
        address: Address::new(start),
        bytes: unit.bytes(units),
    }
}
