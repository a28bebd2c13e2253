//! Whole structures lost: superblocks, one or all of them (U37), checkpoints, everything
//! but the log.

use std::sync::Arc;

use esker::device::{Device, SimulatedDevice};
use esker::format::Geometry;
use esker::inspect;
use esker::{Durability, Error};

use crate::common::{Random, assert_equals, create, open, seed};
use crate::history::{
    History, aged, check, device, is_checkpoint, repair, segments, store_options,
};

fn lose_superblocks(device: &SimulatedDevice) {
    for offset in Geometry::superblock_offsets(device.capacity()) {
        device.erase(offset, 4096);
    }
}

fn lose_checkpoints(device: &SimulatedDevice) {
    for (offset, _) in segments(device, is_checkpoint) {
        device.erase(offset + 512, (128 << 10) - 512);
    }
}

#[test]
fn without_superblocks_nothing_is_lost_and_doubts_are_listed() {
    let mut random = Random::new(seed());
    for clean in [true, false] {
        let (device, history) = aged(&mut random, Durability::Committed, clean);
        lose_superblocks(&device);
        let opened = open(&device, &store_options(Durability::Committed));
        assert!(matches!(opened, Err(Error::NotFound { .. })));
        let info = inspect::info_on(device.clone()).unwrap();
        assert!(info.from_segment_headers);
        assert_eq!(info.capacity_bytes, device.capacity() / 4096 * 4096);
        assert!(!check(&device).is_clean());
        let report = repair(&device);
        assert_eq!(report.errors, 0, "{report:#?}");
        // Without the roots a deleted key may come back, but then it is listed.
        assert_eq!(report.lost_count, 0, "{report:#?}");
        history.assert_honest(&device, &report);
        assert_eq!(check(&device).superblocks_valid, 4);
    }
}

#[test]
fn any_one_superblock_copy_is_enough() {
    let mut random = Random::new(seed());
    let (device, history) = aged(&mut random, Durability::Committed, true);
    for subset in 0..16_u32 {
        let image = Arc::new(device.snapshot());
        let slots = Geometry::superblock_offsets(device.capacity());
        for (slot, offset) in slots.into_iter().enumerate() {
            if subset >> slot & 1 == 1 {
                image.corrupt(offset, 4096, |bytes| bytes.fill(0xa5));
            }
        }
        let found = check(&image);
        assert_eq!(found.superblocks_valid, 4 - subset.count_ones());
        assert_eq!(found.errors + found.warnings > 0, subset != 0, "{found:#?}");
        let report = repair(&image);
        assert_eq!(report.superblocks_valid, 4, "{report:#?}");
        assert_eq!(report.unconfirmed_count, 0);
        history.assert_honest(&image, &report);
    }
    let image = Arc::new(device.snapshot());
    image.erase(0, 1 << 20);
    let report = repair(&image);
    history.assert_honest(&image, &report);
}

#[test]
fn without_checkpoints_all_live_values_come_back() {
    let mut random = Random::new(seed());
    for clean in [true, false] {
        for superblocks_too in [false, true] {
            let (device, history) = aged(&mut random, Durability::Buffered, clean);
            lose_checkpoints(&device);
            if superblocks_too {
                lose_superblocks(&device);
            }
            let opened = open(&device, &store_options(Durability::Committed));
            assert!(opened.is_err());
            let report = repair(&device);
            assert_eq!(report.errors, 0, "{report:#?}");
            assert_eq!(report.lost_count, 0);
            let absent = history.past.len() - history.model.len();
            println!(
                "{} of {} keys unconfirmed, {absent} deleted",
                report.unconfirmed_count,
                history.past.len()
            );
            history.assert_honest(&device, &report);
            let store = open(&device, &store_options(Durability::Committed)).unwrap();
            for (key, value) in &history.model {
                assert_eq!(store.get(key).unwrap().as_deref(), Some(&value[..]));
            }
            drop(store);
            assert!(check(&device).is_clean());
        }
    }
}

#[test]
fn a_store_that_never_freed_a_segment_has_nothing_unconfirmed() {
    let mut random = Random::new(seed());
    let device = device();
    let mut history = History::default();
    let store = create(&device, &store_options(Durability::Committed)).unwrap();
    history.churn(&store, &mut random, 600);
    drop(store);
    lose_checkpoints(&device);
    lose_superblocks(&device);
    let report = repair(&device);
    assert_eq!(
        (report.errors, report.unconfirmed_count),
        (0, 0),
        "{report:#?}"
    );
    let store = open(&device, &store_options(Durability::Committed)).unwrap();
    assert_equals(&store, &history.model);
}
