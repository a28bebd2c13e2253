//! Values that imitate the log (case U26): exact copies of real headers, frames and records
//! of this store, and forged ones with higher numbers, at block-aligned positions of segments
//! that are reused, with crashes at any time. None is ever taken for the real thing.

use std::sync::Arc;

use esker::device::{CrashPolicy, SimulatedDevice};
use esker::format::{Class, Extent, FrameHeader, HEAD_COUNT, SegmentHeader, first_record_offset};
use esker::{Durability, Store};

use crate::common::{Model, Random, assert_equals, create, open, options, seed};
use crate::media::geometry;

const BLOCK: usize = 512;

/// A header of a real segment in a later life, and a frame behind it.
fn forged(device: &SimulatedDevice, random: &mut Random) -> Vec<u8> {
    let geometry = geometry(device);
    let segment = random.below(u64::from(geometry.segment_count)) as u32;
    let header = SegmentHeader {
        geometry,
        segment,
        class: [Class::Data(8), Class::Free, Class::Checkpoint][random.below(3) as usize],
        generation: 2 + random.below(5),
        epoch: 1 + random.below(9),
        opened_seqno: 1 << 40,
        group: 1 << 40,
        opened_clock: 1 << 40,
        extents: None,
    };
    let mut bytes = vec![0; 2 * BLOCK];
    header.encode(&mut bytes[..BLOCK]);
    FrameHeader {
        frame_bytes: BLOCK as u32,
        data_bytes: first_record_offset(geometry.unit_bytes) as u32,
        record_count: 0,
        seals: true,
        payload: false,
        frame_index: 0,
        frame_count: 1,
        group: (1 << 40) + 1,
        base_seqno: 1 << 40,
        last_seqno: 1 << 40,
        clock: 1 << 40,
        extents: [Extent::default(); HEAD_COUNT],
    }
    .encode(header.seed(), BLOCK as u64, &mut bytes[BLOCK..]);
    bytes
}

/// A value whose blocks land on blocks of the device when it is the first of its frame, and
/// hold what looks like log.
fn imitation(device: &SimulatedDevice, key: &[u8], random: &mut Random) -> Vec<u8> {
    let geometry = geometry(device);
    let before = first_record_offset(geometry.unit_bytes) as usize + 16 + key.len();
    let mut value = vec![0xaa; before.next_multiple_of(BLOCK) - before];
    for _ in 0..1 + random.below(3) {
        if random.below(3) == 0 {
            value.extend_from_slice(&forged(device, random));
            continue;
        }
        let segment = random.below(u64::from(geometry.segment_count)) as u32;
        let blocks = geometry.segment_bytes / BLOCK as u64;
        let first = if random.below(2) == 0 {
            0
        } else {
            random.below(blocks - 8)
        };
        let offset = geometry.segment_offset(segment) + first * BLOCK as u64;
        value.extend_from_slice(&device.read_raw(offset, 8 * BLOCK));
    }
    value
}

#[test]
fn imitations_of_the_log_are_data() {
    let mut random = Random::new(seed());
    let options = options(Durability::Committed).checkpoint_interval_bytes(3 << 20);
    let mut device = Arc::new(SimulatedDevice::new(9 << 20, BLOCK as u32));
    let mut store: Option<Store> = Some(create(&device, &options).unwrap());
    let mut model = Model::new();
    for round in 0..24 {
        let open_store = store.as_ref().unwrap();
        for _ in 0..150 + random.below(150) {
            let key = format!("key {:04}", random.below(250)).into_bytes();
            if random.below(12) == 0 {
                open_store.delete(&key).unwrap();
                model.remove(&key);
                continue;
            }
            let value = imitation(&device, &key, &mut random);
            open_store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let policy = match round % 3 {
            0 => CrashPolicy::LoseAll,
            1 => CrashPolicy::KeepAll,
            _ => CrashPolicy::Random {
                seed: random.next(),
            },
        };
        let image = Arc::new(device.crash_image(policy));
        drop(store.take());
        device = image;
        let opened = open(&device, &options).unwrap();
        assert_equals(&opened, &model);
        store = Some(opened);
    }
    assert!(store.is_some_and(|store| store.close().is_ok()));
}
