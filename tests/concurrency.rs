//! Real threads with checked histories.
//!
//! Every value carries its key and a number that grows with each write of the key. A reader
//! must find a number at least that of the last write acknowledged before it began and at
//! most that of the last one begun before it ended, in a value that is whole and of its
//! key. What readers may see of a batch that is being applied: each key old or new by
//! itself; a batch is atomic over crashes, and once it returned. The cleaner and
//! checkpoints run all the time.

#[path = "common/mod.rs"]
mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Random, create, open, options, seed};
use esker::device::{CrashPolicy, SimulatedDevice};
use esker::{Batch, Durability, Error, Options, Store};

const KEYS: u64 = 64;
const TIME: Duration = Duration::from_secs(2);

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// A value that says whose and which it is, all through.
fn value(key: u64, number: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(key << 40 | number);
    let mut bytes = Vec::with_capacity(len + 16);
    bytes.extend_from_slice(&key.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&random.bytes(len));
    bytes
}

/// The number of a value of `key`, after checking that it is whole.
fn number_of(key: u64, found: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), key, "a foreign value");
    let number = word(8);
    assert!(
        found == value(key, number, found.len() - 16),
        "a torn value"
    );
    number
}

/// What is known of one key.
#[derive(Default)]
struct History {
    /// Number of the last write begun, and of the last one acknowledged.
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

struct Run {
    store: Store,
    histories: Vec<History>,
    stop: AtomicBool,
    sizes: fn(&mut Random) -> usize,
}

impl Run {
    fn read(&self, number: u64) {
        let history = &self.histories[number as usize];
        let least = history.acknowledged.load(Ordering::SeqCst);
        let found = self.store.get(&key(number)).unwrap();
        let most = history.begun.load(Ordering::SeqCst);
        let seen = found.map_or(0, |found| number_of(number, &found));
        assert!(
            (least..=most).contains(&seen),
            "key {number}: {seen} is not in {least}..={most}"
        );
    }

    /// Writes the keys of this writer, alone or in batches; nobody else writes them.
    fn write(&self, writer: u64, writers: u64, random: &mut Random) {
        let count = if random.below(4) == 0 { 3 } else { 1 };
        let mut batch = Batch::new();
        let mut written = Vec::new();
        for _ in 0..count {
            let own = random.below(KEYS / writers) * writers + writer;
            if written.iter().any(|(key, _)| *key == own) {
                continue;
            }
            let number = self.histories[own as usize]
                .begun
                .fetch_add(1, Ordering::SeqCst)
                + 1;
            let bytes = value(own, number, (self.sizes)(random));
            if count == 1 {
                self.store.put(&key(own), &bytes).unwrap();
            } else {
                batch.put(&key(own), &bytes);
            }
            written.push((own, number));
        }
        if count > 1 {
            self.store.write(batch).unwrap();
        }
        for (key, number) in written {
            self.histories[key as usize]
                .acknowledged
                .store(number, Ordering::SeqCst);
        }
    }

    /// Every key is there once, whole and no older than at the start of the scan.
    fn scan(&self) {
        let least: Vec<u64> = self
            .histories
            .iter()
            .map(|history| history.acknowledged.load(Ordering::SeqCst))
            .collect();
        let mut seen = HashMap::new();
        for entry in self.store.scan() {
            let (name, bytes) = entry.unwrap();
            let number = String::from_utf8(name).unwrap()[4..].parse().unwrap();
            assert!(seen.insert(number, number_of(number, &bytes)).is_none());
        }
        for (number, least) in (0..).zip(least) {
            let found = seen.get(&number).copied().unwrap_or(0);
            assert!(found >= least, "key {number}: {found} is before {least}");
        }
    }

    fn until_stopped(&self, mut work: impl FnMut()) {
        while !self.stop.load(Ordering::Relaxed) {
            work();
        }
    }
}

fn run(device: &Arc<SimulatedDevice>, options: &Options, sizes: fn(&mut Random) -> usize) {
    let seed = seed();
    let run = Run {
        store: create(device, options).unwrap(),
        histories: (0..KEYS).map(|_| History::default()).collect(),
        stop: AtomicBool::new(false),
        sizes,
    };
    let run = &run;
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let mut random = Random::new(seed ^ writer);
            scope.spawn(move || run.until_stopped(|| run.write(writer, 3, &mut random)));
        }
        for reader in 0..4 {
            let mut random = Random::new(seed ^ (77 + reader));
            scope.spawn(move || run.until_stopped(|| run.read(random.below(63))));
        }
        scope.spawn(move || run.until_stopped(|| run.scan()));
        scope.spawn(move || {
            run.until_stopped(|| {
                run.store.checkpoint().unwrap();
                std::thread::sleep(Duration::from_millis(20));
            });
        });
        std::thread::sleep(TIME);
        run.stop.store(true, Ordering::Relaxed);
    });
    let stats = run.store.stats();
    assert!(
        stats.victims_cleaned > 20,
        "{} cleaned",
        stats.victims_cleaned
    );
    assert!(stats.checkpoints_taken > 0);
    assert_eq!(stats.read_errors, 0);
    // Over a power cut: everything acknowledged by a store that commits.
    if options.durability == Durability::Committed {
        let image = Arc::new(device.crash_image(CrashPolicy::LoseAll));
        let store = open(&image, options).unwrap();
        for number in 0..63 {
            let found = store.get(&key(number)).unwrap();
            let seen = found.map_or(0, |found| number_of(number, &found));
            let last = run.histories[number as usize]
                .acknowledged
                .load(Ordering::SeqCst);
            assert_eq!(seen, last, "key {number}");
        }
    }
}

