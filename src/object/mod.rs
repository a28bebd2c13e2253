//! The object layer: Ceph's `ObjectStore` semantics on the log (`design/objects.md`).
//!
//! Names, collections and transactions are the vocabulary; they do no I/O and know nothing
//! of the log. `Objects` owns the records of objects: it plans and applies transactions,
//! reads, and does for the log what an owner does.

mod apply;
mod attributes;
mod bytes;
mod change;
mod check;
mod collection;
mod extents;
mod families;
mod image;
pub(crate) mod listing;
mod name;
mod names;
mod omap;
mod omap_changes;
mod omap_read;
mod op;
mod owner;
mod pieces;
mod plan;
mod read;
mod records;
mod registry;
mod relocate;
mod replay;
mod salvage;
mod submit;
mod table;
#[cfg(all(test, loom))]
mod tests;
mod transaction;

pub use bytes::IntoBytes;
pub use collection::CollectionName;
pub use listing::Page;
pub use name::{NO_GENERATION, NO_SHARD, NO_SNAP, ObjectName, SNAPDIR};
pub use op::{
    ATTR_NAME_BYTES_MAX, ATTR_VALUE_BYTES_MAX, NAME_BYTES_MAX, OBJECT_BYTES_MAX,
    OMAP_KEY_BYTES_MAX, OMAP_VALUE_BYTES_MAX, Op,
};
pub use transaction::Transaction;

pub(crate) use check::{Referred, Wrong};
pub(crate) use read::Seen;
#[cfg(all(test, not(loom)))]
pub(crate) use records::OmapRecord;
pub(crate) use registry::{Registry, Slot};
pub(crate) use salvage::Concerned;
pub(crate) use table::{Node, Space, Table};

use crate::format::{Address, Geometry, LengthCode};
use crate::log::{ImageBytes, Log};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use extents::{BLOCK_BYTES, Unit};
use image::Loading;
use name::low_bits;
use omap::Omap;
use table::Usage;

/// Whose payload and omap values are whose: objects cloned from one another are the members
/// of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    pub(crate) family: u64,
    pub(crate) member: u32,
}

/// Which collections share names: placement groups of one pool and shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SpaceId {
    /// 0 for `meta`, 1 for placement groups, 2 for their collections of temporary objects.
    kind: u8,
    pool: i64,
    shard: i8,
}

const SPACE_BYTES: usize = 10;

impl SpaceId {
    pub(crate) fn of(name: &CollectionName) -> Self {
        match *name {
            CollectionName::Meta => Self {
                kind: 0,
                pool: 0,
                shard: 0,
            },
            CollectionName::Pg {
                pool, shard, temp, ..
            } => Self {
                kind: if temp { 2 } else { 1 },
                pool,
                shard,
            },
        }
    }

    /// The collection that would have all objects of the space.
    pub(crate) fn whole(&self) -> CollectionName {
        match self.kind {
            0 => CollectionName::Meta,
            kind => CollectionName::Pg {
                pool: self.pool,
                seed: 0,
                shard: self.shard,
                temp: kind == 2,
            },
        }
    }

    pub(crate) fn pool(&self) -> Option<i64> {
        (self.kind != 0).then_some(self.pool)
    }
}

impl std::fmt::Display for SpaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            0 => return f.write_str("meta"),
            1 => write!(f, "pool {}", self.pool)?,
            _ => write!(f, "the temporary objects of pool {}", self.pool)?,
        }
        if self.shard == NO_SHARD {
            return Ok(());
        }
        write!(f, " shard {}", self.shard)
    }
}

/// The name of an object as records and images keep it: its space and its sort key.
pub(crate) fn stored_name(space: SpaceId, sort_key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(SPACE_BYTES + sort_key.len());
    name.push(space.kind);
    name.extend_from_slice(&space.pool.to_le_bytes());
    name.extend_from_slice(&space.shard.to_le_bytes());
    name.extend_from_slice(sort_key);
    name
}

/// The space and sort key of a stored name; `None` when it is none.
pub(crate) fn split_stored_name(name: &[u8]) -> Option<(SpaceId, &[u8])> {
    let (space, sort_key) = name.split_first_chunk::<SPACE_BYTES>()?;
    let [kind, pool @ .., shard] = *space;
    if kind > 2 || ObjectName::from_sort_key(sort_key).is_err() {
        return None;
    }
    let space = SpaceId {
        kind,
        pool: i64::from_le_bytes(pool),
        shard: i8::from_le_bytes([shard]),
    };
    Some((space, sort_key))
}

/// Where an omap value is: the address of its record and how long that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OmapLocation(u64);

const LENGTH_BITS: u32 = 11;

impl OmapLocation {
    pub(crate) fn new(address: Address, length: LengthCode) -> Self {
        Self(address.units() << LENGTH_BITS | u64::from(length.bits()))
    }

