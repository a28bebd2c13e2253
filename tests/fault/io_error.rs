//! `EIO` and `ENOSPC` at the n-th call, for every n of a workload that overwrites, deletes,
//! cleans and checkpoints: a typed error, nothing acknowledged is lost, and a store whose
//! write or flush failed takes no more writes until it is reopened (case U06; see also `quota.rs`).

use std::sync::Arc;

use esker::device::{CrashPolicy, Fault, FaultError, OpKind, SimulatedDevice};
use esker::{Batch, Durability, Error, Options, Store};

use crate::common::{Model, Random, assert_equals, create, open, options, seed};

/// What a call that failed may have done, whole or not at all.
type Unsure = Vec<(Vec<u8>, Option<Vec<u8>>)>;

struct Base {
    device: SimulatedDevice,
    model: Model,
    options: Options,
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// A store that is nearly full, so that a few writes make it clean.
fn base(random: &mut Random) -> Base {
    let device = Arc::new(SimulatedDevice::new(9 << 20, 512));
    let options = options(Durability::Committed).checkpoint_interval_bytes(1 << 20);
    let store = create(&device, &options).unwrap();
    let usable = store.stats().usable_bytes;
    let count = usable * 9 / 10 / 6100;
    let mut model = Model::new();
    for number in (0..count).chain(0..count).chain(0..count) {
        let value = random.bytes(6000);
        store.put(&key(number), &value).unwrap();
        model.insert(key(number), value);
    }
    store.close().unwrap();
    Base {
        device: device.snapshot(),
        model,
        options,
    }
}

fn attempt(
    model: &mut Model,
    changes: Unsure,
    result: esker::Result<()>,
) -> Result<(), (Error, Unsure)> {
    if let Err(error) = result {
        return Err((error, changes));
    }
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
    Ok(())
}

/// The workload; stops at the first error and says what it may have done.
fn work(store: &Store, model: &mut Model, random: &mut Random) -> Result<(), (Error, Unsure)> {
    let count = model.len() as u64;
    for step in 0..40 {
        let one = key(random.below(count));
        match step % 8 {
            3 => {
                let result = store.delete(&one).map(drop);
                attempt(model, vec![(one, None)], result)?;
            }
            5 => {
                let mut batch = Batch::new();
                let mut changes: Unsure = Vec::new();
                for _ in 0..4 {
                    let value = random.bytes(5000);
                    let one = key(random.below(count));
                    batch.put(&one, &value);
                    changes.retain(|(key, _)| *key != one);
                    changes.push((one, Some(value)));
                }
                attempt(model, changes, store.write(batch))?;
            }
            6 => {
                let value = random.bytes(40_000);
                let result = store.put(b"large", &value);
                attempt(model, vec![(b"large".to_vec(), Some(value))], result)?;
            }
            7 if step == 23 => attempt(model, Vec::new(), store.checkpoint())?,
            7 => {
                for _ in 0..4 {
                    let one = key(random.below(count));
                    match store.get(&one) {
                        Ok(found) => assert_eq!(found.as_deref(), model.get(&one).map(|v| &**v)),
                        Err(Error::Io { .. } | Error::Poisoned) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            _ => {
                let value = random.bytes(6000);
                let result = store.put(&one, &value);
                attempt(model, vec![(one, Some(value))], result)?;
            }
        }
    }
    Ok(())
}

/// Everything acknowledged is there, and of what was not, all or nothing.
fn check(device: &Arc<SimulatedDevice>, options: &Options, model: &Model, unsure: &Unsure) {
    let store = open(device, options).unwrap();
    let mut with = model.clone();
    for (key, value) in unsure {
        match value {
            Some(value) => with.insert(key.clone(), value.clone()),
            None => with.remove(key),
        };
    }
    let happened = unsure.first().is_some_and(|(key, value)| {
        store.get(key).unwrap().as_deref() == value.as_deref()
            && model.get(key).map(Vec::as_slice) != value.as_deref()
    });
    assert_equals(&store, if happened { &with } else { model });
    store.put(b"after", b"reopening").unwrap();
}

fn run(base: &Base, fault: Fault, during_open: bool, random: &mut Random) -> bool {
    let device = Arc::new(base.device.snapshot());
    let mut model = base.model.clone();
    let options = &base.options;
    let before = device.counters().failures;
    if during_open {
        device.add_fault(fault);
    }
    let mut unsure = Unsure::new();
    match open(&device, options) {
        Ok(store) => {
            if !during_open {
                device.add_fault(fault);
            }
            if let Err((error, changes)) = work(&store, &mut model, random) {
                assert!(
                    matches!(error, Error::Io { .. } | Error::Poisoned),
                    "{fault:?}: {error}"
                );
                unsure = changes;
                // Never retried into success, though the device is well again.
                device.clear_faults();
                for _ in 0..2 {
                    assert!(matches!(store.put(b"k", b"v"), Err(Error::Poisoned)));
                    assert!(matches!(store.delete(b"k"), Err(Error::Poisoned)));
                    assert!(matches!(store.sync(), Err(Error::Poisoned)));
                    assert!(matches!(store.checkpoint(), Err(Error::Poisoned)));
                }
                assert!(store.close().is_err());
            } else if random.below(2) == 0 {
                let _ = store.close();
            }
        }
        Err(error) => assert!(matches!(error, Error::Io { .. }), "{fault:?}: {error}"),
    }
    let failed = device.counters().failures > before;
    device.clear_faults();
    let policy = match random.below(3) {
        0 => CrashPolicy::LoseAll,
        1 => CrashPolicy::KeepAll,
        _ => CrashPolicy::Random {
            seed: random.next(),
        },
    };
    let image = Arc::new(device.crash_image(policy));
    check(&image, options, &model, &unsure);
    failed
}

fn every_call(on: OpKind, error: FaultError) {
    let mut random = Random::new(seed());
    let base = base(&mut random);
    for during_open in [true, false] {
        let mut nth = 1;
        // Beyond the end no call fails any more, whatever the threads do.
        let mut without = 0;
        while without < 6 {
            let fault = Fault {
                on: Some(on),
                nth,
                error,
                lasting: random.below(4) == 0,
            };
            let failed = run(&base, fault, during_open, &mut random);
            without = if failed { 0 } else { without + 1 };
            nth += if nth < 24 { 1 } else { 1 + random.below(9) };
        }
        println!("{on:?} {error:?}: {nth} calls, during open: {during_open}");
    }
}

#[test]
fn write_fails_with_eio() {
    every_call(OpKind::Write, FaultError::Io);
}

#[test]
fn write_fails_with_enospc() {
    every_call(OpKind::Write, FaultError::NoSpace);
}

#[test]
fn flush_fails() {
    every_call(OpKind::Flush, FaultError::Io);
}

#[test]
fn read_fails() {
    every_call(OpKind::Read, FaultError::Io);
}

/// A device that fails for good while writers, the cleaner and a checkpoint are busy: all of
/// them come back.
#[test]
fn nobody_waits_for_a_dead_device() {
    let mut random = Random::new(seed());
    let base = base(&mut random);
    for round in 0..20 {
        let device = Arc::new(base.device.snapshot());
        let store = open(&device, &base.options).unwrap();
        device.add_fault(Fault {
            on: None,
            nth: 50 + random.below(200),
            error: FaultError::Io,
            lasting: true,
        });
        std::thread::scope(|scope| {
            let store = &store;
            for thread in 0..4 {
                let mut random = Random::new(round * 10 + thread);
                scope.spawn(move || {
                    loop {
                        let value = random.bytes(5000);
                        match store.put(&key(random.below(300)), &value) {
                            Ok(()) => {}
                            Err(Error::Io { .. } | Error::Poisoned | Error::NoSpace { .. }) => {
                                if matches!(store.put(b"k", b""), Err(Error::Poisoned)) {
                                    return;
                                }
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            scope.spawn(move || while store.checkpoint().is_ok() {});
        });
        assert!(store.close().is_err());
    }
}
