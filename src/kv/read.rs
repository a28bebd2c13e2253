//! Reading: look up, read once, verify; look up again if the record moved.
//!
//! No lock and no epoch is held across device I/O. A record that does not verify was
//! either moved (the index or the segment's seed changed) or is damaged (neither did): then
//! the read is repeated a few times, because a kernel under memory pressure may return
//! zeros for a good block, and only then is it an error.

use std::cell::RefCell;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::device::AlignedBuf;
use crate::format::{Invalid, KeyHash, Kind, parse_record};
use crate::index::{Entry, Index};
use crate::log::{Counters, Log, READ_RETRIES};
use crate::sync::{AtomicU64, Ordering, SharedArc};
use crate::{Error, Result};

use super::chunks::{CHUNK_KEY_BYTES, ChunkHead, STAMP_BYTES, chunk_key};
use super::{KeyValue, Value, check_key};

/// A verified record.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) kind: Kind,
    pub(super) key: SharedArc<[u8]>,
    pub(super) value: Value,
}

/// Address and seed: a place in one life of a segment, which never holds another record.
type CacheKey = (u64, u64);

#[derive(Clone)]
struct ByBytes;

/// Bytes of DRAM of a cached record besides key and value: reference counts, the cache's
/// own entry.
const CACHED_OVERHEAD: u64 = 160;

impl Weighter<CacheKey, Loaded> for ByBytes {
    fn weight(&self, _: &CacheKey, loaded: &Loaded) -> u64 {
        (loaded.key.len() + loaded.value.len()) as u64 + CACHED_OVERHEAD
    }
}

