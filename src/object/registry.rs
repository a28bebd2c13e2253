//! The collections of a store.

use std::collections::BTreeMap;

use crate::format::Seqno;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, RwLock, SharedArc};

use super::CollectionName;
use super::SpaceId;
use super::table::{Space, Table};

/// One collection, or one that a transaction will create.
pub(crate) struct Slot {
    pub(crate) name: CollectionName,
    pub(crate) space: SharedArc<Space>,
    /// Low bits of the hash that its objects share.
    bits: AtomicU32,
    /// Seqno of its last creation, removal or change of bits; the lowest bit above them says
    /// whether it exists.
    state: AtomicU64,
    /// Held while a transaction on it is planned and applied: the order of submission is the
    /// order of effects.
    pub(crate) order: Mutex<()>,
}

impl Slot {
    pub(crate) fn exists(&self) -> bool {
        // Relaxed: changed and relied on under `order` only.
        self.state.load(Ordering::Relaxed) & 1 == 1
    }

    pub(crate) fn bits(&self) -> u32 {
        self.bits.load(Ordering::Relaxed)
    }

    pub(crate) fn version(&self) -> Seqno {
        self.state.load(Ordering::Relaxed) >> 1
    }

    pub(crate) fn set(&self, exists: bool, bits: u32, version: Seqno) {
        self.bits.store(bits, Ordering::Relaxed);
        self.state
            .store(version << 1 | u64::from(exists), Ordering::Relaxed);
    }
}

/// All collections by name.
pub(crate) struct Registry {
    /// Held from the seqno of a change of a collection until it is made, and while they are
    /// imaged.
    pub(crate) changes: Mutex<()>,
    slots: RwLock<BTreeMap<CollectionName, SharedArc<Slot>>>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            changes: Mutex::new(()),
            slots: RwLock::new(BTreeMap::new()),
        }
    }

    /// The slot of a name, existing or not.
    pub(crate) fn slot(&self, table: &Table, name: CollectionName) -> SharedArc<Slot> {
        if let Some(slot) = self.slots.read().get(&name) {
            return slot.clone();
        }
        let space = table.space(SpaceId::of(&name));
        let mut slots = self.slots.write();
        let make = || {
            SharedArc::new(Slot {
                name,
                space,
                bits: AtomicU32::new(0),
                state: AtomicU64::new(0),
                order: Mutex::new(()),
            })
        };
        slots.entry(name).or_insert_with(make).clone()
    }

    /// The collection of a name, if it exists.
    pub(crate) fn find(&self, name: &CollectionName) -> Option<SharedArc<Slot>> {
        let slots = self.slots.read();
        slots.get(name).filter(|slot| slot.exists()).cloned()
    }

    pub(crate) fn existing(&self) -> Vec<SharedArc<Slot>> {
        let slots = self.slots.read();
        slots
            .values()
            .filter(|slot| slot.exists())
            .cloned()
            .collect()
    }

    /// Slots of all names, of collections that exist or not, in order.
    pub(crate) fn all(&self) -> Vec<SharedArc<Slot>> {
        self.slots.read().values().cloned().collect()
    }

    /// Forgets slots of collections that do not exist and nobody holds.
    pub(crate) fn prune(&self) {
        self.slots
            .write()
            .retain(|_, slot| slot.exists() || SharedArc::strong_count(slot) > 1);
    }

    /// Every collection goes, before another image is loaded.
    pub(crate) fn clear(&self) {
        self.slots.write().clear();
    }
}
