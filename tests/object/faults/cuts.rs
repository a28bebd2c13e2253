//! The power fails at the n-th device operation, for every n, of a workload that cleans and
//! checkpoints; then again during recovery, and after more transactions.
//!
//! Each run starts from a store that has been cleaned and checkpointed, and works, open
//! included, up to operation n. Of the cut device images are taken as a power cut and as a
//! kill could leave it; each must open with a state that the history allows. The store's
//! own threads run meanwhile, so the n-th operation is not the same in every run; the
//! history in the test is what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::device::{CrashPolicy, SimulatedDevice};
use esker::{Error, Options};

use super::history::History;
use super::workload::Workload;
use super::{apply, assert_exact_space, assert_sound, loaded, options, soak};
use crate::common::seed;
use crate::engine_store::EngineStore;

struct Setup {
    options: Options,
    seed: u64,
    base: SimulatedDevice,
    history: History,
}

impl Setup {
    fn new(block: u32, seed: u64) -> Self {
        let device = SimulatedDevice::new(10 << 20, block);
        let device = Arc::new(if seed & 2 == 0 {
            device
        } else {
            device.with_prewrite()
        });
        let options = options();
        let (store, history) = loaded(&device, &options, &mut Workload::new(seed), 40);
        // A clean store and a killed one take different ways through recovery.
        let base = if seed.is_multiple_of(2) {
            let base = device.crash_image(CrashPolicy::KeepAll);
            store.abandon();
            base
        } else {
            store.close().unwrap();
            device.snapshot()
        };
        Self {
            options,
            seed,
            base,
            history,
        }
    }

    fn context(&self, what: &str) -> String {
        format!("seed {}: {what}", self.seed)
    }

    /// Opens, which must work, checks, and returns the store.
    fn open(
        &self,
        device: &Arc<SimulatedDevice>,
        history: &mut History,
        what: &str,
    ) -> EngineStore {
        let context = self.context(what);
        let store = EngineStore::open(device, &self.options)
            .unwrap_or_else(|error| panic!("{context}: open: {error:?}"));
        history.check(&store, &context);
        assert_sound(&store, &context);
        store
    }

    /// Opens and works until the device is cut or `most` transactions were made.
    fn work(&self, device: &Arc<SimulatedDevice>, history: &mut History, seed: u64, most: u64) {
        let store = match EngineStore::open(device, &self.options) {
            Ok(store) => store,
            Err(Error::Io { .. } | Error::Poisoned) => return,
            Err(error) => panic!(
                "{}",
                self.context(&format!("open of a cut device: {error:?}"))
            ),
        };
        // What an open serves is certain from then on. A copy says what that is: this
        // device may fail at any time.
        let copy = device.snapshot();
        if copy.is_cut() {
            return store.abandon();
        }
        copy.clear_faults();
        let copy = Arc::new(copy);
        self.open(&copy, history, "before more work").abandon();
        let mut workload = Workload::new(seed);
        if seed.is_multiple_of(2) {
            self.one_by_one(device, &store, history, &mut workload, most);
            store.abandon();
        } else {
            self.in_flight(device, store, history, &mut workload, most);
        }
    }

    fn one_by_one(
        &self,
        device: &SimulatedDevice,
        store: &EngineStore,
        history: &mut History,
        workload: &mut Workload,
        most: u64,
    ) {
        for at in 1..=most {
            let (collection, transaction) = workload.next(history.latest());
            let mut outcome = apply(store, history, collection, transaction).map(drop);
            if at % 64 == 0 && outcome.is_ok() {
                outcome = store.store().store().checkpoint();
            }
            match outcome {
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(error) => {
                    assert!(device.is_cut(), "{}", self.context(&format!("{error:?}")));
                    return;
                }
            }
        }
    }

    /// Up to 16 transactions wait for their commit at any time.
    fn in_flight(
        &self,
        device: &SimulatedDevice,
        store: EngineStore,
        history: &mut History,
        workload: &mut Workload,
        most: u64,
    ) {
        let committed = Arc::new(AtomicU64::new(0));
        for _ in 0..most {
            while history.uncertain() >= 16 && !device.is_cut() {
                std::thread::yield_now();
                history.acknowledge(committed.load(Ordering::Acquire));
            }
            let (collection, transaction) = workload.next(history.latest());
            let expected = history.expect(collection, &transaction);
            let handle = store.store().create_new_collection(collection);
            // Noted before it is queued: it may be committed before the call returns.
            let before = history.clone();
            let number = expected
                .as_ref()
                .map_or(0, |after| history.note(after.clone()));
            let shared = committed.clone();
            let on_commit = Box::new(move |result: esker::Result<()>| {
                if result.is_ok() {
                    shared.fetch_max(number, Ordering::AcqRel);
                }
            });
            let transactions = std::slice::from_ref(&transaction);
            let outcome =
                store
                    .store()
                    .queue_transactions(&handle, transactions, None, Some(on_commit));
            match outcome {
                Ok(()) => assert!(expected.is_ok(), "{transaction:?}"),
                Err(Error::Io { .. } | Error::Poisoned | Error::Corrupt { .. })
                    if device.is_cut() =>
                {
                    break;
                }
                Err(Error::NoSpace { .. }) => *history = before,
                Err(error) => {
                    assert!(expected.is_err(), "{error:?}: {transaction:?}");
                    *history = before;
                }
            }
            if device.is_cut() {
                break;
            }
        }
        store.abandon();
        history.acknowledge(committed.load(Ordering::Acquire));
    }

