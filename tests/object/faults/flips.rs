//! One flipped bit anywhere in a small store: an open refuses with a typed error, or what it
//! serves is right, or the error of that object alone. Never a panic, never wrong data.

use std::sync::Arc;
use std::time::Duration;

use esker::device::{CrashPolicy, SimulatedDevice};
use esker::{CollectionName, Error, ObjectName, Options, Result};

use super::history::History;
use super::workload::{Workload, creation};
use super::{apply, options, soak};
use crate::common::{Random, seed};
use crate::engine_store::EngineStore;
use crate::interface::ObjectInterface;
use crate::model::ModelStore;

/// The value, or none if it is known to be damaged.
fn sound<T>(result: Result<T>, context: &str) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Corrupt { .. } | Error::Io { .. }) => None,
        Err(error) => panic!("{context}: {error:?}"),
    }
}

fn everything(store: &dyn ObjectInterface, collection: CollectionName) -> Result<Vec<ObjectName>> {
    let (min, max) = (ObjectName::min(), ObjectName::max());
    Ok(store.collection_list(collection, &min, &max, usize::MAX)?.0)
}

/// Whether what the store gives out is that of the state, or an error.
fn agrees(store: &EngineStore, state: &ModelStore) -> std::result::Result<(), String> {
    let mut collections = store.list_collections();
    collections.sort();
    let mut expected = state.list_collections();
    expected.sort();
    if collections != expected {
        return Err(format!("collections {collections:?}"));
    }
    for collection in collections {
        let objects = everything(store, collection).unwrap();
        if objects != everything(state, collection).unwrap() {
            return Err(format!("objects of {collection}"));
        }
        if store.collection_bits(collection).ok() != state.collection_bits(collection).ok() {
            return Err(format!("bits of {collection}"));
        }
        for object in objects {
            let size = state.stat(collection, &object).unwrap().size;
            let engine = store.store();
            let handle = engine.open_collection(&collection).unwrap();
            if engine.stat(&handle, &object).unwrap().size != size {
                return Err(format!("size of {object}"));
            }
            let context = object.to_string();
            let blocks = (0..size.div_ceil(4096)).step_by(4);
            for block in blocks {
                let read = |store: &dyn ObjectInterface| {
                    store.read(collection, &object, block * 4096, 4 * 4096)
                };
                if sound(read(store), &context).is_some_and(|found| found != read(state).unwrap()) {
                    return Err(format!("data of {object}, block {block}"));
                }
            }
            if store.getattrs(collection, &object).unwrap()
                != state.getattrs(collection, &object).unwrap()
            {
                return Err(format!("attributes of {object}"));
            }
            let omap = sound(engine.omap_get(&handle, &object), &context);
            if omap.is_some_and(|found| found != state.omap_get(collection, &object).unwrap()) {
                return Err(format!("omap of {object}"));
            }
            let keys = engine.omap_get_keys(&handle, &object).unwrap();
            if !keys
                .iter()
                .eq(&state.omap_get_keys(collection, &object).unwrap())
            {
                return Err(format!("keys of {object}"));
            }
        }
    }
    Ok(())
}

/// Bits here and there where something is written: the offset of a sector, and a bit in it.
fn scattered(base: &SimulatedDevice, seed: u64, tried: u64) -> Vec<(u64, u64)> {
    let mut random = Random::new(seed);
    let all = base.read_raw(0, 10 << 20);
    // Runs of payload are thinned out.
    let used: Vec<u64> = (0..all.len() / 512)
        .filter(|sector| all[sector * 512..][..512].iter().any(|byte| *byte != 0))
        .map(|sector| sector as u64)
        .collect();
    let step = (used.len() as u64 / tried).max(1);
    (random.below(step)..used.len() as u64)
        .step_by(step as usize)
        .map(|at| {
            // Most structures are at the front of a sector.
            let bit = match random.below(2) {
                0 => random.below(64 * 8),
                _ => random.below(512 * 8),
            };
            (used[at as usize] * 512, bit)
        })
        .collect()
}

