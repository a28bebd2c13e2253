//! Full stores (cases U02, U06, U07): a refusal comes before any effect, removals always
//! work, and the space comes back, round after round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::device::{CrashPolicy, SimulatedDevice};
use esker::{CollectionName, Error, ObjectName, ObjectStore, Result, Statfs, Transaction};

use crate::common::{Random, seed};
use crate::faults::options;

const POOL: i64 = 3;
const PG: CollectionName = CollectionName::Pg {
    pool: POOL,
    shard: -1,
    seed: 0,
    temp: false,
};

fn object(number: u64) -> Arc<ObjectName> {
    let hash = (number as u32).wrapping_mul(0x9e37_79b9);
    Arc::new(ObjectName::new(POOL, hash, format!("object {number}")))
}

fn commit(store: &ObjectStore, tx: Transaction<'_>) -> Result<()> {
    let handle = store.create_new_collection(PG);
    store.apply_transactions(&handle, &[tx])
}

fn new_store(device: &Arc<SimulatedDevice>) -> ObjectStore {
    let store = ObjectStore::create_on(device.clone(), &options()).unwrap();
    let mut tx = Transaction::new();
    tx.create_collection(PG, 0);
    commit(&store, tx).unwrap();
    store
}

/// Everything that takes space is gone.
fn assert_empty(store: &ObjectStore, context: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    let is_empty = |statfs: &Statfs| {
        (
            statfs.allocated,
            statfs.data_stored,
            statfs.omap_allocated,
            statfs.objects,
        ) == (0, 0, 0, 0)
    };
    while !is_empty(&store.statfs()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let statfs = store.statfs();
    assert!(is_empty(&statfs), "{context}: {statfs:?}");
    assert_eq!(store.pool_statfs(POOL).objects, 0, "{context}");
    while store.store().stats().live_bytes > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.store().stats().live_bytes, 0, "{context}");
}

/// Adds one object to a transaction.
type Add = fn(&mut Random, &Arc<ObjectName>, &mut Transaction<'static>);

/// Objects until there is no room; returns how many.
fn fill(store: &ObjectStore, random: &mut Random, add: Add, most: u64) -> u64 {
    for number in 0..most {
        let object = object(number);
        let mut tx = Transaction::new();
        add(random, &object, &mut tx);
        let before = store.statfs();
        match commit(store, tx) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => {
                let handle = store.open_collection(&PG).unwrap();
                assert!(
                    !store.exists(&handle, &object).unwrap(),
                    "a refusal had an effect"
                );
                assert_eq!(store.statfs().objects, before.objects);
                assert_eq!(store.statfs().data_stored, before.data_stored);
                return number;
            }
            Err(error) => panic!("object {number}: {error:?}: {:?}", store.store().stats()),
        }
    }
    panic!(
        "{most} objects, and it is not full: {:?}",
        store.store().stats()
    );
}

/// Removes objects, one way or another; each removal must work.
fn empty(store: &ObjectStore, count: u64, round: u64, random: &mut Random) {
    let mut numbers: Vec<u64> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    let chunk = [1, 7, 40][(round % 3) as usize];
    for some in numbers.chunks(chunk) {
        let mut tx = Transaction::new();
        for number in some {
            let object = object(*number);
            if number % 3 == round % 3 {
                tx.truncate(PG, &object, 0).omap_clear(PG, &object);
            }
            tx.remove(PG, &object);
        }
        commit(store, tx).unwrap_or_else(|error| {
            panic!(
                "round {round}: a removal: {error:?}: {:?}",
                store.store().stats()
            )
        });
    }
}

fn rounds(count: u64, capacity: u64, most: u64, add: Add) {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(capacity, 512));
    let mut device = device;
    let mut store = new_store(&device);
    let mut first = 0;
    for round in 0..count {
        let objects = fill(&store, &mut random, add, most);
        let statfs = store.statfs();
        let held = match statfs.allocated + statfs.omap_allocated {
            0 => objects,
            bytes => bytes,
        };
        println!("round {round}: {objects} objects, {held} held");
        if round == 0 {
            first = held;
        }
        // The sizes are random, and the reserve for images changes by a segment or two.
        assert!(
            held + first / 20 >= first,
            "round {round}: {held} of {first}"
        );
        match round % 4 {
            1 => {
                store.close().unwrap();
                store = ObjectStore::open_on(device.clone(), &options()).unwrap();
            }
            3 => {
                // Killed while full.
                let image = Arc::new(device.crash_image(CrashPolicy::KeepAll));
                device.set_op_limit(0);
                drop(store);
                device = image;
                store = ObjectStore::open_on(device.clone(), &options()).unwrap();
            }
            _ => {}
        }
        empty(&store, objects, round, &mut random);
        assert_empty(&store, &format!("round {round}"));
    }
    store.close().unwrap();
    let store = ObjectStore::open_on(device, &options()).unwrap();
    assert_empty(&store, "opened again");
}

