//! Question: what do the object layer's figures look like (goals of `design/objects.md`):
//! DRAM an object, an extent and an omap key; splitting, merging, removing and listing a large
//! collection; omaps of any size; reading the log of a cold placement group; clones; opening.
//! The device takes no time, so what is timed is the engine.
//!
//! `cargo bench --bench objects` for a million objects and keys; `-- --tiny` (and `cargo test`)
//! for a few thousand, with checks of what does not depend on the machine; `-- memory`,
//! `collections`, `omap`, `log`, `clones` or `extents` for one part. What an object takes is
//! counted by the engine, and measured as the growth of a process that does nothing else.

#[path = "setup.rs"]
mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::device::SimulatedDevice;
use esker::{
    Collection, CollectionName, Durability, ObjectName, ObjectStore, Options, Transaction,
};

use setup::{Setup, mix};

/// Objects or keys changed by one transaction where nothing else is said.
const AT_ONCE: u64 = 64;
/// Bytes of the names of objects.
const NAME_BYTES: u64 = 16;

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != MEASURE);
    if let [Some(_), Some(kind), Some(count)] = [(); 3].map(|()| arguments.next()) {
        measure(&kind, count.parse().expect("a count"));
        return;
    }
    let mut setup = Setup::from_arguments();
    let sections = ["memory", "collections", "omap", "log", "clones", "extents"];
    let all = !std::env::args().any(|argument| sections.contains(&&*argument));
    let wanted = |section: &str| all || std::env::args().any(|argument| argument == section);
    if wanted("memory") {
        memory(setup.pick(20_000, 1_000_000));
    }
    if wanted("collections") {
        collections(setup.pick(4000, 1_000_000));
    }
    if wanted("omap") {
        omaps(&mut setup);
    }
    if wanted("log") {
        cold_log();
    }
    if wanted("clones") {
        clones();
    }
    if wanted("extents") {
        extents(setup.pick(64, 4096));
    }
    setup.criterion.final_summary();
}

/// Asks for [`measure`] in a process of its own.
const MEASURE: &str = "--measure";
/// Bytes of the xattrs that an OSD gives an object, and their names.
const OSD_ATTRIBUTES: [(&str, usize); 2] = [("_", 293), ("snapset", 35)];

/// What objects take, in processes that do nothing else: empty ones, and such as an OSD makes
/// for an image, with a block of data.
fn memory(count: u64) {
    for (kind, count) in [("empty", count), ("osd", count / 4), ("clones", count / 64)] {
        let program = std::env::current_exe().expect("a bench is a file");
        let mut command = std::process::Command::new(program);
        command.args([MEASURE, kind, &count.to_string()]);
        assert!(command.status().expect("a process").success());
    }
}

/// Bytes of memory of this process.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let resident = pages.split(' ').nth(1).expect("a number of pages");
    resident.parse::<u64>().expect("a number of pages") * 4096
}

fn measure(kind: &str, count: u64) {
    // It keeps nothing, and claims so much that nothing is ever cleaned.
    let device = Arc::new(SimulatedDevice::null(8 << 40));
    let store = ObjectStore::create_on(device, &options()).expect("a new store");
    let group = CollectionName::pg(1, 0);
    let collection = make_collection(&store, group, 0);
    let head = Arc::new(ObjectName::new(
        1,
        7,
        "rbd_data.12ab34cd56ef.0000000000000000",
    ));
    let make = |number: u64, transaction: &mut Transaction<'_>| match kind {
        "empty" => {
            transaction.touch(group, &object(number));
        }
        "osd" => {
            let name = format!("rbd_data.12ab34cd56ef.{number:016x}");
            let name = Arc::new(ObjectName::new(1, mix(number) as u32, name));
            transaction.touch(group, &name);
            transaction.set_alloc_hint(group, &name, 4 << 20, 4 << 20, 0);
            for (attribute, bytes) in OSD_ATTRIBUTES {
                transaction.setattr(group, &name, attribute, vec![1; bytes]);
            }
            transaction.write(group, &name, 0, [vec![1; 4096]]);
        }
        _ => {
            if number == 1 {
                transaction.write(group, &head, 0, [vec![1; 4 << 20]]);
            }
            let clone = (*head).clone().with_snap(number + 1);
            transaction.clone_object(group, &head, &Arc::new(clone));
            transaction.write(group, &head, mix(number) % 1024 * 4096, [vec![2; 4096]]);
        }
    };
    // Buffers, and what threads keep, are there before.
    batches(&store, &collection, count / 8, |number, transaction| {
        make(number + 1, transaction);
    });
    let counted = || store.store().stats().objects.node_bytes;
    let before = (resident_bytes(), counted());
    let first = count / 8 + 1;
    batches(&store, &collection, count, |number, transaction| {
        make(first + number, transaction);
    });
    let taken = [resident_bytes() - before.0, counted() - before.1];
    let [resident, counted] = taken.map(|bytes| bytes as f64 / count as f64);
    let attributes: usize = OSD_ATTRIBUTES
        .iter()
        .map(|(name, it)| name.len() + it)
        .sum();
    let (what, known) = match kind {
        "empty" => ("its name of 16 B", NAME_BYTES),
        "osd" => (
            "its name of 38 B, xattrs of 336 B and a block of data",
            38 + attributes as u64,
        ),
        _ => ("nothing", 0),
    };
    println!(
        "DRAM, {count} {kind}: {:.1} B each besides {what}, counted {:.1} B",
        resident - known as f64,
        counted - known as f64
    );
    std::process::exit(0);
}

