//! Symptom: `check --repair` of a store whose checkpoints are lost left a key with an older
//! value, or lost one, and named neither the key nor the place. The header of a frame in the
//! last group of an epoch was damaged, often the first frame of its segment.
//!
//! Cause: where frames should be was told from the newest frame of the same epoch alone,
//! which speaks of the groups before its own; of an epoch that ended in order, the last
//! group itself is as certain. And of an epoch whose cut had gone, the last group was taken
//! for whole.
//!
//! Guarantee: what may be missing is looked for, and what is missing puts older values in
//! doubt.

use std::sync::Arc;

use esker::Durability;
use esker::device::{CrashPolicy, SimulatedDevice};
use esker::format::{FrameHeader, SegmentHeader};

use crate::common::{Random, create, open, seed};
use crate::history::{
    History, aged, device, is_checkpoint, is_data, repair, segments, store_options,
};

const SEGMENT_BYTES: u64 = 128 << 10;

fn lose_checkpoints(device: &SimulatedDevice) {
    for (offset, _) in segments(device, is_checkpoint) {
        device.erase(offset + 512, SEGMENT_BYTES as usize - 512);
    }
}

/// Device offsets of the frames of a segment.
fn frames(device: &SimulatedDevice, start: u64, header: &SegmentHeader) -> Vec<u64> {
    let bytes = device.read_raw(start, SEGMENT_BYTES as usize);
    let mut found = Vec::new();
    let mut at = 512;
    while let Some(rest) = bytes.get(at..)
        && let Ok(frame) = FrameHeader::decode(rest, header.seed(), at as u64, SEGMENT_BYTES)
    {
        found.push(start + at as u64);
        at += frame.frame_bytes as usize;
    }
    found
}

#[test]
fn a_damaged_frame_header_without_checkpoints_is_repaired_honestly() {
    let mut random = Random::new(seed());
    for clean in [false, true] {
        let (device, history) = aged(&mut random, Durability::Buffered, clean);
        for (start, header) in segments(&device, is_data) {
            let frames = frames(&device, start, &header);
            let Some(last) = frames.len().checked_sub(1) else {
                continue;
            };
            // First and last frames are where epochs end.
            let frame = match random.below(3) {
                0 => frames[0],
                1 => frames[last],
                _ => frames[random.below(frames.len() as u64) as usize],
            };
            let image = Arc::new(device.snapshot());
            lose_checkpoints(&image);
            let bit = random.below(136 * 8);
            println!("segment {}, frame at {frame}, bit {bit}", header.segment);
            image.flip_bit(frame + bit / 8, bit % 8);
            let report = repair(&image);
            history.assert_honest(&image, &report);
        }
    }
}

/// A group that was torn by a crash and whose cut has gone, because images cover it, is not
/// taken for acknowledged when these images are lost.
#[test]
fn a_torn_group_is_not_believed_when_its_cut_has_gone() {
    let mut random = Random::new(seed());
    let options = store_options(Durability::Committed);
    for limit in 1..7 {
        let first = device();
        let mut history = History::default();
        let store = create(&first, &options).unwrap();
        history.churn(&store, &mut random, 300);
        let keys = (0..12).map(|at| format!("batch{at}").into_bytes());
        let keys: Vec<_> = keys.collect();
        for key in &keys {
            history.put(&store, key, random.bytes(3000));
        }
        let mut batch = esker::Batch::new();
        for key in &keys {
            let value = random.bytes(20_000);
            batch.put(key, &value);
            history.past.get_mut(key).unwrap().push(value);
        }
        // Some frames of the group reach media whole, others not at all.
        first.set_op_limit(limit);
        let _ = store.write(batch);
        let image = Arc::new(first.crash_image(CrashPolicy::KeepAll));
        drop(store);
        let store = open(&image, &options).unwrap();
        // One way or the other, but all of it.
        for key in &keys {
            let value = store.get(key).unwrap().unwrap().to_vec();
            history.model.insert(key.clone(), value);
        }
        for _ in 0..2 {
            history.put(&store, b"last", b"group".to_vec());
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        // The cut goes with this open, if not before.
        let store = open(&image, &options).unwrap();
        history.churn(&store, &mut random, 20);
        store.close().unwrap();
        lose_checkpoints(&image);
        let report = repair(&image);
        history.assert_honest(&image, &report);
    }
}