#[test]
fn data_fills_a_store_and_goes_ten_times() {
    rounds(10, 12 << 20, 10_000, |random, object, tx| {
        let len = match random.below(3) {
            0 => 4096,
            1 => random.below(60_000),
            _ => random.below(9000),
        };
        let bytes = random.bytes(len as usize);
        tx.write(PG, object, 0, [bytes])
            .setattr(PG, object, "_", vec![1; 293]);
    });
}

#[test]
fn omaps_fill_a_store_and_go_ten_times() {
    rounds(10, 12 << 20, 10_000, |random, object, tx| {
        let count = [3, 300][random.below(2) as usize];
        let entries = (0..count).map(|n| (format!("key {n:05}"), vec![n as u8; 100]));
        tx.touch(PG, object)
            .omap_setkeys(PG, object, entries.collect::<Vec<_>>());
    });
}

/// Clones share payload: it goes with the last of them.
#[test]
fn clones_fill_a_store_and_go_ten_times() {
    rounds(10, 12 << 20, 10_000, |random, object, tx| {
        let bytes = random.bytes(40_000);
        let clone = Arc::new((**object).clone().with_snap(1));
        tx.write(PG, object, 0, [bytes])
            .clone_object(PG, object, &clone);
        let bytes = random.bytes(9000);
        tx.write(PG, object, 4096 * random.below(8), [bytes]);
        // The one that is removed later is the clone; what it shares stays with it.
        tx.remove(PG, object).try_rename(PG, &clone, object);
    });
}

/// Attributes are in images only: they, too, must come to an end before the store does.
fn fill_with_attributes() {
    rounds(3, 10 << 20, 10_000, |random, object, tx| {
        let bytes = random.bytes(20_000);
        tx.touch(PG, object).setattr(PG, object, "large", bytes);
    });
}

#[test]
fn attributes_fill_a_store_and_go() {
    fill_with_attributes();
}

/// Callers took the room that late images needed, and the store took nothing more, removals
/// included. Images come late where the threads that write them get little of the processor.
#[test]
fn attributes_fill_a_store_whose_images_come_late_and_go() {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 * std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Ended also by a panic, or the scope would wait for ever.
        let _end = End(&is_over);
        for _ in 0..5 {
            fill_with_attributes();
        }
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn empty_objects_fill_a_store_and_go() {
    rounds(2, 9 << 20, 1_000_000, |_, object, tx| {
        // More that come and go at once.
        let brief = |snap| Arc::new((**object).clone().with_snap(snap).with_key(vec![b'k'; 500]));
        for snap in 0..50 {
            tx.touch(PG, &brief(snap));
        }
        for snap in 0..50 {
            tx.remove(PG, &brief(snap));
        }
        let header = vec![7; 5000];
        tx.touch(PG, object).omap_setheader(PG, object, header);
    });
}

/// Data does not take what records need: who removes objects of a full store, and an OSD that
/// starts on one, sets attributes and omap keys first.
#[test]
fn records_go_on_where_data_is_refused() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(12 << 20, 512).without_crashes());
    let store = new_store(&device);
    let add: Add = |random, object, tx| {
        let bytes = random.bytes(4096);
        tx.write(PG, object, 0, [bytes]);
    };
    let objects = fill(&store, &mut random, add, 10_000);
    for number in 0..50 {
        let mut tx = Transaction::new();
        let entries = (0..5).map(|n| (format!("log {number} {n}"), vec![n as u8; 200]));
        tx.setattr(PG, &object(number), "_", vec![1; 293])
            .touch(PG, &object(objects))
            .omap_setkeys(PG, &object(objects), entries.collect::<Vec<_>>());
        commit(&store, tx).unwrap_or_else(|error| panic!("transaction {number}: {error:?}"));
    }
    let mut tx = Transaction::new();
    tx.write(PG, &object(objects), 0, [random.bytes(4096)]);
    assert!(matches!(commit(&store, tx), Err(Error::NoSpace { .. })));
    empty(&store, objects + 1, 0, &mut random);
    assert_empty(&store, "all removed");
}

