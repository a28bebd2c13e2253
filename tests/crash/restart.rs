//! Restarts: replay is bounded, repeatable, and works at any size of the counters (U21,
//! U22, U24, U30, U31).

use std::sync::Arc;

use esker::device::{CrashPolicy, Latency, SimulatedDevice};
use esker::{Durability, Options};

use crate::common::{Random, create, open, options, seed};
use crate::every_write::abandon;
use crate::history::{History, Transaction, Workload};
use crate::regressions::{put, quiet};

const INTERVAL: u64 = 1 << 20;
const SEGMENT: u64 = 128 << 10;

fn small_intervals() -> Options {
    quiet().checkpoint_interval_bytes(INTERVAL)
}

/// U22: data that is never written again does not pin the log.
#[test]
fn idle_data_does_not_make_replay_longer() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512));
    let store = create(&device, &small_intervals()).unwrap();
    let mut history = History::new(Durability::Committed);
    history.run(&store, put("idle", 5000, 1)).unwrap();
    let mut most_replay = 0;
    let mut most_read = 0;
    // As slow as a disk, so that the checkpointer has a chance.
    device.set_latency(Latency {
        flush: std::time::Duration::from_micros(300),
        ..Latency::default()
    });
    for at in 0..2000_u32 {
        let key = format!("busy {}", at % 50);
        history.run(&store, put(&key, 16_000, at as u8)).unwrap();
        if at % 100 != 99 {
            continue;
        }
        most_replay = most_replay.max(store.stats().replay_bytes);
        let image = Arc::new(device.crash_image(CrashPolicy::LoseAll));
        let store = open(&image, &small_intervals()).unwrap();
        most_read = most_read.max(image.counters().read_bytes);
        history.clone().check(&store, "idle");
        abandon(&image, store);
    }
    abandon(&device, store);
    println!("replay {most_replay} bytes at most, opens read {most_read} at most");
    // The interval, what a partition waits for the rest of its turn, and open heads.
    let cap = 2 * INTERVAL + 12 * SEGMENT;
    assert!(
        most_replay <= cap,
        "replay of {most_replay} bytes, cap {cap}"
    );
    assert!(most_read <= 3 * cap, "an open read {most_read} bytes");
}

/// U24: kills during recovery do not make the next one longer.
#[test]
fn kills_during_recovery_do_not_make_it_longer() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512));
    let store = create(&device, &small_intervals()).unwrap();
    let mut history = History::new(Durability::Committed);
    for transaction in Workload::new(3, 200).take(1500) {
        history.run(&store, transaction).unwrap();
    }
    let mut image = device.crash_image(CrashPolicy::LoseAll);
    abandon(&device, store);
    let mut reads = Vec::new();
    for round in 0..10 {
        // A whole recovery, counted on a copy; then one that is killed.
        let copy = Arc::new(image.snapshot());
        let store = open(&copy, &small_intervals()).unwrap();
        reads.push(copy.counters().read_bytes);
        history.clone().check(&store, "recovered");
        abandon(&copy, store);
        let killed = Arc::new(image.snapshot());
        killed.set_op_limit(round);
        if let Ok(store) = open(&killed, &small_intervals()) {
            abandon(&killed, store);
        }
        image = killed.crash_image(CrashPolicy::KeepAll);
    }
    println!("bytes read: {reads:?}");
    let (first, most) = (reads[0], *reads.iter().max().unwrap());
    assert!(most <= first + first / 4, "opens read {reads:?}");
}

/// U30: nothing is lost in 200 rounds of few writes, a checkpoint, and a stop or a kill.
#[test]
fn rounds_of_few_writes_and_checkpoints_lose_nothing() {
    let mut random = Random::new(seed());
    let mut device = Arc::new(SimulatedDevice::new(16 << 20, 512));
    let mut store = create(&device, &quiet()).unwrap();
    let mut history = History::new(Durability::Committed);
    for round in 0..200 {
        let count = [0, 1, 10][random.below(3) as usize];
        for at in 0..count {
            let len = random.below(2000) as usize;
            let transaction = put(&format!("{round} {at}"), len, round as u8);
            history.run(&store, transaction).unwrap();
        }
        if random.below(8) > 0 {
            store.checkpoint().unwrap();
        }
        match random.below(3) {
            0 => store.close().unwrap(),
            1 => {
                let image = device.crash_image(CrashPolicy::KeepAll);
                abandon(&device, store);
                device = Arc::new(image);
            }
            _ => {
                let image = device.crash_image(CrashPolicy::LoseAll);
                abandon(&device, store);
                device = Arc::new(image);
            }
        }
        store = open(&device, &quiet()).unwrap();
        history.check(&store, &format!("round {round}"));
    }
}

