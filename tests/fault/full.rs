//! Full stores: `NoSpace` comes before any effect, deletes work, a full store closes and
//! opens, and what was deleted can be written again (cases U02 and U05).

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::device::{CrashPolicy, Fault, FaultError, OpKind, SimulatedDevice};
use esker::format::{Kind, record_length};
use esker::{Batch, Durability, Error, Store};

use crate::common::{Model, Random, assert_equals, create, open, options, seed};

/// 64 segments of 128 KiB and a few more: fills in a moment.
fn tiny_device() -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(12 << 20, 512).without_crashes())
}

fn is_full<T: std::fmt::Debug>(result: &esker::Result<T>) -> bool {
    matches!(result, Err(Error::NoSpace { what: "capacity" }))
}

/// Bytes of records that a value of a 128 KiB segment store takes, as the format says.
fn record_bytes(key: &[u8], value: &[u8]) -> u64 {
    let whole = record_length(Kind::Put, key.len(), value.len(), 8).unwrap();
    if whole.units() * 8 <= (128 << 10) / 8 || value.len() < 192 {
        return whole.units() * 8;
    }
    let chunk = (128 << 10) / 16 - 44;
    let chunks: u64 = value
        .chunks(chunk)
        .map(|data| {
            let length = record_length(Kind::Chunk, 20, data.len() + 8, 8).unwrap();
            length.units() * 8
        })
        .sum();
    let head = record_length(Kind::Head, key.len(), 24, 8).unwrap();
    chunks + head.units() * 8
}

