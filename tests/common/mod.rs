//! Seeds, models and devices shared by the integration tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::device::{Device, SimulatedDevice};
use esker::{Durability, Options, Result, Store};

/// What a store should hold.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The seed of this run: `ESKER_SEED`, or the clock's. Always printed.
pub fn seed() -> u64 {
    let seed = std::env::var("ESKER_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    println!("ESKER_SEED={seed}");
    seed
}

/// A small fast generator (splitmix64): repeatable, no dependency.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

/// Options for small stores in tests.
pub fn options(durability: Durability) -> Options {
    Options::default().durability(durability).cache_bytes(0)
}

/// A small simulated device: 128 segments of 128 KiB.
pub fn small_device() -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(16 << 20, 512))
}

pub fn create(device: &Arc<SimulatedDevice>, options: &Options) -> Result<Store> {
    let device: Arc<dyn Device> = device.clone();
    Store::create_on(device, options)
}

pub fn open(device: &Arc<SimulatedDevice>, options: &Options) -> Result<Store> {
    let device: Arc<dyn Device> = device.clone();
    Store::open_on(device, options)
}

/// Every difference between store and model is a panic: through gets and through a scan.
pub fn assert_equals(store: &Store, model: &Model) {
    for (key, value) in model {
        let found = store
            .get(key)
            .unwrap_or_else(|error| panic!("get {key:?}: {error}"));
        assert_eq!(found.as_deref(), Some(value.as_slice()), "key {key:?}");
    }
    let mut scanned = Model::new();
    for entry in store.scan() {
        let (key, value) = entry.unwrap();
        assert!(
            scanned.insert(key.clone(), value.to_vec()).is_none(),
            "key {key:?} came twice"
        );
    }
    let extra: Vec<_> = scanned
        .keys()
        .filter(|key| !model.contains_key(*key))
        .collect();
    assert!(extra.is_empty(), "keys that should be gone: {extra:?}");
    assert_eq!(scanned.len(), model.len());
}
