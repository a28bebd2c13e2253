//! Question: what do a lookup, an overwrite and an insert into the hash index cost, and how
//! long does the longest insert take while units grow and split? Runs the production index
//! (`src/index`), without a log.
//!
//! `cargo bench --bench index` for 4 M keys; `-- --tiny` (and `cargo test`) for a few
//! thousand, with checks.

#![allow(dead_code, unused_imports, reason = "a part of each layer is used")]

#[path = "../src/format/mod.rs"]
mod format;
#[path = "../src/index/mod.rs"]
mod index;
#[path = "setup.rs"]
mod setup;
#[path = "../src/sync.rs"]
mod sync;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Throughput;

use format::{Address, KeyHash, LengthCode};
use index::{Entry, Index};
use setup::{Setup, mix};

fn main() {
    let mut setup = Setup::from_arguments();
    let keys = setup.pick(20_000, 4_000_000);
    let index = grow(keys);
    steady(&mut setup, &index, keys);
    growing(&mut setup, keys / 4);
    setup.criterion.final_summary();
}

fn hash(key: u64) -> KeyHash {
    KeyHash::from_bits(u128::from(mix(key)) << 64 | u128::from(mix(!key)))
}

fn entry(key: u64) -> Entry {
    Entry {
        address: Address::new(1 + key),
        length: LengthCode::from_bits((key & 0x3ff) as u16).expect("no more than ten bits"),
        exponent: (key & 7) as u8,
    }
}

fn insert(index: &Index, key: u64) -> Option<Entry> {
    let hash = hash(key);
    let mut shard = index.lock(Index::shard_of(hash));
    let room = shard.reserve(hash, u64::MAX);
    assert!(room.is_ok(), "no limit");
    shard.insert(hash, entry(key)).expect("room was made")
}

/// Grows an index and prints what that takes: on average, at worst, and memory.
fn grow(keys: u64) -> Index {
    let index = Index::new();
    let mut longest = Duration::ZERO;
    let start = Instant::now();
    let mut last = start;
    for key in 0..keys {
        insert(&index, key);
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    println!(
        "growing to {keys} keys: {} ns an insert, the longest {longest:?}, {:.2} bytes a key",
        start.elapsed().as_nanos() / u128::from(keys),
        index.memory_bytes() as f64 / keys as f64,
    );
    assert_eq!(index.len(), keys);
    index
}

/// Calls that leave the index as large as it is.
fn steady(setup: &mut Setup, index: &Index, keys: u64) {
    let mut group = setup.criterion.benchmark_group("index");
    group.throughput(Throughput::Elements(1));
    let mut step = 0;
    let mut next = move || {
        step += 1;
        mix(step)
    };
    group.bench_function("lookup, there", |bencher| {
        bencher.iter(|| {
            let key = next() % keys;
            let found = index.get(black_box(hash(key)));
            assert_eq!(found, Some(entry(key)));
        });
    });
    group.bench_function("lookup, not there", |bencher| {
        bencher.iter(|| {
            let found = index.get(black_box(hash(keys + next() % keys)));
            assert_eq!(found, None);
        });
    });
    group.bench_function("overwrite", |bencher| {
        bencher.iter(|| assert!(insert(index, black_box(next() % keys)).is_some()));
    });
    group.bench_function("remove and insert", |bencher| {
        bencher.iter(|| {
            let key = next() % keys;
            let hash = hash(key);
            let removed = index.lock(Index::shard_of(hash)).remove(hash);
            assert_eq!(removed, Some(entry(key)));
            assert!(insert(index, key).is_none());
        });
    });
    group.finish();
}

/// Inserts of new keys from an empty index on, all phases of growth and splits included.
fn growing(setup: &mut Setup, keys: u64) {
    let mut group = setup.criterion.benchmark_group("index");
    group.sample_size(10).throughput(Throughput::Elements(keys));
    group.bench_function("growing from nothing", |bencher| {
        bencher.iter_with_large_drop(|| {
            let index = Index::new();
            for key in 0..keys {
                insert(&index, key);
            }
            index
        });
    });
    group.finish();
}
