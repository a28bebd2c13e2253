//! The facade: create, open, the key-value calls, statistics, close.

mod completions;
mod objects;
mod options;
mod owners;
mod reading;
mod stats;

use std::path::Path;

use crate::device::{Device, FileDevice, FileOptions};
use crate::format::Geometry;
use crate::kv::{Batch, Cursor, KeyValue, Scan, Value};
use crate::log::{Log, LogOptions, create_superblocks, find_superblock, open_log};
use crate::object::Objects;
use crate::sync::{Arc, Mutex, SharedArc, thread};
use crate::{Error, Result};

use completions::Completions;
pub(crate) use owners::Owners;

pub use objects::{
    Callback, Collection, Commit, Entries, Extent, ObjectStat, ObjectStore, OmapIterator, Statfs,
};
pub use options::{Durability, Options};
pub use stats::{ClassStats, ObjectLayerStats, SegmentCounts, Stats, Written};

/// A close images everything while the cleaner still runs when the next open would replay more.
const CLOSE_REPLAY_BYTES: u64 = 64 << 20;
/// Epochs with cuts beyond which an open writes fresh images before it serves.
const CUTS_BEFORE_CHECKPOINT: usize = crate::format::CUTS_MAX / 2;

/// What the threads of a store share.
pub(crate) struct Inner {
    pub(crate) owners: Owners<Objects>,
    pub(crate) log: Log,
    pub(crate) completions: Completions,
}

