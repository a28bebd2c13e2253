//! The nodes of all objects, and the names that lead to them.
//!
//! A node is found by its id in a shard, an id by its name in a space. Everything of a node
//! is guarded by its shard's lock; a space's names by the space's. Who holds a space's lock
//! takes no shard's: a reader looks the id up, lets the space go, and then looks at the node.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::format::Seqno;
use crate::sync::{
    AtomicI64, AtomicU64, MODEL, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, SharedArc,
};

use super::attributes::Attributes;
use super::extents::{ExtentMap, References, Unit};
use super::omap::Omap;
use super::{ObjectId, SpaceId};

/// Shards of nodes, and checkpoint partitions of shards.
pub(crate) const SHARDS: usize = if MODEL { 2 } else { 256 };
pub(crate) const PARTITIONS: u32 = if MODEL { 1 } else { 64 };
pub(crate) const SHARDS_A_PARTITION: usize = SHARDS / PARTITIONS as usize;

/// One object.
pub(crate) struct Node {
    /// Seqno of the last change, a relocation too.
    pub(crate) version: Seqno,
    pub(crate) bytes: u64,
    /// Bytes stored of the blocks that are mapped.
    pub(crate) stored_bytes: u64,
    pub(crate) space: SharedArc<Space>,
    /// The sort key.
    pub(crate) name: SharedArc<[u8]>,
    pub(crate) attributes: Attributes,
    pub(crate) extents: ExtentMap,
    pub(crate) omap: Option<Box<Omap>>,
    /// What `set_alloc_hint` said, 0 when nothing.
    pub(crate) hint: u64,
}

impl Node {
    pub(crate) fn new(space: SharedArc<Space>, name: SharedArc<[u8]>, version: Seqno) -> Self {
        Self {
            version,
            bytes: 0,
            stored_bytes: 0,
            space,
            name,
            attributes: Attributes::default(),
            extents: ExtentMap::default(),
            omap: None,
            hint: 0,
        }
    }

    /// Bytes of DRAM of the node, its name and what leads to it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // The node's own box, a slot in the shard's table at its load, an entry of the
        // space's map, the name with its counts.
        const FIXED: u64 = (size_of::<Node>() + 40 + 48 + 16) as u64;
        let omap = self.omap.as_ref().map_or(0, |omap| omap.memory_bytes());
        FIXED
            + self.name.len() as u64
            + self.attributes.memory_bytes()
            + self.extents.memory_bytes() as u64
            + omap
    }
}

/// Objects that may share payload.
pub(crate) enum Family {
    /// The common case: one object.
    One(u32, Box<Node>),
    /// Clones, or what is left of them.
    Many(Box<Members>),
}

/// The members of a family that has been cloned.
pub(crate) struct Members {
    pub(crate) nodes: BTreeMap<u32, Box<Node>>,
    pub(crate) references: References,
    /// The next clone's number; `None` when they are used up.
    next: Option<u32>,
}

impl Family {
    pub(crate) fn get(&self, member: u32) -> Option<&Node> {
        match self {
            Self::One(only, node) => (*only == member).then_some(node),
            Self::Many(members) => members.nodes.get(&member).map(|node| &**node),
        }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (u32, &Node)> {
        let (one, many) = match self {
            Self::One(member, node) => (Some((*member, &**node)), None),
            Self::Many(members) => (None, Some(members.nodes.iter())),
        };
        one.into_iter().chain(
            many.into_iter()
                .flatten()
                .map(|(member, node)| (*member, &**node)),
        )
    }

    pub(crate) fn members_mut(&mut self) -> impl Iterator<Item = (u32, &mut Node)> {
        let (one, many) = match self {
            Self::One(member, node) => (Some((*member, &mut **node)), None),
            Self::Many(members) => (None, Some(members.nodes.iter_mut())),
        };
        let many = many.into_iter().flatten();
        one.into_iter()
            .chain(many.map(|(member, node)| (*member, &mut **node)))
    }

    /// A member to change, with the family's counts of shared payload.
    pub(crate) fn get_mut(&mut self, member: u32) -> Option<(&mut Node, Option<&mut References>)> {
        match self {
            Self::One(only, node) => (*only == member).then_some((node, None)),
            Self::Many(members) => {
                let node = members.nodes.get_mut(&member)?;
                Some((node, Some(&mut members.references)))
            }
        }
    }
}

/// The nodes of one shard.
#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) families: HashMap<u64, Family>,
}

