//! Stores without damage: nothing is reported, at any moment and after any crash.

use esker::Durability;
use esker::device::{CrashPolicy, Device};
use esker::inspect::{self, CheckOptions, DumpOptions};
use std::sync::Arc;

use crate::common::{Model, Random, create, open, options, seed, small_device};

fn check(device: &Arc<esker::device::SimulatedDevice>) -> inspect::CheckReport {
    let device: Arc<dyn Device> = device.clone();
    inspect::check_on(device, &CheckOptions::default().deep(true), &mut |_| {}).unwrap()
}

/// Overwrites and deletes until cleaning and checkpoints have happened; a large value now
/// and then.
pub fn churn(store: &esker::Store, model: &mut Model, random: &mut Random, steps: u64) {
    for step in 0..steps {
        let key = format!("key{:04}", random.below(400)).into_bytes();
        match random.below(10) {
            0 | 1 => {
                store.delete(&key).unwrap();
                model.remove(&key);
            }
            2 if step % 16 == 0 => {
                let key = format!("large{}", random.below(4)).into_bytes();
                let value = random.bytes(30_000 + random.clone().below(60_000) as usize);
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            _ => {
                let value = random.bytes(random.clone().below(3000) as usize);
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
}

#[test]
fn a_store_in_any_state_is_clean() {
    let mut random = Random::new(seed());
    for durability in [Durability::Committed, Durability::Buffered] {
        let device = small_device();
        let mut model = Model::new();
        let options = options(durability).checkpoint_interval_bytes(2 << 20);
        let store = create(&device, &options).unwrap();
        let report = check(&device);
        assert_eq!(report.errors, 0, "{report:#?}");
        churn(&store, &mut model, &mut random, 6000);
        store.sync().unwrap();
        for seed in 0..6 {
            let image = Arc::new(device.crash_image(CrashPolicy::Random { seed }));
            let report = check(&image);
            assert_eq!(report.errors, 0, "{report:#?}");
            let store = open(&image, &options).unwrap();
            churn(&store, &mut model.clone(), &mut random, 300);
            drop(store);
            let report = check(&image);
            assert_eq!((report.errors, report.warnings), (0, 0), "{report:#?}");
        }
        store.close().unwrap();
        let report = check(&device);
        assert_eq!((report.errors, report.warnings), (0, 0), "{report:#?}");
        assert_eq!(report.superblocks_valid, 4);
        assert!(report.large_values > 0 && report.dead_records > 0);
        let info = inspect::info_on(device.clone()).unwrap();
        assert!(info.clean && !info.from_segment_headers);
        let mut text = Vec::new();
        let dump = DumpOptions::default().records(true);
        inspect::dump_on(device.clone(), &dump, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let live = text
            .lines()
            .filter(|line| line.contains(", live: "))
            .count();
        assert_eq!(live as u64, report.live_records);
    }
}
