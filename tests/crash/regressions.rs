//! Engine bugs that crash tests found, each made to happen for certain.
//!
//! A group commit whose power fails is a subset of its sectors. [`last_group`] makes one
//! call, finds what it changed on media, and builds every image a cut could have left.

use std::sync::Arc;

use esker::device::{CrashPolicy, Device, SimulatedDevice};
use esker::{Durability, Error, Options, Store};

use crate::common::{Random, create, open, options};
use crate::every_write::abandon;
use crate::history::{History, Transaction};
use crate::layout::{DAMAGES, Damage, Layout};

pub fn quiet() -> Options {
    options(Durability::Committed).discard_bytes_per_second(0)
}

pub fn put(key: &str, len: usize, fill: u8) -> Transaction {
    Transaction {
        ops: vec![(key.into(), Some(vec![fill; len].into()))],
    }
}

fn batch(puts: u8, len: usize, fill: u8) -> Transaction {
    let op = |at| {
        (
            format!("b{at}").into_bytes(),
            Some(vec![fill ^ at; len].into()),
        )
    };
    Transaction {
        ops: (0..puts).map(op).collect(),
    }
}

fn delete(key: &str) -> Transaction {
    Transaction {
        ops: vec![(key.into(), None)],
    }
}

/// Opens, checks, and kills.
fn reopen(device: &SimulatedDevice, history: &mut History, what: &str) -> SimulatedDevice {
    let device = Arc::new(device.snapshot());
    let store = open(&device, &quiet()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    history.check(&store, what);
    abandon(&device, store);
    device.crash_image(CrashPolicy::LoseAll)
}

/// What must hold after any crash, whatever happens next: three more crashes at once;
/// checkpoints and crashes; writes and a close; all again with the newest images lost.
fn survives(image: &SimulatedDevice, history: &History, what: &str) {
    let mut first = history.clone();
    let mut crashed = reopen(image, &mut first, what);
    for again in 0..3 {
        crashed = reopen(&crashed, &mut first, &format!("{what}, crash {again}"));
    }
    let mut second = history.clone();
    let device = Arc::new(image.snapshot());
    let store = open(&device, &quiet()).unwrap();
    second.check(&store, what);
    for round in 0..3 {
        store.checkpoint().unwrap();
        let crashed = device.crash_image(CrashPolicy::LoseAll);
        let what = format!("{what}, {round} more checkpoints");
        let crashed = reopen(&crashed, &mut second.clone(), &what);
        newest_images_lost(&crashed, &second, &what);
        reopen(&crashed, &mut second.clone(), &what);
    }
    second.run(&store, put("after", 100, 9)).unwrap();
    second.run(&store, delete("k1")).unwrap();
    let crashed = device.crash_image(CrashPolicy::LoseAll);
    newest_images_lost(&crashed, &second, &format!("{what}, after writes"));
    reopen(&crashed, &mut second.clone(), what);
    store.close().unwrap();
    second.note_sync();
    newest_images_lost(&device.snapshot(), &second, &format!("{what}, closed"));
    reopen(&device.snapshot(), &mut second, &format!("{what}, closed"));
}

fn newest_images_lost(image: &SimulatedDevice, history: &History, what: &str) {
    let device = image.snapshot();
    let layout = Layout::read(&device);
    layout.damage(&device, layout.newest().iter().flatten(), Damage::Zero);
    let mut history = history.clone();
    let what = format!("{what}, newest images lost");
    let crashed = reopen(&device, &mut history, &what);
    reopen(&crashed, &mut history, &what);
}

/// Runs of changed sectors, cut at segment headers and segment ends.
fn changes(before: &SimulatedDevice, after: &SimulatedDevice) -> Vec<(u64, Vec<u8>)> {
    const SECTOR: usize = 512;
    let capacity = before.capacity() as usize;
    let (old, new) = (before.read_raw(0, capacity), after.read_raw(0, capacity));
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for at in (0..capacity).step_by(SECTOR) {
        let sector = &new[at..at + SECTOR];
        if sector == &old[at..at + SECTOR] {
            continue;
        }
        let in_segment = (at - (64 << 10)) % (128 << 10);
        match runs.last_mut() {
            Some((start, bytes)) if in_segment > SECTOR && *start as usize + bytes.len() == at => {
                bytes.extend_from_slice(sector);
            }
            _ => runs.push((at as u64, sector.to_vec())),
        }
    }
    runs
}

/// Makes `last` on a store of `history` and checks every image a cut in its commit leaves.
fn last_group(device: &SimulatedDevice, history: &History, last: Transaction, what: &str) {
    let device = Arc::new(device.snapshot());
    let mut history = history.clone();
    let store = open(&device, &quiet()).unwrap();
    history.check(&store, what);
    // One write that is acknowledged in this epoch, then the one under test.
    history.run(&store, put("settled", 700, 1)).unwrap();
    let before = device.crash_image(CrashPolicy::LoseAll);
    let acknowledged = history.clone();
    history.run(&store, last.clone()).unwrap();
    let after = device.crash_image(CrashPolicy::LoseAll);
    abandon(&device, store);
    let runs = changes(&before, &after);
    assert!(runs.len() <= 8, "{what}: {} runs", runs.len());
    let mut maybe = acknowledged;
    maybe.note(last, false);
    for subset in 0_u32..1 << runs.len() {
        let image = before.snapshot();
        for (number, (at, bytes)) in runs.iter().enumerate() {
            if subset >> number & 1 == 1 {
                image.corrupt(*at, bytes.len(), |media| media.copy_from_slice(bytes));
            }
        }
        let whole = subset + 1 == 1 << runs.len();
        let history = if whole { &history } else { &maybe };
        survives(
            &image,
            history,
            &format!("{what}, subset {subset:b} of {}", runs.len()),
        );
    }
    let mut random = Random::new(7);
    for torn in 0..8 {
        let image = before.snapshot();
        for (at, bytes) in &runs {
            for (number, sector) in (0..).zip(bytes.chunks(512)) {
                if random.below(3) > 0 {
                    let at = at + number * 512;
                    image.corrupt(at, sector.len(), |media| media.copy_from_slice(sector));
                }
            }
        }
        survives(&image, &maybe, &format!("{what}, torn {torn}"));
    }
}

/// Stores to start from: fresh; checkpointed twice with nothing in between; crashed before.
fn starts() -> Vec<(&'static str, SimulatedDevice, History)> {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512));
    let store = create(&device, &quiet()).unwrap();
    let mut history = History::new(Durability::Committed);
    for at in 0..4 {
        let key = format!("k{at}");
        history.run(&store, put(&key, 1000 * at, at as u8)).unwrap();
    }
    let fresh = device.crash_image(CrashPolicy::LoseAll);
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let checkpointed = device.crash_image(CrashPolicy::LoseAll);
    abandon(&device, store);
    let crashed = reopen(&fresh, &mut history.clone(), "start");
    vec![
        ("fresh", fresh, history.clone()),
        ("checkpointed", checkpointed, history.clone()),
        ("crashed", crashed, history),
    ]
}

/// Symptom: after a crash in a commit that moved to a new segment, the second open failed
/// with "missing: an acknowledged frame". Cause: the seal in the dropped group's frame kept
/// the segment out of the cut. Guarantee: a dropped group leaves no trace in later opens.
/// Symptom: with two checkpoints and no write between them, a dropped group came back at
/// the third open. Cause: the cut looked covered by images taken before the crash.
#[test]
fn a_torn_last_group_stays_dropped_through_later_crashes() {
    for (name, device, history) in starts() {
        for (what, last) in [
            ("a put", put("k1", 3000, 77)),
            ("a delete", delete("k2")),
            ("a batch over segments", batch(9, 20_000, 5)),
            ("a large value", put("k3", 200_000, 3)),
        ] {
            last_group(&device, &history, last, &format!("{name}, {what}"));
        }
    }
}

/// Symptom: acknowledged writes were gone after a crash. Cause: a segment sealed and dead
/// within the newest group was freed by the next group, which had no frames; recovery took
/// the newest group for incomplete and dropped it. Guarantee: a group that is known to be
/// flushed is never dropped.
#[test]
fn a_segment_freed_right_after_its_group_does_not_undo_the_group() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512));
    let store = create(&device, &quiet()).unwrap();
    let mut history = History::new(Durability::Committed);
    history.run(&store, put("other", 100, 1)).unwrap();
    let twenty = (0..20).map(|at| (b"same".to_vec(), Some(vec![at; 20_000].into())));
    let transaction = Transaction {
        ops: twenty.collect(),
    };
    history.run(&store, transaction).unwrap();
    let started = std::time::Instant::now();
    while store.stats().victims_cleaned < 2 && started.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let image = device.crash_image(CrashPolicy::LoseAll);
    abandon(&device, store);
    survives(&image, &history, "freed at once");
}

