//! The families of one shard, by number: sorted, in chunks that have the nodes themselves, so
//! that a family of one object takes four bytes beside its node.
//!
//! Families are numbered in the order of their creation, so most come behind all others and
//! leave full chunks; removals leave holes, and chunks that hold few are joined.

use std::collections::BTreeMap;

use super::table::{Members, Node};

/// Most families of a chunk: an insertion or a removal moves half of so many nodes, some 3 KB.
const CHUNK_MAX: usize = 64;
/// Chunks are joined when they have so many together: then there is room for more.
const JOINED_MAX: usize = 48;
/// By how many entries a large chunk grows, and the slack it may have.
const STEP: usize = 8;

/// What a family of one object takes beside its node, about: its number, and its part of the
/// slack, the vectors and the allocator's words of a chunk.
pub(crate) const PLACE_BYTES: u64 = 8;

/// Neighbouring families of one object each.
struct Chunk {
    /// The number of the first family, which the others count from. It may be gone.
    first: u64,
    numbers: Vec<u32>,
    nodes: Vec<Node>,
}

impl Chunk {
    fn family(&self, at: usize) -> u64 {
        self.first + u64::from(self.numbers[at])
    }

    fn number_of(&self, family: u64) -> Option<u32> {
        u32::try_from(family.checked_sub(self.first)?).ok()
    }

    fn search(&self, family: u64) -> Result<usize, usize> {
        match self.number_of(family) {
            Some(number) => self.numbers.binary_search(&number),
            None if family < self.first => Err(0),
            None => Err(self.numbers.len()),
        }
    }

    fn insert(&mut self, at: usize, number: u32, node: Node) {
        if self.numbers.len() == self.numbers.capacity() {
            let step = (self.numbers.len() / 4).clamp(1, STEP);
            self.numbers.reserve_exact(step);
            self.nodes.reserve_exact(step);
        }
        self.numbers.insert(at, number);
        self.nodes.insert(at, node);
    }

    fn shrink(&mut self) {
        if self.numbers.capacity() >= self.numbers.len() + 2 * STEP {
            self.numbers.shrink_to(self.numbers.len() + STEP);
            self.nodes.shrink_to(self.nodes.len() + STEP);
        }
    }

    /// Counts from an earlier family.
    fn rebase(&mut self, first: u64) {
        let by = (self.first - first) as u32;
        self.numbers.iter_mut().for_each(|number| *number += by);
        self.first = first;
    }
}