impl Shard {
    pub(crate) fn get(&self, id: ObjectId) -> Option<&Node> {
        self.families.get(&id.family)?.get(id.member)
    }

    pub(crate) fn get_mut(&mut self, id: ObjectId) -> Option<(&mut Node, Option<&mut References>)> {
        self.families.get_mut(&id.family)?.get_mut(id.member)
    }

    /// Adds a node; its id must be free.
    pub(crate) fn insert(&mut self, id: ObjectId, node: Box<Node>, unit: Unit) {
        if let Entry::Vacant(free) = self.families.entry(id.family) {
            free.insert(Family::One(id.member, node));
            return;
        }
        if let Some(members) = self.make_many(id.family, unit) {
            members.next = members.next.max(id.member.checked_add(1));
            members.nodes.insert(id.member, node);
        }
    }

    /// Gives a family counts of shared payload, before it gets a second member.
    fn make_many(&mut self, family: u64, unit: Unit) -> Option<&mut Members> {
        if let Some(Family::One(..)) = self.families.get(&family) {
            let Some(Family::One(member, node)) = self.families.remove(&family) else {
                unreachable!("it was just there")
            };
            let members = Members {
                nodes: BTreeMap::from([(member, node)]),
                references: References::new(unit),
                next: member.checked_add(1),
            };
            self.families
                .insert(family, Family::Many(Box::new(members)));
        }
        match self.families.get_mut(&family) {
            Some(Family::Many(members)) => Some(members),
            _ => None,
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
    pub(crate) fn remove(&mut self, id: ObjectId) -> Option<Box<Node>> {
        match self.families.get_mut(&id.family)? {
            Family::One(member, _) if *member == id.member => {
                match self.families.remove(&id.family) {
                    Some(Family::One(_, node)) => Some(node),
                    _ => None,
                }
            }
            Family::One(..) => None,
            Family::Many(members) => {
                let node = members.nodes.remove(&id.member);
                if members.nodes.is_empty() {
                    self.families.remove(&id.family);
                }
                node
            }
        }
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
    pub(crate) names: RwLock<BTreeMap<SharedArc<[u8]>, ObjectId>>,
    pub(crate) usage: Usage,
}

impl Space {
    pub(crate) fn find(&self, name: &[u8]) -> Option<ObjectId> {
        self.names.read().get(name).copied()
    }
}

/// All nodes.
pub(crate) struct Table {
    shards: Box<[RwLock<Shard>]>,
    spaces: RwLock<BTreeMap<SpaceId, SharedArc<Space>>>,
    next_family: AtomicU64,
    /// Bytes of DRAM of the nodes of each partition.
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
        (family % SHARDS as u64) as usize
    }

    /// Counts bytes of DRAM of a node.
    pub(crate) fn add_bytes(&self, family: u64, by: i64) {
        Usage::add(
            &self.partition_bytes[Self::shard_of(family) / SHARDS_A_PARTITION],
            by,
        );
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
        let make = || {
            SharedArc::new(Space {
                id,
                names: RwLock::new(BTreeMap::new()),
                usage: Usage::default(),
            })
        };
        spaces.entry(id).or_insert_with(make).clone()
    }

    pub(crate) fn spaces(&self) -> Vec<SharedArc<Space>> {
        self.spaces.read().values().cloned().collect()
    }
}
