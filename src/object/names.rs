//! The names of a space: in the order of their sort keys, each leading to an object, and kept
//! nowhere else.
//!
//! A node has the reversed hash of its name, no more; [`Names::name_of`] finds the name that
//! leads to it among those of the hash, which is one or a few. Names that this would not find
//! in good time are kept by id as well: those of another shard or pool than the space's, and
//! those of a hash that has more than [`CROWD`] of them. So are names that objects claim at
//! once while records are replayed, until it turns out whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::index::OrderedMap;

use super::name::{NO_SHARD, ObjectName, PREFIX_BYTES, compact, expand, reversed_hash_of};
use super::{ObjectId, SpaceId};

/// Names of one hash that are walked to find one of them: some 10 us.
const CROWD: usize = if cfg!(test) { 8 } else { 1024 };
/// Bytes of a sort key before the reversed hash.
const USUAL_BYTES: usize = PREFIX_BYTES - size_of::<u32>();
/// Pool of the objects of `meta`.
const META_POOL: i64 = -1;

/// A word is a family and a member of so many bits, or tells which of [`Names::wide`].
const MEMBER_BITS: u32 = 16;
const WIDE: u64 = 1 << 63;
/// What a name that is kept by id takes there, beside its bytes.
const BY_ID_BYTES: u64 = 72;

/// See the module.
pub(crate) struct Names {
    /// How the sort keys begin that are of the shard and a pool of the space: its own, and that
    /// of its temporary objects.
    usual: [[u8; USUAL_BYTES]; 2],
    /// From the compact form of a sort key to the word of an id.
    map: OrderedMap,
    /// Ids that do not fit in a word.
    wide: BTreeMap<u64, ObjectId>,
    next_wide: u64,
    /// Sort keys that are not found by their hash.
    by_id: BTreeMap<ObjectId, Box<[u8]>>,
    /// Hashes all of whose names are in `by_id`.
    crowds: BTreeSet<u32>,
    by_id_bytes: u64,
}

/// What a search for a name by its object comes to.
pub(crate) enum Found {
    /// The sort key.
    Name(Vec<u8>),
    Nothing,
    /// Too many names have the hash: [`Names::crowd`] is called for.
    Crowd,
}

