//! Crashes in a row: the superblock has room for a bounded number of cuts, stores crash as
//! often as they like.

use std::sync::Arc;

use esker::device::{CrashPolicy, Device, SimulatedDevice};
use esker::format::{CUTS_MAX, Cut, Extent, Geometry, HEAD_COUNT};
use esker::{Durability, Error};

use crate::common::{Random, create, open, options, seed};
use crate::every_write::abandon;
use crate::history::{History, Workload};
use crate::layout::{Layout, superblock};
use crate::regressions::{put, quiet};

fn cuts(device: &SimulatedDevice) -> usize {
    superblock(device).cuts.len()
}

#[test]
fn a_store_may_crash_sixty_times_in_a_row() {
    let seed = seed();
    for durability in [Durability::Committed, Durability::Buffered] {
        let options = options(durability);
        let mut random = Random::new(seed);
        let mut device = Arc::new(SimulatedDevice::new(16 << 20, 512));
        let mut store = create(&device, &options).unwrap();
        let mut history = History::new(durability);
        let mut most = 0;
        for crash in 0..60 {
            for transaction in Workload::new(random.next(), 60).take(3) {
                history.run(&store, transaction).unwrap();
            }
            if crash % 2 == 0 {
                history.sync(&store).unwrap();
            }
            let policy = match random.below(3) {
                0 => CrashPolicy::LoseAll,
                1 => CrashPolicy::KeepAll,
                _ => CrashPolicy::Random {
                    seed: random.next(),
                },
            };
            let image = device.crash_image(policy);
            abandon(&device, store);
            device = Arc::new(image);
            store = open(&device, &options).unwrap();
            history.check(&store, &format!("seed {seed}, crash {crash} ({policy:?})"));
            most = most.max(cuts(&device));
        }
        assert!(most <= CUTS_MAX);
        println!("{most} cuts at most");
        abandon(&device, store);
    }
}

/// Opens that are cut wherever they can be, also in the checkpoint they make when there are
/// many cuts.
#[test]
fn a_store_may_crash_in_every_open_in_a_row() {
    let seed = seed();
    let mut random = Random::new(seed);
    let options = options(Durability::Committed);
    let mut device = Arc::new(SimulatedDevice::new(10 << 20, 512));
    let store = create(&device, &options).unwrap();
    let mut history = History::new(Durability::Committed);
    for transaction in Workload::new(seed, 100).take(600) {
        history.run(&store, transaction).unwrap();
    }
    let image = device.crash_image(CrashPolicy::LoseAll);
    abandon(&device, store);
    device = Arc::new(image);
    for crash in 0..150 {
        device.set_op_limit(random.below(90));
        match open(&device, &options) {
            Ok(store) => {
                for transaction in Workload::new(random.next(), 100).take(4) {
                    // What was served before is certain; the last call may be half done.
                    if history.try_check(&store, "in the loop").is_err()
                        || history.run(&store, transaction).is_err()
                    {
                        break;
                    }
                }
                abandon(&device, store);
            }
            Err(Error::Io { .. } | Error::Poisoned) => {}
            Err(error) => panic!("seed {seed}, crash {crash}: {error:?}"),
        }
        let policy = match random.below(3) {
            0 => CrashPolicy::LoseAll,
            1 => CrashPolicy::KeepAll,
            _ => CrashPolicy::Random {
                seed: random.next(),
            },
        };
        device = Arc::new(device.crash_image(policy));
        assert!(cuts(&device) <= CUTS_MAX);
    }
    let store = open(&device, &options).unwrap();
    history.check(&store, &format!("seed {seed}, after the loop"));
    abandon(&device, store);
}

/// With every place for a cut taken, the oldest epoch's frames are taken off the media: the
/// store opens, and what that epoch's last group wrote stays dropped, wherever it is cut.
#[test]
fn a_superblock_full_of_cuts_takes_one_more() {
    let mut device = Arc::new(SimulatedDevice::new(16 << 20, 512));
    let store = create(&device, &quiet()).unwrap();
    let mut history = History::new(Durability::Committed);
    for at in 0..5 {
        history
            .run(&store, put(&format!("k{at}"), 30_000, at))
            .unwrap();
    }
    // A group that is written in part: its batch moves to new segments.
    device.set_op_limit(3);
    let batch = (0..12).map(|at| (format!("k{at}").into_bytes(), Some(vec![9; 20_000].into())));
    let transaction = crate::history::Transaction {
        ops: batch.collect(),
    };
    assert!(history.run(&store, transaction).is_err());
    drop(store);
    let mut last = None;
    for seed in 0..40 {
        // Images in which the torn group left something, so that the cut matters.
        let image = Arc::new(device.crash_image(CrashPolicy::Random { seed }));
        let mut history = history.clone();
        let store = open(&image, &quiet()).unwrap();
        history.check(&store, "after the torn group");
        history.run(&store, put("k0", 100, 100)).unwrap();
        let crashed = image.crash_image(CrashPolicy::LoseAll);
        abandon(&image, store);
        fill_with_cuts(&crashed);
        for limit in (0..40).step_by(1 + seed as usize % 3) {
            let image = Arc::new(crashed.snapshot());
            image.set_op_limit(limit);
            if let Ok(store) = open(&image, &quiet()) {
                abandon(&image, store);
            }
            let image = Arc::new(image.crash_image(CrashPolicy::Random { seed: limit }));
            let mut history = history.clone();
            let store = open(&image, &quiet()).unwrap();
            history.check(&store, &format!("torn {seed}, cut at {limit}"));
            assert!(cuts(&image) <= CUTS_MAX);
            let image = Arc::new(image.crash_image(CrashPolicy::LoseAll));
            let again = open(&image, &quiet()).unwrap();
            history.check(&again, "again");
            store.close().unwrap_or_default();
            last = Some((image, again));
        }
    }
    let (image, store) = last.expect("some image");
    let layout = Layout::read(&image);
    assert!(!layout.superblock.cuts.is_empty());
    device = image;
    abandon(&device, store);
}

