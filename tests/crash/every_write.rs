//! The power fails at the n-th device operation, for every n, of a workload that cleans and
//! checkpoints; then again during recovery, and after more writes.
//!
//! Each configuration fills a store until it has been cleaned and checkpointed, then runs
//! from that state, open included, up to operation n. Of the cut device images are taken
//! as a power cut and as a kill could leave it; each must open. The store's own threads run
//! meanwhile, so the n-th operation is not the same in every run; the history in the test
//! is what counts.

use std::sync::Arc;

use esker::device::{CrashPolicy, SimulatedDevice};
use esker::{Durability, Error, Options, Store};

use crate::common::{create, open, options, seed};
use crate::history::{History, Workload};

/// How long a soak: `ESKER_SOAK`, 1 if not set.
pub fn soak() -> u64 {
    let soak = std::env::var("ESKER_SOAK").ok();
    soak.and_then(|text| text.parse().ok()).unwrap_or(1)
}

pub struct Setup {
    pub options: Options,
    pub durability: Durability,
    pub seed: u64,
    pub base: SimulatedDevice,
    pub history: History,
}

pub const KEYS: u64 = 150;

/// Every so many buffered transactions are followed by a sync.
const SYNC_EVERY: u64 = 12;

impl Setup {
    /// A store that has been cleaned and checkpointed, and what it holds.
    pub fn new(durability: Durability, block: u32, prewrite: bool, seed: u64) -> Self {
        let device = SimulatedDevice::new(10 << 20, block);
        let device = Arc::new(if prewrite {
            device.with_prewrite()
        } else {
            device
        });
        let options = options(durability).checkpoint_interval_bytes(512 << 10);
        let store = create(&device, &options).unwrap();
        let mut history = History::new(durability);
        let mut workload = Workload::new(seed, KEYS);
        while store.stats().victims_cleaned < 40 || store.stats().checkpoints_taken < 3 {
            let transaction = workload.next().unwrap();
            history.run(&store, transaction).unwrap();
        }
        history.sync(&store).unwrap();
        history.check(&store, "after the load");
        // A clean store and a killed one take different ways through recovery.
        let base = if seed.is_multiple_of(2) {
            let base = device.crash_image(CrashPolicy::KeepAll);
            abandon(&device, store);
            base
        } else {
            store.close().unwrap();
            device.snapshot()
        };
        Self {
            options,
            durability,
            seed,
            base,
            history,
        }
    }

    /// Opens, which must work, checks, and returns the store.
    pub fn open(&self, device: &Arc<SimulatedDevice>, history: &mut History, what: &str) -> Store {
        let store = open(device, &self.options)
            .unwrap_or_else(|error| panic!("seed {}: {what}: open: {error:?}", self.seed));
        history.check(&store, &format!("seed {}: {what}", self.seed));
        store
    }

    /// Opens and works until the device is cut or `most` transactions were made.
    pub fn work(&self, device: &Arc<SimulatedDevice>, history: &mut History, seed: u64, most: u64) {
        let store = match open(device, &self.options) {
            Ok(store) => store,
            Err(Error::Io { .. } | Error::Poisoned) => return,
            Err(error) => panic!("seed {}: open of a cut device: {error:?}", self.seed),
        };
        // What an open serves is certain from then on.
        let context = format!("seed {}: before more work", self.seed);
        if let Err(error) = history.try_check(&store, &context) {
            assert!(device.is_cut(), "{context}: {error:?}");
            return abandon(device, store);
        }
        let mut workload = Workload::new(seed, KEYS);
        for at in 1..=most {
            let transaction = workload.next().unwrap();
            let mut outcome = history.run(&store, transaction).map(drop);
            if outcome.is_ok() && self.durability == Durability::Buffered && at % SYNC_EVERY == 0 {
                outcome = history.sync(&store);
            }
            if at % 64 == 0 && outcome.is_ok() {
                outcome = store.checkpoint();
            }
            match outcome {
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(_) => {
                    assert!(device.is_cut(), "only a cut device fails");
                    break;
                }
            }
        }
        abandon(device, store);
    }

    fn cut_at(&self, n: u64) {
        let device = Arc::new(self.base.snapshot());
        device.set_op_limit(n);
        let mut history = self.history.clone();
        self.work(&device, &mut history, self.seed + n / 7, 400);
        let random = |salt: u64| CrashPolicy::Random {
            seed: self.seed ^ n << 8 ^ salt,
        };
        // Each cut is looked at in one way at least, and by turns in all three.
        let all = n.is_multiple_of(8);
        for (turn, policy) in (0..).zip([random(1), CrashPolicy::LoseAll, CrashPolicy::KeepAll]) {
            if all || n % 4 == turn || (turn == 0 && n % 4 == 3) {
                let image = Arc::new(device.crash_image(policy));
                let what = format!("cut at {n}, {policy:?}");
                self.recovers(&image, history.clone(), n, &what);
            }
        }
        if !n.is_multiple_of(3) {
            return;
        }
        self.twice(&device, history, n, random(2));
    }

