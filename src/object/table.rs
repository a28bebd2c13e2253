//! The nodes of all objects, and the names that lead to them.
//!
//! A node is found by its id in a shard, an id by its name in a space. Everything of a node
//! is guarded by its shard's lock; a space's names by the space's. Who holds a space's lock
//! takes no shard's: a reader looks the id up, lets the space go, and then looks at the node.

use std::collections::BTreeMap;

use crate::format::Seqno;
use crate::sync::{
    AtomicI64, AtomicU64, MODEL, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, SharedArc,
};

use super::attributes::Attributes;
use super::extents::{ExtentMap, References, Unit, allocated_bytes};
use super::families::{Families, Family, PLACE_BYTES};
use super::name::reversed_hash_of;
use super::names::{Found, Names};
use super::omap::Omap;
use super::{ObjectId, SPACE_BYTES, SpaceId};

/// Checkpoint partitions. A family's is fixed by its number in a round of so many: media know
/// it.
pub(crate) const PARTITIONS: u32 = if MODEL { 1 } else { 64 };
const ROUND: usize = if MODEL { 2 } else { 256 };
/// Families of a round in one partition.
const ROUND_PART: usize = ROUND / PARTITIONS as usize;
/// Rounds until a shard gets a family again: a transaction on 64 objects then locks no more
/// than a 64th of all shards, and one that is not concerned waits for few of them.
const ROUNDS: usize = if MODEL { 1 } else { 16 };
/// Shards of nodes.
pub(crate) const SHARDS: usize = ROUND * ROUNDS;
pub(crate) const SHARDS_A_PARTITION: usize = SHARDS / PARTITIONS as usize;

/// One object. Its name is in its space alone.
pub(crate) struct Node {
    /// Seqno of the last change, a relocation too.
    pub(crate) version: Seqno,
    pub(crate) bytes: u64,
    /// Bytes stored of the blocks that are mapped.
    pub(crate) stored_bytes: u64,
    pub(crate) space: SharedArc<Space>,
    /// The reversed hash of its name, for [`Space::name_of`].
    pub(crate) hash: u32,
    /// Its number in its family.
    pub(crate) member: u32,
    pub(crate) attributes: Attributes,
    pub(crate) extents: ExtentMap,
    pub(crate) omap: Option<Box<Omap>>,
    /// What `set_alloc_hint` said, and how often the name changed.
    hint: [u16; 3],
    renames: u16,
}

/// What every object pays.
const _: () = assert!(size_of::<Node>() <= 88);

/// A node to change, and its family's counts of shared payload if it may share any.
pub(crate) type Changed<'a> = (&'a mut Node, Option<&'a mut References>);

impl Node {
    pub(crate) fn new(space: SharedArc<Space>, name: &[u8], version: Seqno) -> Self {
        Self {
            version,
            bytes: 0,
            stored_bytes: 0,
            space,
            hash: reversed_hash_of(name),
            member: 0,
            attributes: Attributes::default(),
            extents: ExtentMap::default(),
            omap: None,
            hint: [0; 3],
            renames: 0,
        }
    }

    /// What `set_alloc_hint` said, 0 when nothing.
    pub(crate) fn hint(&self) -> u64 {
        let [low, middle, high] = self.hint.map(u64::from);
        low | middle << 16 | high << 32
    }

    /// `hint` has no more than 48 bits.
    pub(crate) fn set_hint(&mut self, hint: u64) {
        self.hint = [0, 16, 32].map(|shift| (hint >> shift) as u16);
    }

    /// Its name is another now.
    pub(crate) fn renamed(&mut self, name: &[u8]) {
        self.hash = reversed_hash_of(name);
        self.renames = self.renames.wrapping_add(1);
    }

    /// Changes with every change of the name, for who looks at a node twice.
    pub(crate) fn renames(&self) -> u16 {
        self.renames
    }

    pub(crate) fn id(&self, family: u64) -> ObjectId {
        let member = self.member;
        ObjectId { family, member }
    }

    /// Bytes of DRAM of the node and its place in its shard, those of what it shares with
    /// clones included. What its name takes is counted in the space.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let omap = self.omap.as_ref().map_or(0, |omap| omap.memory_bytes());
        self.own_bytes() + self.extents.memory_bytes() as u64 + omap
    }

    /// The same without extents and omap.
    pub(crate) fn own_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + PLACE_BYTES + self.attributes.memory_bytes()
    }
}

