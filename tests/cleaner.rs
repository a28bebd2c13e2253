//! The cleaner from outside: space comes back, separation pays, nothing deadlocks when full,
//! limits that change at run time hold.

#[path = "common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Model, Random, assert_equals, create, options, seed};
use esker::device::SimulatedDevice;
use esker::{Batch, Durability, Error, Store};

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn device(mib: u64) -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(mib << 20, 512).without_crashes())
}

/// Without a call, without a write: what died whole is free again.
#[test]
fn space_comes_back_when_idle() {
    let device = device(16);
    let store = create(&device, &options(Durability::Committed)).unwrap();
    let free = store.stats().segments.free;
    for number in 0..1000 {
        store.put(&key(number), &[1; 6000]).unwrap();
    }
    assert!(store.stats().segments.free < free - 40);
    for number in 0..1000 {
        store.delete(&key(number)).unwrap();
    }
    let start = Instant::now();
    while store.stats().segments.free + 8 < free {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            store.stats()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Write amplification of overwrites at 80 % of what may be used.
fn amplification(durability: Durability, choose: &mut dyn FnMut(&mut Random, u64) -> u64) -> f64 {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(48 << 20, 512).without_crashes());
    let store = create(&device, &options(durability)).unwrap();
    let usable = store.stats().usable_bytes;
    let mut count = 0;
    while store.stats().live_bytes * 100 < usable * 80 {
        store.put(&key(count), &[0; 2000]).unwrap();
        count += 1;
    }
    let overwrite =
        |bytes: u64, random: &mut Random, choose: &mut dyn FnMut(&mut Random, u64) -> u64| {
            for _ in 0..bytes / 2000 {
                store.put(&key(choose(random, count)), &[1; 2000]).unwrap();
            }
        };
    overwrite(3 * usable, &mut random, choose);
    store.sync().unwrap();
    let before = (
        device.counters().write_bytes,
        store.stats().written.user_bytes,
    );
    overwrite(3 * usable, &mut random, choose);
    store.sync().unwrap();
    let after = (
        device.counters().write_bytes,
        store.stats().written.user_bytes,
    );
    (after.0 - before.0) as f64 / (after.1 - before.1) as f64
}

/// Nine writes in ten go to a tenth of the keys: separated by their rate, cleaning costs
/// much less than when all keys are alike.
#[test]
fn separation_pays_when_rates_differ() {
    let alike = amplification(Durability::Buffered, &mut |random, count| {
        random.below(count)
    });
    let skewed = amplification(Durability::Buffered, &mut |random, count| {
        if random.below(10) > 0 {
            random.below(count / 10)
        } else {
            count / 10 + random.below(count - count / 10)
        }
    });
    println!("write amplification: uniform {alike:.2}, 90 % to a tenth {skewed:.2}");
    assert!(alike < 4.5, "uniform {alike:.2}");
    assert!(skewed < 3.0, "skewed {skewed:.2}");
    assert!(skewed < alike * 0.8, "{skewed:.2} against {alike:.2}");
}

/// Eight threads overwrite a store that is as full as it may be.
#[test]
fn never_deadlocks_when_full() {
    let device = device(9);
    for durability in [Durability::Committed, Durability::Buffered] {
        let device = Arc::new(device.snapshot());
        let store = create(&device, &options(durability)).unwrap();
        let mut count = 0;
        while store.put(&key(count), &[0; 3000]).is_ok() {
            count += 1;
        }
        let (store, start) = (&store, Instant::now());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..400 {
                        let one = key(random.below(count));
                        store.put(&one, &[thread as u8; 3000]).unwrap();
                    }
                });
            }
        });
        assert!(start.elapsed() < Duration::from_secs(40));
        assert!(store.stats().victims_cleaned > 20);
        for number in 0..count {
            assert_eq!(store.get(&key(number)).unwrap().unwrap().len(), 3000);
        }
    }
}