/// A bit in the header of every frame.
fn frame_headers(base: &SimulatedDevice) -> Vec<(u64, u64)> {
    let all = base.read_raw(0, 10 << 20);
    (0..all.len() / 512)
        .map(|sector| sector * 512)
        .filter(|offset| &all[offset + 8..offset + 12] == b"esfr")
        .map(|offset| (offset as u64, 185))
        .collect()
}

/// Flips bits, one at a time. `states` are those an open may find: damage of the last group
/// before a crash cannot be told from a torn write.
fn flips(base: &SimulatedDevice, states: &[ModelStore], seed: u64, bits: &[(u64, u64)]) {
    let (mut refused, mut opened) = (0, 0);
    for (offset, bit) in bits {
        let device = Arc::new(base.snapshot());
        device.flip_bit(*offset, *bit);
        let context = format!("seed {seed}: bit {bit} at {offset}");
        match EngineStore::open(&device, &options()) {
            Ok(store) => {
                opened += 1;
                let reports: Vec<_> = states.iter().map(|state| agrees(&store, state)).collect();
                assert!(
                    reports.iter().any(|report| report.is_ok()),
                    "{context}: {reports:?}"
                );
                store.abandon();
            }
            Err(Error::Corrupt { .. } | Error::NotFound { .. } | Error::Version { .. }) => {
                refused += 1
            }
            Err(error) => panic!("{context}: {error:?}"),
        }
    }
    println!("{opened} opened, {refused} refused");
}

fn small(
    seed: u64,
    options: &Options,
    checkpoint: bool,
    transactions: u64,
) -> (Arc<SimulatedDevice>, EngineStore, Vec<ModelStore>) {
    let device = Arc::new(SimulatedDevice::new(10 << 20, 512));
    let store = EngineStore::create(&device, options).unwrap();
    let mut history = History::new();
    for (collection, transaction) in creation() {
        apply(&store, &mut history, collection, transaction).unwrap();
    }
    let mut workload = Workload::new(seed);
    workload.heads = 5;
    let mut states = Vec::new();
    for at in 0..transactions {
        let (collection, transaction) = workload.next(history.latest());
        apply(&store, &mut history, collection, transaction).unwrap();
        states.push(history.latest().clone());
        if checkpoint && at == transactions / 2 {
            store.store().store().checkpoint().unwrap();
        }
    }
    states.reverse();
    states.truncate(3);
    (device, store, states)
}

fn tried() -> u64 {
    soak().map_or(150, |times| 3000 * times)
}

#[test]
fn flips_in_records_and_frames() {
    let seed = seed();
    let (device, store, states) = small(seed, &options(), false, 60);
    let image = device.crash_image(CrashPolicy::KeepAll);
    store.abandon();
    flips(&image, &states, seed, &scattered(&image, seed, tried()));
}

#[test]
fn flips_in_images_and_records() {
    let seed = seed();
    let (device, store, states) = small(seed, &options(), true, 80);
    let image = device.crash_image(CrashPolicy::KeepAll);
    store.abandon();
    flips(&image, &states, seed, &scattered(&image, seed, tried()));
}

/// Damage of groups that the images have part of is no torn end, whichever of their frames it
/// is in: the images were written because all of them had been flushed. An open that took it
/// for one served the part.
#[test]
fn damage_of_groups_the_images_have_part_of_is_no_torn_end() {
    let seed = seed();
    // So that some partitions are imaged after every transaction.
    let options = options().checkpoint_interval_bytes(16 << 10);
    for seed in seed..seed + soak().map_or(48, |times| 1000 * times) {
        let (device, store, states) = small(seed, &options, false, 8);
        std::thread::sleep(Duration::from_millis(2));
        let image = device.crash_image(CrashPolicy::KeepAll);
        store.abandon();
        flips(&image, &states, seed, &frame_headers(&image));
    }
}

#[test]
fn flips_in_a_closed_store() {
    let seed = seed();
    let (device, store, states) = small(seed, &options(), true, 80);
    store.close().unwrap();
    flips(
        &device,
        &states[..1],
        seed,
        &scattered(&device, seed, tried()),
    );
}
