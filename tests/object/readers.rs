//! Readers against everything that may happen to an object, with real threads, without a
//! cache and with the cleaner at work.
//!
//! Every slot has one writer, which notes what will be before it asks for it, and what is
//! when that was done. A read that began after state s was done and ended before state e
//! was asked for must find, block by block, what one of the states s..=e has. Blocks are
//! written with one number over and over, so a mixture shows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esker::device::SimulatedDevice;
use esker::{Collection, CollectionName, Error, ObjectName, ObjectStore, Transaction};

use crate::common::{Random, seed};
use crate::faults::options;

const LOW: CollectionName = CollectionName::Pg {
    pool: 4,
    shard: -1,
    seed: 0,
    temp: false,
};
const HIGH: CollectionName = CollectionName::Pg {
    pool: 4,
    shard: -1,
    seed: 1,
    temp: false,
};
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 8;
const SLOTS: u64 = 24;
const WRITERS: u64 = 3;

/// One object as it was: the number in each of its blocks, 0 for zeros.
#[derive(Clone, PartialEq, Debug)]
struct Version {
    blocks: Vec<u64>,
    /// In an attribute and under an omap key.
    mark: u64,
}

/// Both names of a slot at one time.
type SlotState = [Option<Version>; 2];

struct History {
    states: Mutex<Vec<Arc<SlotState>>>,
    done: AtomicU64,
}

impl History {
    fn new() -> Self {
        Self {
            states: Mutex::new(vec![Arc::new([None, None])]),
            done: AtomicU64::new(0),
        }
    }

    /// The states from one that was done to the latest that was asked for.
    fn since(&self, from: u64) -> Vec<Arc<SlotState>> {
        self.states.lock().unwrap()[from as usize..].to_vec()
    }
}

/// Even hashes, which stay in the lower half.
fn name(slot: u64, which: usize) -> Arc<ObjectName> {
    let hash = (slot as u32).wrapping_mul(0x9e37_79b8) & !1;
    Arc::new(ObjectName::new(
        4,
        hash,
        format!("slot {slot} {}", ["a", "b"][which]),
    ))
}