/// Overwrites of a full store go on, and so do removals of keys and parts.
#[test]
fn overwrites_of_a_full_store_go_on() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(12 << 20, 512).without_crashes());
    let store = new_store(&device);
    let objects = fill(
        &store,
        &mut random,
        |random, object, tx| {
            let bytes = random.bytes(20_000);
            let entries = (0..20).map(|n| (format!("key {n}"), vec![n as u8; 50]));
            tx.write(PG, object, 0, [bytes])
                .omap_setkeys(PG, object, entries.collect::<Vec<_>>());
        },
        10_000,
    );
    let handle = store.open_collection(&PG).unwrap();
    let mut refused = 0;
    for step in 0..3000 {
        let object = object(random.below(objects));
        let block = 4096 * random.below(4);
        let mut tx = Transaction::new();
        let bytes = random.bytes(4096);
        tx.write(PG, &object, block, [bytes.clone()]);
        match commit(&store, tx) {
            Ok(()) => {
                let found = store.read(&handle, &object, block, 4096).unwrap();
                assert!(found == bytes, "step {step}");
            }
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(error) => panic!("step {step}: {error:?}"),
        }
    }
    println!("{refused} overwrites refused of 3000");
    assert_eq!(refused, 0, "{:?}", store.store().stats());
    for number in 0..objects {
        let object = object(number);
        let mut tx = Transaction::new();
        tx.omap_rmkeyrange(PG, &object, "key 0", "key 5")
            .zero(PG, &object, 0, 8192);
        commit(&store, tx).unwrap();
        let mut tx = Transaction::new();
        tx.omap_clear(PG, &object).truncate(PG, &object, 0);
        commit(&store, tx).unwrap();
    }
    let mut tx = Transaction::new();
    for number in 0..objects {
        tx.remove(PG, &object(number));
    }
    tx.remove_collection(PG);
    commit(&store, tx).unwrap();
    let statfs = store.statfs();
    assert_eq!(
        (statfs.allocated, statfs.data_stored, statfs.objects),
        (0, 0, 0)
    );
}

/// Overwrites of what a clone shares give nothing back: they come to an end, and then
/// removals still work.
#[test]
fn overwrites_of_clones_fill_a_store_and_go() {
    let mut random = Random::new(seed());
    let device = Arc::new(SimulatedDevice::new(12 << 20, 512).without_crashes());
    let store = new_store(&device);
    let add: Add = |random, object, tx| {
        let bytes = random.bytes(40_000);
        tx.write(PG, object, 0, [bytes]);
    };
    let objects = fill(&store, &mut random, add, 10_000);
    let clone_of = |number| Arc::new((*object(number)).clone().with_snap(1));
    let mut refused = 0;
    for number in 0..objects {
        let mut tx = Transaction::new();
        tx.clone_object(PG, &object(number), &clone_of(number));
        match commit(&store, tx) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("clone {number}: {error:?}"),
        }
        for block in 0..9 {
            let bytes = random.bytes(4096);
            let mut tx = Transaction::new();
            tx.write(PG, &object(number), block * 4096, [bytes]);
            match commit(&store, tx) {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("object {number}: {error:?}"),
            }
        }
    }
    assert!(refused > 0, "nothing was refused");
    for number in 0..objects {
        let mut tx = Transaction::new();
        tx.remove(PG, &object(number)).remove(PG, &clone_of(number));
        commit(&store, tx).unwrap_or_else(|error| panic!("removal {number}: {error:?}"));
    }
    assert_empty(&store, "all removed");
    // All of it can be used again.
    let again = fill(&store, &mut random, add, 10_000);
    assert!(
        again + objects / 20 >= objects,
        "{again} of {objects} objects"
    );
}

/// Objects as large as a segment took two segments each: one extent filled the first, the few
/// blocks that its records left no room for began the second, and the next object's first
/// extent did not fit behind them. Half of every segment stayed unused, and 4 MiB writes of an
/// OSD wrote three times their bytes to a file. An extent is a sixteenth of a segment now.
#[test]
fn objects_as_large_as_a_segment_leave_no_half_empty_segments() {
    const SEGMENT: u64 = 256 << 10;
    for writers in [1, 4] {
        let device = Arc::new(SimulatedDevice::new(64 << 20, 512).without_crashes());
        let layout = options().segment_bytes(SEGMENT);
        let store = ObjectStore::create_on(device.clone(), &layout).unwrap();
        let mut tx = Transaction::new();
        tx.create_collection(PG, 0);
        commit(&store, tx).unwrap();
        let objects = 96;
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Random::new(seed() + writer);
                    for number in (writer..objects).step_by(writers as usize) {
                        let mut tx = Transaction::new();
                        let bytes = random.bytes(SEGMENT as usize);
                        tx.write(PG, &object(number), 0, [bytes]);
                        commit(store, tx).unwrap();
                    }
                });
            }
        });
        let stats = store.store().stats();
        assert_eq!(stats.objects.allocated_bytes, objects * SEGMENT);
        let segments = stats.segments.open + stats.segments.sealed;
        let most = objects + objects / 6 + stats.segments.open;
        assert!(
            segments <= most,
            "{segments} segments of data, {writers} writers: {stats:?}"
        );
        store.close().unwrap();
    }
}