/// U31: counters that pass 2^31, 2^32 and 2^40 on the way.
#[test]
fn counters_pass_powers_of_two() {
    for power in [31, 32, 40, 63] {
        let first_number = (1_u64 << power) - 40;
        let mut options = small_intervals();
        options.first_number = first_number;
        let mut device = Arc::new(SimulatedDevice::new(10 << 20, 512));
        let mut store = create(&device, &options).unwrap();
        let mut history = History::new(Durability::Committed);
        let mut workload = Workload::new(power, 120);
        for round in 0..12 {
            for transaction in workload.by_ref().take(if round < 4 { 8 } else { 120 }) {
                history.run(&store, transaction).unwrap();
            }
            if round % 3 == 0 {
                store.checkpoint().unwrap();
            }
            if round % 2 == 0 {
                let image = device.crash_image(CrashPolicy::LoseAll);
                abandon(&device, store);
                device = Arc::new(image);
            } else {
                store.close().unwrap();
            }
            // The numbers are on media, not in the options.
            store = open(&device, &small_intervals()).unwrap();
            history.check(&store, &format!("2^{power}, round {round}"));
        }
    }
}

/// U21: overwriting and deleting everything survives restarts, each replay the same.
#[test]
fn replay_of_deletes_and_overwrites_is_repeatable() {
    for durability in [Durability::Committed, Durability::Buffered] {
        for delete in [true, false] {
            let device = Arc::new(SimulatedDevice::new(16 << 20, 512));
            let options = options(durability);
            let store = create(&device, &options).unwrap();
            let mut history = History::new(durability);
            let all = |value: Option<Arc<[u8]>>| Transaction {
                ops: (0..1000)
                    .map(|at| (format!("item {at}").into_bytes(), value.clone()))
                    .collect(),
            };
            history.run(&store, all(Some(vec![1; 300].into()))).unwrap();
            history.sync(&store).unwrap();
            let value = if delete {
                None
            } else {
                Some(vec![2; 200].into())
            };
            history.run(&store, all(value)).unwrap();
            history.sync(&store).unwrap();
            let mut image = device.crash_image(CrashPolicy::LoseAll);
            abandon(&device, store);
            for round in 0..4 {
                let device = Arc::new(image);
                let store = open(&device, &options).unwrap();
                history.check(&store, &format!("{durability:?} {delete} {round}"));
                if round == 1 {
                    history.run(&store, put("new", 10, 3)).unwrap();
                    history.sync(&store).unwrap();
                }
                image = device.crash_image(CrashPolicy::LoseAll);
                abandon(&device, store);
            }
        }
    }
}

/// Regression: a store as full as cleaning keeps it had no room for images once the cleaner
/// had stopped, so a close in order left as much to replay as a crash.
#[test]
fn a_close_of_a_full_store_leaves_little_to_replay() {
    let device = Arc::new(SimulatedDevice::new(128 << 20, 512).without_crashes());
    let options = options(Durability::Buffered).checkpoint_interval_bytes(1 << 30);
    let store = create(&device, &options).unwrap();
    let mut random = Random::new(seed());
    let mut count = 0_u64;
    while store.stats().utilization < 0.8 {
        for _ in 0..1000 {
            store.put(&count.to_le_bytes(), &[1; 40]).unwrap();
            count += 1;
        }
    }
    while store.stats().victims_cleaned < 200 {
        for _ in 0..1000 {
            let key = random.below(count).to_le_bytes();
            store.put(&key, &[2; 40]).unwrap();
        }
    }
    assert!(store.stats().replay_bytes > 80 << 20);
    store.close().unwrap();
    let store = open(&device, &options).unwrap();
    let left = store.stats().replay_bytes;
    assert!(left < 16 << 20, "{left} bytes of {count} keys");
}
