//! What the benchmark drives: Esker, or a rival in `compare`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use esker::{Durability, Error, Options, Stats, Store};
use serde::{Deserialize, Serialize};

use super::arguments::{DurabilityName, RunArguments};
use crate::failure::{Failure, Outcome};
use crate::opening::explain;

/// A store whose counters are read while it runs.
pub trait Observed: Sync {
    /// What the engine says of itself now.
    fn counters(&self) -> Counters;

    /// Allocated bytes on the file system.
    fn space_bytes(&self) -> u64;
}

/// A store of keys and values under test, used by many threads.
pub trait Engine: Observed {
    /// Stores `value` under `key`.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String>;

    /// Gives the value under `key` to `look`, `None` when there is none.
    fn get(&self, key: &[u8], look: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String>;

    /// Returns when all accepted writes are on flash and no debt is left to work off.
    fn settle(&self) -> Result<(), String>;
}

/// An engine's own counters; a rival leaves most at zero.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Live bytes / usable bytes.
    pub utilization: f64,
    /// Segments cleaned.
    pub victims_cleaned: u64,
    /// Checkpoints taken.
    pub checkpoints_taken: u64,
    /// Group commits.
    pub groups: u64,
    /// Device flushes.
    pub flushes: u64,
    /// Entries in the index.
    pub entries: u64,
    /// DRAM of the index.
    pub index_bytes: u64,
    /// Bytes written by cause.
    pub written: Causes,
}

impl Counters {
    /// What was added since `earlier`; what is no sum stays as it is now.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            victims_cleaned: self.victims_cleaned.saturating_sub(earlier.victims_cleaned),
            checkpoints_taken: self
                .checkpoints_taken
                .saturating_sub(earlier.checkpoints_taken),
            groups: self.groups.saturating_sub(earlier.groups),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            written: self.written.since(&earlier.written),
            ..*self
        }
    }
}

/// Bytes written to the device, by cause, as the engine counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Causes {
    /// Records of the user.
    pub record_bytes: u64,
    /// Records relocated by the cleaner.
    pub cleaning_bytes: u64,
    /// Checkpoints.
    pub checkpoint_bytes: u64,
    /// Headers and padding.
    pub padding_bytes: u64,
    /// Zeros written once into new segments.
    pub prewrite_bytes: u64,
}

impl Causes {
    /// What was written since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            record_bytes: self.record_bytes.saturating_sub(earlier.record_bytes),
            cleaning_bytes: self.cleaning_bytes.saturating_sub(earlier.cleaning_bytes),
            checkpoint_bytes: self
                .checkpoint_bytes
                .saturating_sub(earlier.checkpoint_bytes),
            padding_bytes: self.padding_bytes.saturating_sub(earlier.padding_bytes),
            prewrite_bytes: self.prewrite_bytes.saturating_sub(earlier.prewrite_bytes),
        }
    }

    /// Each cause's name and bytes.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("records", self.record_bytes),
            ("cleaning", self.cleaning_bytes),
            ("checkpoints", self.checkpoint_bytes),
            ("padding", self.padding_bytes),
            ("prewrite", self.prewrite_bytes),
        ]
    }
}

impl From<&Stats> for Counters {
    fn from(stats: &Stats) -> Self {
        Self {
            utilization: stats.utilization,
            victims_cleaned: stats.victims_cleaned,
            checkpoints_taken: stats.checkpoints_taken,
            groups: stats.groups,
            flushes: stats.flushes,
            entries: stats.entries,
            index_bytes: stats.index_bytes,
            written: Causes {
                record_bytes: stats.written.record_bytes,
                cleaning_bytes: stats.written.cleaning_bytes,
                checkpoint_bytes: stats.written.checkpoint_bytes,
                padding_bytes: stats.written.padding_bytes,
                prewrite_bytes: stats.written.prewrite_bytes,
            },
        }
    }
}

/// Esker under test.
pub struct EskerEngine {
    store: Store,
    path: PathBuf,
}

impl EskerEngine {
    /// Makes the store at `path`, which must not exist or be a block device.
    pub fn create(path: &Path, arguments: &RunArguments, capacity: u64) -> Outcome<Self> {
        let mut options = Options::default()
            .capacity(capacity)
            .cache_bytes(arguments.cache_bytes)
            .durability(match arguments.durability {
                DurabilityName::Committed => Durability::Committed,
                DurabilityName::Buffered => Durability::Buffered,
            });
        if let Some(bytes) = arguments.checkpoint_interval {
            options = options.checkpoint_interval_bytes(bytes);
        }
        if let Some(bytes) = arguments.segment_bytes {
            options = options.segment_bytes(bytes);
        }
        let store = Store::create(path, &options).map_err(|error| explain(path, &error))?;
        Ok(Self {
            store,
            path: path.to_owned(),
        })
    }

    /// Closes the store in order.
    pub fn close(self) -> Outcome {
        self.store.close().map_err(Failure::from)
    }

    /// The store's full statistics.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }
}

impl Engine for EskerEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.store.put(key, value).map_err(|error| match error {
            Error::NoSpace { what } => {
                format!("no space: {what} is full; lower --utilization or give more --keys")
            }
            error => error.to_string(),
        })
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
        let value = self.store.get(key).map_err(|error| error.to_string())?;
        look(value.as_deref());
        Ok(())
    }

    fn settle(&self) -> Result<(), String> {
        self.store.sync().map_err(|error| error.to_string())
    }
}

impl Observed for EskerEngine {
    fn counters(&self) -> Counters {
        Counters::from(&self.store.stats())
    }

    fn space_bytes(&self) -> u64 {
        allocated_bytes(&self.path)
            .ok()
            .filter(|&bytes| bytes > 0)
            .unwrap_or_else(|| self.store.stats().capacity_bytes)
    }
}

/// Bytes the file system has allocated for a file, or for all files under a directory.
pub fn allocated_bytes(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    // st_blocks counts in 512 bytes whatever the file system's block is.
    let mut bytes = metadata.blocks() * 512;
    if metadata.is_dir() {
        for item in fs::read_dir(path)? {
            // A file deleted meanwhile holds nothing.
            bytes += item
                .and_then(|item| allocated_bytes(&item.path()))
                .unwrap_or(0);
        }
    }
    Ok(bytes)
}