fn assert_live_bytes(store: &Store, model: &Model) {
    let expected: u64 = model
        .iter()
        .map(|(key, value)| record_bytes(key, value))
        .sum();
    // While the cleaner moves a record it is counted twice for a moment.
    for _ in 0..1000 {
        if store.stats().live_bytes == expected {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(store.stats().live_bytes, expected);
}

/// Puts values of `len(i)` bytes under new keys until there is no room.
fn fill(
    store: &Store,
    model: &mut Model,
    round: u64,
    random: &mut Random,
    len: &mut dyn FnMut(&mut Random) -> usize,
) {
    for number in 0.. {
        let key = format!("{round}/{number}").into_bytes();
        let size = len(random);
        let value = random.bytes(size);
        match store.put(&key, &value) {
            Ok(()) => {
                model.insert(key, value);
            }
            result => {
                assert!(is_full(&result), "{result:?}");
                assert_eq!(store.get(&key).unwrap(), None);
                break;
            }
        }
    }
    // The rest in small pieces, so that one large value more or less does not count.
    for number in 0.. {
        let key = format!("{round}/rest {number}").into_bytes();
        match store.put(&key, &[7; 500]) {
            Ok(()) => model.insert(key, vec![7; 500]),
            Err(_) => return,
        };
    }
}

fn rounds(
    count: u64,
    durability: Durability,
    device: Arc<SimulatedDevice>,
    len: &mut dyn FnMut(&mut Random) -> usize,
) {
    let mut random = Random::new(seed());
    let options = options(durability);
    let mut store = create(&device, &options).unwrap();
    let mut model = Model::new();
    let mut first = 0;
    for round in 0..count {
        fill(&store, &mut model, round, &mut random, len);
        assert_live_bytes(&store, &model);
        let capacity = store.stats().live_bytes;
        if round == 0 {
            first = capacity;
        }
        assert!(
            // Within a percent, or the segment by which the reserve for images changes.
            capacity + (first / 100).max(128 << 10) >= first,
            "round {round}: {capacity} of {first} bytes: {:?}",
            store.stats()
        );
        // A batch that cannot fit has no effect, though its first half would fit.
        let some = model.keys().next().unwrap().clone();
        let mut batch = Batch::new();
        batch.delete(&some);
        for number in 0..200 {
            batch.put(format!("batch {number}").as_bytes(), &[7; 9000]);
        }
        let result = store.write(batch);
        assert!(is_full(&result), "{result:?}");
        if round % 7 == 3 {
            assert_equals(&store, &model);
        }
        if round % 5 == 4 {
            store.close().unwrap();
            store = open(&device, &options).unwrap();
            assert_equals(&store, &model);
        }
        // Deletes work: all, or half one by one, or in batches.
        let keys: Vec<_> = model.keys().cloned().collect();
        match round % 3 {
            0 => {
                for key in &keys {
                    assert!(store.delete(key).unwrap());
                    model.remove(key);
                }
            }
            1 => {
                for key in keys.iter().step_by(2) {
                    assert!(store.delete(key).unwrap());
                    model.remove(key);
                }
            }
            _ => {
                for some in keys.chunks(50) {
                    let mut batch = Batch::new();
                    for key in some {
                        batch.delete(key);
                        model.remove(key);
                    }
                    store.write(batch).unwrap();
                }
            }
        }
        assert_live_bytes(&store, &model);
    }
    assert_equals(&store, &model);
    store.close().unwrap();
}

#[test]
fn fill_and_delete_twenty_rounds_middling() {
    rounds(20, Durability::Buffered, tiny_device(), &mut |random| {
        random.below(8000) as usize
    });
}

#[test]
fn fill_and_delete_twenty_rounds_committed() {
    rounds(20, Durability::Committed, tiny_device(), &mut |random| {
        3000 + random.below(8000) as usize
    });
}

/// A tombstone takes as much as what it deletes.
#[test]
fn fill_and_delete_six_rounds_tiny() {
    let device = Arc::new(SimulatedDevice::new(9 << 20, 512).without_crashes());
    rounds(6, Durability::Buffered, device, &mut |random| {
        random.below(9) as usize
    });
}

/// Sizes around the chunk threshold, and values of many chunks.
#[test]
fn fill_and_delete_twenty_rounds_large() {
    rounds(
        20,
        Durability::Buffered,
        tiny_device(),
        &mut |random| match random.below(4) {
            0 => 16_384 - 40 + random.below(80) as usize,
            1 => 8_192 - 80 + random.below(120) as usize,
            2 => random.below(700_000) as usize,
            _ => random.below(60_000) as usize,
        },
    );
}

/// Overwrites at 95 % of what may be used go on, whatever the sizes.
#[test]
fn overwrites_at_95_percent_make_progress() {
    for durability in [Durability::Buffered, Durability::Committed] {
        let mut random = Random::new(seed());
        let device = tiny_device();
        let store = create(&device, &options(durability)).unwrap();
        let mut model = Model::new();
        let usable = store.stats().usable_bytes;
        let mut sizes = BTreeMap::new();
        for number in 0.. {
            let key = format!("key {number}").into_bytes();
            let size = match number % 20 {
                0 => 20_000 + random.below(40_000),
                _ => 100 + random.below(6000),
            };
            let value = random.bytes(size as usize);
            if store.stats().live_bytes + record_bytes(&key, &value) > usable / 100 * 95 {
                break;
            }
            store.put(&key, &value).unwrap();
            sizes.insert(number, size);
            model.insert(key, value);
        }
        let written = store.stats().written.user_bytes;
        while store.stats().written.user_bytes < written + 4 * usable {
            let number = random.below(sizes.len() as u64);
            let key = format!("key {number}").into_bytes();
            let value = random.bytes(sizes[&number] as usize);
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        assert_live_bytes(&store, &model);
        assert!(store.stats().victims_cleaned > 100);
        assert_equals(&store, &model);
        store.close().unwrap();
        let store = open(&device, &options(durability)).unwrap();
        assert_live_bytes(&store, &model);
        assert_equals(&store, &model);
    }
}

/// Batches larger than what is free, on a store that is nearly full: refused as a whole.
#[test]
fn a_batch_over_the_free_space_has_no_effect() {
    let device = tiny_device();
    let store = create(&device, &options(Durability::Buffered)).unwrap();
    let usable = store.stats().usable_bytes;
    let mut model = Model::new();
    for number in 0..usable / 2 / 4100 {
        let key = format!("key {number}").into_bytes();
        store.put(&key, &[1; 4000]).unwrap();
        model.insert(key, vec![1; 4000]);
    }
    for share in [51, 60, 100, 400] {
        let before = store.stats();
        let mut batch = Batch::new();
        batch.delete(b"key 0").put(b"key 1", b"changed");
        for number in 0..usable * share / 100 / 10_000 {
            batch.put(format!("new {number}").as_bytes(), &[2; 10_000]);
        }
        assert!(is_full(&store.write(batch)), "{share} %");
        let result = store.put(b"large", &vec![3; (usable * share / 100) as usize]);
        assert!(is_full(&result), "{share} %: {result:?}");
        assert_eq!(store.stats().live_bytes, before.live_bytes);
        assert_eq!(store.stats().entries, before.entries);
    }
    assert_equals(&store, &model);
    // One that does fit goes through, though cleaning must make room for it.
    for round in 0..8 {
        let mut batch = Batch::new();
        for number in 0..usable * 20 / 100 / 10_000 {
            let key = format!("new {number}").into_bytes();
            batch.put(&key, &[round; 10_000]);
            model.insert(key, vec![round; 10_000]);
        }
        store.write(batch).unwrap();
    }
    assert_equals(&store, &model);
    assert_live_bytes(&store, &model);
}

/// A full store survives kill after kill, and still deletes.
#[test]
fn a_full_store_opens_after_every_kill() {
    let mut random = Random::new(seed());
    let mut device = Arc::new(SimulatedDevice::new(12 << 20, 512));
    let options = options(Durability::Committed);
    let store = create(&device, &options).unwrap();
    let mut model = Model::new();
    fill(&store, &mut model, 0, &mut random, &mut |random| {
        random.below(6000) as usize
    });
    let mut stores = vec![store];
    for kill in 0..40 {
        let image = device.crash_image(CrashPolicy::KeepAll);
        stores.clear();
        device = Arc::new(image);
        let store = open(&device, &options).unwrap_or_else(|error| panic!("kill {kill}: {error}"));
        if kill % 8 == 7 {
            assert_equals(&store, &model);
        }
        // A little work, so that heads are opened: an overwrite and a delete.
        let keys: Vec<_> = model.keys().cloned().collect();
        let key = &keys[random.below(keys.len() as u64) as usize];
        let same = random.bytes(model[key].len());
        store.put(key, &same).unwrap();
        model.insert(key.clone(), same);
        let key = &keys[random.below(keys.len() as u64) as usize];
        assert!(store.delete(key).unwrap());
        model.remove(key);
        stores.push(store);
    }
    let store = stores.pop().unwrap();
    assert_live_bytes(&store, &model);
    assert_equals(&store, &model);
    for key in model.keys() {
        assert!(store.delete(key).unwrap());
    }
    assert_eq!(store.stats().live_bytes, 0);
}

/// Overwrites at full speed on a full store while the device fails at some call (U05): an
/// error, and after reopening everything acknowledged.
#[test]
fn errors_while_cleaning_a_full_store() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(9 << 20, 512));
    let options = options(Durability::Committed);
    let store = create(&device, &options).unwrap();
    let mut model = Model::new();
    fill(&store, &mut model, 0, &mut random, &mut |_| 4096);
    let base = Arc::new(device.snapshot());
    drop(store);
    let large = model.iter().filter(|(_, value)| value.len() == 4096);
    let keys: Vec<_> = large.map(|(key, _)| key.clone()).collect();
    for at in 0..24 {
        for (on, error) in [
            (OpKind::Write, FaultError::Io),
            (OpKind::Write, FaultError::NoSpace),
            (OpKind::Flush, FaultError::Io),
        ] {
            let device = Arc::new(base.snapshot());
            let store = open(&device, &options).unwrap();
            let mut model = model.clone();
            device.add_fault(Fault {
                on: Some(on),
                nth: 1 + at * 3 + random.below(3),
                error,
                lasting: false,
            });
            let mut unsure = None;
            for _ in 0..400 {
                let key = &keys[random.below(keys.len() as u64) as usize];
                let value = random.bytes(4096);
                match store.put(key, &value) {
                    Ok(()) => model.insert(key.clone(), value),
                    Err(Error::Io { .. } | Error::Poisoned) => {
                        unsure = Some((key.clone(), value));
                        break;
                    }
                    Err(error) => panic!("{error}: {:?}", store.stats()),
                };
            }
            device.clear_faults();
            if unsure.is_some() {
                assert!(matches!(store.put(b"k", b"v"), Err(Error::Poisoned)));
            }
            let image = Arc::new(device.crash_image(CrashPolicy::Random { seed: at }));
            drop(store);
            let store = open(&image, &options).unwrap();
            if let Some((key, value)) = unsure
                && store.get(&key).unwrap().as_deref() == Some(value.as_slice())
            {
                model.insert(key, value);
            }
            assert_equals(&store, &model);
        }
    }
}

/// Values of the largest kind in the largest segments: chunks have a length that a record
/// can say.
#[test]
fn large_values_in_the_largest_segments() {
    let capacity = 20 << 30;
    let device = Arc::new(SimulatedDevice::new(capacity, 4096).without_crashes());
    let options = options(Durability::Buffered).segment_bytes(256 << 20);
    let store = create(&device, &options).unwrap();
    let mut value = vec![5; 40 << 20];
    value[17_000_000] = 6;
    store.put(b"large", &value).unwrap();
    assert_eq!(
        store.get(b"large").unwrap().as_deref(),
        Some(value.as_slice())
    );
    store.close().unwrap();
}