/// A key-value store in one file or block device.
///
/// Shared by reference among threads. Dropping it closes it; [`Store::close`] does the
/// same and says whether it worked.
///
/// ```
/// use esker::{Options, Store};
///
/// # fn main() -> esker::Result<()> {
/// let directory = tempfile::tempdir().unwrap();
/// let path = directory.path().join("example.esker");
/// let store = Store::create(&path, &Options::default().capacity(64 << 20))?;
/// store.put(b"key", b"value")?;
/// assert_eq!(store.get(b"key")?.as_deref(), Some(b"value".as_slice()));
/// store.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Store {
    inner: Arc<Inner>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Store {
    /// Makes a new store at `path`: a regular file, which must not exist or be empty, or a
    /// block device, which must not hold a store.
    ///
    /// # Errors
    /// `InvalidArgument` when sizes do not fit, `Exists` when there is a store (or a file
    /// with content), `InUse`, `Io`.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        if options.read_only {
            return Err(Error::InvalidArgument(
                "a store cannot be created read-only",
            ));
        }
        let path = path.as_ref();
        // A plan before the file is made: bad sizes leave nothing behind.
        if let Some(capacity) = options.capacity {
            plan(capacity, options, 512)?;
        }
        let file_options = file_options(options);
        let is_device = FileDevice::is_block_device(path);
        let was_there = path.exists();
        let device = match options.capacity {
            _ if is_device => FileDevice::open(path, &file_options)?,
            Some(capacity) => FileDevice::create(path, capacity, &file_options)?,
            None => return Err(Error::InvalidArgument("a new file needs a capacity")),
        };
        let created = Self::create_on(SharedArc::new(device), options);
        if created.is_err() && !was_there {
            // The file was made a moment ago, for this store only.
            let _ = std::fs::remove_file(path);
        }
        created
    }

    /// Opens the store at `path`.
    ///
    /// # Errors
    /// `NotFound` when there is none, `InUse` when another has it open, `Version`,
    /// `Corrupt` when acknowledged data is damaged (see `esker check`), `Io`.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let device = FileDevice::open(path.as_ref(), &file_options(options))?;
        Self::open_on(SharedArc::new(device), options)
    }

    /// Makes a new store on a device of the caller's.
    ///
    /// # Errors
    /// As for [`Store::create`].
    pub fn create_on(device: SharedArc<dyn Device>, options: &Options) -> Result<Self> {
        match find_superblock(&*device) {
            Ok(_) => {
                return Err(Error::Exists {
                    what: "a store".into(),
                });
            }
            Err(Error::Version { .. }) => {
                return Err(Error::Exists {
                    what: "a store of another version".into(),
                });
            }
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => {}
        }
        let capacity = options.capacity.unwrap_or_else(|| device.capacity());
        if capacity > device.capacity() {
            return Err(Error::InvalidArgument(
                "the capacity is over the device's size",
            ));
        }
        let geometry = plan(capacity, options, device.block_bytes())?;
        if !device.wants_prewrite() {
            blank_headers(&*device, &geometry)?;
        }
        let superblocks = create_superblocks(&*device, geometry, options.first_number.max(1))?;
        let owners = owners(&geometry, options);
        let log = Log::create(device, superblocks, log_options(options));
        Ok(Self::start(owners, log))
    }

    /// Opens the store on a device of the caller's.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_on(device: SharedArc<dyn Device>, options: &Options) -> Result<Self> {
        let superblocks = find_superblock(&*device)?;
        let geometry = superblocks.current.geometry;
        let owners = owners(&geometry, options);
        // Whether there are objects is known when all is replayed.
        owners.objects.set_in_use(true);
        let log = open_log(device, superblocks, log_options(options), &owners)?;
        let store = Self::start(owners, log);
        if !options.read_only && store.inner.log.cut_count() >= CUTS_BEFORE_CHECKPOINT {
            // Two generations: the older one must cover the cuts too. Without room for them
            // the cuts stay; a full store opens all the same.
            for _ in 0..2 {
                match store.checkpoint() {
                    Err(Error::NoSpace { .. }) => break,
                    other => other?,
                }
            }
        }
        Ok(store)
    }

    fn start(owners: Owners<Objects>, log: Log) -> Self {
        let inner = Arc::new(Inner {
            owners,
            log,
            completions: Completions::new(),
        });
        let mut threads = Vec::new();
        if !inner.log.options().read_only {
            let jobs: [fn(&Inner); 4] = [
                |inner| inner.log.flusher(),
                |inner| inner.log.cleaner(&inner.owners),
                |inner| inner.log.checkpointer(&inner.owners),
                |inner| inner.completions.run(&inner.log),
            ];
            for job in jobs {
                let inner = inner.clone();
                threads.push(thread::spawn(move || job(&inner)));
            }
        }
        Self {
            inner,
            threads: Mutex::new(threads),
        }
    }

    /// What a check looks at.
    pub(crate) fn parts(&self) -> (&Log, &Owners<Objects>) {
        (&self.inner.log, &self.inner.owners)
    }

    /// Stores `value` under `key`, replacing what was there. Keys have 0 to 65,536 bytes,
    /// values 0 to 67,108,864.
    ///
    /// # Errors
    /// `TooLarge`, `NoSpace`, `ReadOnly` before any effect; `Io`, `Poisoned`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.owners.kv.put(&self.inner.log, key, value)
    }

    /// The value under `key`; `None` when there is none.
    ///
    /// # Errors
    /// `TooLarge`, `Io`, `Corrupt` when the record is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.inner.owners.kv.get(&self.inner.log, key)
    }

    /// Whether there is a value under `key`. Reads no flash.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.inner.owners.kv.contains(key)
    }

    /// Removes the value under `key`; says whether there was one. Works on a full store.
    ///
    /// # Errors
    /// As for [`Store::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.inner.owners.kv.delete(&self.inner.log, key)
    }

    /// Applies a batch: all of it, or nothing, also over a crash. A batch has at most
    /// [`Batch::BYTES_MAX`] bytes of keys and values.
    ///
    /// # Errors
    /// As for [`Store::put`].
    pub fn write(&self, batch: Batch) -> Result<()> {
        self.inner.owners.kv.write(&self.inner.log, batch)
    }

    /// Returns when every write accepted so far is on flash.
    ///
    /// # Errors
    /// `Io`, `Poisoned`: then what is on flash is unknown until the store is reopened.
    pub fn sync(&self) -> Result<()> {
        self.inner.log.check_writable()?;
        let last = self.inner.log.appender().next_seqno() - 1;
        self.inner.log.commit_through(last)
    }

    /// All entries: `(key, value)`, in no useful order, weakly consistent.
    #[must_use]
    pub fn scan(&self) -> Scan<'_> {
        self.scan_from(Cursor::start())
    }

    /// Entries from where an earlier scan stopped.
    #[must_use]
    pub fn scan_from(&self, cursor: Cursor) -> Scan<'_> {
        Scan::new(&self.inner.owners.kv, &self.inner.log, cursor)
    }

    /// Writes an image of every partition of the index now, so that an open after a crash
    /// replays little.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`, `ReadOnly`.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.log.check_writable()?;
        self.inner.log.checkpoint_all(&self.inner.owners)
    }

    /// Sets the size of the record cache in bytes.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.inner.owners.kv.cache().set_capacity(bytes);
    }

    /// Sets or lifts the bound on index and cache in bytes. What is over it stays; writes
    /// that need more get `NoSpace`.
    pub fn set_memory_limit(&self, bytes: Option<u64>) {
        self.inner.owners.kv.set_memory_limit(bytes);
        self.inner.owners.objects.set_memory_limit(bytes);
    }

    /// Stops in order: the next open replays nothing.
    ///
    /// # Errors
    /// `Io`, `Poisoned`, `NoSpace`: the store is closed all the same, and the next open
    /// recovers it as after a crash.
    pub fn close(self) -> Result<()> {
        self.stop()
    }

    fn stop(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return Ok(());
        }
        let log = &self.inner.log;
        self.inner.completions.stop();
        if !log.is_poisoned() && log.replay_bytes() > CLOSE_REPLAY_BYTES {
            // While the cleaner is there to make room for the images. If there is none, the
            // next open replays.
            let _ = log.checkpoint_all(&self.inner.owners);
        }
        log.stop();
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                log.poison();
            }
        }
        self.inner.owners.objects.dig(log);
        log.close(&self.inner.owners)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(%error, "closing the store failed; the next open recovers it");
        }
    }
}

