//! A repair cut short at any write or flush is repeated, and then as good.

use std::sync::Arc;

use esker::Durability;
use esker::device::{CrashPolicy, Device, SimulatedDevice};
use esker::format::Geometry;
use esker::inspect::{self, CheckOptions};

use crate::common::{Random, open, seed};
use crate::history::{aged, check, is_checkpoint, repair, segments, store_options};

#[test]
fn a_repair_can_be_cut_anywhere() {
    let mut random = Random::new(seed());
    for superblocks_too in [false, true] {
        let (device, history) = aged(&mut random, Durability::Committed, false);
        for (offset, _) in segments(&device, is_checkpoint) {
            device.erase(offset + 512, (128 << 10) - 512);
        }
        if superblocks_too {
            for offset in Geometry::superblock_offsets(device.capacity()) {
                device.erase(offset, 4096);
            }
        }
        let image = Arc::new(device.snapshot());
        let whole = repair(&image);
        let counters = image.counters();
        let ops = counters.writes + counters.flushes;
        assert!(whole.is_clean() && ops > 10);
        println!("{ops} operations");
        for limit in (0..=ops).step_by(if superblocks_too { 3 } else { 1 }) {
            let image = Arc::new(device.snapshot());
            image.set_op_limit(limit);
            let shared: Arc<dyn Device> = image.clone();
            let options = CheckOptions::default().repair(true);
            let _ = inspect::check_on(shared, &options, &mut |_| {});
            let policy = match limit % 3 {
                0 => CrashPolicy::LoseAll,
                1 => CrashPolicy::KeepAll,
                _ => CrashPolicy::Random { seed: limit },
            };
            let after: Arc<SimulatedDevice> = Arc::new(image.crash_image(policy));
            // Either the repair is as good as done, or an ordinary open still refuses.
            let opened = open(
                &after,
                &store_options(Durability::Committed).read_only(true),
            );
            let report = match opened {
                Ok(store) => {
                    drop(store);
                    whole.clone()
                }
                Err(_) => repair(&after),
            };
            history.assert_honest(&after, &report);
            assert!(check(&after).opens);
        }
    }
}
