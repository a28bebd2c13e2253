//! Stores whose device fails: power cuts and kills anywhere, failing calls, flipped bits.
//!
//! The fault model is [`esker::device::SimulatedDevice`]'s. `ESKER_SOAK=k` tries every
//! point, k times as far; ordinary runs try some of them.

mod cases;
mod cuts;
mod flips;
pub mod history;
mod io_errors;
mod regressions;
pub mod workload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::device::SimulatedDevice;
use esker::{CollectionName, Error, Options, Transaction};

use crate::engine_store::EngineStore;
use crate::interface::{ObjectInterface, Statfs};
use history::History;
use workload::{Workload, creation};

/// How long a soak: `ESKER_SOAK`; `None` for an ordinary run.
pub fn soak() -> Option<u64> {
    let soak = std::env::var("ESKER_SOAK").ok();
    soak.and_then(|text| text.parse().ok())
}

/// Options under which a small store cleans and checkpoints a lot.
pub fn options() -> Options {
    Options::default()
        .cache_bytes(0)
        .checkpoint_interval_bytes(512 << 10)
}

/// Makes a transaction as one; `Ok(true)` if it was applied and acknowledged, `Ok(false)` if
/// it was refused, as the model says it must be or for lack of room.
pub fn apply(
    store: &EngineStore,
    history: &mut History,
    collection: CollectionName,
    transaction: Transaction<'static>,
) -> Result<bool, Error> {
    let expected = history.expect(collection, &transaction);
    let handle = store.store().create_new_collection(collection);
    let outcome = store
        .store()
        .apply_transactions(&handle, std::slice::from_ref(&transaction));
    match (expected, outcome) {
        (_, Err(Error::NoSpace { .. })) => Ok(false),
        (Ok(after), Ok(())) => {
            history.note(after);
            history.settle();
            Ok(true)
        }
        (Ok(after), Err(error @ (Error::Io { .. } | Error::Poisoned | Error::Corrupt { .. }))) => {
            history.note(after);
            Err(error)
        }
        (Err(_), Err(error @ (Error::Io { .. } | Error::Poisoned | Error::Corrupt { .. }))) => {
            Err(error)
        }
        (Err(expected), Err(found)) => {
            if transaction.ops().len() == 1 {
                assert_eq!(found.errno(), expected.errno(), "{transaction:?}");
            }
            Ok(false)
        }
        (expected, found) => {
            let expected = expected.map(drop);
            panic!("found {found:?}, expected {expected:?}: {transaction:?}")
        }
    }
}

/// A store on a device that has been cleaned and checkpointed, and what it holds.
pub fn loaded(
    device: &Arc<SimulatedDevice>,
    options: &Options,
    workload: &mut Workload,
    victims: u64,
) -> (EngineStore, History) {
    let store = EngineStore::create(device, options).unwrap();
    let mut history = History::new();
    for (collection, transaction) in creation() {
        assert!(apply(&store, &mut history, collection, transaction).unwrap());
    }
    loop {
        let stats = store.store().store().stats();
        if stats.victims_cleaned >= victims && stats.checkpoints_taken >= 3 {
            break;
        }
        let (collection, transaction) = workload.next(history.latest());
        apply(&store, &mut history, collection, transaction).unwrap();
    }
    history.check(&store, "after the load");
    (store, history)
}

/// The deep check finds nothing.
pub fn assert_sound(store: &EngineStore, context: &str) {
    let report = store.store().check(true);
    assert_eq!(report.errors, 0, "{context}: {:?}", report.lines());
}

/// What a store says of its space, without what depends on time.
fn space(store: &EngineStore) -> (Statfs, u64) {
    let live = store.store().store().stats().live_bytes;
    let statfs = Statfs {
        internal_metadata: 0,
        ..store.statfs()
    };
    (statfs, live)
}

/// The counts of a store at rest are those that an open derives from what is stored.
pub fn assert_exact_space(device: &SimulatedDevice, store: &EngineStore, context: &str) {
    let copy = Arc::new(device.snapshot());
    copy.clear_faults();
    let opened = EngineStore::open(&copy, &options()).unwrap();
    let expected = space(&opened);
    opened.abandon();
    // What is being moved counts twice for a moment, what is buried for a moment longer.
    let until = Instant::now() + Duration::from_secs(10);
    let mut found = space(store);
    while found != expected && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        found = space(store);
    }
    assert_eq!(found, expected, "{context}: statfs and live bytes");
}