    /// No place, for parts that are still to come.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn address(self) -> Address {
        Address::new(self.0 >> LENGTH_BITS)
    }

    /// For locations from media, which may say anything.
    pub(crate) fn checked_length(self) -> Result<LengthCode, crate::format::Invalid> {
        let length = LengthCode::from_bits((self.0 & ((1 << LENGTH_BITS) - 1)) as u16)?;
        if length.is_head() || self.0 >> LENGTH_BITS >= 1 << crate::format::ADDRESS_BITS {
            return Err(crate::format::Invalid::Field("place of an omap value"));
        }
        Ok(length)
    }

    pub(crate) fn length(self) -> LengthCode {
        match self.checked_length() {
            Ok(length) => length,
            Err(_) => unreachable!("checked when it came from media"),
        }
    }
}

/// Sectors that the last block of a payload takes.
fn tail_sectors(payload_bytes: u64) -> u8 {
    match payload_bytes % BLOCK_BYTES {
        0 => extents::SECTORS_MAX,
        rest => (rest / extents::SECTOR_BYTES) as u8,
    }
}

/// The head that payload of an exponent goes to when there are many writers: three heads,
/// so that a group pays for few frames.
fn payload_head(exponent: u8) -> u8 {
    match exponent {
        0..=2 => 1,
        3..=4 => 3,
        _ => 5,
    }
}

/// What a caller expects of an object, packed.
fn hint_bits(object_bytes: u64, write_bytes: u64, flags: u32) -> u64 {
    let log2 = |bytes: u64| u64::from(bytes.checked_ilog2().unwrap_or(0));
    u64::from(flags) | log2(object_bytes) << 32 | log2(write_bytes) << 40
}

/// The object layer.
pub(crate) struct Objects {
    pub(crate) table: Table,
    pub(crate) registry: Registry,
    /// Held by transactions that name the objects they stand for.
    stripes: Box<[Mutex<()>]>,
    unit: Unit,
    /// Whether there ever was a collection: until then the layer has no partitions.
    in_use: AtomicBool,
    /// What the other layer's images take, for what is usable.
    other_image_bytes: AtomicU64,
    memory_limit: AtomicU64,
    /// Omaps that are gone and whose values are not yet counted as dead.
    graves: Mutex<Vec<Omap>>,
    buried_bytes: AtomicU64,
    loading: Loading,
}

/// Omaps of more keys than this are counted dead by the space thread.
const BURIED_KEYS_MIN: usize = 256;

impl Objects {
    pub(crate) fn new(geometry: &Geometry, memory_limit: Option<u64>) -> Self {
        Self {
            table: Table::new(),
            registry: Registry::new(),
            stripes: submit::new_stripes(),
            unit: Unit::new(geometry.unit_bytes),
            in_use: AtomicBool::new(false),
            other_image_bytes: AtomicU64::new(0),
            memory_limit: AtomicU64::new(memory_limit.unwrap_or(u64::MAX)),
            graves: Mutex::new(Vec::new()),
            buried_bytes: AtomicU64::new(0),
            loading: Loading::default(),
        }
    }

    /// Says that there are or will be collections.
    pub(crate) fn set_in_use(&self, in_use: bool) {
        self.in_use.store(in_use, Ordering::Release);
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    pub(crate) fn set_memory_limit(&self, bytes: Option<u64>) {
        let bytes = bytes.unwrap_or(u64::MAX);
        self.memory_limit.store(bytes, Ordering::Relaxed);
    }

    /// What the key-value layer's images take: together they bound what is usable.
    pub(crate) fn set_other_image_bytes(&self, bytes: u64) {
        self.other_image_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Images of everything, when those of nodes grow by `growth` bytes.
    fn all_images(&self, growth: u64) -> ImageBytes {
        let others = self.other_image_bytes.load(Ordering::Relaxed);
        let own = self.own_images();
        ImageBytes {
            all: others + own.all + growth,
            largest: own.largest + growth,
        }
    }

    /// Bytes of DRAM of all nodes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let spaces = self.table.spaces();
        let bytes = spaces
            .iter()
            .map(|space| space.usage.memory_bytes.load(Ordering::Relaxed));
        bytes.sum::<i64>().max(0) as u64
    }

    fn memory_limit_is_reached(&self) -> bool {
        let limit = self.memory_limit.load(Ordering::Relaxed);
        limit != u64::MAX && self.memory_bytes() >= limit
    }

    /// Counts the values of an omap dead, now if they are few: of a million it takes long
    /// enough for the space thread to do it.
    fn bury(&self, log: &Log, space: &Space, omap: Omap) {
        Usage::add(&space.usage.omap_bytes, -(omap.record_bytes as i64));
        if omap.keys.len() >= BURIED_KEYS_MIN {
            self.buried_bytes
                .fetch_add(omap.record_bytes, Ordering::Relaxed);
            self.graves.lock().push(omap);
        } else {
            count_dead(log, &omap);
        }
    }

    /// Counts what was buried dead.
    pub(crate) fn dig(&self, log: &Log) {
        let graves = std::mem::take(&mut *self.graves.lock());
        for omap in &graves {
            count_dead(log, omap);
            self.buried_bytes
                .fetch_sub(omap.record_bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that are dead and still counted as live.
    pub(crate) fn buried_bytes(&self) -> u64 {
        self.buried_bytes.load(Ordering::Relaxed)
    }
}

fn count_dead(log: &Log, omap: &Omap) {
    omap.visit_locations(&mut |location| {
        log.record_died(location.address(), log.record_bytes(location.length()));
    });
}