/// Records read lately, within a budget of bytes.
pub(crate) struct RecordCache {
    cache: Cache<CacheKey, Loaded, ByBytes>,
    capacity: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl RecordCache {
    pub(super) fn new(bytes: u64) -> Self {
        // The estimate of items only sizes the first tables.
        let items = (bytes / 4096).clamp(16, 1 << 20) as usize;
        Self {
            cache: Cache::with_weighter(items, bytes, ByBytes),
            capacity: AtomicU64::new(bytes),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
        self.cache.set_capacity(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    fn get(&self, key: &CacheKey) -> Option<Loaded> {
        if self.capacity_bytes() == 0 {
            return None;
        }
        let found = self.cache.get(key);
        let counter = if found.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn insert(&self, key: CacheKey, loaded: &Loaded) {
        if self.capacity_bytes() > 0 {
            self.cache.insert(key, loaded.clone());
        }
    }
}

thread_local! {
    static BUFFER: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::new()) };
}

/// A thread keeps a read buffer of at most this size.
const BUFFER_KEPT_BYTES: usize = 1 << 20;
/// Chunks of another write are met this often before the writer's lock is waited for.
const CHUNK_ATTEMPTS: u32 = 4;

/// Entries of the chunks of one value, by number.
type Chunks = Vec<Option<Entry>>;

/// A chunk is not the head's: the value is being replaced, unless nobody was writing it.
fn missing_chunk(settled: Option<&Chunks>, offset: u64) -> Result<Option<Value>> {
    if settled.is_none() {
        return Ok(None);
    }
    Err(Error::Corrupt {
        offset,
        why: Invalid::Missing("a chunk"),
    })
}

impl KeyValue {
    /// The value under `key`.
    pub(crate) fn get(&self, log: &Log, key: &[u8]) -> Result<Option<Value>> {
        check_key(key)?;
        let hash = self.user_hash(key);
        let mut attempts = 0;
        loop {
            let Some(entry) = self.index.get(hash) else {
                return Ok(None);
            };
            let Some(loaded) = self.load(log, entry, || self.index.get(hash) == Some(entry))?
            else {
                continue;
            };
            let expected = matches!(loaded.kind, Kind::Put | Kind::Head) && *loaded.key == *key;
            if !expected && self.index.get(hash) != Some(entry) {
                // The segment was reused between the two looks: this is another's record.
                continue;
            }
            if *loaded.key != *key {
                // Another key with the same tag: this one has no entry.
                return Ok(None);
            }
            match loaded.kind {
                Kind::Put => return Ok(Some(loaded.value)),
                Kind::Head => {
                    if let Some(value) = self.assemble(log, hash, &loaded.value, None)? {
                        return Ok(Some(value));
                    }
                    attempts += 1;
                    if attempts < CHUNK_ATTEMPTS {
                        continue;
                    }
                    // A writer holds the lock until head and chunks agree again.
                    let Some(chunks) = self.settled_chunks(hash, entry, &loaded.value)? else {
                        continue;
                    };
                    let whole = self.assemble(log, hash, &loaded.value, Some(&chunks))?;
                    if whole.is_some() {
                        return Ok(whole);
                    }
                }
                _ => {
                    let offset = log.geometry().device_offset(entry.address);
                    return Err(Error::Corrupt {
                        offset,
                        why: Invalid::Field("record kind"),
                    });
                }
            }
        }
    }

    /// The entries of the chunks of a head, taken while nobody writes the key; `None` when
    /// the key has another entry by now.
    fn settled_chunks(&self, owner: KeyHash, entry: Entry, head: &[u8]) -> Result<Option<Chunks>> {
        let head = ChunkHead::decode(head).map_err(|why| Error::Corrupt { offset: 0, why })?;
        let shard = self.index.lock(Index::shard_of(owner));
        if shard.get(owner) != Some(entry) {
            return Ok(None);
        }
        let chunk = |number| self.index.get(self.chunk_hash(owner, number));
        Ok(Some((0..head.chunk_count).map(chunk).collect()))
    }

    /// Puts a large value together; `None` when it is being replaced meanwhile. With
    /// `settled` chunks that are not the head's there is damage.
    pub(super) fn assemble(
        &self,
        log: &Log,
        owner: KeyHash,
        head: &[u8],
        settled: Option<&Chunks>,
    ) -> Result<Option<Value>> {
        let head = ChunkHead::decode(head).map_err(|why| Error::Corrupt { offset: 0, why })?;
        let mut value = Vec::with_capacity(head.value_bytes as usize);
        for number in 0..head.chunk_count {
            let hash = self.chunk_hash(owner, number);
            let loaded = loop {
                let entry = match settled {
                    Some(chunks) => chunks.get(number as usize).copied().flatten(),
                    None => self.index.get(hash),
                };
                let Some(entry) = entry else {
                    return missing_chunk(settled, 0);
                };
                match self.load(log, entry, || self.index.get(hash) == Some(entry))? {
                    Some(loaded) => break (loaded, entry),
                    // The cleaner moved it, or a writer replaced it.
                    None if settled.is_some() => return Ok(None),
                    None => {}
                }
            };
            let (loaded, entry) = loaded;
            let expected: [u8; CHUNK_KEY_BYTES] = chunk_key(owner, number);
            let (stamp, data) = loaded.value.split_at(loaded.value.len().min(STAMP_BYTES));
            if loaded.kind != Kind::Chunk
                || *loaded.key != expected
                || stamp != head.stamp.to_le_bytes()
            {
                if self.index.get(hash) != Some(entry) {
                    // Replaced, or another's record in a segment that was reused.
                    return Ok(None);
                }
                return missing_chunk(settled, log.geometry().device_offset(entry.address));
            }
            value.extend_from_slice(data);
        }
        if value.len() as u64 != head.value_bytes {
            return missing_chunk(settled, 0);
        }
        Ok(Some(value.into()))
    }

    /// Reads and verifies the record of an entry; `None` when it moved. `same` says whether
    /// the index still has the entry.
    pub(super) fn load(
        &self,
        log: &Log,
        entry: Entry,
        same: impl Fn() -> bool,
    ) -> Result<Option<Loaded>> {
        let device_offset = log.geometry().device_offset(entry.address);
        let Some((id, segment, offset)) = log.table().locate(entry.address) else {
            return Err(Error::Corrupt {
                offset: device_offset,
                why: Invalid::Field("address"),
            });
        };
        let bytes = log.record_bytes(entry.length);
        let mut attempt = 0;
        loop {
            let seed = segment.seed();
            let cache_key = (entry.address.units(), seed.to_bits());
            if let Some(loaded) = self.cache.get(&cache_key) {
                return Ok(Some(loaded));
            }
            let on_device = offset + bytes <= u64::from(segment.written());
            let why = BUFFER.with_borrow_mut(|buffer| {
                let start = if on_device {
                    let block = u64::from(log.geometry().block_bytes);
                    let start = device_offset - device_offset % block;
                    let end = (device_offset + bytes).next_multiple_of(block);
                    buffer.resize_for_overwrite((end - start) as usize);
                    log.read_device(start, buffer)?;
                    (device_offset - start) as usize
                } else {
                    buffer.resize_for_overwrite(bytes as usize);
                    if !log.appender().copy_pending(id, offset as u32, buffer) {
                        return Ok(Err(Invalid::Missing("a pending record")));
                    }
                    0
                };
                let range = buffer
                    .get(start..start + bytes as usize)
                    .unwrap_or_default();
                let parsed = parse_record(range, seed, offset, log.geometry().unit_bytes);
                let loaded = parsed.map(|record| Loaded {
                    kind: record.kind,
                    key: record.key.into(),
                    value: record.value.into(),
                });
                if buffer.capacity() > BUFFER_KEPT_BYTES {
                    *buffer = AlignedBuf::new();
                }
                Ok::<_, Error>(loaded)
            })?;
            let why = match why {
                Ok(loaded) => {
                    self.cache.insert(cache_key, &loaded);
                    return Ok(Some(loaded));
                }
                Err(why) => why,
            };
            if !same() || segment.seed() != seed {
                return Ok(None);
            }
            if !on_device {
                // It was written between the two looks, or is about to be.
                if log.is_poisoned() {
                    return Err(Error::Poisoned);
                }
                std::hint::spin_loop();
                continue;
            }
            if attempt == READ_RETRIES {
                Counters::add(&log.counters.read_errors, 1);
                return Err(Error::Corrupt {
                    offset: device_offset,
                    why,
                });
            }
            attempt += 1;
            Counters::add(&log.counters.read_retries, 1);
        }
    }
}