impl Names {
    pub(crate) fn new(space: SpaceId) -> Self {
        let (shard, pool) = match space.kind {
            0 => (NO_SHARD, META_POOL),
            _ => (space.shard, space.pool),
        };
        let temporary = (-2_i64).checked_sub(pool).unwrap_or(pool);
        let usual = [pool, temporary].map(|pool| {
            let (start, _) = ObjectName::hash_range(shard, pool, 0, 0);
            start.first_chunk().copied().unwrap_or_default()
        });
        Self {
            usual,
            map: OrderedMap::default(),
            wide: BTreeMap::new(),
            next_wide: WIDE,
            by_id: BTreeMap::new(),
            crowds: BTreeSet::new(),
            by_id_bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The object that a sort key leads to.
    pub(crate) fn find(&self, key: &[u8]) -> Option<ObjectId> {
        self.map.get(&compact(key)).map(|word| self.id_of(word))
    }

    /// Makes a sort key lead to an object; returns which one it led to before.
    pub(crate) fn insert(&mut self, key: &[u8], id: ObjectId) -> Option<ObjectId> {
        let word = self.word_of(id);
        let before = self.map.insert(&compact(key), word);
        let before = before.map(|word| self.forget(word, key));
        let hash = reversed_hash_of(key);
        if self.crowds.contains(&hash) || !self.is_usual(key) {
            self.keep(key, id);
        }
        before
    }

    /// Removes a sort key; returns which object it led to.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<ObjectId> {
        let word = self.map.remove(&compact(key))?;
        Some(self.forget(word, key))
    }

    /// Gives an object a name while records are replayed: another may have it, which is to be
    /// removed or renamed yet.
    pub(crate) fn claim(&mut self, key: &[u8], id: ObjectId) {
        if let Some(owner) = self.insert(key, id) {
            self.insert(key, owner);
            self.keep(key, id);
        }
    }

    /// Takes an object's name from it while records are replayed.
    pub(crate) fn disclaim(&mut self, hash: u32, id: ObjectId) {
        if let Found::Crowd = self.name_of(hash, id) {
            self.crowd(hash);
        }
        let Found::Name(key) = self.name_of(hash, id) else {
            return;
        };
        if self.find(&key) == Some(id) {
            self.remove(&key);
        } else {
            self.drop_kept(id);
        }
    }

    /// When all is replayed: names that were claimed belong to who is left. False when two
    /// are.
    pub(crate) fn settle(&mut self) -> bool {
        let kept = self.by_id.iter().map(|(id, key)| (*id, key.clone()));
        let kept: Vec<_> = kept.collect();
        let mut agree = true;
        for (id, key) in kept {
            match self.find(&key) {
                None => {
                    self.drop_kept(id);
                    self.insert(&key, id);
                }
                Some(owner) => agree &= owner == id,
            }
        }
        agree
    }

    /// The sort key that leads to an object whose name has this reversed hash.
    pub(crate) fn name_of(&self, hash: u32, id: ObjectId) -> Found {
        if let Some(key) = self.by_id.get(&id) {
            return Found::Name(key.to_vec());
        }
        if self.crowds.contains(&hash) {
            return Found::Nothing;
        }
        let mut found = Found::Nothing;
        let mut seen = 0;
        self.each_of_hash(hash, &mut |key, word| {
            seen += 1;
            if self.id_of(word) == id {
                found = Found::Name(expand(key));
            } else if seen > CROWD {
                found = Found::Crowd;
            }
            matches!(found, Found::Nothing)
        });
        found
    }

    /// Keeps the names of a hash by id.
    pub(crate) fn crowd(&mut self, hash: u32) {
        let mut all = Vec::new();
        self.each_of_hash(hash, &mut |key, word| {
            all.push((expand(key), self.id_of(word)));
            true
        });
        self.crowds.insert(hash);
        for (key, id) in all {
            self.keep(&key, id);
        }
    }

    /// Calls with the sort keys from the first to before the last, in order, until it returns
    /// false.
    pub(crate) fn visit(
        &self,
        first: &[u8],
        last: &[u8],
        call: &mut dyn FnMut(&[u8], ObjectId) -> bool,
    ) {
        let (first, last) = (compact(first), compact(last));
        let range = (Bound::Included(&*first), Bound::Excluded(&*last));
        self.map
            .visit(range, &mut |key, word| call(&expand(key), self.id_of(word)));
    }

    /// Calls with everything.
    pub(crate) fn each(&self, call: &mut dyn FnMut(&[u8], ObjectId)) {
        let all = (Bound::Unbounded, Bound::Unbounded);
        self.map.visit(all, &mut |key, word| {
            call(&expand(key), self.id_of(word));
            true
        });
    }

    /// Bytes of DRAM below the struct.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let map = self.map.memory_bytes() - size_of::<OrderedMap>();
        map as u64 + self.by_id_bytes + 64 * self.wide.len() as u64
    }

    /// Calls with the compact names of a hash in the pools that objects of the space are of.
    fn each_of_hash(&self, hash: u32, call: &mut dyn FnMut(&[u8], u64) -> bool) {
        let mut goes_on = true;
        for prefix in &self.usual {
            let first = [&prefix[..], &hash.to_be_bytes()].concat();
            let from = (Bound::Included(&*first), Bound::Unbounded);
            self.map.visit(from, &mut |key, word| {
                let is_of_hash = key.starts_with(&first);
                goes_on = !is_of_hash || call(key, word);
                is_of_hash && goes_on
            });
            if !goes_on {
                return;
            }
        }
    }

    /// Whether a name is of the shard and a pool of the space.
    fn is_usual(&self, key: &[u8]) -> bool {
        self.usual.iter().any(|prefix| key.starts_with(prefix))
    }

    fn keep(&mut self, key: &[u8], id: ObjectId) {
        if let Some(old) = self.by_id.insert(id, key.into()) {
            self.by_id_bytes -= BY_ID_BYTES + old.len() as u64;
        }
        self.by_id_bytes += BY_ID_BYTES + key.len() as u64;
    }

    fn drop_kept(&mut self, id: ObjectId) {
        if let Some(key) = self.by_id.remove(&id) {
            self.by_id_bytes -= BY_ID_BYTES + key.len() as u64;
        }
        if self.by_id.is_empty() {
            self.crowds.clear();
        }
    }