fn options() -> Options {
    Options::default()
        .durability(Durability::Buffered)
        .cache_bytes(0_u64)
}

fn device(capacity: u64) -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(capacity, 4096).without_crashes())
}

fn store(device: &Arc<SimulatedDevice>) -> ObjectStore {
    ObjectStore::create_on(device.clone(), &options()).expect("a new store")
}

fn object(number: u64) -> Arc<ObjectName> {
    let name = format!("{number:016x}");
    Arc::new(ObjectName::new(1, mix(number) as u32, name))
}

fn apply(store: &ObjectStore, collection: &Collection, transaction: Transaction<'_>) {
    store
        .apply_transactions(collection, &[transaction])
        .expect("room");
}

fn make_collection(store: &ObjectStore, name: CollectionName, bits: u32) -> Collection {
    let collection = store.create_new_collection(name);
    let mut transaction = Transaction::new();
    transaction.create_collection(name, bits);
    apply(store, &collection, transaction);
    collection
}

fn touch(
    store: &ObjectStore,
    collection: &Collection,
    group: CollectionName,
    name: &Arc<ObjectName>,
) {
    let mut transaction = Transaction::new();
    transaction.touch(group, name);
    apply(store, collection, transaction);
}

/// Transactions of [`AT_ONCE`] steps each.
fn batches<'t>(
    store: &ObjectStore,
    collection: &Collection,
    count: u64,
    mut step: impl FnMut(u64, &mut Transaction<'t>),
) {
    for first in (0..count).step_by(AT_ONCE as usize) {
        let mut transaction = Transaction::new();
        (first..count.min(first + AT_ONCE)).for_each(|number| step(number, &mut transaction));
        apply(store, collection, transaction);
    }
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    println!("{what}: {:?}", start.elapsed());
    result
}

fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = (last as f64 * share) as usize;
    times.get(at).copied().unwrap_or_default()
}

fn collections(count: u64) {
    let group = CollectionName::pg(1, 0);
    let device = device((count * 1024).max(64 << 20));
    let store = store(&device);
    let parent = make_collection(&store, group, 0);
    timed(
        &format!("{count} objects made, {AT_ONCE} a transaction"),
        || {
            batches(&store, &parent, count, |number, transaction| {
                transaction.touch(group, &object(number));
            });
        },
    );
    let stats = store.store().stats().objects;
    let besides_name = stats.node_bytes_per_object - NAME_BYTES as f64;
    println!("DRAM an object: {besides_name:.1} B and its name");
    assert_eq!(stats.objects, count);

    // Split by one bit and merge again: nothing is moved.
    let child = CollectionName::pg(1, 1);
    make_collection(&store, child, 1);
    let written = device.counters().write_bytes;
    timed("split", || {
        let mut transaction = Transaction::new();
        transaction.split_collection(group, 1, 1, child);
        apply(&store, &parent, transaction);
    });
    timed("merge", || {
        let mut transaction = Transaction::new();
        transaction.merge_collection(child, group, 0);
        apply(&store, &parent, transaction);
    });
    let written = device.counters().write_bytes - written;
    assert!(written < 1 << 20, "a split and a merge wrote {written} B");

    store.close().expect("a device that works");
    let store = timed(&format!("open with {count} objects after a close"), || {
        ObjectStore::open_on(device.clone(), &options()).expect("a store that opens")
    });
    let parent = store.open_collection(&group).expect("it was made");
    removals(&store, &parent, group, count);
}

/// What a placement group's removal is to reach without hurting others.
const REMOVALS_A_SECOND: u64 = 55_000;

