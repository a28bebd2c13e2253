//! The facade: create, open, the key-value calls, statistics, close.

mod options;
mod stats;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::Result;
use crate::device::Device;

pub use options::{Durability, Options};
pub use stats::{ClassStats, SegmentCounts, Stats, Written};

// PLACEHOLDER: in-memory stand-in, so that the layers above can be built meanwhile.

/// A store.
pub struct Store {
    map: Mutex<BTreeMap<Vec<u8>, Value>>,
}

/// A value read from a store: cheap to clone, dereferences to its bytes.
pub type Value = Arc<[u8]>;

/// An atomic group of puts and deletes.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    ops: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.ops.push((key.to_vec(), Some(value.to_vec())));
        self
    }
    /// Adds a delete.
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.ops.push((key.to_vec(), None));
        self
    }
}

impl Store {
    /// Makes a new store at `path`, a regular file to be made or a block device.
    pub fn create(_path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let _ = options;
        Ok(Self {
            map: Mutex::default(),
        })
    }
    /// Opens a store.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Self::create(path, options)
    }
    /// Makes a new store on a device of the caller's.
    pub fn create_on(_device: Arc<dyn Device>, options: &Options) -> Result<Self> {
        Self::create("", options)
    }
    /// Opens a store on a device of the caller's.
    pub fn open_on(_device: Arc<dyn Device>, options: &Options) -> Result<Self> {
        Self::create("", options)
    }
    /// Stores `value` under `key`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map.lock().unwrap().insert(key.to_vec(), value.into());
        Ok(())
    }
    /// The value under `key`; `None` when there is none.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.map.lock().unwrap().get(key).cloned())
    }
    /// Whether there is a value under `key`.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.map.lock().unwrap().contains_key(key))
    }
    /// Removes the value under `key`; says whether there was one.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        Ok(self.map.lock().unwrap().remove(key).is_some())
    }
    /// Applies a batch, all of it or nothing.
    pub fn write(&self, batch: Batch) -> Result<()> {
        for (key, value) in batch.ops {
            match value {
                Some(value) => self.put(&key, &value)?,
                None => drop(self.delete(&key)?),
            }
        }
        Ok(())
    }
    /// Returns when every write accepted so far is on flash.
    pub fn sync(&self) -> Result<()> {
        Ok(())
    }
    /// All entries, unordered, weakly consistent: `(key, value)`.
    pub fn scan(&self) -> impl Iterator<Item = Result<(Vec<u8>, Value)>> + '_ {
        let all: Vec<_> = self
            .map
            .lock()
            .unwrap()
            .iter()
            .map(|(k, v)| Ok((k.clone(), v.clone())))
            .collect();
        all.into_iter()
    }
    /// Writes every partition's image now.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(())
    }
    /// A reading of the counters.
    pub fn stats(&self) -> Stats {
        panic!("placeholder")
    }
    /// Stops in order: the next open replays nothing.
    pub fn close(self) -> Result<()> {
        Ok(())
    }
}
