//! Damage to checkpoints and superblocks, and checkpoints cut at every write (U27, U28,
//! U37).
//!
//! Here media does lose flushed data: one structure, in one way, after the store stopped.
//! Two generations and two copies make up for any one copy, every newest image, or every
//! copy of the newest root. More than that is a typed error, never wrong data.

use std::sync::Arc;

use esker::device::{CrashPolicy, Device, SimulatedDevice};
use esker::format::{Geometry, Piece};
use esker::{Durability, Error, Options, Store};

use crate::common::{create, open, options};
use crate::every_write::abandon;
use crate::history::{History, Transaction, Workload};
use crate::layout::{DAMAGES, Damage, Layout};

fn small_intervals() -> Options {
    options(Durability::Committed).checkpoint_interval_bytes(1 << 20)
}

/// A store whose data was overwritten and deleted over several generations, with cleaning.
fn worked(seed: u64) -> (Arc<SimulatedDevice>, Store, History) {
    let device = Arc::new(SimulatedDevice::new(10 << 20, 512));
    let store = create(&device, &small_intervals()).unwrap();
    let mut history = History::new(Durability::Committed);
    let mut workload = Workload::new(seed, 150);
    while store.stats().victims_cleaned < 30 || store.stats().checkpoints_taken < 3 {
        history.run(&store, workload.next().unwrap()).unwrap();
    }
    // Deletes that only the log behind the newest images knows, or the older ones.
    for at in 0..40 {
        let ops = vec![(format!("key {at}").into_bytes(), None)];
        history.run(&store, Transaction { ops }).unwrap();
        if at == 20 {
            store.checkpoint().unwrap();
        }
    }
    for transaction in workload.by_ref().take(40) {
        history.run(&store, transaction).unwrap();
    }
    history.check(&store, "worked");
    (device, store, history)
}

/// Stopped stores: closed, killed, killed and recovered and killed, full of cleaning.
fn states() -> Vec<(&'static str, SimulatedDevice, History)> {
    let (device, store, history) = worked(11);
    let killed = device.crash_image(CrashPolicy::LoseAll);
    store.close().unwrap();
    let closed = device.snapshot();
    let device = Arc::new(killed.snapshot());
    let store = open(&device, &small_intervals()).unwrap();
    let mut later = history.clone();
    for transaction in Workload::new(12, 150).take(200) {
        later.run(&store, transaction).unwrap();
    }
    let recovered = device.crash_image(CrashPolicy::LoseAll);
    abandon(&device, store);
    vec![
        ("closed", closed, history.clone()),
        ("killed", killed, history),
        ("killed twice", recovered, later),
    ]
}