/// Symptom: old values came back when the newest images were damaged. Cause: an open that
/// found everything in the images began to count groups anew, so that replay from the older
/// images took new groups for older ones than the old. Guarantee: group numbers only grow.
#[test]
fn a_close_cut_before_its_clean_mark_keeps_the_order_of_groups() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512));
    let store = create(&device, &quiet()).unwrap();
    let mut history = History::new(Durability::Committed);
    for at in 0..60 {
        let transaction = put(&format!("k{}", at % 7), 500, at);
        history.run(&store, transaction).unwrap();
    }
    let base = device.crash_image(CrashPolicy::LoseAll);
    abandon(&device, store);
    for limit in (0..).step_by(2) {
        let device = Arc::new(base.snapshot());
        let mut history = history.clone();
        let store = open(&device, &quiet()).unwrap();
        history.check(&store, "start");
        history.run(&store, put("k0", 20, 200)).unwrap();
        device.set_op_limit(limit);
        let closed = store.close().is_ok();
        let device = Arc::new(device.crash_image(CrashPolicy::LoseAll));
        let store = open(&device, &quiet()).unwrap();
        history.check(&store, "after the cut close");
        history.run(&store, put("k0", 30, 201)).unwrap();
        history.run(&store, delete("k1")).unwrap();
        let image = device.crash_image(CrashPolicy::LoseAll);
        abandon(&device, store);
        let what = format!("close cut at {limit}");
        if Layout::has_root(&image) {
            newest_images_lost(&image, &history, &what);
        }
        reopen(&image, &mut history, &what);
        if closed {
            return;
        }
    }
}

