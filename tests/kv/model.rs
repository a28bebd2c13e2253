//! Random operations against a map in memory, with reopens in the middle.

use std::sync::Arc;

use esker::device::SimulatedDevice;
use esker::{Batch, Durability, Store};

use crate::common::{Model, Random, assert_equals, create, open, options, seed, small_device};

fn random_value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(100) {
        0..=4 => 0,
        5..=69 => random.below(300),
        70..=95 => random.below(6000),
        96..=98 => 10_000 + random.below(30_000),
        _ => 50_000 + random.below(300_000),
    };
    random.bytes(len as usize)
}

fn step(store: &Store, model: &mut Model, random: &mut Random) {
    let key = format!("key {}", random.below(400)).into_bytes();
    match random.below(10) {
        0..=5 => {
            let value = random_value(random);
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        6 | 7 => {
            let was_there = store.delete(&key).unwrap();
            assert_eq!(was_there, model.remove(&key).is_some());
        }
        8 => assert_eq!(
            store.get(&key).unwrap().as_deref(),
            model.get(&key).map(Vec::as_slice)
        ),
        _ => {
            let mut batch = Batch::new();
            for _ in 0..random.below(8) {
                let key = format!("key {}", random.below(400)).into_bytes();
                if random.below(3) == 0 {
                    batch.delete(&key);
                    model.remove(&key);
                } else {
                    let value = random_value(random);
                    batch.put(&key, &value);
                    model.insert(key, value);
                }
            }
            store.write(batch).unwrap();
        }
    }
}

fn run(durability: Durability, mut device: Arc<SimulatedDevice>, steps: u64, seed: u64) {
    let mut random = Random::new(seed);
    let options = options(durability).checkpoint_interval_bytes(4 << 20);
    let mut store = create(&device, &options).unwrap();
    let mut model = Model::new();
    let mut cleaned = 0;
    for at in 0..steps {
        step(&store, &mut model, &mut random);
        if at % 2000 == 1999 {
            cleaned += store.stats().victims_cleaned;
            match random.below(3) {
                0 => store.close().unwrap(),
                1 => drop(store),
                _ => {
                    store.sync().unwrap();
                    // As after a kill: what was written stays, nothing is closed.
                    device = Arc::new(device.snapshot());
                }
            }
            store = open(&device, &options).unwrap();
            assert_equals(&store, &model);
        }
    }
    assert_equals(&store, &model);
    cleaned += store.stats().victims_cleaned;
    assert!(cleaned > 0);
}

#[test]
fn committed_against_the_model() {
    run(Durability::Committed, small_device(), 8000, seed());
}

#[test]
fn buffered_against_the_model() {
    run(Durability::Buffered, small_device(), 8000, seed());
}