/// Removes everything, with and without a look at somebody else's writes.
fn removals(store: &ObjectStore, parent: &Collection, group: CollectionName, count: u64) {
    let other = CollectionName::pg(2, 0);
    let neighbour = make_collection(store, other, 0);
    let written = Arc::new(ObjectName::new(2, 7, "written"));
    let write = |times: &mut Vec<Duration>| {
        let start = Instant::now();
        let mut transaction = Transaction::new();
        transaction.write(other, &written, 0, [vec![1; 4096]]);
        apply(store, &neighbour, transaction);
        times.push(start.elapsed());
        std::thread::sleep(Duration::from_micros(100));
    };
    let mut alone = Vec::new();
    (0..2000).for_each(|_| write(&mut alone));
    let alone = percentile(&mut alone, 0.99);
    println!("p99 of another collection's 4 KiB writes: {alone:?} alone");
    let mut pages = Vec::new();
    // Half of them as fast as asked, then as fast as it goes.
    for (wanted, pace) in [
        (count / 2, REMOVALS_A_SECOND),
        (count - count / 2, u64::MAX),
    ] {
        let is_done = AtomicBool::new(false);
        let mut beside = Vec::new();
        let (pages, is_done) = (&mut pages, &is_done);
        let per_second = std::thread::scope(|scope| {
            let remover = scope.spawn(move || {
                let start = Instant::now();
                let mut removed = 0;
                while removed < wanted {
                    let asked = Instant::now();
                    let most = 64.min(wanted - removed) as usize;
                    let page = store
                        .collection_list(parent, &ObjectName::min(), &ObjectName::max(), most)
                        .expect("it is there");
                    pages.push(asked.elapsed());
                    assert!(!page.objects.is_empty(), "{removed} of {wanted} removed");
                    let mut transaction = Transaction::new();
                    removed += page.objects.len() as u64;
                    for name in page.objects {
                        transaction.remove(group, &Arc::new(name));
                    }
                    apply(store, parent, transaction);
                    let due = Duration::from_secs_f64(removed as f64 / pace as f64);
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                }
                is_done.store(true, Ordering::Relaxed);
                removed as f64 / start.elapsed().as_secs_f64()
            });
            while !is_done.load(Ordering::Relaxed) {
                write(&mut beside);
            }
            remover.join().expect("it does not panic")
        });
        let beside = percentile(&mut beside, 0.99);
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!("{beside:?} beside {per_second:.0} removals/s: {ratio:.1} times");
    }
    let half = pages.len() / 2;
    let (early, late) = pages.split_at_mut(half);
    println!(
        "pages of 64 while removing, p50: {:?} in the first half, {:?} in the second",
        percentile(early, 0.5),
        percentile(late, 0.5)
    );
    assert_eq!(store.pool_statfs(1).objects, 0);
}

fn omap_key(number: u64) -> Vec<u8> {
    format!("{:016x}", mix(number)).into_bytes()
}

/// Point operations on omaps of 1000 keys and of many, and removals from the large one.
fn omaps(setup: &mut Setup) {
    let keys = setup.pick(4000, 1_000_000);
    let group = CollectionName::pg(1, 0);
    // So large that the cleaner, which has its share of every write, is not timed.
    let device = device((keys * 8192).max(64 << 20));
    let store = store(&device);
    let collection = make_collection(&store, group, 0);
    for count in [1000, keys] {
        let name = object(count);
        touch(&store, &collection, group, &name);
        batches(&store, &collection, count, |number, transaction| {
            transaction.omap_setkeys(group, &name, [(omap_key(number), vec![7; 32])]);
        });
        let mut next = 0;
        let mut any_key = || {
            next += 1;
            omap_key(mix(next) % count)
        };
        let mut bench = setup.criterion.benchmark_group("omap");
        bench.bench_function(format!("get of {count} keys"), |bencher| {
            bencher.iter(|| {
                let key = any_key();
                let found = store.omap_get_values(&collection, &name, [key.as_slice()]);
                assert_eq!(found.expect("it is there").len(), 1);
            });
        });
        // Without the value: what finding the key takes.
        bench.bench_function(format!("check of {count} keys"), |bencher| {
            bencher.iter(|| {
                let key = any_key();
                let found = store.omap_check_keys(&collection, &name, [key.as_slice()]);
                assert_eq!(found.expect("it is there").len(), 1);
            });
        });
        bench.bench_function(format!("set of {count} keys"), |bencher| {
            bencher.iter(|| {
                let mut transaction = Transaction::new();
                transaction.omap_setkeys(group, &name, [(any_key(), vec![8; 32])]);
                apply(&store, &collection, transaction);
            });
        });
        bench.finish();
    }
    let node_bytes = store.store().stats().objects.node_bytes;
    println!(
        "DRAM of both, a key: {:.1} B",
        node_bytes as f64 / (keys + 1000) as f64
    );
    let name = object(keys);
    let range = |first: &'static str, last: &'static str| {
        let mut transaction = Transaction::new();
        transaction.omap_rmkeyrange(group, &name, first, last);
        apply(&store, &collection, transaction);
    };
    timed("omap_rmkeyrange of half of it", || range("0", "8"));
    timed("omap_clear of the rest", || {
        let mut transaction = Transaction::new();
        transaction.omap_clear(group, &name);
        apply(&store, &collection, transaction);
    });
}