/// A large batch gets its room though small writes take all that comes free.
#[test]
fn a_large_batch_does_not_starve() {
    let device = device(24);
    let store = create(&device, &options(Durability::Committed)).unwrap();
    let usable = store.stats().usable_bytes;
    let mut count = 0;
    while store.stats().live_bytes * 100 < usable * 78 {
        store.put(&key(count), &[0; 3000]).unwrap();
        count += 1;
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (store, stop) = (&store, &stop);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    store.put(&key(random.below(count)), &[1; 3000]).unwrap();
                }
            });
        }
        for round in 0..5 {
            let start = Instant::now();
            let mut batch = Batch::new();
            for number in 0..usable / 10 / 10_000 {
                batch.put(format!("batch {number}").as_bytes(), &[round; 10_000]);
            }
            let result = store.write(batch);
            let took = start.elapsed();
            if result.is_err() || took > Duration::from_secs(10) {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            result.unwrap();
            assert!(took < Duration::from_secs(10), "round {round}: {took:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A full store that nobody writes to is left alone.
#[test]
fn an_idle_full_store_is_not_cleaned_for_ever() {
    let device = device(9);
    let store = create(&device, &options(Durability::Committed)).unwrap();
    let mut count = 0;
    while store.put(&key(count), &[0; 3000]).is_ok() {
        count += 1;
    }
    for number in 0..count / 50 {
        store.put(&key(number * 50), &[1; 3000]).unwrap();
    }
    std::thread::sleep(Duration::from_secs(2));
    let before = device.counters().write_bytes;
    std::thread::sleep(Duration::from_secs(1));
    let written = device.counters().write_bytes - before;
    assert!(written < 2 << 20, "{written} bytes written while idle");
}

fn fill_index(store: &Store, from: u64) -> u64 {
    for number in from.. {
        match store.put(&key(number), b"v") {
            Ok(()) => {}
            Err(Error::NoSpace {
                what: "memory limit",
            }) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a limit is reached")
}

/// The memory limit is a typed refusal, deletes and overwrites work behind it, and it can be
/// lifted and lowered at run time.
#[test]
fn the_memory_limit_is_honoured() {
    let device = device(64);
    let options = options(Durability::Buffered)
        .cache_bytes(1 << 20)
        .memory_limit(6 << 20);
    let store = create(&device, &options).unwrap();
    let full = fill_index(&store, 0);
    assert!(full > 50_000, "{full} keys");
    let held = store.stats();
    assert!(held.index_bytes + held.cache_bytes <= 6 << 20);
    assert_eq!(store.get(&key(full)).unwrap(), None, "no effect");
    store.put(&key(7), b"overwritten").unwrap();
    let mut batch = Batch::new();
    for number in full..full + 5000 {
        batch.put(&key(number), b"v");
    }
    assert!(matches!(
        store.write(batch),
        Err(Error::NoSpace {
            what: "memory limit"
        })
    ));
    assert_eq!(store.stats().entries, full);
    for number in 100..2000 {
        assert!(store.delete(&key(number)).unwrap());
    }
    for number in 100..1500 {
        store.put(&key(number), b"again").unwrap();
    }
    store.set_memory_limit(Some(8 << 20));
    let more = fill_index(&store, full);
    assert!(more > full + 10_000);
    assert!(store.stats().index_bytes <= 7 << 20);
    store.set_memory_limit(Some(1 << 20));
    let refused = (0..50_000).find_map(|number| store.put(&key(more + number), b"v").err());
    assert!(matches!(
        refused,
        Some(Error::NoSpace {
            what: "memory limit"
        })
    ));
    assert!(store.delete(&key(7)).unwrap());
    store.set_memory_limit(None);
    store.put(b"unlimited", b"v").unwrap();
}

/// The cache shrinks at once when told to, under load, and grows again (U52).
#[test]
fn the_cache_follows_its_budget() {
    let device = device(32);
    let store = create(&device, &options(Durability::Buffered).cache_bytes(8 << 20)).unwrap();
    let mut random = Random::new(seed());
    let mut model = Model::new();
    for number in 0..3000 {
        let value = random.bytes(3000);
        store.put(&key(number), &value).unwrap();
        model.insert(key(number), value);
    }
    store.sync().unwrap();
    assert_equals(&store, &model);
    assert!(store.stats().cache_bytes > 4 << 20);
    let store = &store;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let mut random = Random::new(thread);
            scope.spawn(move || {
                for _ in 0..20_000 {
                    assert!(store.get(&key(random.below(3000))).unwrap().is_some());
                }
            });
        }
        for bytes in [1 << 20, 0, 8 << 20, 1 << 20] {
            let start = Instant::now();
            store.set_cache_bytes(bytes);
            assert!(start.elapsed() < Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(50));
            assert!(store.stats().cache_bytes <= bytes + (64 << 10));
        }
    });
    assert_equals(store, &model);
}

/// Values far larger than the memory limit take no memory to write, open or read (U54).
#[test]
fn large_values_do_not_count_as_memory() {
    let device = Arc::new(SimulatedDevice::new(160 << 20, 4096).without_crashes());
    let options = options(Durability::Buffered)
        .cache_bytes(1 << 20)
        .memory_limit(6 << 20);
    let store = create(&device, &options).unwrap();
    for number in 0..30 {
        store
            .put(&key(number), &vec![number as u8; 4 << 20])
            .unwrap();
    }
    store.close().unwrap();
    let before = device.counters().read_bytes;
    let store = common::open(&device, &options).unwrap();
    let read = device.counters().read_bytes - before;
    assert!(read < 16 << 20, "an open read {read} bytes");
    let store = &store;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in (thread..30).step_by(4) {
                    let found = store.get(&key(number)).unwrap().unwrap();
                    assert!(found.len() == 4 << 20 && found.iter().all(|b| *b == number as u8));
                }
            });
        }
    });
    let stats = store.stats();
    assert!(stats.index_bytes + stats.cache_bytes <= 6 << 20);
}
