//! Errors that were found, each small.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esker::device::{Latency, SimulatedDevice};
use esker::{CollectionName, Error, ObjectName, ObjectStore, Transaction};

use super::options;

const PG: CollectionName = CollectionName::Pg {
    pool: 2,
    shard: -1,
    seed: 0,
    temp: false,
};

fn store(device: &Arc<SimulatedDevice>) -> ObjectStore {
    let store = ObjectStore::create_on(device.clone(), &options()).unwrap();
    let mut tx = Transaction::new();
    tx.create_collection(PG, 0);
    commit(&store, tx).unwrap();
    store
}

fn commit(store: &ObjectStore, tx: Transaction<'_>) -> esker::Result<()> {
    let handle = store.create_new_collection(PG);
    store.apply_transactions(&handle, &[tx])
}

fn object(name: &str) -> Arc<ObjectName> {
    Arc::new(ObjectName::new(2, 1, name))
}

/// The callback of the effects comes before that of the commit. A transaction queued while
/// the callback thread waited for an earlier commit, and durable when it looked again, had
/// them in the other order.
#[test]
fn callbacks_of_effects_come_before_those_of_commits() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512).without_crashes());
    let store = store(&device);
    device.set_latency(Latency {
        flush: Duration::from_micros(300),
        ..Latency::default()
    });
    let handle = store.open_collection(&PG).unwrap();
    let calls = Arc::new(Mutex::new(Vec::new()));
    for number in 0..400 {
        let call = |what: &'static str| -> esker::Callback {
            let calls = calls.clone();
            Box::new(move |_| calls.lock().unwrap().push((number, what)))
        };
        let mut tx = Transaction::new();
        tx.touch(PG, &object("o"));
        let (applied, committed) = (call("applied"), call("committed"));
        store
            .queue_transactions(&handle, &[tx], Some(applied), Some(committed))
            .unwrap();
    }
    store.flush(&handle);
    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), 800);
    for number in 0..400 {
        let place = |what| {
            calls
                .iter()
                .position(|call| *call == (number, what))
                .unwrap()
        };
        assert!(
            place("applied") < place("committed"),
            "transaction {number}"
        );
    }
}

/// An object that a transaction removes and makes again, or renames another over, is never
/// absent. Readers looked its name up between the two steps, or kept the id of the old one.
#[test]
fn a_replaced_object_is_never_absent() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512).without_crashes());
    let store = store(&device);
    let (one, other) = (object("one"), object("other"));
    let mut tx = Transaction::new();
    tx.write(PG, &one, 0, ["old"]);
    tx.omap_setkeys(PG, &one, [("key", "value")]);
    commit(&store, tx).unwrap();
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let handle = store.open_collection(&PG).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    store.read(&handle, &one, 0, 0).unwrap();
                    assert!(store.exists(&handle, &one).unwrap());
                    assert_eq!(store.omap_get(&handle, &one).unwrap().1.len(), 1);
                    let values = store.omap_get_values(&handle, &one, [b"key".as_slice()]);
                    assert_eq!(values.unwrap().len(), 1);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let handle = store.open_collection(&PG).unwrap();
        let until = Instant::now() + Duration::from_secs(2);
        let mut step = 0_u64;
        while Instant::now() < until || reads.load(Ordering::Relaxed) == 0 {
            step += 1;
            let mut tx = Transaction::new();
            if step.is_multiple_of(2) {
                tx.remove(PG, &one).write(PG, &one, 0, [vec![7; 300]]);
                tx.omap_setkeys(PG, &one, [("key", "value")]);
            } else {
                tx.write(PG, &other, 0, [vec![8; 5000]]);
                tx.omap_setkeys(PG, &other, [("key", "value")]);
                tx.remove(PG, &one).try_rename(PG, &other, &one);
            }
            if store
                .queue_transactions(&handle, &[tx], None, None)
                .is_err()
            {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    store.close().unwrap();
}

/// The memory limit that is set on an open store concerns objects, too, and what grows in
/// memory only.
#[test]
fn a_memory_limit_concerns_objects() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512).without_crashes());
    let store = store(&device);
    store.store().set_memory_limit(Some(100));
    let full = |result: esker::Result<()>| {
        assert!(
            matches!(
                result,
                Err(Error::NoSpace {
                    what: "memory limit"
                })
            ),
            "{result:?}"
        );
    };
    let mut tx = Transaction::new();
    tx.touch(PG, &object("o"));
    commit(&store, tx).unwrap();
    let mut tx = Transaction::new();
    tx.write(PG, &object("p"), 0, ["data"]);
    full(commit(&store, tx));
    let mut tx = Transaction::new();
    tx.touch(PG, &object("p"));
    full(commit(&store, tx));
    let mut tx = Transaction::new();
    tx.setattr(PG, &object("o"), "a", vec![1; 100]);
    full(commit(&store, tx));
    let mut tx = Transaction::new();
    tx.remove(PG, &object("o"));
    commit(&store, tx).unwrap();
    store.close().unwrap();
}
