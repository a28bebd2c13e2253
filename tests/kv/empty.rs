//! An empty value is a value, and no value is none (case U56): the two are told apart by
//! every call, in every state a key can come from, and through everything that happens to a
//! record: a restart, a kill, replay, images, cleaning. (Export and import: `tests/cli.rs`.)

use std::sync::Arc;

use esker::device::CrashPolicy;
use esker::{Batch, Durability, Store};

use crate::common::{Model, assert_equals, create, open, options, small_device};

/// What happens to a key before it is looked at.
const STEPS: [&str; 4] = ["unset", "empty", "full", "removed"];

fn name(first: &str, second: &str, batch: bool) -> Vec<u8> {
    let way = if batch { "batch" } else { "call" };
    format!("{first}, then {second}, by {way}").into_bytes()
}

fn step(store: &Store, model: &mut Model, key: &[u8], step: &str, batch: bool) {
    let value: Option<&[u8]> = match step {
        "unset" => return,
        "empty" => Some(b""),
        "full" => Some(b"value"),
        _ => None,
    };
    let was_there = model.contains_key(key);
    match (value, batch) {
        (Some(value), false) => store.put(key, value).unwrap(),
        (None, false) => assert_eq!(store.delete(key).unwrap(), was_there),
        (value, true) => {
            let mut batch = Batch::new();
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
            store.write(batch).unwrap();
        }
    }
    match value {
        Some(value) => drop(model.insert(key.to_vec(), value.to_vec())),
        None => drop(model.remove(key)),
    }
}

fn check(store: &Store, model: &Model) {
    for first in STEPS {
        for second in STEPS {
            for batch in [false, true] {
                let key = name(first, second, batch);
                let expected = model.get(&key).map(Vec::as_slice);
                assert_eq!(store.get(&key).unwrap().as_deref(), expected);
                assert_eq!(store.contains(&key).unwrap(), expected.is_some());
            }
        }
    }
    // The scan lists empty values and leaves out absent ones.
    assert_equals(store, model);
}

#[test]
fn empty_and_absent_are_told_apart_whatever_happens() {
    for durability in [Durability::Committed, Durability::Buffered] {
        let device = small_device();
        let options = options(durability).checkpoint_interval_bytes(1_u64 << 40);
        let store = create(&device, &options).unwrap();
        let mut model = Model::new();
        for first in STEPS {
            for second in STEPS {
                for batch in [false, true] {
                    let key = name(first, second, batch);
                    step(&store, &mut model, &key, first, batch);
                    step(&store, &mut model, &key, second, batch);
                }
            }
        }
        check(&store, &model);
        store.sync().unwrap();
        let killed = Arc::new(device.crash_image(CrashPolicy::LoseAll));
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        check(&store, &model);
        store.close().unwrap();
        // By replay of the whole log, and from images.
        for device in [killed, device] {
            let store = open(&device, &options).unwrap();
            check(&store, &model);
            // Until every record was moved: the device is written four times over.
            for round in 0..800_u64 {
                let key = format!("passing{}", round % 100).into_bytes();
                store.put(&key, &[7; 80_000]).unwrap();
                model.insert(key, vec![7; 80_000]);
            }
            assert!(store.stats().victims_cleaned > 0);
            check(&store, &model);
            store.close().unwrap();
            let store = open(&device, &options).unwrap();
            check(&store, &model);
            model.retain(|key, _| !key.starts_with(b"passing"));
        }
    }
}