    fn cut_at(&self, n: u64) {
        let device = Arc::new(self.base.snapshot());
        device.set_op_limit(n);
        let mut history = self.history.clone();
        self.work(&device, &mut history, self.seed + n / 7, 400);
        let random = |salt: u64| CrashPolicy::Random {
            seed: self.seed ^ n << 8 ^ salt,
        };
        let all = n.is_multiple_of(8);
        for (turn, policy) in (0..).zip([random(1), CrashPolicy::LoseAll, CrashPolicy::KeepAll]) {
            if all || n % 4 == turn || (turn == 0 && n % 4 == 3) {
                let image = Arc::new(device.crash_image(policy));
                let what = format!("cut at {n}, {policy:?}");
                self.recovers(&image, history.clone(), n, &what);
            }
        }
        if n.is_multiple_of(3) {
            self.twice(&device, history, n, random(2));
        }
    }

    /// A read-only open writes nothing and sees what a writing one will; then the store
    /// takes more transactions, and is cut or closed again.
    fn recovers(&self, image: &Arc<SimulatedDevice>, mut history: History, n: u64, what: &str) {
        if n.is_multiple_of(4) {
            let before = image.counters().changes();
            let reader = EngineStore::open(image, &self.options.clone().read_only(true));
            let reader = reader.unwrap_or_else(|error| panic!("{what}: read-only: {error:?}"));
            history.check(&reader, &self.context(&format!("{what}, read-only")));
            drop(reader);
            assert_eq!(
                image.counters().changes(),
                before,
                "{what}: read-only wrote"
            );
        }
        let store = self.open(image, &mut history, what);
        let mut workload = Workload::new(self.seed ^ n);
        for _ in 0..6 {
            let (collection, transaction) = workload.next(history.latest());
            apply(&store, &mut history, collection, transaction).unwrap();
        }
        assert_exact_space(image, &store, &self.context(what));
        match n % 8 {
            0..3 => {
                history.check(&store, &self.context(&format!("{what}, after more work")));
                store.abandon();
            }
            3..6 => {
                let lost = Arc::new(image.crash_image(CrashPolicy::LoseAll));
                store.abandon();
                self.open(&lost, &mut history, &format!("{what}, then a power cut"))
                    .abandon();
            }
            _ => {
                store.close().unwrap();
                self.open(image, &mut history, &format!("{what}, after a close"))
                    .abandon();
            }
        }
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
            self.open(&copy, &mut history, &what).abandon();
            // What was served stays, also if the power fails the moment after.
            if round % 2 == 0 {
                let lost = Arc::new(copy.crash_image(CrashPolicy::LoseAll));
                self.open(&lost, &mut history, &format!("{what}, then lose all"))
                    .abandon();
            }
            image = Arc::new(copy.crash_image(CrashPolicy::KeepAll));
        }
    }
}

/// Cut points of each configuration.
const CUTS: u64 = 260;
/// How many of them an ordinary run tries, of each of two.
const TRIED: u64 = 16;
/// No ordinary run takes longer with one configuration.
const ENOUGH: Duration = Duration::from_secs(10);

fn every_write(block: u32) {
    let seed = seed();
    let started = Instant::now();
    for number in 0..2 {
        let setup = Setup::new(block, seed.wrapping_add(number * 3) >> 1);
        let step = soak().map_or(CUTS / TRIED, |_| 1);
        let first = 1 + seed % step;
        let (began, mut cuts) = (Instant::now(), 0);
        for n in (first..=CUTS * soak().unwrap_or(1)).step_by(step as usize) {
            // A busy machine tries fewer.
            if soak().is_none() && began.elapsed() > ENOUGH {
                break;
            }
            setup.cut_at(n);
            cuts += 1;
        }
        println!(
            "configuration {number}: {cuts} cuts, {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn a_cut_anywhere_leaves_a_prefix_on_512_byte_blocks() {
    every_write(512);
}

#[test]
fn a_cut_anywhere_leaves_a_prefix_on_4096_byte_blocks() {
    every_write(4096);
}