fn block(slot: u64, number: u64, index: u64) -> Vec<u8> {
    let stamp = number << 24 | slot << 8 | index;
    stamp.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// The number in a block, 0 if it is zeros.
fn number_in(slot: u64, index: u64, bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(
        bytes
            .chunks(8)
            .all(|word| word == &first.to_le_bytes()[..word.len()]),
        "slot {slot}: a mixed block"
    );
    if first == 0 {
        return 0;
    }
    assert_eq!(
        (first >> 8 & 0xffff, first & 0xff),
        (slot, index),
        "slot {slot}, block {index}: another object's or another block's data"
    );
    first >> 24
}

struct World {
    store: ObjectStore,
    slots: Vec<History>,
    stop: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl World {
    fn handle(&self) -> Collection {
        self.store.open_collection(&LOW).unwrap()
    }

    fn writer(&self, writer: u64, mut random: Random) {
        let handle = self.handle();
        while !self.stop.load(Ordering::Relaxed) {
            let slot = random.below(SLOTS / WRITERS) * WRITERS + writer;
            let history = &self.slots[slot as usize];
            let before = history.since(history.done.load(Ordering::Relaxed));
            let number = history.done.load(Ordering::Relaxed) + 1;
            let mut state = (*before[0]).clone();
            let mut tx = Transaction::new();
            for _ in 0..1 + random.below(2) {
                change(&mut random, slot, number, &mut state, &mut tx);
            }
            history.states.lock().unwrap().push(Arc::new(state));
            let all = [tx];
            let outcome = match random.below(4) {
                0 => self.store.apply_transactions(&handle, &all),
                _ => self.store.queue_transactions(&handle, &all, None, None),
            };
            outcome.unwrap();
            history.done.store(number, Ordering::Release);
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn reader(&self, mut random: Random) {
        let handle = self.handle();
        while !self.stop.load(Ordering::Relaxed) {
            let slot = random.below(SLOTS);
            let which = random.below(2) as usize;
            self.read(&handle, &mut random, slot, which);
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self, handle: &Collection, random: &mut Random, slot: u64, which: usize) {
        let history = &self.slots[slot as usize];
        let from = history.done.load(Ordering::Acquire);
        let object = name(slot, which);
        let states = || history.since(from);
        let absent = |what: &str, error: Error| {
            assert!(
                matches!(error, Error::NoEntry("object")),
                "{what}: {error:?}"
            );
            let states = states();
            assert!(
                states.iter().any(|state| state[which].is_none()),
                "{what} of {object}: it is there in all of {states:?}"
            );
        };
        match random.below(8) {
            0 => match self.store.getattr(handle, &object, b"mark") {
                Ok(value) => self.marked(&value, slot, which, from),
                Err(error) => absent("getattr", error),
            },
            1 => match self
                .store
                .omap_get_values(handle, &object, [b"mark".as_slice()])
            {
                // An object that goes meanwhile has no keys.
                Ok(values) => match values.get(b"mark".as_slice()) {
                    Some(value) => self.marked(value, slot, which, from),
                    None => absent("omap", Error::NoEntry("object")),
                },
                Err(error) => absent("omap", error),
            },
            2 => match self.store.stat(handle, &object) {
                Ok(stat) => assert!(
                    states().iter().any(|state| {
                        let version = state[which].as_ref();
                        version.is_some_and(|v| v.blocks.len() as u64 * BLOCK == stat.size)
                    }),
                    "{object}: size {}",
                    stat.size
                ),
                Err(error) => absent("stat", error),
            },
            _ => {
                let first = random.below(BLOCKS);
                let count = 1 + random.below(BLOCKS - first);
                match self
                    .store
                    .read(handle, &object, first * BLOCK, count * BLOCK)
                {
                    Ok(bytes) => {
                        let states = states();
                        check_read(slot, which, first, count, &bytes, &states);
                    }
                    Err(error) => absent("read", error),
                }
            }
        }
    }

    fn marked(&self, value: &[u8], slot: u64, which: usize, from: u64) {
        let mark = u64::from_le_bytes(value.try_into().unwrap());
        let states = self.slots[slot as usize].since(from);
        let has = |state: &Arc<SlotState>| state[which].as_ref().is_some_and(|v| v.mark == mark);
        assert!(
            states.iter().any(has),
            "slot {slot} {which}: {mark} in none of {states:?}"
        );
    }

    /// Objects that never go are in every listing of their half, in order and once.
    fn lister(&self) {
        let handle = self.handle();
        while !self.stop.load(Ordering::Relaxed) {
            let mut all = Vec::new();
            let mut start = ObjectName::min();
            while !start.is_max() {
                let page = self
                    .store
                    .collection_list(&handle, &start, &ObjectName::max(), 7)
                    .unwrap();
                all.extend(page.objects);
                start = page.next;
            }
            assert!(all.is_sorted_by(|one, next| one < next));
            for number in 0..20 {
                let object = lasting(number * 2);
                assert!(all.contains(&object), "{object} is not listed");
                assert!(self.store.exists(&handle, &object).unwrap());
            }
            std::thread::yield_now();
        }
    }

    fn splitter(&self) {
        let handle = self.handle();
        while !self.stop.load(Ordering::Relaxed) {
            let mut tx = Transaction::new();
            tx.create_collection(HIGH, 1)
                .split_collection(LOW, 1, 1, HIGH);
            self.store.apply_transactions(&handle, &[tx]).unwrap();
            let high = self.store.open_collection(&HIGH).unwrap();
            let (min, max) = (ObjectName::min(), ObjectName::max());
            let listed = self.store.collection_list(&high, &min, &max, 1000).unwrap();
            assert_eq!(listed.objects.len(), 20, "the odd ones");
            std::thread::sleep(Duration::from_millis(2));
            let mut tx = Transaction::new();
            tx.merge_collection(HIGH, LOW, 0);
            // In the other order of names: no deadlock.
            self.store.apply_transactions(&high, &[tx]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn lasting(number: u32) -> Arc<ObjectName> {
    Arc::new(ObjectName::new(4, number, format!("lasting {number}")))
}

fn check_read(
    slot: u64,
    which: usize,
    first: u64,
    count: u64,
    bytes: &[u8],
    states: &[Arc<SlotState>],
) {
    let versions = || states.iter().filter_map(|state| state[which].as_ref());
    let len_of = |version: &Version| {
        let end = (first + count).min(version.blocks.len() as u64);
        (end.saturating_sub(first) * BLOCK) as usize
    };
    assert!(
        versions().any(|version| len_of(version) == bytes.len()),
        "slot {slot} {which}: {} bytes from block {first}: {states:?}",
        bytes.len()
    );
    for (index, bytes) in (first..).zip(bytes.chunks(BLOCK as usize)) {
        let number = number_in(slot, index, bytes);
        let has =
            |version: &Version| version.blocks.get(index as usize).copied().unwrap_or(0) == number;
        assert!(
            versions().any(has),
            "slot {slot} {which}, block {index}: {number} in none of {states:?}"
        );
    }
}

/// One change of a slot, in the state and in the transaction.
fn change(
    random: &mut Random,
    slot: u64,
    number: u64,
    state: &mut SlotState,
    tx: &mut Transaction<'static>,
) {
    let which = random.below(2) as usize;
    let (object, other) = (name(slot, which), name(slot, 1 - which));
    let mark = |tx: &mut Transaction<'static>| {
        tx.setattr(LOW, &object, "mark", number.to_le_bytes().to_vec())
            .omap_setkeys(LOW, &object, [("mark", number.to_le_bytes().to_vec())]);
    };
    let there = state[which].is_some();
    match random.below(12) {
        0 => {
            tx.remove(LOW, &object);
            state[which] = None;
        }
        // Removed and made again as one: it is never absent.
        1..3 => {
            tx.remove(LOW, &object).touch(LOW, &object);
            mark(tx);
            state[which] = Some(Version {
                blocks: Vec::new(),
                mark: number,
            });
            write(random, slot, which, number, state, tx);
        }
        // Renamed over the other.
        3..5 if there => {
            tx.remove(LOW, &other).try_rename(LOW, &object, &other);
            state[1 - which] = state[which].take();
        }
        5..7 if there => {
            tx.clone_object(LOW, &object, &other);
            state[1 - which] = state[which].clone();
        }
        7 if there => {
            let blocks = random.below(BLOCKS + 1);
            tx.truncate(LOW, &object, blocks * BLOCK);
            if let Some(version) = &mut state[which] {
                version.blocks.resize(blocks as usize, 0);
            }
        }
        _ => {
            tx.touch(LOW, &object);
            mark(tx);
            let version = state[which].get_or_insert(Version {
                blocks: Vec::new(),
                mark: number,
            });
            version.mark = number;
            write(random, slot, which, number, state, tx);
        }
    }
}

fn write(
    random: &mut Random,
    slot: u64,
    which: usize,
    number: u64,
    state: &mut SlotState,
    tx: &mut Transaction<'static>,
) {
    let first = random.below(BLOCKS);
    let count = 1 + random.below(BLOCKS - first);
    let bytes: Vec<u8> = (first..first + count)
        .flat_map(|index| block(slot, number, index))
        .collect();
    tx.write(LOW, &name(slot, which), first * BLOCK, [bytes]);
    let Some(version) = &mut state[which] else {
        return;
    };
    let end = (first + count) as usize;
    if version.blocks.len() < end {
        version.blocks.resize(end, 0);
    }
    version.blocks[first as usize..end].fill(number);
}

fn run(block_bytes: u32, capacity: u64) {
    let seed = seed();
    let device = Arc::new(SimulatedDevice::new(capacity, block_bytes).without_crashes());
    let store = ObjectStore::create_on(device.clone(), &options()).unwrap();
    let handle = store.create_new_collection(LOW);
    let mut tx = Transaction::new();
    tx.create_collection(LOW, 0);
    for number in 0..40 {
        tx.write(LOW, &lasting(number), 0, [vec![number as u8; 30_000]]);
    }
    store.apply_transactions(&handle, &[tx]).unwrap();
    let world = World {
        store,
        slots: (0..SLOTS).map(|_| History::new()).collect(),
        stop: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        writes: AtomicU64::new(0),
    };
    let seconds = crate::faults::soak().map_or(6, |times| 60 * times);
    let random = |salt: u64| Random::new(seed ^ salt << 32);
    std::thread::scope(|scope| {
        let world = &world;
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            threads.push(scope.spawn(move || world.writer(writer, random(writer))));
        }
        for reader in 0..3 {
            threads.push(scope.spawn(move || world.reader(random(100 + reader))));
        }
        threads.push(scope.spawn(|| world.lister()));
        threads.push(scope.spawn(|| world.splitter()));
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        world.stop.store(true, Ordering::Relaxed);
    });
    let victims = world.store.store().stats().victims_cleaned;
    let (reads, writes) = (world.reads.into_inner(), world.writes.into_inner());
    println!("{reads} reads, {writes} writes, {victims} victims");
    assert!(victims > 0, "the cleaner had nothing to do");
    world.store.close().unwrap();
    // What was written is there.
    let store = ObjectStore::open_on(device, &options()).unwrap();
    let handle = store.open_collection(&LOW).unwrap();
    for slot in 0..SLOTS {
        let history = &world.slots[slot as usize];
        let states = history.since(history.done.load(Ordering::Relaxed));
        for which in 0..2 {
            let found = store.read(&handle, &name(slot, which), 0, 0);
            match (&states[0][which], found) {
                (None, Err(Error::NoEntry(_))) => {}
                (Some(version), Ok(bytes)) => {
                    assert_eq!(bytes.len() as u64, version.blocks.len() as u64 * BLOCK);
                    check_read(slot, which, 0, BLOCKS, &bytes, &states[..1]);
                }
                (expected, found) => panic!("slot {slot}: {expected:?}, {found:?}"),
            }
        }
    }
}

#[test]
fn readers_see_what_was_written_on_512_byte_blocks() {
    run(512, 12 << 20);
}

#[test]
fn readers_see_what_was_written_on_4096_byte_blocks() {
    run(4096, 16 << 20);
}