/// Symptom: a damaged image, found and replaced by the older one at an open, became the
/// older one of the next generation, so that one more damage lost data. Guarantee: an open
/// that used an older image leaves two good generations behind after one checkpoint.
#[test]
fn a_damaged_image_is_not_kept_as_the_older_generation() {
    for how in DAMAGES {
        let (_, device, history) = starts().remove(1);
        let layout = Layout::read(&device);
        layout.damage(&device, layout.newest().iter().flatten(), how);
        let device = Arc::new(device);
        let mut history = history;
        let store = open(&device, &quiet()).unwrap();
        history.run(&store, put("k1", 50, 50)).unwrap();
        store.checkpoint().unwrap();
        let image = device.crash_image(CrashPolicy::LoseAll);
        abandon(&device, store);
        newest_images_lost(&image, &history, &format!("{how:?}"));
    }
}

/// Symptom: `checkpoint()` called by a user never returned. Cause: the checkpointer waited
/// for the checkpoint's lock while it held the appender's. Guarantee: it does not.
#[test]
fn checkpoints_of_caller_and_store_do_not_deadlock() {
    let device = Arc::new(SimulatedDevice::new(16 << 20, 512).without_crashes());
    let store = Arc::new(create(&device, &quiet().checkpoint_interval_bytes(1)).unwrap());
    let (done, finished) = std::sync::mpsc::channel();
    let worker: Arc<Store> = store.clone();
    std::thread::spawn(move || {
        for at in 0..300 {
            worker.put(b"key", &[at as u8; 100]).unwrap();
            worker.checkpoint().unwrap();
        }
        done.send(()).unwrap();
    });
    let outcome = finished.recv_timeout(std::time::Duration::from_secs(60));
    assert!(outcome.is_ok(), "a checkpoint did not end");
}

/// Symptom: a store that was made and never written to could not be opened after a kill.
/// Cause: its first segment, blank as all others, was taken for a lost one. Guarantee: a
/// create cut anywhere leaves no store or an empty one, which works.
#[test]
fn a_create_cut_anywhere_leaves_no_store_or_an_empty_one() {
    for prewrite in [false, true] {
        let mut opened = 0;
        for limit in 0..200 {
            let blank = SimulatedDevice::new(10 << 20, 512);
            let device = Arc::new(if prewrite {
                blank.with_prewrite()
            } else {
                blank
            });
            device.set_op_limit(limit);
            let created = create(&device, &quiet());
            // A file's segments are prepared meanwhile.
            std::thread::sleep(std::time::Duration::from_millis(limit % 2));
            for policy in [
                CrashPolicy::LoseAll,
                CrashPolicy::KeepAll,
                CrashPolicy::Random { seed: limit },
            ] {
                let image = Arc::new(device.crash_image(policy));
                let store = match open(&image, &quiet()) {
                    Ok(store) => store,
                    Err(Error::NotFound { .. } | Error::Corrupt { .. }) if created.is_err() => {
                        continue;
                    }
                    Err(error) => panic!("{limit}, {policy:?}: {error:?}"),
                };
                opened += 1;
                let mut history = History::new(Durability::Committed);
                history.check(&store, "new");
                history.run(&store, put("first", 10, 1)).unwrap();
                let lost = Arc::new(image.crash_image(CrashPolicy::LoseAll));
                abandon(&image, store);
                let store = open(&lost, &quiet()).unwrap();
                history.check(&store, "reopened");
                abandon(&lost, store);
            }
            if let Ok(store) = created {
                abandon(&device, store);
            }
        }
        assert!(opened > 30);
    }
}
