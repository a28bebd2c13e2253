//! Calls of the device that fail, each in turn.

use std::sync::Arc;

use esker::device::{BadRange, CrashPolicy, Fault, FaultError, OpKind, SimulatedDevice};
use esker::{CollectionName, Error, ObjectName, ObjectStore, Transaction};

use super::history::History;
use super::workload::{LOW, Workload};
use super::{apply, loaded, options, soak};
use crate::common::{Random, seed};
use crate::engine_store::EngineStore;
use crate::interface::ObjectInterface;

fn base(seed: u64) -> (SimulatedDevice, History) {
    let device = Arc::new(SimulatedDevice::new(10 << 20, 512));
    let (store, history) = loaded(&device, &options(), &mut Workload::new(seed), 20);
    let image = device.crash_image(CrashPolicy::KeepAll);
    store.abandon();
    (image, history)
}

/// Works for a while on a device whose n-th call of a kind fails; then opens what is left.
fn nth_call_fails(
    base: &SimulatedDevice,
    mut history: History,
    fault: Fault,
    seed: u64,
    context: &str,
) {
    let device = Arc::new(base.snapshot());
    let store = EngineStore::open(&device, &options()).unwrap();
    history.check(&store, context);
    device.add_fault(fault);
    let mut workload = Workload::new(seed);
    let mut failed = false;
    for _ in 0..80 {
        let (collection, transaction) = workload.next(history.latest());
        let may_apply = history.expect(collection, &transaction).is_ok();
        match apply(&store, &mut history, collection, transaction) {
            Ok(_) => {}
            Err(error) if fault.on == Some(OpKind::Read) => {
                // Nothing was written: it has no effect, and the store goes on.
                assert!(
                    matches!(error, Error::Io { op: "read", .. } | Error::Corrupt { .. }),
                    "{context}: {error:?}"
                );
                if may_apply {
                    device.clear_faults();
                    let copy = Arc::new(device.snapshot());
                    let opened = EngineStore::open(&copy, &options()).unwrap();
                    history.check(&opened, &format!("{context}, after a failed read"));
                    opened.abandon();
                }
            }
            Err(error) => {
                assert!(
                    matches!(error, Error::Io { .. } | Error::Poisoned),
                    "{context}: {error:?}"
                );
                failed = true;
                break;
            }
        }
    }
    device.clear_faults();
    if failed {
        // Poisoned: nothing more is taken, whatever the device does now.
        let mut tx = Transaction::new();
        tx.touch(LOW, &Arc::new(ObjectName::new(5, 0, "after")));
        let handle = store.store().create_new_collection(LOW);
        let again = store.store().apply_transactions(&handle, &[tx]);
        assert!(
            matches!(again, Err(Error::Poisoned)),
            "{context}: {again:?}"
        );
        assert!(
            matches!(store.store().store().sync(), Err(Error::Poisoned)),
            "{context}"
        );
        // Reads go on.
        assert!(!store.list_collections().is_empty());
    }
    let policy = match seed % 3 {
        0 => CrashPolicy::LoseAll,
        1 => CrashPolicy::KeepAll,
        _ => CrashPolicy::Random { seed },
    };
    let image = Arc::new(device.crash_image(policy));
    store.abandon();
    let store = EngineStore::open(&image, &options())
        .unwrap_or_else(|error| panic!("{context}: open: {error:?}"));
    history.check(&store, &format!("{context}, opened again"));
    let (collection, transaction) = workload.next(history.latest());
    apply(&store, &mut history, collection, transaction).unwrap();
    store.abandon();
}

fn every_call(on: OpKind, errors: &[FaultError], calls: u64, tried: u64) {
    let seed = seed();
    let (base, history) = base(seed);
    let step = soak().map_or(calls / tried, |_| 1);
    for n in (1 + seed % step..=calls).step_by(step as usize) {
        for error in errors {
            let fault = Fault {
                on: Some(on),
                nth: n,
                error: *error,
                lasting: n.is_multiple_of(2),
            };
            let context = format!("seed {seed}: {fault:?}");
            nth_call_fails(&base, history.clone(), fault, seed ^ n, &context);
        }
    }
}

