//! A file that may not grow any more (case U06): blocks that were written once can be
//! written again, others say `ENOSPC`, from the n-th new block on. Symptom elsewhere: after
//! the disk filled, no open worked. Here every open works, with the limit and without it,
//! and shows what was acknowledged.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use esker::device::{CrashPolicy, Device, DeviceInfo, SimulatedDevice, WriteOp};
use esker::inspect::{self, CheckOptions};
use esker::{Durability, Error, Options, Store};

use crate::common::{Model, Random, assert_equals, options, seed};

const BLOCK_BYTES: u64 = 4096;

/// A device whose blocks come into being when they are first written, up to a quota.
struct Quota {
    device: SimulatedDevice,
    written: Mutex<HashSet<u64>>,
    most: AtomicU64,
}

impl Quota {
    fn new(device: SimulatedDevice, written: HashSet<u64>, most: u64) -> Arc<Self> {
        Arc::new(Self {
            device,
            written: Mutex::new(written),
            most: AtomicU64::new(most),
        })
    }

    fn blocks(&self) -> u64 {
        self.written.lock().unwrap().len() as u64
    }

    /// The device after its process was killed, with this quota.
    fn killed(&self, most: u64) -> Arc<Self> {
        let image = self.device.crash_image(CrashPolicy::KeepAll);
        Self::new(image, self.written.lock().unwrap().clone(), most)
    }
}

impl Device for Quota {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn block_bytes(&self) -> u32 {
        self.device.block_bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(offset, into)
    }

    fn write_many(&self, ops: &[WriteOp<'_>]) -> io::Result<()> {
        let mut outcome = Ok(());
        for op in ops {
            let end = op.offset + op.data.len() as u64;
            let touched = op.offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
            let mut written = self.written.lock().unwrap();
            let new: Vec<u64> = touched.filter(|block| !written.contains(block)).collect();
            if !new.is_empty()
                && (written.len() + new.len()) as u64 > self.most.load(Ordering::Relaxed)
            {
                outcome = Err(io::ErrorKind::StorageFull.into());
                continue;
            }
            written.extend(new);
            drop(written);
            self.device.write_many(&[*op])?;
        }
        outcome
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.discard(offset, len)?;
        let gone = offset.div_ceil(BLOCK_BYTES)..(offset + len) / BLOCK_BYTES;
        self.written
            .lock()
            .unwrap()
            .retain(|block| !gone.contains(block));
        Ok(())
    }

    fn wants_prewrite(&self) -> bool {
        true
    }

    fn info(&self) -> DeviceInfo {
        self.device.info()
    }
}

fn store_options(durability: Durability) -> Options {
    options(durability)
        .checkpoint_interval_bytes(256 << 10)
        .discard_bytes_per_second(0_u64)
}

/// Two hundred puts and deletes, until one fails; what may or may not have been done by it.
fn script(
    store: &Store,
    model: &mut Model,
    random: &mut Random,
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    for _ in 0..200 {
        let key = format!("key{}", random.below(60)).into_bytes();
        let value = (random.below(5) > 0).then(|| {
            let len = random.below(12_000);
            random.bytes(len as usize)
        });
        let done = match &value {
            Some(value) => store.put(&key, value),
            None => store.delete(&key).map(drop),
        };
        match (done, value) {
            (Ok(()), Some(value)) => drop(model.insert(key, value)),
            (Ok(()), None) => drop(model.remove(&key)),
            (Err(Error::Io { .. } | Error::Poisoned | Error::NoSpace { .. }), value) => {
                return Some((key, value));
            }
            (Err(error), _) => panic!("{error:?}"),
        }
    }
    None
}

/// The model is what the store has, but for the call that failed, which may be done.
fn check(store: &Store, model: &mut Model, unsure: Option<&(Vec<u8>, Option<Vec<u8>>)>) {
    if let Some((key, value)) = unsure {
        let found = store.get(key).unwrap();
        if found.as_deref() == value.as_deref() {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
    }
    assert_equals(store, model);
}

#[test]
fn a_store_opens_after_its_disk_filled() {
    let seed = seed();
    let options = store_options(Durability::Committed);
    let new_device = || SimulatedDevice::new(12 << 20, 512);
    let whole = Quota::new(new_device(), HashSet::new(), u64::MAX);
    let store = Store::create_on(whole.clone(), &options).unwrap();
    let at_first = whole.blocks();
    assert!(script(&store, &mut Model::new(), &mut Random::new(seed)).is_none());
    store.close().unwrap();
    let (mut failed, most) = (0, whole.blocks());
    // Segments are prewritten whole, so that most quotas end within one.
    for quota in (at_first..most).step_by((most - at_first).div_ceil(60) as usize) {
        let device = Quota::new(new_device(), HashSet::new(), quota);
        let Ok(store) = Store::create_on(device.clone(), &options) else {
            continue;
        };
        let mut model = Model::new();
        let unsure = script(&store, &mut model, &mut Random::new(seed));
        failed += u64::from(unsure.is_some());
        let image = device.killed(quota);
        drop(store);
        for _ in 0..2 {
            let store = Store::open_on(image.clone(), &options)
                .unwrap_or_else(|error| panic!("seed {seed}, quota {quota}: {error}"));
            check(&store, &mut model, unsure.as_ref());
            drop(store);
        }
        let lifted = image.killed(u64::MAX);
        let store = Store::open_on(lifted.clone(), &options).unwrap();
        check(&store, &mut model, unsure.as_ref());
        store.put(b"more", &[1; 5000]).unwrap();
        store.close().unwrap();
        let report = inspect::check_on(lifted, &CheckOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(report.errors, 0, "seed {seed}, quota {quota}: {report:#?}");
    }
    assert!(failed > 10, "only {failed} quotas were felt");
}