/// A family as it is found.
pub(crate) enum Family<'a> {
    /// The common case: one object, which shares nothing.
    One(&'a Node),
    /// Clones, or what is left of them.
    Many(&'a Members),
}

/// A family to change.
pub(crate) enum FamilyMut<'a> {
    One(&'a mut Node),
    Many(&'a mut Members),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Families {
    /// In order; none is empty.
    chunks: Vec<Chunk>,
    many: BTreeMap<u64, Box<Members>>,
}

impl Families {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.many.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The numbers of all.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.iter().map(|(family, _)| family).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Family<'_>)> {
        let of_chunk = |chunk: &'_ Chunk| {
            let base = chunk.first;
            move |(number, node)| (base + u64::from(number), node)
        };
        let ones = self.chunks.iter().flat_map(move |chunk| {
            let nodes = chunk.nodes.iter().map(Family::One);
            chunk
                .numbers
                .iter()
                .copied()
                .zip(nodes)
                .map(of_chunk(chunk))
        });
        let many = self.many.iter();
        ones.chain(many.map(|(family, members)| (*family, Family::Many(members))))
    }

    pub(crate) fn contains(&self, family: u64) -> bool {
        self.get(family).is_some()
    }

    pub(crate) fn get(&self, family: u64) -> Option<Family<'_>> {
        if let Some(chunk) = self.chunks.get(self.chunk_of(family))
            && let Ok(at) = chunk.search(family)
        {
            return Some(Family::One(&chunk.nodes[at]));
        }
        self.many(family).map(Family::Many)
    }

    pub(crate) fn get_mut(&mut self, family: u64) -> Option<FamilyMut<'_>> {
        let chunk = self.chunk_of(family);
        let found = self.chunks.get(chunk).map(|chunk| chunk.search(family));
        match found {
            Some(Ok(at)) => Some(FamilyMut::One(&mut self.chunks[chunk].nodes[at])),
            _ => self.many_mut(family).map(FamilyMut::Many),
        }
    }

    pub(crate) fn many(&self, family: u64) -> Option<&Members> {
        self.many.get(&family).map(|members| &**members)
    }

    pub(crate) fn many_mut(&mut self, family: u64) -> Option<&mut Members> {
        self.many.get_mut(&family).map(|members| &mut **members)
    }

    /// Adds a family of one; its number must be free.
    pub(crate) fn insert_one(&mut self, family: u64, node: Node) {
        let mut chunk = self.chunk_of(family);
        let Some(found) = self.chunks.get_mut(chunk) else {
            self.insert_chunk(chunk, family, node);
            return;
        };
        if family < found.first {
            // Before all others.
            let far = u64::from(found.numbers[found.numbers.len() - 1]) + (found.first - family);
            if found.numbers.len() == CHUNK_MAX || u32::try_from(far).is_err() {
                self.insert_chunk(0, family, node);
                return;
            }
            found.rebase(family);
        }
        let Some(number) = found.number_of(family) else {
            self.insert_chunk(chunk + 1, family, node);
            return;
        };
        let Err(at) = found.numbers.binary_search(&number) else {
            unreachable!("the number of a new family is free")
        };
        if found.numbers.len() < CHUNK_MAX {
            found.insert(at, number, node);
            return;
        }
        if at == CHUNK_MAX {
            // Families that come in order leave full chunks behind.
            self.insert_chunk(chunk + 1, family, node);
            return;
        }
        let middle = CHUNK_MAX / 2;
        let right = Chunk {
            first: found.first,
            numbers: found.numbers.split_off(middle),
            nodes: found.nodes.split_off(middle),
        };
        found.shrink();
        self.chunks.insert(chunk + 1, right);
        self.settle_first(chunk + 1);
        if at >= middle && family >= self.chunks[chunk + 1].first {
            chunk += 1;
        }
        let found = &mut self.chunks[chunk];
        let (Some(number), Err(at)) = (found.number_of(family), found.search(family)) else {
            unreachable!("each half counts from no later than its first family")
        };
        found.insert(at, number, node);
    }

    /// Takes a family of one out.
    pub(crate) fn remove_one(&mut self, family: u64) -> Option<Node> {
        let at = self.chunk_of(family);
        let chunk = self.chunks.get_mut(at)?;
        let place = chunk.search(family).ok()?;
        chunk.numbers.remove(place);
        let node = chunk.nodes.remove(place);
        if chunk.numbers.is_empty() {
            self.chunks.remove(at);
            self.shrink();
            return Some(node);
        }
        chunk.shrink();
        if chunk.numbers.len() <= JOINED_MAX / 2 && !self.join(at) && at > 0 {
            self.join(at - 1);
        }
        Some(node)
    }

    pub(crate) fn insert_many(&mut self, family: u64, members: Box<Members>) {
        self.many.insert(family, members);
    }

    pub(crate) fn remove_many(&mut self, family: u64) -> Option<Box<Members>> {
        self.many.remove(&family)
    }

    /// The chunk that a family belongs to, which is there unless there is none.
    fn chunk_of(&self, family: u64) -> usize {
        self.chunks
            .partition_point(|chunk| chunk.first <= family)
            .saturating_sub(1)
    }

    fn insert_chunk(&mut self, at: usize, first: u64, node: Node) {
        let mut chunk = Chunk {
            first,
            numbers: Vec::new(),
            nodes: Vec::new(),
        };
        chunk.insert(0, 0, node);
        self.chunks.insert(at, chunk);
    }

    /// Makes a chunk count from its own first family.
    fn settle_first(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        let by = chunk.numbers[0];
        chunk.first = chunk.family(0);
        chunk.numbers.iter_mut().for_each(|number| *number -= by);
    }

    /// Joins a chunk and the next if they are small.
    fn join(&mut self, at: usize) -> bool {
        let [left, right] = self.chunks.get(at..at + 2).unwrap_or_default() else {
            return false;
        };
        let count = left.numbers.len() + right.numbers.len();
        let last = right.family(right.numbers.len() - 1);
        if count > JOINED_MAX || left.number_of(last).is_none() {
            return false;
        }
        let mut right = self.chunks.remove(at + 1);
        let left = &mut self.chunks[at];
        right.rebase(left.first);
        left.numbers.reserve_exact(right.numbers.len());
        left.nodes.reserve_exact(right.nodes.len());
        left.numbers.append(&mut right.numbers);
        left.nodes.append(&mut right.nodes);
        self.shrink();
        true
    }

    fn shrink(&mut self) {
        if self.chunks.capacity() > 4 * self.chunks.len() {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
    }
}

