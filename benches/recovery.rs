//! Question: how long does an open take a key, after a close and after a kill, from images
//! and from the log alone? The device takes no time.
//!
//! `cargo bench --bench recovery` for 1 M keys; `-- --tiny` (and `cargo test`) for a few
//! thousand, with checks.

#[path = "setup.rs"]
mod setup;

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Throughput};
use esker::device::SimulatedDevice;
use esker::{Durability, Options, Store};

use setup::{Setup, mix};

/// What became of the store before it is opened.
#[derive(Debug, Clone, Copy)]
enum End {
    Closed,
    /// Killed with images that cover all but a tenth of the log.
    KilledWithImages,
    /// Killed before the first image.
    KilledWithoutImages,
}

fn main() {
    let mut setup = Setup::from_arguments();
    let keys = setup.pick(3000, 1_000_000);
    for end in [End::Closed, End::KilledWithImages, End::KilledWithoutImages] {
        open(&mut setup, keys, end);
    }
    setup.criterion.final_summary();
}

fn options() -> Options {
    Options::default()
        .durability(Durability::Buffered)
        .checkpoint_interval_bytes(1_u64 << 40)
        .cache_bytes(0_u64)
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-............";
    key[4..12].copy_from_slice(&mix(number).to_be_bytes());
    key
}

/// The device of a store with `keys` values of 100 bytes.
fn device_of(keys: u64, end: End) -> SimulatedDevice {
    let capacity = (keys * 512).next_multiple_of(4096).max(32 << 20);
    let device = Arc::new(SimulatedDevice::new(capacity, 4096).without_crashes());
    let store = Store::create_on(device.clone(), &options()).expect("a new store");
    for number in 0..keys {
        if matches!(end, End::KilledWithImages) && number == keys / 10 * 9 {
            store.checkpoint().expect("room");
            store.checkpoint().expect("room");
        }
        store.put(&key(number), &[7; 100]).expect("room");
    }
    store.sync().expect("a device that works");
    let killed = device.snapshot();
    store.close().expect("a device that works");
    match end {
        End::Closed => device.snapshot(),
        _ => killed,
    }
}

fn open(setup: &mut Setup, keys: u64, end: End) {
    let device = device_of(keys, end);
    let open = |device| Store::open_on(device, &options()).expect("a store that opens");
    let mut shortest = Duration::MAX;
    for _ in 0..setup.pick(1, 5) {
        let image = Arc::new(device.snapshot());
        let start = Instant::now();
        let store = open(image);
        shortest = shortest.min(start.elapsed());
        assert_eq!(store.stats().entries, keys, "all keys are back");
        assert!(store.contains(&key(keys / 2)).expect("a short key"));
    }
    println!(
        "{end:?}: {keys} keys in {shortest:?}, {} ns a key",
        shortest.as_nanos() / u128::from(keys)
    );
    let mut group = setup.criterion.benchmark_group("open");
    group.sample_size(10).throughput(Throughput::Elements(keys));
    group.bench_function(format!("{end:?}"), |bencher| {
        bencher.iter_batched(
            || Arc::new(device.snapshot()),
            open,
            BatchSize::PerIteration,
        );
    });
    group.finish();
}