#[test]
fn a_failed_write_poisons_the_store() {
    every_call(
        OpKind::Write,
        &[FaultError::Io, FaultError::NoSpace],
        120,
        12,
    );
}

#[test]
fn a_failed_flush_poisons_the_store() {
    every_call(OpKind::Flush, &[FaultError::Io], 60, 12);
}

#[test]
fn a_failed_read_fails_what_needed_it() {
    every_call(OpKind::Read, &[FaultError::Io], 60, 12);
}

/// A failed call of an open fails the open, or is made up for; the next one finds all.
#[test]
fn a_failed_call_of_an_open() {
    let seed = seed();
    let (base, history) = base(seed);
    let step = if soak().is_some() { 1 } else { 9 };
    for on in [OpKind::Read, OpKind::Write, OpKind::Flush] {
        for n in (1 + seed % step..100).step_by(step as usize) {
            let context = format!("seed {seed}: {on:?} {n} of an open");
            let device = Arc::new(base.snapshot());
            device.add_fault(Fault::once(on, n));
            match EngineStore::open(&device, &options()) {
                Ok(store) => {
                    device.clear_faults();
                    store.abandon();
                }
                Err(Error::Io { .. } | Error::Poisoned | Error::Corrupt { .. }) => {}
                Err(error) => panic!("{context}: {error:?}"),
            }
            let image = Arc::new(device.crash_image(CrashPolicy::Random { seed: n }));
            let store = EngineStore::open(&image, &options()).unwrap();
            history.clone().check(&store, &context);
            store.abandon();
        }
    }
}

const PG: CollectionName = CollectionName::Pg {
    pool: 2,
    shard: -1,
    seed: 0,
    temp: false,
};

fn commit(store: &ObjectStore, tx: Transaction<'_>) -> esker::Result<()> {
    let handle = store.create_new_collection(PG);
    store.apply_transactions(&handle, &[tx])
}

/// Where on the device a block's bytes are.
fn places(device: &SimulatedDevice, bytes: &[u8]) -> Vec<u64> {
    let all = device.read_raw(0, 10 << 20);
    let found = (0..all.len() - bytes.len()).step_by(512);
    found
        .filter(|at| &all[*at..*at + bytes.len()] == bytes)
        .map(|at| at as u64)
        .collect()
}

