//! Models of "unlink, then reclaim": units that are replaced, retired and freed under readers,
//! by crossbeam-epoch itself, on loom's atomics (`--cfg crossbeam_loom`). In models a unit has
//! four buckets of one or two slots.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Instant;

use super::*;
use crate::sync::{Arc, epoch, forget_lives, lives, thread};

/// How often each place was reached.
type Seen = BTreeMap<&'static str, u64>;

thread_local! {
    /// How many schedules of a model came to each named place.
    static WITNESSES: RefCell<Seen> = const { RefCell::new(Seen::new()) };
    /// Whether the reader of this schedule is done. All threads of a model are one of the
    /// system's, so that this is no step of the model.
    static DONE: Cell<bool> = const { Cell::new(false) };
}

const KEPT: &str = "kept for a reader";
const RECLAIMED: &str = "reclaimed before the reader was done";

fn witness(place: &'static str) {
    WITNESSES.with_borrow_mut(|seen| *seen.entry(place).or_default() += 1);
}

/// Whether every unit that was ever published has been freed, once each.
fn check_all_reclaimed() {
    let lives = lives();
    assert_eq!(lives.began, lives.ended, "units that were never reclaimed");
}

/// Runs a model. Some schedule must keep a unit because a reader has it, and some must free
/// one while the reader has yet to read, or has the unit that came in its place.
fn model(name: &str, f: impl Fn() + Sync + Send + 'static) {
    run(name, loom::model::Builder::new(), f);
}

/// Runs a model with a single preemption, because it has too many steps for more.
fn long_model(name: &str, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(1);
    run(name, builder, f);
}

fn run(name: &str, mut builder: loom::model::Builder, f: impl Fn() + Sync + Send + 'static) {
    forget_lives();
    let started = Instant::now();
    builder.max_branches = 50_000;
    builder.check(move || {
        // Of the schedule before, with all that its threads' ends and the collector's did.
        check_all_reclaimed();
        forget_lives();
        DONE.set(false);
        witness("schedules");
        f();
    });
    check_all_reclaimed();
    WITNESSES.with_borrow(|seen| {
        let seconds = started.elapsed().as_secs_f64();
        println!("{name}: {seen:?} in {seconds:.1} s");
        for place in [KEPT, RECLAIMED] {
            assert!(seen.contains_key(place), "no schedule came to: {place}");
        }
    });
}

/// A writer's thread, which has the first step: whoever called this is in the middle of the
/// write by one preemption. (loom finds no reason to let a writer go first that loads what it
/// stores, as it does the epoch; see [`crate::sync`].)
fn spawn_first(write: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
    let caller = thread::current();
    let writer = thread::spawn(move || {
        caller.unpark();
        write();
    });
    thread::park();
    writer
}

/// What the retirements and lookups that come later do by and by: advances the epoch, and
/// frees what is due.
fn collect() {
    for _ in 0..2 {
        epoch::pin().flush();
    }
}

/// An index with these hashes, in whose making every unit but the last was freed.
fn collected_with(hashes: &[KeyHash]) -> Arc<Index> {
    let index = index_with(hashes);
    collect();
    let lives = lives();
    assert_eq!(lives.began, lives.ended + 1);
    index
}

/// Runs `write`, which retires the unit that a reader may have, and collects.
fn write_and_collect(write: impl FnOnce()) {
    let before = lives().ended;
    write();
    collect();
    match (lives().ended > before, DONE.get()) {
        (false, false) => witness(KEPT),
        (true, false) => witness(RECLAIMED),
        (_, true) => witness("after the reader"),
    }
}

/// Which thread of a race has the first step.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// The reader, which is the model's own thread.
    Reader,
    /// The writer: see [`spawn_first`].
    Writer,
    /// The writer, which is the model's own thread. The reader's is new, and its first pin
    /// collects too, as that of every thread does.
    OldWriter,
}

