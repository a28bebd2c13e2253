//! The objects under load, what they hold, and the transactions a Ceph OSD writes.
//!
//! The shape of a transaction was counted on an OSD: two attributes of 293 and 35 bytes, two
//! omap keys of 234 and 186 bytes on the placement group's own object, and with every 100th
//! the removal of its 100 oldest log keys.
//!
//! Data is pages of a pool of random bytes, lent to the transaction and not copied. Which
//! page each block has is noted, so that what is read is verified to the byte, age included.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker::{Collection, CollectionName, ObjectName, ObjectStore, Transaction};
use fastrand::Rng;

use super::arguments::{RunArguments, Workload};

/// Objects of an rbd image.
pub const OBJECT_BYTES: u64 = 4 << 20;
const PAGE_BYTES: usize = 4096;
/// Where data may begin in the pool; data of 4 MiB takes as many more.
const FIRST_PAGES: u64 = 1024;
const POOL_PAGES: usize = 2048;
/// The page of a block that was never written.
const NO_PAGE: u16 = u16::MAX;

const OBJECT_INFO_BYTES: usize = 293;
const SNAPSET_BYTES: usize = 35;
const LOG_ENTRY_BYTES: usize = 234;
const FAST_INFO_BYTES: usize = 186;
const INFO_BYTES: usize = 1001;
/// The epoch in the keys of log entries.
const EPOCH: u32 = 12;
/// Log entries a placement group keeps, and how many it drops at a time.
const LOG_KEPT: u64 = 250;
const LOG_TRIMMED: u64 = 100;
const POOL_ID: i64 = 2;

/// The log of a placement group.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// Version of the newest entry.
    version: u64,
    /// Version of the oldest.
    oldest: u64,
    transactions: u64,
}

/// A placement group.
struct Group {
    id: CollectionName,
    collection: Collection,
    /// The object whose omap is the log.
    meta: Arc<ObjectName>,
    /// Used by the one thread that writes this group.
    log: Mutex<Log>,
}

/// All objects.
pub struct Image {
    object_bytes: u64,
    objects: Vec<Arc<ObjectName>>,
    groups: Vec<Group>,
    /// The pool page of each block.
    pages: Vec<AtomicU16>,
    pool: Vec<u8>,
    /// Whether a write is a whole object.
    is_whole: bool,
}

/// Part of an object.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    pub object: u64,
    pub offset: u64,
}

impl Image {
    /// Names the objects and placement groups; [`Image::create`] makes the latter.
    pub fn new(store: &ObjectStore, arguments: &RunArguments, object_bytes: u64) -> Self {
        let mut pool = vec![0; POOL_PAGES * PAGE_BYTES];
        Rng::with_seed(arguments.seed ^ 0x7061_6765).fill(&mut pool);
        let bits = arguments.pgs.trailing_zeros();
        let groups = (0..arguments.pgs as u32).map(|seed| {
            let id = CollectionName::pg(POOL_ID, seed);
            Group {
                id,
                collection: store.create_new_collection(id),
                meta: Arc::new(ObjectName::new(POOL_ID, seed, "")),
                log: Mutex::new(Log::default()),
            }
        });
        let count = arguments.object_count(object_bytes);
        let prefix = match arguments.workload {
            Workload::RadosWrite => format!("benchmark_data_{object_bytes}_object"),
            _ => "rbd_data.10226b8b4567.".to_owned(),
        };
        let objects = (0..count).map(|number| {
            let spread = (number as u32).wrapping_mul(0x9e37_79b9);
            let seed = (number % arguments.pgs) as u32;
            let hash = spread.checked_shl(bits).unwrap_or(0) | seed;
            Arc::new(ObjectName::new(
                POOL_ID,
                hash,
                format!("{prefix}{number:016x}"),
            ))
        });
        let blocks = count * object_bytes.div_ceil(PAGE_BYTES as u64);
        Self {
            object_bytes,
            objects: objects.collect(),
            groups: groups.collect(),
            pages: (0..blocks).map(|_| AtomicU16::new(NO_PAGE)).collect(),
            pool,
            is_whole: arguments.workload == Workload::RadosWrite,
        }
    }

    /// How many objects.
    pub fn object_count(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Bytes of an object.
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// Bytes of all data.
    pub fn data_bytes(&self) -> u64 {
        self.object_count() * self.object_bytes
    }

    /// Makes the placement groups, each with a log so long that it is trimmed from now on.
    pub fn create(&self, store: &ObjectStore) -> esker::Result<()> {
        let bits = self.groups.len().trailing_zeros();
        for group in &self.groups {
            let mut log = lock(&group.log);
            log.oldest = 1;
            log.version = LOG_KEPT + LOG_TRIMMED;
            let keys: Vec<_> = (1..=log.version).map(log_key).collect();
            let entry = self.bytes(log.version, LOG_ENTRY_BYTES);
            let mut transaction = Transaction::new();
            transaction.create_collection(group.id, bits);
            transaction.touch(group.id, &group.meta);
            transaction.omap_setkeys(group.id, &group.meta, keys.iter().map(|key| (key, entry)));
            let info = [("_info", INFO_BYTES), ("_fastinfo", FAST_INFO_BYTES)];
            let info = info.map(|(key, len)| (key, self.bytes(0, len)));
            transaction.omap_setkeys(group.id, &group.meta, info);
            store.apply_transactions(&group.collection, &[transaction])?;
        }
        Ok(())
    }

    /// This image with the placement groups of another, which exist.
    pub fn take_groups(self, other: Self) -> Self {
        Self {
            groups: other.groups,
            ..self
        }
    }

    /// Random bytes of the pool.
    fn bytes(&self, seed: u64, len: usize) -> &[u8] {
        let at = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42) as usize;
        &self.pool[at..at + len]
    }