impl<'a> Family<'a> {
    pub(crate) fn get(&self, member: u32) -> Option<&'a Node> {
        match self {
            Self::One(node) => (node.member == member).then_some(*node),
            Self::Many(members) => members.nodes.get(&member).map(|node| &**node),
        }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (u32, &'a Node)> + Clone + use<'a> {
        let (one, many) = match self {
            Self::One(node) => (Some(*node), None),
            Self::Many(members) => (None, Some(members.nodes.values())),
        };
        let many = many.into_iter().flatten().map(|node| &**node);
        one.into_iter().chain(many).map(|node| (node.member, node))
    }
}

impl<'a> FamilyMut<'a> {
    /// A member to change, with the family's counts of shared payload.
    pub(crate) fn get(self, member: u32) -> Option<super::table::Changed<'a>> {
        match self {
            Self::One(node) => (node.member == member).then_some((node, None)),
            Self::Many(members) => {
                let node = members.nodes.get_mut(&member)?;
                Some((node, Some(&mut members.references)))
            }
        }
    }

    pub(crate) fn members(self) -> impl Iterator<Item = &'a mut Node> {
        let (one, many) = match self {
            Self::One(node) => (Some(node), None),
            Self::Many(members) => (None, Some(members.nodes.values_mut())),
        };
        let many = many.into_iter().flatten().map(|node| &mut **node);
        one.into_iter().chain(many)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::SpaceId;
    use super::super::table::Table;
    use super::*;

    fn node(table: &Table, version: u64) -> Node {
        let space = SpaceId {
            kind: 1,
            pool: 1,
            shard: 0,
        };
        Node::new(table.space(space), b"", version)
    }

    #[test]
    fn families_are_found_through_insertions_and_removals_in_any_order() {
        let table = Table::new();
        for seed in 0..10 {
            let mut random = fastrand::Rng::with_seed(seed);
            // Near one another, or too far for a chunk.
            let spread = [1, 256, 1 << 30, 1 << 36][random.usize(0..4)];
            let mut families = Families::default();
            let mut model: BTreeMap<u64, u64> = BTreeMap::new();
            let mut next = 0;
            for version in 0..4000 {
                next += random.u64(1..4);
                let number = match random.u8(0..4) {
                    0 => random.u64(0..4000),
                    _ => next,
                } * spread;
                if version % 1000 > 700 || model.contains_key(&number) {
                    let number = match model.range(number..).next() {
                        Some((number, _)) => *number,
                        None => number,
                    };
                    let removed = families.remove_one(number).map(|node| node.version);
                    assert_eq!(removed, model.remove(&number), "seed {seed}");
                } else {
                    families.insert_one(number, node(&table, version));
                    model.insert(number, version);
                }
                let probe = random.u64(0..4000) * spread;
                let found = families.get(probe).and_then(|family| family.get(0));
                let version = found.map(|node| node.version);
                assert_eq!(version, model.get(&probe).copied(), "seed {seed}");
                let changed = families.get_mut(probe).and_then(|family| family.get(0));
                assert_eq!(changed.map(|(node, _)| node.version), version);
            }
            let all: Vec<u64> = model.keys().copied().collect();
            assert_eq!(families.numbers(), all, "seed {seed}");
            for number in all {
                assert!(families.remove_one(number).is_some());
            }
            assert!(families.is_empty());
        }
    }

    #[test]
    fn a_family_of_one_takes_what_is_counted() {
        let table = Table::new();
        let mut families = Families::default();
        // Beside the nodes.
        let bytes = |families: &Families| {
            let chunk = |chunk: &Chunk| {
                let entry = size_of::<u32>() + size_of::<Node>();
                let all = size_of::<Chunk>() + 16 + chunk.numbers.capacity() * entry;
                all - chunk.nodes.len() * size_of::<Node>()
            };
            families.chunks.iter().map(chunk).sum::<usize>() as u64
        };
        for number in 0..4000 {
            families.insert_one(number * 256, node(&table, 1));
        }
        assert!(bytes(&families) <= 4000 * PLACE_BYTES);
        // Removals leave slack.
        for number in (0..4000).filter(|number| number % 3 > 0) {
            families.remove_one(number * 256);
        }
        let left = families.numbers().len() as u64;
        assert!(bytes(&families) <= left * (PLACE_BYTES + size_of::<Node>() as u64 / 2));
    }
}