/// Runs `read` against a `write` that retires the unit.
fn race(
    index: &Arc<Index>,
    first: First,
    read: impl Fn(&Index) + 'static,
    write: impl Fn(&Index) + 'static,
) {
    let other = index.clone();
    let read = move |index: &Index| {
        read(index);
        DONE.set(true);
    };
    if first == First::OldWriter {
        let reader = thread::spawn(move || read(&other));
        write_and_collect(|| write(index));
        reader.join().unwrap();
    } else {
        let write = move || write_and_collect(|| write(&other));
        let writer = match first {
            First::Reader => thread::spawn(write),
            _ => spawn_first(write),
        };
        read(index);
        writer.join().unwrap();
    }
}

/// A lookup while its unit gets more slots and the old one is freed.
fn growth(first: First) {
    let hashes = crowd(1);
    let (kept, new) = (hashes[0], hash_at(0, 7));
    let index = collected_with(&hashes);
    let read = move |index: &Index| assert_eq!(index.get(kept), Some(entry_at(1)));
    let write = move |index: &Index| {
        index.lock(0).insert(new, entry_at(100)).unwrap();
    };
    race(&index, first, read, write);
    assert_eq!(index.get(kept), Some(entry_at(1)));
    assert_eq!(index.get(new), Some(entry_at(100)));
}

#[test]
fn loom_epochs_growth_against_lookup() {
    model("growth", || growth(First::Writer));
}

#[test]
fn loom_epochs_growth_against_first_lookup() {
    long_model("growth, a new reader", || growth(First::OldWriter));
}

/// A lookup while its unit splits, the directory doubles, and the unit is freed.
#[test]
fn loom_epochs_split_against_lookup() {
    model("split", || {
        let hashes = crowd(2);
        let index = collected_with(&hashes);
        let read = {
            let hash = hashes[7];
            move |index: &Index| assert_eq!(index.get(hash), Some(entry_at(8)))
        };
        let write = |index: &Index| {
            index.lock(0).insert(hash_at(3, 7), entry_at(100)).unwrap();
        };
        race(&index, First::Writer, read, write);
        for (units, &hash) in (1..).zip(&hashes) {
            assert_eq!(index.get(hash), Some(entry_at(units)));
        }
    });
}

/// A step of a scan while the unit grows and the old one is freed.
#[test]
fn loom_epochs_growth_against_scan() {
    model("growth, a scan", || {
        let hashes = crowd(1);
        let index = collected_with(&hashes);
        let read = |index: &Index| {
            let mut found = Vec::new();
            index.scan_bucket(ScanPosition::START, &mut found).unwrap();
            assert!(found.contains(&entry_at(1)));
        };
        let write = |index: &Index| {
            index.lock(0).insert(hash_at(0, 7), entry_at(100)).unwrap();
        };
        race(&index, First::Reader, read, write);
    });
}

/// A lookup while the shard is cleared and its unit freed, with none in its place.
#[test]
fn loom_epochs_clear_against_lookup() {
    model("clear", || {
        let hash = hash_at(0, 1);
        let index = collected_with(&[hash]);
        let read = move |index: &Index| {
            assert!([None, Some(entry_at(1))].contains(&index.get(hash)));
        };
        race(&index, First::Writer, read, |index| index.lock(0).clear());
        assert_eq!(index.get(hash), None);
    });
}

/// Two writers, of which each retires a unit, and either may free what the other retired.
#[test]
fn loom_epochs_two_growths() {
    model("two growths", || {
        let hashes = crowd(1);
        let index = collected_with(&hashes);
        let (kept, new) = (hashes[0], hash_at(0, 7));
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                write_and_collect(|| {
                    index.lock(0).insert(new, entry_at(100)).unwrap();
                });
            })
        };
        assert_eq!(index.get(kept), Some(entry_at(1)));
        DONE.set(true);
        index.lock(0).clear();
        writer.join().unwrap();
        assert_eq!(index.get(kept), None);
    });
}
