//! Reads that lie or fail: right data or an error, never wrong data (case U35), and how many
//! reads calls make.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker::device::{BadRange, SimulatedDevice};
use esker::format::FRONT_BYTES;
use esker::{Batch, Durability, Error, Store};

use crate::common::{Model, Random, assert_equals, create, open, options, seed};

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn filled(device: &Arc<SimulatedDevice>, random: &mut Random, share: u64) -> (Store, Model) {
    let store = create(device, &options(Durability::Buffered)).unwrap();
    let mut model = Model::new();
    let usable = store.stats().usable_bytes;
    for number in 0.. {
        if store.stats().live_bytes * 100 > usable * share {
            break;
        }
        let len = if number % 30 == 0 { 50_000 } else { 3000 };
        let value = random.bytes(len);
        store.put(&key(number), &value).unwrap();
        model.insert(key(number), value);
    }
    store.sync().unwrap();
    (store, model)
}

fn overwrite(store: &Store, model: &mut Model, random: &mut Random, count: u64) {
    for _ in 0..count {
        let number = random.below(model.len() as u64);
        let value = random.bytes(model[&key(number)].len());
        store.put(&key(number), &value).unwrap();
        model.insert(key(number), value);
    }
    store.sync().unwrap();
}

#[test]
fn a_fifth_of_reads_is_bad() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(12 << 20, 512).with_seed(random.next()));
    let (store, mut model) = filled(&device, &mut random, 70);
    device.set_bad_reads(0.2);
    let mut errors = 0;
    for round in 0..3 {
        for (key, value) in &model {
            match store.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(value.as_slice()), "{key:?}"),
                Err(Error::Corrupt { .. }) => errors += 1,
                Err(error) => panic!("{error}"),
            }
        }
        // The cleaner reads as badly.
        overwrite(&store, &mut model, &mut random, 3000);
        assert!(round == 0 || store.stats().victims_cleaned > 50);
    }
    let stats = store.stats();
    assert!(stats.read_retries > 100, "{} retries", stats.read_retries);
    assert!(
        errors * 200 < model.len() * 3,
        "{errors} of {}",
        3 * model.len()
    );
    device.set_bad_reads(0.0);
    assert_equals(&store, &model);
    store.close().unwrap();
    // Opening, too, is right or says what failed: after an orderly stop, and after a kill.
    let mut opened = 0;
    for attempt in 0..30 {
        let image = Arc::new(device.snapshot());
        image.set_bad_reads(0.2);
        match open(&image, &options(Durability::Committed)) {
            Ok(store) => {
                opened += 1;
                image.set_bad_reads(0.0);
                assert_equals(&store, &model);
                if attempt % 3 == 0 {
                    overwrite(&store, &mut model, &mut random, 100);
                    device_as(&device, &image);
                }
            }
            Err(Error::Corrupt { .. } | Error::Io { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(opened > 20, "opened {opened} of 30 times");
}

/// Copies the media of `from` as a kill would leave it.
fn device_as(to: &Arc<SimulatedDevice>, from: &Arc<SimulatedDevice>) {
    let bytes = from.read_raw(0, 12 << 20);
    to.corrupt(0, 12 << 20, |media| media.copy_from_slice(&bytes));
}

/// A block that is bad for good costs the keys in it; the cleaner gets past it.
#[test]
fn a_bad_block_costs_its_own_keys_only() {
    for bad in [BadRange::Unreadable, BadRange::Flipped] {
        let mut random = Random::new(seed());
        let device = Arc::new(SimulatedDevice::new(12 << 20, 512).without_crashes());
        let (store, mut model) = filled(&device, &mut random, 80);
        for segment in [3, 11, 17, 18, 30] {
            // In the middle, in the first frame's head, and in the segment header.
            let at = match segment {
                3 => 512,
                11 => 0,
                _ => 512 * random.below(256),
            };
            device.add_bad_range(FRONT_BYTES + segment * (128 << 10) + at, 512, bad);
        }
        let lost: BTreeSet<Vec<u8>> = model
            .iter()
            .filter(|(key, value)| match store.get(key) {
                Ok(found) => {
                    assert_eq!(found.as_deref(), Some(value.as_slice()));
                    false
                }
                Err(Error::Io { .. } | Error::Corrupt { .. }) => true,
                Err(error) => panic!("{error}"),
            })
            .map(|(key, _)| key.clone())
            .collect();
        assert!(!lost.is_empty() && lost.len() < 20, "{} lost", lost.len());
        let kept: Vec<_> = model
            .keys()
            .filter(|key| !lost.contains(*key))
            .cloned()
            .collect();
        // Writers go on through many rounds of cleaning.
        for _ in 0..12_000 {
            let key = &kept[random.below(kept.len() as u64) as usize];
            let value = random.bytes(model[key].len());
            store.put(key, &value).unwrap();
            model.insert(key.clone(), value);
        }
        let mut failing = 0;
        for (key, value) in &model {
            match store.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(value.as_slice())),
                // A rewritten key may lie in a bad block again: media are not healed.
                Err(Error::Io { .. } | Error::Corrupt { .. }) => failing += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(failing < 40, "{failing} keys fail");
        // What is lost can be deleted or written again, and then nothing is lost.
        for key in &lost {
            store.delete(key).unwrap();
            model.remove(key);
        }
        for _ in 0..3000 {
            let key = &kept[random.below(kept.len() as u64) as usize];
            let value = random.bytes(model[key].len());
            store.put(key, &value).unwrap();
            model.insert(key.clone(), value);
        }
        let readable = model
            .iter()
            .filter(|(key, _)| store.get(key).is_ok())
            .count();
        assert!(readable + 40 > model.len());
    }
}

/// One device read a get, with no cache.
#[test]
fn a_get_reads_the_device_once() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(32 << 20, 4096).without_crashes());
    let (store, model) = filled(&device, &mut random, 50);
    drop(store);
    let store = open(&device, &options(Durability::Committed)).unwrap();
    let before = device.counters().reads;
    let mut gets = 0;
    for (key, value) in model.iter().filter(|(_, value)| value.len() == 3000) {
        assert_eq!(store.get(key).unwrap().as_deref(), Some(value.as_slice()));
        assert!(store.contains(key).unwrap());
        gets += 1;
    }
    assert_eq!(device.counters().reads - before, gets);
    assert_eq!(store.get(b"absent").unwrap(), None);
    assert_eq!(
        device.counters().reads - before,
        gets,
        "absence costs no read"
    );
}

/// Put, delete and batch never read the old version.
#[test]
fn writes_do_not_read() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(64 << 20, 512).without_crashes());
    let (store, mut model) = filled(&device, &mut random, 20);
    let before = device.counters().reads;
    overwrite(&store, &mut model, &mut random, 1000);
    for some in (0..300).collect::<Vec<_>>().chunks(10) {
        let mut batch = Batch::new();
        for number in some {
            if number % 3 == 0 {
                batch.delete(&key(*number));
            } else {
                batch.put(&key(*number), &random.bytes(30_000));
            }
        }
        store.write(batch).unwrap();
    }
    for number in 300..600 {
        store.delete(&key(number)).unwrap();
    }
    // Segments that died whole may have been freed, which reads nothing either.
    assert_eq!(store.stats().written.cleaning_bytes, 0);
    assert_eq!(device.counters().reads, before);
}