    /// A read-only open writes nothing and sees what a writing one will; then the store
    /// takes more writes.
    fn recovers(&self, image: &Arc<SimulatedDevice>, mut history: History, n: u64, what: &str) {
        if n.is_multiple_of(4) {
            let before = image.counters().changes();
            let reader = open(image, &self.options.clone().read_only(true))
                .unwrap_or_else(|error| panic!("{what}: read-only open: {error:?}"));
            history.check(&reader, &format!("{what}, read-only"));
            drop(reader);
            assert_eq!(
                image.counters().changes(),
                before,
                "{what}: read-only wrote"
            );
        }
        let store = self.open(image, &mut history, what);
        let mut workload = Workload::new(self.seed ^ n, KEYS);
        for transaction in workload.by_ref().take(6) {
            history.run(&store, transaction).unwrap();
        }
        if n % 8 < 4 {
            history.sync(&store).unwrap();
            history.check(&store, &format!("{what}, after more writes"));
            abandon(image, store);
            return;
        }
        store.close().unwrap();
        history.note_sync();
        let store = self.open(image, &mut history, &format!("{what}, after a close"));
        abandon(image, store);
    }

    /// The second cut: in the recovery from the first, or soon after it; and the third.
    fn twice(&self, device: &SimulatedDevice, mut history: History, n: u64, policy: CrashPolicy) {
        // A kill first leaves unflushed data that the power cut after it can lose.
        let first = match n / 3 % 3 {
            0 => CrashPolicy::LoseAll,
            1 => CrashPolicy::KeepAll,
            _ => policy,
        };
        let mut image = Arc::new(device.crash_image(first));
        for round in 0..3 {
            let limit = match (n + round) % 4 {
                0 => n % 13,
                1 => n % 29,
                _ => n % 90,
            };
            image.set_op_limit(limit);
            self.work(&image, &mut history, self.seed + n + round, 60);
            let second = match (n / 3 + round) % 4 {
                0 => CrashPolicy::KeepAll,
                1 | 2 => CrashPolicy::LoseAll,
                _ => CrashPolicy::Random {
                    seed: n ^ round << 20,
                },
            };
            let next = Arc::new(image.crash_image(second));
            let copy = Arc::new(next.snapshot());
            let what = format!("cut at {n} ({first:?}), round {round} at {limit} ({second:?})");
            let store = self.open(&copy, &mut history, &what);
            abandon(&copy, store);
            // What was served stays, also if the power fails the moment after.
            if round % 2 == 0 {
                let lost = Arc::new(copy.crash_image(CrashPolicy::LoseAll));
                let store = self.open(&lost, &mut history, &format!("{what}, then lose all"));
                abandon(&lost, store);
            }
            image = Arc::new(copy.crash_image(CrashPolicy::KeepAll));
        }
    }
}

/// Ends a store as a kill would: nothing more reaches the device.
pub fn abandon(device: &SimulatedDevice, store: Store) {
    device.set_op_limit(0);
    drop(store);
}

/// Cut points of each of the eight configurations.
const CUTS: u64 = 260;

fn every_write(durability: Durability, block: u32) {
    let seed = seed();
    let started = std::time::Instant::now();
    for (number, prewrite) in (0..).zip([false, true]) {
        let setup = Setup::new(durability, block, prewrite, seed.wrapping_add(number) >> 1);
        for n in 1..=CUTS * soak() {
            setup.cut_at(n);
            if n % 64 == 0 {
                println!("{n} cuts after {:?}", started.elapsed());
            }
        }
    }
}

#[test]
fn committed_writes_survive_a_cut_anywhere_on_512_byte_blocks() {
    every_write(Durability::Committed, 512);
}

#[test]
fn committed_writes_survive_a_cut_anywhere_on_4096_byte_blocks() {
    every_write(Durability::Committed, 4096);
}

#[test]
fn buffered_writes_survive_as_a_prefix_on_512_byte_blocks() {
    every_write(Durability::Buffered, 512);
}

#[test]
fn buffered_writes_survive_as_a_prefix_on_4096_byte_blocks() {
    every_write(Durability::Buffered, 4096);
}
