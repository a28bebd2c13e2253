//! Space comes back to the device: deleted values leave it without a call (case U07), and
//! discards that are slow, or cut off by a stop, lose nothing (case U11).

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::device::{CrashPolicy, Latency, SimulatedDevice};
use esker::{Durability, Store};

use crate::common::{Model, Random, assert_equals, create, open, options, seed};

const MIB: u64 = 1 << 20;

fn fill(store: &Store, model: &mut Model, random: &mut Random) {
    for number in 0..40 {
        let key = format!("keep {number}").into_bytes();
        let value = random.bytes(100_000);
        store.put(&key, &value).unwrap();
        model.insert(key, value);
        store
            .put(
                format!("big {number}").as_bytes(),
                &random.bytes(MIB as usize),
            )
            .unwrap();
    }
    store.sync().unwrap();
}

fn delete_big(store: &Store) {
    for number in 0..40 {
        assert!(store.delete(format!("big {number}").as_bytes()).unwrap());
    }
}

/// Bytes of the media that are not zeros, in blocks.
fn used_bytes(device: &SimulatedDevice) -> u64 {
    let media = device.read_raw(0, 64 << 20);
    let used = media
        .chunks(4096)
        .filter(|block| block.iter().any(|byte| *byte != 0));
    used.count() as u64 * 4096
}

fn wait_for(what: &str, limit: Duration, state: impl Fn() -> String, reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < limit, "{what}: {}", state());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn deleted_values_leave_the_device() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(64 << 20, 4096).without_crashes());
    let store = create(&device, &options(Durability::Buffered)).unwrap();
    let mut model = Model::new();
    fill(&store, &mut model, &mut random);
    assert!(used_bytes(&device) > 40 * MIB);
    delete_big(&store);
    // 4 MiB are kept, in segments they shared with what was deleted (9 MiB), and 52 free
    // segments for a burst of writes.
    let reached = || used_bytes(&device) < 20 * MIB;
    let state = || format!("{} {:?}", used_bytes(&device), store.stats());
    wait_for(
        "no space came back",
        Duration::from_secs(20),
        state,
        reached,
    );
    assert!(store.stats().discarded_bytes > 20 * MIB);
    assert_equals(&store, &model);
    store.close().unwrap();
    let store = open(&device, &options(Durability::Buffered)).unwrap();
    assert_equals(&store, &model);
    assert!(used_bytes(&device) < 21 * MIB);
}

#[test]
fn slow_discards_lose_no_space_and_hit_no_data() {
    let mut random = Random::new(seed());
    for kill in [false, true] {
        let mut device = Arc::new(SimulatedDevice::new(64 << 20, 4096));
        let store = create(&device, &options(Durability::Committed)).unwrap();
        let free = store.stats().segments.free;
        let mut model = Model::new();
        fill(&store, &mut model, &mut random);
        device.set_latency(Latency {
            discard: Duration::from_millis(20),
            ..Latency::default()
        });
        delete_big(&store);
        std::thread::sleep(Duration::from_millis(400));
        // New data while discards go on.
        for number in 0..60 {
            let key = format!("new {number}").into_bytes();
            let value = random.bytes(60_000);
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        assert_equals(&store, &model);
        if kill {
            device = Arc::new(device.crash_image(CrashPolicy::KeepAll));
            drop(store);
        } else {
            let start = Instant::now();
            store.close().unwrap();
            assert!(start.elapsed() < Duration::from_secs(5));
        }
        let store = open(&device, &options(Durability::Committed)).unwrap();
        assert_equals(&store, &model);
        // 8 MiB stay, some of it in segments shared with what was deleted.
        let back = || store.stats().segments.free + 130 > free;
        let state = || format!("{:?}", store.stats());
        wait_for("segments are lost", Duration::from_secs(20), state, back);
        fill(&store, &mut model, &mut random);
        delete_big(&store);
        assert_equals(&store, &model);
    }
}