    /// Forgets all but the entry of a key that led to an object.
    fn forget(&mut self, word: u64, key: &[u8]) -> ObjectId {
        let id = self.id_of(word);
        self.wide.remove(&word);
        // It may have claimed another name.
        if self.by_id.get(&id).is_some_and(|kept| **kept == *key) {
            self.drop_kept(id);
        }
        id
    }

    fn word_of(&mut self, id: ObjectId) -> u64 {
        let fits = id.family < WIDE >> MEMBER_BITS && id.member < 1 << MEMBER_BITS;
        if fits {
            return id.family << MEMBER_BITS | u64::from(id.member);
        }
        let word = self.next_wide;
        self.next_wide += 1;
        self.wide.insert(word, id);
        word
    }

    fn id_of(&self, word: u64) -> ObjectId {
        if word & WIDE == 0 {
            return ObjectId {
                family: word >> MEMBER_BITS,
                member: (word & ((1 << MEMBER_BITS) - 1)) as u32,
            };
        }
        match self.wide.get(&word) {
            Some(id) => *id,
            None => unreachable!("a wide id is kept as long as its name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId {
        kind: 1,
        pool: 7,
        shard: NO_SHARD,
    };

    fn id(number: u64) -> ObjectId {
        // Some fit in a word and some do not.
        ObjectId {
            family: number << (number % 4 * 16),
            member: (number % 3) as u32 * 40_000,
        }
    }

    /// Names of a few hashes, most of one: of the space's pools and of others.
    fn some_name(random: &mut fastrand::Rng) -> Vec<u8> {
        let pool = [7, 7, 7, -9, 3][random.usize(0..5)];
        let hash = [1, 1, 1, 2, u32::MAX][random.usize(0..5)];
        let snap = [super::super::NO_SNAP, 1, 300][random.usize(0..3)];
        ObjectName::new(pool, hash, vec![random.u8(0..6)])
            .with_snap(snap)
            .sort_key()
    }

    #[test]
    fn every_name_is_found_both_ways_through_insertions_and_removals() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut names = Names::new(SPACE);
            let mut model: BTreeMap<Vec<u8>, ObjectId> = BTreeMap::new();
            for number in 1..400 {
                let key = some_name(&mut random);
                if random.u8(0..3) == 0 {
                    assert_eq!(names.remove(&key), model.remove(&key), "seed {seed}");
                } else {
                    let before = names.insert(&key, id(number));
                    assert_eq!(before, model.insert(key, id(number)), "seed {seed}");
                }
                let key = some_name(&mut random);
                assert_eq!(names.find(&key), model.get(&key).copied(), "seed {seed}");
                if let Some(id) = model.get(&key) {
                    let hash = reversed_hash_of(&key);
                    if let Found::Crowd = names.name_of(hash, *id) {
                        names.crowd(hash);
                    }
                    let Found::Name(found) = names.name_of(hash, *id) else {
                        panic!("seed {seed}: no name");
                    };
                    assert_eq!(found, key, "seed {seed}");
                }
            }
            let mut all = BTreeMap::new();
            names.each(&mut |key, id| {
                all.insert(key.to_vec(), id);
            });
            assert_eq!(all, model, "seed {seed}");
            for key in model.into_keys() {
                names.remove(&key);
            }
            assert!(names.by_id.is_empty() && names.crowds.is_empty() && names.wide.is_empty());
            assert_eq!(names.by_id_bytes, 0);
        }
    }

    #[test]
    fn a_name_claimed_twice_is_the_last_ones_or_nobodys() {
        let key = ObjectName::new(7, 1, "o").sort_key();
        let hash = reversed_hash_of(&key);
        let mut names = Names::new(SPACE);
        names.claim(&key, id(1));
        names.claim(&key, id(2));
        for number in [1, 2] {
            let found = names.name_of(hash, id(number));
            assert!(matches!(found, Found::Name(found) if found == key));
        }
        assert!(!names.settle(), "both are there");
        names.disclaim(hash, id(1));
        assert!(names.settle());
        assert_eq!(names.find(&key), Some(id(2)));
        assert!(names.by_id.is_empty(), "it is found by its hash");
    }
}