fn owners(geometry: &Geometry, options: &Options) -> Owners<Objects> {
    Owners {
        kv: KeyValue::new(
            geometry,
            options.cache_bytes,
            options.memory_limit,
            options.durability,
        ),
        objects: Objects::new(geometry, options.memory_limit),
    }
}

fn log_options(options: &Options) -> LogOptions {
    LogOptions {
        read_only: options.read_only,
        checkpoint_interval_bytes: options.checkpoint_interval_bytes,
        discard_bytes_per_second: options.discard_bytes_per_second,
        first_number: options.first_number.max(1),
    }
}

fn file_options(options: &Options) -> FileOptions {
    FileOptions {
        read_only: options.read_only,
        direct_io: options.direct_io,
        io_uring: options.io_uring,
    }
}

fn plan(capacity: u64, options: &Options, block_bytes: u32) -> Result<Geometry> {
    let mut uuid = [0; 16];
    let mut salt = [0; 16];
    for secret in [&mut uuid, &mut salt] {
        rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty()).map_err(
            |errno| Error::Io {
                op: "getrandom",
                offset: 0,
                source: errno.into(),
            },
        )?;
    }
    Geometry::plan(capacity, options.segment_bytes, block_bytes, uuid, salt).ok_or({
        Error::InvalidArgument(
            "capacity or segment size: a store has 8.1 MiB to 16 TiB, in 64 segments or more \
             of 128 KiB to 256 MiB, a power of two",
        )
    })
}

/// A device may hold anything: no block may look like a segment header.
fn blank_headers(device: &dyn Device, geometry: &Geometry) -> Result<()> {
    let zeros = crate::device::AlignedBuf::zeroed(geometry.header_bytes() as usize);
    let segments: Vec<u32> = (0..geometry.segment_count).collect();
    for some in segments.chunks(256) {
        let ops: Vec<_> = some
            .iter()
            .map(|segment| crate::device::WriteOp {
                offset: geometry.segment_offset(*segment),
                data: &zeros,
            })
            .collect();
        let offset = ops.first().map_or(0, |op| op.offset);
        device.write_many(&ops).map_err(|source| Error::Io {
            op: "write",
            offset,
            source,
        })?;
    }
    device.flush().map_err(|source| Error::Io {
        op: "flush",
        offset: 0,
        source,
    })
}