/// Adds cuts of epochs that left nothing, which no checkpoint can make superfluous.
fn fill_with_cuts(device: &SimulatedDevice) {
    let offsets = Geometry::superblock_offsets(device.capacity());
    let mut superblock = superblock(device);
    while superblock.cuts.len() < CUTS_MAX {
        superblock.cuts.push(Cut {
            epoch: 1_000_000 + superblock.cuts.len() as u64,
            group: 1,
            seqno: 1 << 60,
            extents: [Extent::default(); HEAD_COUNT],
        });
    }
    superblock.sequence += 2;
    let slot = superblock.encode();
    for offset in offsets {
        device.corrupt(offset, slot.len(), |media| media.copy_from_slice(&slot));
    }
}

/// A store that is killed again and again, with room or full, now and then in its open
/// already, opens every time, and reads no more for it the fiftieth time than early on.
#[test]
fn opens_after_a_hundred_kills_cost_no_more() {
    let seed = seed();
    for (durability, full) in [
        (Durability::Committed, false),
        (Durability::Committed, true),
        (Durability::Buffered, true),
    ] {
        let options = options(durability);
        let mut random = Random::new(seed);
        let mut device = Arc::new(SimulatedDevice::new(10 << 20, 512));
        let store = create(&device, &options).unwrap();
        let mut model = crate::common::Model::new();
        let mut number = 0_u64;
        loop {
            if !full {
                break;
            }
            let (key, value) = (format!("fill{number}").into_bytes(), random.bytes(3000));
            match store.put(&key, &value) {
                Ok(()) => model.insert(key, value),
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            };
            number += 1;
        }
        store.sync().unwrap();
        let image = device.crash_image(CrashPolicy::LoseAll);
        abandon(&device, store);
        device = Arc::new(image);
        let mut reads = Vec::new();
        let mut longest = std::time::Duration::ZERO;
        for kill in 0..100 {
            if kill % 4 == 3 {
                device.set_op_limit(random.below(60));
                if let Ok(store) = open(&device, &options) {
                    abandon(&device, store);
                }
                device = Arc::new(device.crash_image(CrashPolicy::KeepAll));
            }
            let before = device.counters().read_bytes;
            let start = std::time::Instant::now();
            let store = open(&device, &options)
                .unwrap_or_else(|error| panic!("seed {seed}, full {full}, kill {kill}: {error}"));
            longest = longest.max(start.elapsed());
            reads.push(device.counters().read_bytes - before);
            for _ in 0..3 {
                // Of what is there, so that it works on a full store too.
                let key = format!("fill{}", random.below(number.max(20))).into_bytes();
                let value = random.bytes(2900);
                match store.put(&key, &value) {
                    Ok(()) => drop(model.insert(key, value)),
                    Err(Error::NoSpace { .. }) => {
                        store.delete(&key).unwrap();
                        model.remove(&key);
                    }
                    Err(error) => panic!("seed {seed}, kill {kill}: {error}"),
                }
            }
            store.sync().unwrap();
            if kill % 20 == 19 {
                crate::common::assert_equals(&store, &model);
            }
            let image = device.crash_image(CrashPolicy::LoseAll);
            abandon(&device, store);
            device = Arc::new(image);
            assert!(cuts(&device) <= CUTS_MAX);
        }
        let early = reads[..40].iter().max().unwrap();
        let late = reads[60..].iter().max().unwrap();
        println!("{durability:?}, full {full}: read {early} B early, {late} B late, {longest:?}");
        assert!(
            *late <= early * 3 / 2,
            "opens read more and more: {reads:?}"
        );
        assert!(longest.as_secs() < 20, "an open took {longest:?}");
    }
}
