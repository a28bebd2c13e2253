//! Garbage of every sort: findings and errors, never a panic, and never a hang.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::Durability;
use esker::device::{Device, SimulatedDevice};
use esker::inspect::{self, CheckOptions, DumpOptions};

use crate::common::{Random, seed};
use crate::history::aged;

/// Rounds of random damage end after so long.
const TIME_MAX: Duration = Duration::from_secs(15);

/// Everything there is, on a device with anything on it.
fn try_all(device: &Arc<SimulatedDevice>, repair: bool) {
    let shared: Arc<dyn Device> = device.clone();
    let _ = inspect::info_on(shared.clone());
    let _ = inspect::check_on(shared.clone(), &CheckOptions::default(), &mut |_| {});
    let dump = DumpOptions::default().records(true);
    let _ = inspect::dump_on(shared.clone(), &dump, &mut std::io::sink());
    if repair {
        let options = CheckOptions::default().repair(true);
        let _ = inspect::check_on(shared, &options, &mut |_| {});
    }
}

#[test]
fn random_bytes() {
    let mut random = Random::new(seed());
    for round in 0..60 {
        let blocks = random.below(400) + 1;
        let device = Arc::new(SimulatedDevice::new(blocks * 65_536, 512));
        let len = (blocks * 65_536) as usize;
        let bytes = random.bytes(len.min(1 << 20));
        device.corrupt(0, bytes.len(), |media| media.copy_from_slice(&bytes));
        try_all(&device, round % 4 == 0);
    }
}

#[test]
fn random_overwrites() {
    let mut random = Random::new(seed());
    for clean in [true, false] {
        let rounds = overwrite_blocks(&mut random, clean);
        println!("{rounds} rounds");
        assert!(rounds > 0);
    }
}

/// Of a store that was killed, the last group commit may be dropped for incomplete when it
/// is damaged: then older values are right, as far as anybody can tell.
///
/// A round takes 10 to 30 ms of processor time with any of 30 seeds; on a machine with much
/// else to do it has taken a hundred times as long. Then there are fewer.
fn overwrite_blocks(random: &mut Random, clean: bool) -> u32 {
    let (device, history) = aged(random, Durability::Buffered, clean);
    let start = Instant::now();
    for round in 0..60 {
        if start.elapsed() > TIME_MAX {
            return round;
        }
        let image = Arc::new(device.snapshot());
        for _ in 0..=random.below(20) {
            let offset = random.below(device.capacity() / 4096) * 4096;
            let source = random.below(device.capacity() / 4096) * 4096;
            match random.below(3) {
                0 => image.erase(offset, 4096),
                1 => {
                    let bytes = random.bytes(4096);
                    image.corrupt(offset, 4096, |media| media.copy_from_slice(&bytes));
                }
                _ => {
                    let bytes = image.read_raw(source, 4096);
                    image.corrupt(offset, 4096, |media| media.copy_from_slice(&bytes));
                }
            }
        }
        if round % 3 == 0 && clean {
            let shared: Arc<dyn Device> = image.clone();
            let options = CheckOptions::default().repair(true);
            let report = inspect::check_on(shared, &options, &mut |_| {}).unwrap();
            assert!(report.opens, "{report:#?}");
            history.assert_no_lies(&image, &report);
        } else {
            try_all(&image, round % 3 == 0);
        }
    }
    60
}

#[test]
fn truncated_stores() {
    let mut random = Random::new(seed());
    let (device, _) = aged(&mut random, Durability::Committed, true);
    for _ in 0..40 {
        let capacity = random.below(device.capacity() / 512) * 512;
        let shorter = Arc::new(SimulatedDevice::new(capacity, 512));
        let bytes = device.read_raw(0, capacity as usize);
        shorter.corrupt(0, bytes.len(), |media| media.copy_from_slice(&bytes));
        try_all(&shorter, true);
    }
}