/// What a node adds to the statistics; of extents that it shares with clones, what changes
/// between two looks while its shard is locked.
#[derive(Default)]
pub(crate) struct Footprint {
    stored_bytes: i64,
    own_bytes: i64,
    extent_bytes: i64,
    omap_bytes: i64,
    omap_keys: i64,
}

impl Footprint {
    pub(crate) fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut all = Self {
            extent_bytes: allocated_bytes(),
            ..Self::default()
        };
        for node in nodes {
            all.stored_bytes += node.stored_bytes as i64;
            all.own_bytes += node.own_bytes() as i64;
            all.extent_bytes += node.extents.slots_bytes() as i64;
            if let Some(omap) = &node.omap {
                all.omap_bytes += omap.memory_bytes() as i64;
                all.omap_keys += omap.keys.len() as i64;
            }
        }
        all
    }

    /// The footprint of a whole family that was not counted before.
    pub(crate) fn of_family(family: &Family<'_>) -> Self {
        let leaves = ExtentMap::leaves_bytes(family.members().map(|(_, node)| &node.extents));
        let all = Self::of(family.members().map(|(_, node)| node));
        Self {
            extent_bytes: all.extent_bytes - allocated_bytes() + leaves as i64,
            ..all
        }
    }

    /// Adds what there is to the counters; returns the bytes of memory.
    pub(crate) fn count(&self, usage: &Usage) -> i64 {
        Self::default().to(self, usage)
    }

    /// Adds what changed to the counters; returns by how much memory did.
    pub(crate) fn to(&self, after: &Self, usage: &Usage) -> i64 {
        let extent_bytes = after.extent_bytes - self.extent_bytes;
        let omap_bytes = after.omap_bytes - self.omap_bytes;
        let memory_bytes = after.own_bytes - self.own_bytes + extent_bytes + omap_bytes;
        Usage::add(&usage.stored_bytes, after.stored_bytes - self.stored_bytes);
        Usage::add(&usage.memory_bytes, memory_bytes);
        Usage::add(&usage.extent_memory_bytes, extent_bytes);
        Usage::add(&usage.omap_memory_bytes, omap_bytes);
        Usage::add(&usage.omap_keys, after.omap_keys - self.omap_keys);
        memory_bytes
    }
}

/// The members of a family that has been cloned.
pub(crate) struct Members {
    pub(crate) nodes: BTreeMap<u32, Box<Node>>,
    pub(crate) references: References,
    /// The next clone's number; `None` when they are used up.
    next: Option<u32>,
}

/// The nodes of one shard.
#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) families: Families,
}

impl Shard {
    pub(crate) fn get(&self, id: ObjectId) -> Option<&Node> {
        self.families.get(id.family)?.get(id.member)
    }

    pub(crate) fn get_mut(&mut self, id: ObjectId) -> Option<Changed<'_>> {
        self.families.get_mut(id.family)?.get(id.member)
    }

    /// Adds a node; its id must be free.
    pub(crate) fn insert(&mut self, id: ObjectId, mut node: Node, unit: Unit) {
        node.member = id.member;
        if !self.families.contains(id.family) {
            self.families.insert_one(id.family, node);
            return;
        }
        if let Some(members) = self.make_many(id.family, unit) {
            members.next = members.next.max(id.member.checked_add(1));
            members.nodes.insert(id.member, Box::new(node));
        }
    }

    /// Gives a family counts of shared payload, before it gets a second member.
    fn make_many(&mut self, family: u64, unit: Unit) -> Option<&mut Members> {
        if let Some(node) = self.families.remove_one(family) {
            let members = Members {
                next: node.member.checked_add(1),
                nodes: BTreeMap::from([(node.member, Box::new(node))]),
                references: References::new(unit),
            };
            self.families.insert_many(family, Box::new(members));
        }
        self.families.many_mut(family)
    }

    /// Turns a family of which one member is left, and nothing shared, into the common case.
    pub(crate) fn make_one(&mut self, family: u64) {
        let is_one = |members: &Members| members.nodes.len() == 1 && members.references.is_empty();
        if self.families.many(family).is_some_and(is_one) {
            let members = self.families.remove_many(family);
            let only = members.and_then(|mut members| members.nodes.pop_first());
            if let Some((_, node)) = only {
                self.families.insert_one(family, *node);
            }
        }
    }

    /// A number for a new member of a family, which nobody else gets; `None` when the family
    /// is gone or has had as many as there are.
    pub(crate) fn new_member(&mut self, family: u64, unit: Unit) -> Option<u32> {
        let members = self.make_many(family, unit)?;
        let number = members.next?;
        members.next = number.checked_add(1);
        Some(number)
    }

    /// Takes a node out. The caller has given its extents back.
    pub(crate) fn remove(&mut self, id: ObjectId) -> Option<Node> {
        if let Some(members) = self.families.many_mut(id.family) {
            let node = members.nodes.remove(&id.member);
            if members.nodes.is_empty() {
                self.families.remove_many(id.family);
            }
            return node.map(|node| *node);
        }
        self.get(id)?;
        self.families.remove_one(id.family)
    }
}