/// Opens to exactly the acknowledged state, also after more work, a checkpoint and a kill.
fn opens(image: &SimulatedDevice, history: &History, thorough: bool, what: &str) {
    let device = Arc::new(image.snapshot());
    let mut history = history.clone();
    let store =
        open(&device, &small_intervals()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    history.check(&store, what);
    if thorough {
        for transaction in Workload::new(13, 150).take(30) {
            history.run(&store, transaction).unwrap();
        }
        store.checkpoint().unwrap();
        let device = Arc::new(device.crash_image(CrashPolicy::LoseAll));
        let store = open(&device, &small_intervals()).unwrap();
        history.check(&store, &format!("{what}, later"));
        abandon(&device, store);
    }
    abandon(&device, store);
}

fn damaged(image: &SimulatedDevice, pieces: &[&Piece], how: Damage) -> SimulatedDevice {
    let device = image.snapshot();
    Layout::read(image).damage(&device, pieces.iter().copied(), how);
    device
}

#[test]
fn any_one_copy_may_be_damaged() {
    for (name, image, history) in states() {
        let layout = Layout::read(&image);
        for how in DAMAGES {
            for (number, copy) in layout.root_copies().iter().enumerate() {
                let what = format!("{name}: root copy {number}, {how:?}");
                opens(&damaged(&image, &[copy], how), &history, true, &what);
            }
            for (partition, pieces) in layout.newest().iter().enumerate() {
                let pieces: Vec<&Piece> = pieces.iter().collect();
                let what = format!("{name}: newest image of {partition}, {how:?}");
                let thorough = partition % 16 == 0;
                opens(&damaged(&image, &pieces, how), &history, thorough, &what);
            }
            for (partition, pieces) in layout.older().iter().enumerate().step_by(9) {
                let pieces: Vec<&Piece> = pieces.iter().collect();
                let what = format!("{name}: older image of {partition}, {how:?}");
                opens(&damaged(&image, &pieces, how), &history, false, &what);
            }
        }
    }
}

#[test]
fn the_newest_root_or_a_whole_generation_may_be_damaged() {
    for (name, image, history) in states() {
        let layout = Layout::read(&image);
        let (root, newest, older) = (layout.newest_root(), layout.newest(), layout.older());
        for how in DAMAGES {
            let pieces: Vec<&Piece> = root.iter().collect();
            let what = format!("{name}: newest root, {how:?}");
            opens(&damaged(&image, &pieces, how), &history, true, &what);
            for (which, generation) in [("newest", &newest), ("older", &older)] {
                let pieces: Vec<&Piece> = generation.iter().flatten().collect();
                let what = format!("{name}: all {which} images, {how:?}");
                opens(&damaged(&image, &pieces, how), &history, true, &what);
            }
        }
    }
}

#[test]
fn both_generations_damaged_is_an_error_and_never_wrong_data() {
    for (name, image, mut history) in states() {
        let layout = Layout::read(&image);
        let (newest, older) = (layout.newest(), layout.older());
        for how in DAMAGES {
            for partition in (0..newest.len()).step_by(7) {
                let pieces: Vec<&Piece> =
                    newest[partition].iter().chain(&older[partition]).collect();
                let device = Arc::new(damaged(&image, &pieces, how));
                match open(&device, &small_intervals()) {
                    Err(Error::Corrupt { .. }) => {}
                    Err(error) => panic!("{name}: partition {partition}, {how:?}: {error:?}"),
                    // The log may still have everything.
                    Ok(store) => history.check(&store, name),
                }
            }
            let copies = layout.root_copies();
            let pieces: Vec<&Piece> = copies.iter().collect();
            let device = Arc::new(damaged(&image, &pieces, how));
            let before = device.read_raw(0, device.capacity() as usize);
            assert!(
                matches!(
                    open(&device, &small_intervals()),
                    Err(Error::Corrupt { .. })
                ),
                "{name}: every root, {how:?}"
            );
            let after = device.read_raw(0, device.capacity() as usize);
            assert!(before == after, "a refused open changes nothing");
        }
    }
}

#[test]
fn any_valid_superblock_opens_the_store() {
    for (name, image, history) in states() {
        let offsets = Geometry::superblock_offsets(image.capacity());
        for subset in 0_u32..16 {
            for how in DAMAGES {
                let device = Arc::new(image.snapshot());
                let hit = (0..4).filter(|slot| subset >> slot & 1 == 1);
                for offset in hit.map(|slot: usize| offsets[slot]) {
                    match how {
                        Damage::Flip => device.flip_bit(offset, 40 * 8 + 3),
                        Damage::Zero => device.erase(offset, 4096),
                        Damage::Truncate => device.erase(offset + 64, 4096 - 64),
                    }
                }
                let what = format!("{name}: superblocks {subset:04b} damaged, {how:?}");
                if subset < 15 {
                    opens(&device, &history, subset % 5 == 0, &what);
                    continue;
                }
                let before = device.read_raw(0, device.capacity() as usize);
                let outcome = open(&device, &small_intervals()).map(drop);
                assert!(
                    matches!(outcome, Err(Error::Corrupt { .. } | Error::NotFound { .. })),
                    "{what}: {outcome:?}"
                );
                let after = device.read_raw(0, device.capacity() as usize);
                assert!(before == after, "a refused open changes nothing");
            }
        }
    }
}

#[test]
fn a_checkpoint_cut_at_any_write_leaves_the_older_one() {
    let (device, store, history) = worked(21);
    let base = device.crash_image(CrashPolicy::KeepAll);
    abandon(&device, store);
    for limit in 0.. {
        let device = Arc::new(base.snapshot());
        let mut history = history.clone();
        let store = open(&device, &small_intervals()).unwrap();
        history.check(&store, "start");
        device.set_op_limit(limit);
        let finished = store.checkpoint().is_ok();
        for (policy, name) in [
            (CrashPolicy::LoseAll, "lose all"),
            (CrashPolicy::KeepAll, "keep all"),
            (CrashPolicy::Random { seed: limit }, "random"),
        ] {
            let image = device.crash_image(policy);
            let what = format!("checkpoint cut at {limit}, {name}");
            opens(&image, &history, limit % 8 == 0, &what);
            let layout = Layout::read(&image);
            let newest = layout.newest();
            let pieces: Vec<&Piece> = newest.iter().flatten().collect();
            let image = damaged(&image, &pieces, Damage::Flip);
            opens(
                &image,
                &history,
                false,
                &format!("{what}, newest images lost"),
            );
        }
        abandon(&device, store);
        if finished {
            assert!(limit > 20, "the cuts did not reach the checkpoint");
            return;
        }
    }
}