    fn group_of(&self, object: u64) -> &Group {
        &self.groups[(object % self.groups.len() as u64) as usize]
    }

    /// The log of the group of an object, to build a transaction with.
    pub fn log_of(&self, object: u64) -> MutexGuard<'_, Log> {
        lock(&self.group_of(object).log)
    }

    /// The collection of an object.
    pub fn collection_of(&self, object: u64) -> &Collection {
        &self.group_of(object).collection
    }

    /// A page of the pool to write, of a size.
    pub fn draw_page(&self, rng: &mut Rng) -> u16 {
        rng.u64(..FIRST_PAGES) as u16
    }

    /// The transaction an OSD writes for a write of `len` bytes.
    pub fn transaction<'a>(
        &'a self,
        slot: Slot,
        len: u64,
        page: u16,
        log: &mut Log,
    ) -> Transaction<'a> {
        let (group, object) = (
            self.group_of(slot.object),
            &self.objects[slot.object as usize],
        );
        log.version += 1;
        log.transactions += 1;
        let version = log.version;
        let mut transaction = Transaction::new();
        let first_block = (slot.object * self.object_bytes / PAGE_BYTES as u64) as usize;
        if self.pages[first_block].load(Ordering::Relaxed) == NO_PAGE {
            transaction.create(group.id, object);
        }
        transaction.setattrs(
            group.id,
            object,
            [
                ("_", self.bytes(version, OBJECT_INFO_BYTES)),
                ("snapset", self.bytes(version + 1, SNAPSET_BYTES)),
            ],
        );
        if self.is_whole {
            transaction.set_alloc_hint(group.id, object, len, len, 0);
        }
        let from = usize::from(page) * PAGE_BYTES;
        let data = &self.pool[from..from + len as usize];
        transaction.write(group.id, object, slot.offset, [data]);
        transaction.omap_setkeys(
            group.id,
            &group.meta,
            [
                (log_key(version), self.bytes(version + 2, LOG_ENTRY_BYTES)),
                (
                    "_fastinfo".to_owned(),
                    self.bytes(version + 3, FAST_INFO_BYTES),
                ),
            ],
        );
        let is_due = log.transactions.is_multiple_of(LOG_TRIMMED);
        if is_due && version - log.oldest >= LOG_KEPT + LOG_TRIMMED {
            let oldest = log.oldest;
            log.oldest += LOG_TRIMMED;
            transaction.omap_rmkeys(group.id, &group.meta, (oldest..log.oldest).map(log_key));
        }
        transaction
    }

    /// Notes what a transaction that has been queued wrote.
    pub fn note(&self, slot: Slot, len: u64, page: u16) {
        for (number, noted) in self.blocks(slot, len).iter().enumerate() {
            noted.store(page + number as u16, Ordering::Relaxed);
        }
    }

    fn blocks(&self, slot: Slot, len: u64) -> &[AtomicU16] {
        let first = (slot.object * self.object_bytes + slot.offset) / PAGE_BYTES as u64;
        &self.pages[first as usize..][..(len / PAGE_BYTES as u64) as usize]
    }

    /// Reads into a buffer and verifies what was read.
    pub fn read(&self, store: &ObjectStore, slot: Slot, into: &mut [u8]) -> Result<(), String> {
        let object = &self.objects[slot.object as usize];
        let collection = self.collection_of(slot.object);
        let noted = self.blocks(slot, into.len() as u64);
        if noted
            .iter()
            .all(|page| page.load(Ordering::Relaxed) == NO_PAGE)
        {
            return Ok(());
        }
        let read = store.read_into(collection, object, slot.offset, into);
        let read = read.map_err(|error| format!("a read of {object} failed: {error}"))?;
        if read != into.len() {
            return Err(format!("{object} has {read} bytes at {}", slot.offset));
        }
        for (number, (block, page)) in into.chunks(PAGE_BYTES).zip(noted).enumerate() {
            let page = page.load(Ordering::Relaxed);
            let is_right = if page == NO_PAGE {
                block.iter().all(|&byte| byte == 0)
            } else {
                block == &self.pool[usize::from(page) * PAGE_BYTES..][..PAGE_BYTES]
            };
            if !is_right {
                let at = slot.offset + (number * PAGE_BYTES) as u64;
                return Err(format!("{object} has wrong data at {at}"));
            }
        }
        Ok(())
    }

    /// Removes all objects that have been written; the placement groups stay.
    pub fn remove_objects(&self, store: &ObjectStore) -> esker::Result<()> {
        for (number, object) in self.objects.iter().enumerate() {
            let group = self.group_of(number as u64);
            let mut transaction = Transaction::new();
            transaction.remove(group.id, object);
            store.queue_transactions(&group.collection, &[transaction], None, None)?;
        }
        store.store().sync()
    }
}

fn log_key(version: u64) -> String {
    format!("{EPOCH:010}.{version:020}")
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