/// What the objects of a space take; shared payload counts once in `allocated_bytes`.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) objects: AtomicI64,
    /// Bytes that are mapped, per object.
    pub(crate) stored_bytes: AtomicI64,
    /// Bytes of payload on flash.
    pub(crate) allocated_bytes: AtomicI64,
    /// Bytes of records of omap values on flash.
    pub(crate) omap_bytes: AtomicI64,
    /// Bytes of DRAM of nodes and names.
    pub(crate) memory_bytes: AtomicI64,
    /// Those of extents among them.
    pub(crate) extent_memory_bytes: AtomicI64,
    /// Those of omaps among them.
    pub(crate) omap_memory_bytes: AtomicI64,
    pub(crate) omap_keys: AtomicI64,
}

impl Usage {
    pub(crate) fn add(counter: &AtomicI64, by: i64) {
        // Statistics: nothing is ordered by them.
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// What collections that split and merge share: names in the order of their sort keys.
pub(crate) struct Space {
    pub(crate) id: SpaceId,
    pub(crate) names: RwLock<Names>,
    pub(crate) usage: Usage,
    /// How often an object got another name, changed with `names` and with the shard of the
    /// object locked.
    pub(crate) renames: AtomicU64,
}

impl Space {
    fn new(id: SpaceId) -> Self {
        Self {
            id,
            names: RwLock::new(Names::new(id)),
            usage: Usage::default(),
            renames: AtomicU64::new(0),
        }
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<ObjectId> {
        self.names.read().find(name)
    }

    /// The object of a name, and how often names had changed then.
    pub(crate) fn find_at(&self, name: &[u8]) -> Option<(ObjectId, u64)> {
        let names = self.names.read();
        // Relaxed: `names` is locked.
        let renames = self.renames.load(Ordering::Relaxed);
        Some((names.find(name)?, renames))
    }

    /// Whether a name that led to an object still does; the object's shard is locked.
    pub(crate) fn still_leads(&self, name: &[u8], id: ObjectId, renames: u64) -> bool {
        // Relaxed: whoever renamed this object has held its shard since, or will.
        self.renames.load(Ordering::Relaxed) == renames || self.find(name) == Some(id)
    }

    /// The sort key of a node of the space, whose shard is locked; `None` if no name leads
    /// to it.
    pub(crate) fn name_of(&self, hash: u32, id: ObjectId) -> Option<Vec<u8>> {
        let found = self.names.read().name_of(hash, id);
        let found = match found {
            Found::Crowd => {
                let mut names = self.names.write();
                names.crowd(hash);
                names.name_of(hash, id)
            }
            found => found,
        };
        match found {
            Found::Name(name) => Some(name),
            Found::Nothing | Found::Crowd => None,
        }
    }

    /// When all is replayed: settles whose the names are, and counts what they take; `each`
    /// hears of them. False when two objects have one.
    pub(crate) fn settle_names(&self, each: &mut dyn FnMut(&[u8], ObjectId)) -> bool {
        let mut names = self.names.write();
        let agree = names.settle();
        Usage::add(&self.usage.memory_bytes, names.memory_bytes() as i64);
        names.each(each);
        agree
    }

    /// Changes names, and counts what they take.
    pub(crate) fn change_names<T>(&self, change: impl FnOnce(&mut Names) -> T) -> T {
        let mut names = self.names.write();
        let before = names.memory_bytes() as i64;
        let result = change(&mut names);
        let more = names.memory_bytes() as i64 - before;
        Usage::add(&self.usage.memory_bytes, more);
        result
    }
}

/// All nodes.
pub(crate) struct Table {
    shards: Box<[RwLock<Shard>]>,
    spaces: RwLock<BTreeMap<SpaceId, SharedArc<Space>>>,
    next_family: AtomicU64,
    /// Of the nodes of each partition: bytes of DRAM, and of their names as images have them.
    pub(crate) partition_bytes: Box<[AtomicI64]>,
}

/// Write locks of some shards, in ascending order.
pub(crate) struct LockedShards<'a>(Vec<(usize, RwLockWriteGuard<'a, Shard>)>);

impl LockedShards<'_> {
    /// The shard of a family, which must be among those locked.
    pub(crate) fn of(&mut self, family: u64) -> &mut Shard {
        let number = Table::shard_of(family);
        match self.0.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => &mut self.0[at].1,
            Err(_) => unreachable!("the shards of a plan are locked"),
        }
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::new(Shard::default())).collect(),
            spaces: RwLock::new(BTreeMap::new()),
            next_family: AtomicU64::new(1),
            partition_bytes: (0..PARTITIONS).map(|_| AtomicI64::new(0)).collect(),
        }
    }

    pub(crate) fn shard_of(family: u64) -> usize {
        let in_round = (family % ROUND as u64) as usize;
        let round = (family / ROUND as u64 % ROUNDS as u64) as usize;
        let (partition, number) = (in_round / ROUND_PART, in_round % ROUND_PART);
        partition * SHARDS_A_PARTITION + round * ROUND_PART + number
    }

    /// Counts bytes of a node, or of its name, for images.
    pub(crate) fn add_bytes(&self, family: u64, by: i64) {
        Usage::add(
            &self.partition_bytes[Self::shard_of(family) / SHARDS_A_PARTITION],
            by,
        );
    }

    /// Counts the bytes of a name, for images, as often as `times` says.
    pub(crate) fn add_name(&self, family: u64, key: &[u8], times: i64) {
        self.add_bytes(family, times * (SPACE_BYTES + key.len()) as i64);
    }

    pub(crate) fn shards_of(partition: u32) -> std::ops::Range<usize> {
        let first = partition as usize * SHARDS_A_PARTITION;
        first..first + SHARDS_A_PARTITION
    }

    pub(crate) fn read(&self, family: u64) -> RwLockReadGuard<'_, Shard> {
        self.shards[Self::shard_of(family)].read()
    }

    pub(crate) fn write(&self, family: u64) -> RwLockWriteGuard<'_, Shard> {
        self.shards[Self::shard_of(family)].write()
    }

    pub(crate) fn read_shard(&self, number: usize) -> RwLockReadGuard<'_, Shard> {
        self.shards[number].read()
    }

    pub(crate) fn write_shard(&self, number: usize) -> RwLockWriteGuard<'_, Shard> {
        self.shards[number].write()
    }

    /// Locks the shards of families, each once, in ascending order.
    pub(crate) fn lock_all(&self, families: impl Iterator<Item = u64>) -> LockedShards<'_> {
        let mut numbers: Vec<usize> = families.map(Self::shard_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        LockedShards(
            numbers
                .into_iter()
                .map(|number| (number, self.shards[number].write()))
                .collect(),
        )
    }

    /// A family no object has had.
    pub(crate) fn new_family(&self) -> u64 {
        // Relaxed: only uniqueness matters.
        self.next_family.fetch_add(1, Ordering::Relaxed)
    }

    /// The family of the next object.
    pub(crate) fn next_family(&self) -> u64 {
        self.next_family.load(Ordering::Relaxed)
    }

    /// Families up to this one have been used, as replay or an image says.
    pub(crate) fn saw_family(&self, family: u64) {
        self.next_family
            .fetch_max(family.saturating_add(1), Ordering::Relaxed);
    }

    /// The space of an id, which is made when it is new.
    pub(crate) fn space(&self, id: SpaceId) -> SharedArc<Space> {
        if let Some(space) = self.spaces.read().get(&id) {
            return space.clone();
        }
        let mut spaces = self.spaces.write();
        let make = || SharedArc::new(Space::new(id));
        spaces.entry(id).or_insert_with(make).clone()
    }

    pub(crate) fn spaces(&self) -> Vec<SharedArc<Space>> {
        self.spaces.read().values().cloned().collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_those_on_media_and_shards_are_even() {
        let mut counts = vec![0; SHARDS];
        for family in 0..SHARDS as u64 * 3 {
            let shard = Table::shard_of(family);
            counts[shard] += 1;
            let partition = (family % 256 / 4) as u32;
            assert!(Table::shards_of(partition).contains(&shard), "{family}");
            // Lanes of replay are by the parity of shards.
            assert_eq!(shard % 2, (family % 2) as usize);
        }
        assert!(counts.iter().all(|count| *count == 3));
    }
}
