//! Cases of the collection of what users suffer from, each by its number.

use std::sync::Arc;

use esker::device::{CrashPolicy, SimulatedDevice};
use esker::{ObjectName, Transaction};

use super::history::History;
use super::workload::{LOW, META, Workload, creation};
use super::{apply, assert_exact_space, loaded, options};
use crate::common::{Random, seed};
use crate::engine_store::EngineStore;
use crate::interface::ObjectInterface;

fn new_store() -> (Arc<SimulatedDevice>, EngineStore, History) {
    let device = Arc::new(SimulatedDevice::new(10 << 20, 512));
    let store = EngineStore::create(&device, &options()).unwrap();
    let mut history = History::new();
    for (collection, transaction) in creation() {
        apply(&store, &mut history, collection, transaction).unwrap();
    }
    (device, store, history)
}

fn object(name: &str) -> Arc<ObjectName> {
    Arc::new(ObjectName::new(5, 2, name))
}

fn reopened(
    device: &Arc<SimulatedDevice>,
    store: EngineStore,
    history: &mut History,
    context: &str,
) -> (Arc<SimulatedDevice>, EngineStore) {
    let image = Arc::new(device.crash_image(CrashPolicy::LoseAll));
    store.abandon();
    let store = EngineStore::open(&image, &options()).unwrap();
    history.check(&store, context);
    (image, store)
}

/// U21: what removes much at once is in the log, and replaying it twice is the same.
#[test]
fn u21_bulk_changes_survive_a_crash() {
    type Bulk = fn(&mut Transaction<'static>);
    let bulks: [(&str, Bulk); 5] = [
        ("omap_clear", |tx| {
            tx.omap_clear(LOW, &object("o"));
        }),
        ("omap_rmkeyrange", |tx| {
            tx.omap_rmkeyrange(LOW, &object("o"), "", "z");
        }),
        ("truncate", |tx| {
            tx.truncate(LOW, &object("o"), 0);
        }),
        ("remove", |tx| {
            tx.remove(LOW, &object("o"));
        }),
        ("remove and make again", |tx| {
            tx.remove(LOW, &object("o")).touch(LOW, &object("o"));
        }),
    ];
    let fill = |tag: &'static str| {
        let mut tx = Transaction::new();
        let entries = (0..1000).map(|n| (format!("{tag} {n:04}"), vec![n as u8; 20]));
        tx.write(LOW, &object("o"), 0, [vec![1; 100_000]])
            .omap_setkeys(LOW, &object("o"), entries.collect::<Vec<_>>());
        tx
    };
    for (name, bulk) in bulks {
        let (device, store, mut history) = new_store();
        assert!(apply(&store, &mut history, LOW, fill("old")).unwrap());
        let mut tx = Transaction::new();
        bulk(&mut tx);
        assert!(apply(&store, &mut history, LOW, tx).unwrap());
        let (device, store) = reopened(&device, store, &mut history, name);
        let (device, store) = reopened(&device, store, &mut history, &format!("{name}, again"));
        assert!(apply(&store, &mut history, LOW, fill("new")).unwrap());
        let (device, store) = reopened(&device, store, &mut history, &format!("{name}, then new"));
        assert_exact_space(&device, &store, name);
        store.close().unwrap();
    }
}

/// U26: data that is a copy of real headers, frames and records, aligned as they are, and
/// moved by the cleaner: it stays data.
#[test]
fn u26_data_that_looks_like_a_log() {
    let seed = seed();
    let mut random = Random::new(seed);
    let device = Arc::new(SimulatedDevice::new(10 << 20, 512));
    let mut workload = Workload::new(seed);
    let (mut store, mut history) = loaded(&device, &options(), &mut workload, 10);
    let mut device = device;
    for round in 0..4 {
        for step in 0..60_u64 {
            let at = random.below((10 << 20) / 4096 - 32) * 4096;
            let planted = device.read_raw(at, 64 << 10);
            let name = Arc::new(ObjectName::new(-1, 1, format!("planted {}", step % 20)));
            let mut tx = Transaction::new();
            tx.write(META, &name, 0, [planted.clone()]);
            tx.omap_setkeys(META, &name, [("planted", planted[..20_000].to_vec())]);
            tx.setattr(META, &name, "planted", planted[..9000].to_vec());
            apply(&store, &mut history, META, tx).unwrap();
            let (collection, transaction) = workload.next(history.latest());
            apply(&store, &mut history, collection, transaction).unwrap();
        }
        let policy = CrashPolicy::Random { seed: seed ^ round };
        let image = Arc::new(device.crash_image(policy));
        store.abandon();
        store = EngineStore::open(&image, &options()).unwrap();
        history.check(&store, &format!("seed {seed}, round {round}"));
        device = image;
    }
    store.close().unwrap();
}

/// U30: nothing is lost over many rounds of a few objects, a checkpoint and a restart.
#[test]
fn u30_many_rounds_of_checkpoint_and_restart() {
    let mut random = Random::new(seed());
    let (mut device, mut store, mut history) = new_store();
    let mut made = 0;
    for round in 0..60_u64 {
        for _ in 0..[0, 1, 10][random.below(3) as usize] {
            made += 1;
            let name = object(&format!("object {made}"));
            let mut tx = Transaction::new();
            let bytes = random.bytes(700);
            tx.write(LOW, &name, 0, [bytes])
                .setattr(LOW, &name, "_", vec![3; 50]);
            tx.omap_setkeys(LOW, &name, [("key", round.to_le_bytes().to_vec())]);
            assert!(apply(&store, &mut history, LOW, tx).unwrap());
        }
        if round % 3 > 0 {
            store.store().store().checkpoint().unwrap();
        }
        if random.below(2) == 0 {
            store.close().unwrap();
            store = EngineStore::open(&device, &options()).unwrap();
            history.check(&store, &format!("round {round}, closed"));
        } else {
            (device, store) = reopened(&device, store, &mut history, &format!("round {round}"));
        }
    }
    assert!(made > 60 && store.collection_exists(LOW));
    store.close().unwrap();
}
