//! A store with a past (cleaned, checkpointed, deleted from) and what a repair owes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker::device::{Device, SimulatedDevice};
use esker::format::{Class, SegmentHeader};
use esker::inspect::{self, CheckOptions, CheckReport, Structure};
use esker::{Durability, Options, Store};

use crate::common::{Model, Random, create, open, options};

/// What was ever written: every value a key had, and what it has now.
#[derive(Default, Clone)]
pub struct History {
    pub model: Model,
    pub past: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

pub fn store_options(durability: Durability) -> Options {
    options(durability).checkpoint_interval_bytes(2 << 20)
}

/// A device of 80 segments of 128 KiB: small, so that it is cleaned soon.
pub fn device() -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(10_600 << 10, 512))
}

impl History {
    pub fn put(&mut self, store: &Store, key: &[u8], value: Vec<u8>) {
        store.put(key, &value).unwrap();
        self.past
            .entry(key.to_vec())
            .or_default()
            .push(value.clone());
        self.model.insert(key.to_vec(), value);
    }

    /// Overwrites and deletes; now and then a large value.
    pub fn churn(&mut self, store: &Store, random: &mut Random, steps: u64) {
        for step in 0..steps {
            let key = format!("key{:04}", random.below(700)).into_bytes();
            match random.below(10) {
                0 | 1 => {
                    store.delete(&key).unwrap();
                    self.model.remove(&key);
                }
                2 if step % 16 == 0 => {
                    let key = format!("large{}", random.below(6)).into_bytes();
                    if random.below(3) == 0 {
                        store.delete(&key).unwrap();
                        self.model.remove(&key);
                    } else {
                        let len = 20_000 + random.below(60_000);
                        self.put(store, &key, random.bytes(len as usize));
                    }
                }
                _ => {
                    let len = random.below(3000);
                    self.put(store, &key, random.bytes(len as usize));
                }
            }
        }
    }

    /// After a repair of much damage: no value is made up, and what is stale or back is
    /// listed.
    pub fn assert_no_lies(&self, device: &Arc<SimulatedDevice>, report: &CheckReport) {
        let listed: BTreeSet<&[u8]> = report.unconfirmed.iter().map(|key| &key.0[..]).collect();
        let store = open(device, &store_options(Durability::Committed)).unwrap();
        for (key, past) in self.past.iter().filter(|(key, _)| *key != b"last") {
            let Ok(Some(found)) = store.get(key) else {
                continue;
            };
            let name = String::from_utf8_lossy(key);
            assert!(
                past.iter().any(|old| old[..] == *found),
                "{name} is made up"
            );
            let current = self.model.get(key).is_some_and(|value| value[..] == *found);
            assert!(
                current || listed.contains(&key[..]),
                "{name} is stale or back, not listed: {report:#?}"
            );
        }
    }

    /// After a repair: reads are the model's, or listed; what was deleted is gone, or
    /// listed.
    pub fn assert_honest(&self, device: &Arc<SimulatedDevice>, report: &CheckReport) {
        let listed: BTreeSet<&[u8]> = report.unconfirmed.iter().map(|key| &key.0[..]).collect();
        let lost: BTreeSet<&[u8]> = report.lost.iter().map(|key| &key.0[..]).collect();
        let store = open(device, &store_options(Durability::Committed)).unwrap();
        let mut unnamed = 0;
        for (key, value) in self.model.iter().filter(|(key, _)| *key != b"last") {
            let name = String::from_utf8_lossy(key);
            match store.get(key) {
                Ok(Some(found)) if *found == value[..] => {}
                Ok(Some(found)) => {
                    assert!(listed.contains(&key[..]), "{name} is stale and not listed");
                    let past = &self.past[key];
                    assert!(
                        past.iter().any(|old| old[..] == *found),
                        "{name} is made up"
                    );
                }
                outcome @ (Ok(None) | Err(esker::Error::Corrupt { .. })) => {
                    if !lost.contains(&key[..]) && !listed.contains(&key[..]) {
                        println!("{name}: {outcome:?}");
                        unnamed += 1;
                    }
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
        let places = report.findings.iter().filter(|finding| {
            matches!(
                finding.structure,
                Structure::Record | Structure::Frame | Structure::SegmentHeader
            )
        });
        if places.count() == 0 {
            assert_eq!(unnamed, 0, "keys are lost and nothing says so: {report:#?}");
        }
        assert!(unnamed <= 64, "{unnamed} keys are lost without a name");
        for key in self
            .past
            .keys()
            .filter(|key| !self.model.contains_key(*key))
        {
            let name = String::from_utf8_lossy(key);
            match store.get(key) {
                Ok(None) | Err(esker::Error::Corrupt { .. }) => {}
                Ok(Some(_)) => assert!(listed.contains(&key[..]), "{name} is back, not listed"),
                Err(error) => panic!("{name}: {error}"),
            }
        }
        store.close().unwrap();
    }
}

/// A store with a past, closed in order or killed, and its history.
pub fn aged(
    random: &mut Random,
    durability: Durability,
    clean: bool,
) -> (Arc<SimulatedDevice>, History) {
    let device = device();
    let mut history = History::default();
    let options = store_options(durability);
    let store = create(&device, &options).unwrap();
    history.churn(&store, random, 4000);
    drop(store);
    let store = open(&device, &options).unwrap();
    history.churn(&store, random, 1500);
    if clean {
        store.close().unwrap();
        return (device, history);
    }
    store.sync().unwrap();
    // The last group commit may be dropped when it is damaged: that is what a power cut
    // leaves. No key that counts is in it.
    history.put(&store, b"last", b"group".to_vec());
    store.sync().unwrap();
    let image = Arc::new(device.crash_image(esker::device::CrashPolicy::LoseAll));
    drop(store);
    (image, history)
}

pub fn check(device: &Arc<SimulatedDevice>) -> CheckReport {
    let device: Arc<dyn Device> = device.clone();
    inspect::check_on(device, &CheckOptions::default(), &mut |_| {}).unwrap()
}

pub fn repair(device: &Arc<SimulatedDevice>) -> CheckReport {
    let device: Arc<dyn Device> = device.clone();
    let options = CheckOptions::default().repair(true);
    inspect::check_on(device, &options, &mut |_| {}).unwrap()
}

/// Headers of segments of a class, with their device offsets.
pub fn segments(device: &SimulatedDevice, wanted: fn(Class) -> bool) -> Vec<(u64, SegmentHeader)> {
    let mut found = Vec::new();
    let mut offset = 64 << 10;
    while offset + (128 << 10) <= device.capacity() {
        if let Ok(header) = SegmentHeader::decode(&device.read_raw(offset, 512))
            && wanted(header.class)
        {
            found.push((offset, header));
        }
        offset += 128 << 10;
    }
    found
}

pub fn is_data(class: Class) -> bool {
    matches!(class, Class::Data(_))
}

pub fn is_checkpoint(class: Class) -> bool {
    class == Class::Checkpoint
}