/// A block that cannot be read, or reads wrong: it alone fails, and what replaces it heals.
#[test]
fn a_bad_block_is_bad_alone() {
    let mut random = Random::new(seed());
    for bad in [BadRange::Unreadable, BadRange::Flipped] {
        let device = Arc::new(SimulatedDevice::new(10 << 20, 512));
        let store = ObjectStore::create_on(device.clone(), &options()).unwrap();
        let mut tx = Transaction::new();
        tx.create_collection(PG, 0);
        commit(&store, tx).unwrap();
        let object = |hash, name| Arc::new(ObjectName::new(2, hash, name));
        let (one, other) = (object(1, "one"), object(2, "other"));
        let clone = Arc::new((*one).clone().with_snap(1));
        let data = random.bytes(8 * 4096);
        let mut tx = Transaction::new();
        tx.write(PG, &one, 0, [data.clone()])
            .write(PG, &other, 0, [data[..100].to_vec()]);
        tx.clone_object(PG, &one, &clone);
        tx.omap_setkeys(PG, &one, [("key", vec![5; 1000])]);
        commit(&store, tx).unwrap();
        let handle = store.open_collection(&PG).unwrap();
        let places = places(&device, &data[3 * 4096..4 * 4096]);
        assert_eq!(places.len(), 1);
        device.add_bad_range(places[0], 4096, bad);
        let is_bad = |result: esker::Result<Vec<u8>>| match result {
            Err(error) => assert_eq!(error.errno(), -5, "EIO: {error:?}"),
            Ok(bytes) => panic!("{bad:?}: {} bytes", bytes.len()),
        };
        // The blocks beside it, alone and up to it.
        for index in [0, 1, 2, 4, 5, 6, 7] {
            let found = store.read(&handle, &one, index * 4096, 4096).unwrap();
            assert!(
                found == data[index as usize * 4096..][..4096],
                "block {index}"
            );
        }
        assert!(store.read(&handle, &one, 0, 3 * 4096).unwrap() == data[..3 * 4096]);
        assert!(store.read(&handle, &one, 4 * 4096, 4 * 4096).unwrap() == data[4 * 4096..]);
        is_bad(store.read(&handle, &one, 3 * 4096, 4096));
        is_bad(store.read(&handle, &one, 3 * 4096 + 5, 1));
        is_bad(store.read(&handle, &one, 0, 0));
        is_bad(store.read(&handle, &clone, 0, 0));
        assert!(store.store().stats().read_errors > 0);
        assert!(store.store().stats().read_retries >= 3);
        assert_eq!(store.read(&handle, &other, 0, 0).unwrap(), data[..100]);
        assert_eq!(store.omap_get(&handle, &one).unwrap().1.len(), 1);
        // A write of part of it needs it; the store goes on, and nothing was changed.
        let mut tx = Transaction::new();
        tx.write(PG, &other, 0, ["changed"])
            .write(PG, &one, 3 * 4096 + 10, ["part"]);
        assert_eq!(commit(&store, tx).unwrap_err().errno(), -5);
        assert_eq!(store.read(&handle, &other, 0, 0).unwrap(), data[..100]);
        // A write of the whole block does not, and heals it.
        let mut tx = Transaction::new();
        tx.write(PG, &one, 3 * 4096, [vec![7; 4096]]);
        commit(&store, tx).unwrap();
        let mut expected = data.clone();
        expected[3 * 4096..4 * 4096].fill(7);
        assert!(store.read(&handle, &one, 0, 0).unwrap() == expected);
        is_bad(store.read(&handle, &clone, 0, 0));
        // The cleaner passes it by, whatever is overwritten.
        let busy = object(3, "busy");
        for step in 0..600 {
            let mut tx = Transaction::new();
            let bytes = random.bytes(30_000);
            tx.write(PG, &busy, step % 20 * 30_000, [bytes]);
            commit(&store, tx).unwrap();
        }
        assert!(store.read(&handle, &one, 0, 0).unwrap() == expected);
        is_bad(store.read(&handle, &clone, 0, 0));
        store.close().unwrap();
        let store = ObjectStore::open_on(device.clone(), &options()).unwrap();
        let handle = store.open_collection(&PG).unwrap();
        assert!(store.read(&handle, &one, 0, 0).unwrap() == expected);
        is_bad(store.read(&handle, &clone, 3 * 4096, 4096));
        // It can be removed.
        let mut tx = Transaction::new();
        tx.remove(PG, &clone).remove(PG, &one);
        commit(&store, tx).unwrap();
        store.close().unwrap();
    }
}

/// Reads that now and then return something else (case U35): never wrong data.
#[test]
fn reads_that_lie_now_and_then() {
    let seed = seed();
    let device = Arc::new(SimulatedDevice::new(10 << 20, 512).with_seed(seed));
    let mut workload = Workload::new(seed);
    workload.moves_collections = false;
    let (store, mut history) = loaded(&device, &options(), &mut workload, 10);
    device.set_bad_reads(0.02);
    for _ in 0..200 {
        let (collection, transaction) = workload.next(history.latest());
        apply(&store, &mut history, collection, transaction).unwrap();
    }
    history.check(&store, "with bad reads");
    assert!(device.counters().bad_reads > 0);
    let image = Arc::new(device.crash_image(CrashPolicy::LoseAll));
    store.abandon();
    let store = EngineStore::open(&image, &options()).unwrap();
    history.check(&store, "opened again");
    store.abandon();
}
