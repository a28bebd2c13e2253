//! Question: what do put and get cost by value size with a device that takes no time, and
//! what does the commit path cost one writer and each of sixteen?
//!
//! Put and get run on a device in memory, with buffered writes and without a record cache,
//! the cleaner included. Commits run on a device that drops everything.
//! `cargo bench --bench store`; `-- --tiny` (and `cargo test`) in a second or two.

#[path = "setup.rs"]
mod setup;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::Throughput;
use esker::device::SimulatedDevice;
use esker::{Durability, Options, Store};

use setup::{Setup, mix};

const VALUE_BYTES: [usize; 7] = [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
const WRITERS: u64 = 16;

fn main() {
    let mut setup = Setup::from_arguments();
    for value_bytes in VALUE_BYTES {
        put_and_get(&mut setup, value_bytes);
    }
    commit(&mut setup);
    setup.criterion.final_summary();
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-............";
    key[4..12].copy_from_slice(&number.to_be_bytes());
    key
}

fn put_and_get(setup: &mut Setup, value_bytes: usize) {
    let capacity = setup.pick(16 << 20, 512 << 20);
    let device = Arc::new(SimulatedDevice::new(capacity, 4096).without_crashes());
    let options = Options::default()
        .durability(Durability::Buffered)
        .cache_bytes(0_u64);
    let store = Store::create_on(device, &options).expect("a new store");
    // At most half of the store, so that the cleaner finds dead records.
    let keys = (capacity / 2 / (value_bytes as u64 + 64)).min(setup.pick(500, 100_000));
    let value = vec![0x5a; value_bytes];
    for number in 0..keys {
        store.put(&key(number), &value).expect("room");
    }
    store.sync().expect("a device that works");

    let mut group = setup.criterion.benchmark_group(format!("{value_bytes} B"));
    group.throughput(Throughput::Bytes(value_bytes as u64));
    let mut step = 0;
    let mut next = || {
        step += 1;
        key(mix(step) % keys)
    };
    group.bench_function("put", |bencher| {
        bencher.iter(|| store.put(&next(), black_box(&value)).expect("room"));
    });
    store.sync().expect("a device that works");
    group.bench_function("get", |bencher| {
        bencher.iter(|| {
            let found = store.get(&next()).expect("a device that works");
            assert_eq!(black_box(found).map(|found| found.len()), Some(value_bytes));
        });
    });
    group.finish();
    store.close().expect("a device that works");
}

fn commit(setup: &mut Setup) {
    let device = Arc::new(SimulatedDevice::null(256 << 30));
    let options = Options::default().cache_bytes(0_u64);
    let store = Store::create_on(device, &options).expect("a new store");
    let value = [0x5a; 100];
    let mut group = setup
        .criterion
        .benchmark_group("commit, nothing to wait for");
    group.throughput(Throughput::Elements(1));
    let mut step = 0;
    group.bench_function("1 writer", |bencher| {
        bencher.iter(|| {
            step += 1;
            store.put(&key(step % 1000), &value).expect("room");
        });
    });
    group.bench_function("16 writers", |bencher| {
        bencher.iter_custom(|count| {
            let each = count.div_ceil(WRITERS);
            let start = Instant::now();
            std::thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (store, value) = (&store, &value);
                    scope.spawn(move || {
                        for step in 0..each {
                            let number = writer * 1000 + step % 1000;
                            store.put(&key(number), value).expect("room");
                        }
                    });
                }
            });
            // As long as so many puts of one writer would take at this rate.
            start
                .elapsed()
                .mul_f64(count as f64 / (each * WRITERS) as f64)
        });
    });
    group.finish();
    let stats = store.stats();
    println!("{} groups, {} flushes", stats.groups, stats.flushes);
    assert!(stats.flushes > 0 && stats.entries >= 1);
    store.close().expect("a device that works");
}
