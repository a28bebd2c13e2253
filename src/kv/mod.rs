//! The key-value layer: the owner of the log's records.
//!
//! It keeps the hash index, and turns calls into records and records into values. A write
//! locks the index shard of its key, takes seqno and place from the log, updates the index,
//! lets go, and only then waits for the commit. A read takes no lock: it looks up, reads,
//! verifies, and looks up again if the record moved meanwhile.

mod batch;
mod chunks;
mod inspect;
mod read;
mod replay;
mod scan;
#[cfg(all(test, loom))]
mod tests;
mod write;

pub use batch::Batch;
pub use scan::{Cursor, Scan};

pub(crate) use inspect::{Belonging, LargeValue};

use crate::format::{
    Geometry, Invalid, KEY_BYTES_MAX, KeyHash, KeyHasher, LengthCode, Record, Seqno,
};
use crate::index::{Entry, Index, ShardGuard};
use crate::log::{Lane, Log, NoRoom, Owner, Position, Relocation};
use crate::sync::{AtomicU64, MODEL, Ordering, SharedArc};
use crate::{Durability, Error, Result};

use read::RecordCache;

/// A value read from a store: cheap to clone, dereferences to its bytes.
pub type Value = SharedArc<[u8]>;

/// Longest value in bytes.
pub(crate) const VALUE_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of keys and values in a batch.
pub(crate) const BATCH_BYTES_MAX: u64 = 128 << 20;

/// Kinds of keys, hashed apart.
const USER_KEY: u8 = 0;
const CHUNK_KEY: u8 = 1;

/// Partitions of the index that are checkpointed on their own, and shards in each.
const PARTITIONS: u32 = if MODEL { 1 } else { 64 };
const SHARDS_A_PARTITION: usize = crate::index::SHARDS / PARTITIONS as usize;

/// The key-value layer.
pub(crate) struct KeyValue {
    index: Index,
    hasher: KeyHasher,
    cache: RecordCache,
    memory_limit: AtomicU64,
    durability: Durability,
    stamps: AtomicU64,
}

impl KeyValue {
    pub(crate) fn new(
        geometry: &Geometry,
        cache_bytes: u64,
        memory_limit: Option<u64>,
        durability: Durability,
    ) -> Self {
        Self {
            index: Index::new(),
            hasher: KeyHasher::new(geometry.salt),
            cache: RecordCache::new(cache_bytes),
            memory_limit: AtomicU64::new(memory_limit.unwrap_or(u64::MAX)),
            durability,
            stamps: AtomicU64::new(0),
        }
    }

    fn user_hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(USER_KEY, key)
    }

    /// Bytes the index may take: the memory limit less the cache.
    fn index_limit(&self) -> u64 {
        self.memory_limit
            .load(Ordering::Relaxed)
            .saturating_sub(self.cache.capacity_bytes())
    }

    pub(crate) fn set_memory_limit(&self, bytes: Option<u64>) {
        self.memory_limit
            .store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn cache(&self) -> &RecordCache {
        &self.cache
    }

    pub(crate) fn index_bytes(&self) -> u64 {
        self.index.memory_bytes()
    }

    /// Bytes of records the store accepts.
    pub(crate) fn usable_bytes(&self, log: &Log) -> u64 {
        log.usable_bytes(log.images_with(self.index.image_bytes()))
    }

    pub(crate) fn entries(&self) -> u64 {
        self.index.len()
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        Ok(self.index.get(self.user_hash(key)).is_some())
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::TooLarge {
            what: "key",
            len: key.len() as u64,
            max: KEY_BYTES_MAX as u64,
        });
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(Error::TooLarge {
            what: "value",
            len: value.len() as u64,
            max: VALUE_BYTES_MAX,
        });
    }
    Ok(())
}

/// Counts a record that replay or an image made live.
fn born(log: &Log, entry: &Entry) {
    log.table()
        .add_live(entry.address, log.record_bytes(entry.length) as i64);
}

/// Counts a record that died.
fn died(log: &Log, entry: &Entry) {
    log.record_died(entry.address, log.record_bytes(entry.length));
}

impl Owner for KeyValue {
    fn replay(&self, log: &Log, record: &Record<'_>, position: Position, lane: Lane) -> Result<()> {
        self.replay_record(log, record, position, lane)
    }

    fn relocate(
        &self,
        log: &Log,
        record: &Record<'_>,
        _payload: &[u8],
        position: Position,
        victim_clock: u64,
        horizon: Seqno,
    ) -> std::result::Result<Relocation, NoRoom> {
        self.relocate_record(log, record, position, victim_clock, horizon)
    }

    fn partition_count(&self) -> u32 {
        PARTITIONS
    }

    fn image(
        &self,
        partition: u32,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno> {
        self.image_partition(partition, horizon, sink)
    }

    fn load_image(
        &self,
        log: &Log,
        partition: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), Invalid> {
        self.load_partition_image(log, partition, bytes)
    }

    fn clear_partition(&self, log: &Log, partition: u32) {
        self.clear_partition_entries(log, partition);
    }

    fn partition_is_whole(&self, partition: u32) -> bool {
        shards_of(partition).all(|shard| self.index.lock(shard).finish_load().is_ok())
    }

    fn image_bytes(&self) -> u64 {
        self.index.image_bytes()
    }
}

fn shards_of(partition: u32) -> std::ops::Range<usize> {
    let first = partition as usize * SHARDS_A_PARTITION;
    first..first + SHARDS_A_PARTITION
}

/// Points the index to a record just appended, for which there was room.
fn set_entry(log: &Log, shard: &mut ShardGuard<'_>, hash: KeyHash, entry: Entry) -> Result<()> {
    match shard.insert(hash, entry) {
        Ok(Some(old)) => died(log, &old),
        Ok(None) => {}
        Err(error) => {
            // The log has the record and the index cannot: only hashes made for it do that.
            tracing::error!(%error, "an entry found no place");
            log.poison();
            return Err(Error::Poisoned);
        }
    }
    Ok(())
}

/// An entry for a record that was just appended or replayed.
fn entry_at(position: crate::format::Address, length: LengthCode, exponent: u8) -> Entry {
    Entry {
        address: position,
        length,
        exponent,
    }
}