fn small(random: &mut Random) -> usize {
    random.below(8000) as usize
}

/// Mostly of several chunks.
fn large(random: &mut Random) -> usize {
    random.below(90_000) as usize
}

fn device(mib: u64) -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(mib << 20, 512))
}

fn uniform(_: &mut Random) -> usize {
    5000
}

/// Records of one size lie at the same places in every life of a segment: who looked up a
/// record and was held up until the segment was reused finds another's record there.
#[test]
fn uniform_values_committed_without_a_cache() {
    run(&device(9), &options(Durability::Committed), uniform);
}

#[test]
fn small_values_committed_without_a_cache() {
    let options = options(Durability::Committed).checkpoint_interval_bytes(2 << 20);
    run(&device(9), &options, small);
}

#[test]
fn small_values_buffered_with_a_cache() {
    let options = options(Durability::Buffered).cache_bytes(200_000);
    run(&device(9), &options, small);
}

/// Large values are overwritten while they are read: old or new, never mixed or missing.
#[test]
fn chunked_values_committed_with_a_cache() {
    let options = options(Durability::Committed).cache_bytes(1 << 20);
    run(&device(14), &options, large);
}

#[test]
fn chunked_values_buffered_without_a_cache() {
    run(&device(14), &options(Durability::Buffered), large);
}

/// Many writers of one key: what is read last is what one of them wrote last, before and
/// after a crash.
#[test]
fn many_writers_of_one_key() {
    let device = device(9);
    let options = options(Durability::Committed);
    let store = create(&device, &options).unwrap();
    let last: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (writer, last) in (0..).zip(&last) {
            let store = &store;
            scope.spawn(move || {
                for number in 1..=300 {
                    if number % 50 == 7 {
                        store.delete(b"one").unwrap();
                    }
                    store.put(b"one", &value(writer, number, 500)).unwrap();
                    last.store(number, Ordering::SeqCst);
                }
            });
        }
    });
    let found = store.get(b"one").unwrap().unwrap();
    let writer = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert_eq!(
        number_of(writer, &found),
        300,
        "somebody's last write is the last"
    );
    let image = Arc::new(device.crash_image(CrashPolicy::LoseAll));
    let reopened = open(&image, &options).unwrap();
    assert_eq!(reopened.get(b"one").unwrap().as_deref(), Some(&*found));
    assert_eq!(store.stats().entries, 1);
}

/// Readers of keys that are deleted and made again all the time: whole or absent (U63).
#[test]
fn deleted_and_recreated_while_read() {
    let device = device(12);
    let store = create(&device, &options(Durability::Buffered).cache_bytes(50_000)).unwrap();
    let stop = AtomicBool::new(false);
    let (store, stop) = (&store, &stop);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            scope.spawn(move || {
                let mut random = Random::new(reader);
                while !stop.load(Ordering::Relaxed) {
                    let number = random.below(8);
                    if let Some(found) = store.get(&key(number)).unwrap() {
                        number_of(number, &found);
                    }
                }
            });
        }
        let start = Instant::now();
        let mut random = Random::new(seed());
        let mut number = 0;
        while start.elapsed() < TIME {
            number += 1;
            let one = random.below(8);
            match random.below(3) {
                0 => {
                    store.delete(&key(one)).unwrap();
                }
                _ => store
                    .put(&key(one), &value(one, number, large(&mut random)))
                    .unwrap(),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Many threads on a full store: each write is done or refused, and nobody waits for ever.
#[test]
fn many_threads_on_a_full_store() {
    let device = device(9);
    let store = create(&device, &options(Durability::Committed)).unwrap();
    let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (store, done, refused) = (&store, &done, &refused);
        for thread in 0..8 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while start.elapsed() < TIME {
                    let number = random.below(3000);
                    let result = match random.below(10) {
                        0 => store.delete(&key(number)).map(drop),
                        1 => store.put(&key(number), &value(number, 1, large(&mut random))),
                        _ => store.put(&key(number), &value(number, 1, small(&mut random))),
                    };
                    match result {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(Error::NoSpace { what: "capacity" }) => {
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
    });
    assert!(
        start.elapsed() < TIME * 10,
        "a write hung: {:?}",
        start.elapsed()
    );
    assert!(refused.load(Ordering::Relaxed) > 0, "it was full");
    assert!(done.load(Ordering::Relaxed) > 500);
    for number in 0..3000 {
        store.delete(&key(number)).unwrap();
    }
    assert_eq!(store.stats().entries, 0);
}