/// 10,000 entries, written as a placement group writes its log, read by one iterator.
fn cold_log() {
    const ENTRIES: u64 = 10_000;
    let group = CollectionName::pg(1, 0);
    // No read goes over the end of a segment, so they must not be tiny: 4 MiB, as on a disk
    // of 16 GiB.
    let device = device(16 << 30);
    let store = store(&device);
    let collection = make_collection(&store, group, 0);
    let (log, data) = (object(1), object(2));
    touch(&store, &collection, group, &log);
    for number in 0..ENTRIES {
        let mut transaction = Transaction::new();
        transaction.write(group, &data, number % 256 * 4096, [vec![1; 4096]]);
        let entry = (format!("{number:020}").into_bytes(), vec![3; 186]);
        transaction.omap_setkeys(group, &log, [entry]);
        apply(&store, &collection, transaction);
    }
    store.close().expect("a device that works");
    let store = ObjectStore::open_on(device.clone(), &options()).expect("a store that opens");
    let collection = store.open_collection(&group).expect("it was made");
    let before = device.counters().reads;
    let mut iterator = store.omap_iterator(&collection, &log).expect("it is there");
    iterator.seek_to_first();
    let mut found = 0;
    while iterator.valid() {
        found += 1;
        iterator.next();
    }
    let reads = device.counters().reads - before;
    println!("{ENTRIES} log entries of a cold placement group: {reads} device reads");
    assert_eq!(found, ENTRIES);
    assert!(reads <= ENTRIES / 16, "{reads} device reads");
}

/// 512 clones of an object of 4 MiB with a write of 4 KiB before each.
fn clones() {
    const CLONES: u64 = 512;
    let group = CollectionName::pg(1, 0);
    let device = device(256 << 20);
    let store = store(&device);
    let collection = make_collection(&store, group, 0);
    let head = Arc::new(ObjectName::new(1, 7, "head"));
    let mut transaction = Transaction::new();
    transaction.write(group, &head, 0, [vec![1; 4 << 20]]);
    apply(&store, &collection, transaction);
    let before = store.statfs().allocated;
    let node_bytes = store.store().stats().objects.node_bytes;
    for number in 0..CLONES {
        let clone = Arc::new(ObjectName::new(1, 7, "head").with_snap(number + 1));
        let mut transaction = Transaction::new();
        transaction.clone_object(group, &head, &clone);
        transaction.write(group, &head, mix(number) % 1024 * 4096, [vec![2; 4096]]);
        apply(&store, &collection, transaction);
    }
    let taken = store.store().stats().objects.node_bytes - node_bytes;
    let allocated = store.statfs().allocated - before;
    println!(
        "{CLONES} clones: {} B of DRAM each, {} B of flash each",
        taken / CLONES,
        allocated / CLONES
    );
    assert!(allocated <= CLONES * 4096, "clones share what is the same");
    for number in 0..CLONES {
        let clone = Arc::new(ObjectName::new(1, 7, "head").with_snap(number + 1));
        let mut transaction = Transaction::new();
        transaction.remove(group, &clone);
        apply(&store, &collection, transaction);
    }
    assert_eq!(store.statfs().allocated, before, "all space is back");
}

/// DRAM of extents written one after another, and of extents written in any order.
fn extents(blocks: u64) {
    let group = CollectionName::pg(1, 0);
    let device = device((blocks * 4096 * 8).max(64 << 20));
    let store = store(&device);
    let collection = make_collection(&store, group, 0);
    let mut before = store.store().stats().objects.node_bytes;
    for (what, is_random) in [("sequential", false), ("random", true)] {
        let name = object(u64::from(is_random));
        let mut order: Vec<u64> = (0..blocks).collect();
        if is_random {
            order.sort_unstable_by_key(|block| mix(*block));
        }
        // A whole block each; the sequential ones in pieces of 256 KiB.
        let at_once = if is_random { 1 } else { 64 };
        for run in order.chunks(at_once) {
            let mut transaction = Transaction::new();
            let data = vec![3; run.len() * 4096];
            transaction.write(
                group,
                &name,
                run.first().copied().unwrap_or(0) * 4096,
                [data],
            );
            apply(&store, &collection, transaction);
        }
        let after = store.store().stats().objects.node_bytes;
        let per_block = (after - before) as f64 / blocks as f64;
        println!("DRAM of a 4 KiB extent, {what}: {per_block:.1} B");
        before = after;
    }
}
