//! Question: how long does an open take a key, after a close and after a kill, from images
//! and from the log alone, and how much memory does reading a log take besides the index?
//! The device takes no time.
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
    memory();
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

/// The most memory this process has taken since `forget_peak`, in bytes.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

fn forget_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Recovery once kept 1 MiB for each segment it had read, until the end: of 96 here.
fn memory() {
    const BOUND_BYTES: u64 = 48 << 20;
    let device = Arc::new(SimulatedDevice::new(256 << 20, 4096).without_crashes());
    let options = options().segment_bytes(1_u64 << 20);
    let store = Store::create_on(device.clone(), &options).expect("a new store");
    for number in 0..1500 {
        store.put(&key(number), &[7; 64 << 10]).expect("room");
    }
    store.sync().expect("a device that works");
    let killed = Arc::new(device.snapshot());
    store.close().expect("a device that works");
    drop(device);
    if !forget_peak() {
        println!("memory is not measured: this system does not tell");
        return;
    }
    let before = peak().unwrap_or(0);
    let store = Store::open_on(killed, &options).expect("a store that opens");
    let taken = peak().unwrap_or(0).saturating_sub(before);
    println!("opening replays 96 MiB with {} KiB of memory", taken >> 10);
    assert_eq!(store.stats().entries, 1500, "all keys are back");
    assert!(taken < BOUND_BYTES, "it took {taken} bytes");
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
