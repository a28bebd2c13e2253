//! Tests of what a power cut or a process kill leaves, and of what a flush saves.

use super::*;

#[test]
fn a_power_cut_can_lose_only_what_was_not_flushed() {
    let device = device();
    write(&device, 0, 1, 4096).unwrap();
    device.flush().unwrap();
    write(&device, 0, 2, 4096).unwrap();
    write(&device, 8192, 3, 4096).unwrap();
    assert_eq!(device.unflushed(), 2);
    let lost = device.crash_image(CrashPolicy::LoseAll);
    assert!(holds(&lost, 0, 1, 4096) && holds(&lost, 8192, 0, 4096));
    assert_eq!(lost.unflushed(), 0);
    for seed in 0..50 {
        let image = random_crash(&device, seed);
        for sector in image.read_raw(0, 4096).chunks(SECTOR) {
            let whole = sector.iter().all(|&byte| byte == sector[0]);
            assert!(whole && (sector[0] == 1 || sector[0] == 2), "seed {seed}");
        }
    }
    device.flush().unwrap();
    let lost = device.crash_image(CrashPolicy::LoseAll);
    assert!(holds(&lost, 0, 2, 4096) && holds(&lost, 8192, 3, 4096));
}

#[test]
fn a_killed_process_leaves_the_drives_cache_at_risk() {
    let device = device();
    write(&device, 0, 1, 512).unwrap();
    let killed = device.crash_image(CrashPolicy::KeepAll);
    assert!(holds(&killed, 0, 1, 512));
    assert_eq!(killed.unflushed(), 1);
    write(&killed, 512, 2, 512).unwrap();
    let cut = killed.crash_image(CrashPolicy::LoseAll);
    assert!(holds(&cut, 0, 0, 1024), "both lives' writes are lost");
    killed.flush().unwrap();
    let cut = killed.crash_image(CrashPolicy::LoseAll);
    assert!(holds(&cut, 0, 1, 512) && holds(&cut, 512, 2, 512));
    assert!(
        holds(&device.crash_image(CrashPolicy::LoseAll), 0, 0, 512),
        "untouched"
    );
}

#[test]
fn random_crashes_reach_every_subset_order_and_tear() {
    let device = device();
    write(&device, 0, 1, 1024).unwrap();
    write(&device, 0, 2, 1024).unwrap();
    write(&device, 4096, 3, 512).unwrap();
    let reached: BTreeSet<[u8; 3]> = (0..2000)
        .map(|seed| {
            let image = random_crash(&device, seed);
            [0, 512, 4096].map(|offset| image.read_raw(offset, 1)[0])
        })
        .collect();
    // Three versions of each of two sectors, two of the third.
    assert_eq!(reached.len(), 3 * 3 * 2, "{reached:?}");
}

#[test]
fn the_power_can_be_cut_at_every_change() {
    // Six changes: a batch of three, a flush, a write, a discard.
    let script = |device: &SimulatedDevice| -> io::Result<()> {
        let data = block_of(1, 1024);
        let ops = [0, 4096, 8192].map(|offset| WriteOp {
            offset,
            data: &data,
        });
        device.write_and_flush(&ops)?;
        write(device, 0, 2, 1024)?;
        device.discard(4096, 512)
    };
    let whole = device();
    script(&whole).unwrap();
    assert_eq!(whole.counters().changes(), 6);
    for limit in 0..6 {
        let device = device();
        device.set_op_limit(limit);
        let error = script(&device).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Other, "power cut")
        );
        assert!(device.is_cut());
        // Frozen: nothing works, nothing changes.
        let unflushed = device.unflushed();
        assert!(read(&device, 0, 512).is_err() && write(&device, 0, 9, 512).is_err());
        assert!(device.flush().is_err() && device.discard(0, 512).is_err());
        assert_eq!(device.unflushed(), unflushed);
        let lost = device.crash_image(CrashPolicy::LoseAll);
        assert!(holds(&lost, 0, u8::from(limit >= 4), 1024));
        let killed = device.crash_image(CrashPolicy::KeepAll);
        let expected = [0, 1, 1, 1, 1, 2][limit as usize];
        assert!(holds(&killed, 0, expected, 1024), "after {limit} changes");
        assert!(!killed.is_cut() && read(&killed, 0, 512).is_ok());
        // The write or discard at which it stopped may be there, also in part.
        let seen: BTreeSet<_> = (0..300)
            .map(|seed| random_crash(&device, seed))
            .map(|image| [0, 512, 4096, 8192].map(|offset| image.read_raw(offset, 1)[0]))
            .collect();
        match limit {
            0..=3 => assert_eq!(seen.len(), 16, "{seen:?}"),
            4 => assert_eq!(seen.len(), 4, "{seen:?}"),
            _ => assert_eq!(seen.len(), 8, "{seen:?}"),
        }
    }
    let device = device();
    device.set_op_limit(6);
    script(&device).unwrap();
    assert!(!device.is_cut());
}

#[test]
fn crash_images_are_cheap() {
    let device = SimulatedDevice::new(256 << 20, 4096);
    for i in 0..64_u64 {
        write(&device, i << 20, i as u8, 1 << 20).unwrap();
    }
    device.flush().unwrap();
    write(&device, 0, 7, 4096).unwrap();
    let start = Instant::now();
    let images: Vec<_> = (0..500).map(|seed| random_crash(&device, seed)).collect();
    let each = start.elapsed() / 500;
    assert_eq!(images.len(), 500);
    assert!(
        each < Duration::from_millis(5),
        "{each:?} for an image of 64 MiB"
    );
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it_began() {
    let latency = Latency {
        flush: Duration::from_millis(250),
        ..Latency::default()
    };
    let device = device().with_latency(latency);
    write(&device, 0, 1, 512).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| device.flush().unwrap());
        while device.counters().flushes == 0 {
            thread::yield_now();
        }
        write(&device, 512, 2, 512).unwrap();
        assert!(
            holds(&device.crash_image(CrashPolicy::LoseAll), 0, 0, 512),
            "not yet"
        );
    });
    let lost = device.crash_image(CrashPolicy::LoseAll);
    assert!(holds(&lost, 0, 1, 512) && holds(&lost, 512, 0, 512));
}

#[test]
fn a_failed_flush_is_not_made_good_by_the_next() {
    let device = device();
    write(&device, 0, 1, 512).unwrap();
    device.add_fault(Fault::once(OpKind::Flush, 1));
    assert!(device.flush().is_err());
    write(&device, 512, 2, 512).unwrap();
    device.flush().unwrap();
    let lost = device.crash_image(CrashPolicy::LoseAll);
    assert!(
        holds(&lost, 0, 0, 512),
        "a flush that succeeds says nothing of the failed one"
    );
    assert!(holds(&lost, 512, 2, 512));
    // Written again and flushed, the old version cannot turn up.
    write(&device, 0, 3, 512).unwrap();
    device.flush().unwrap();
    assert!((0..100).all(|seed| holds(&random_crash(&device, seed), 0, 3, 512)));
}

#[test]
fn a_lying_flush_makes_nothing_durable() {
    let device = device();
    write(&device, 0, 1, 512).unwrap();
    device.set_flushes_lie(true);
    device.flush().unwrap();
    assert!(holds(&device.crash_image(CrashPolicy::LoseAll), 0, 0, 512));
    device.set_flushes_lie(false);
    device.flush().unwrap();
    assert!(holds(&device.crash_image(CrashPolicy::LoseAll), 0, 1, 512));
}

/// The versions a sector may hold after a power cut, kept beside a device.
struct Model {
    /// Per sector, what is durable, then what was written since.
    versions: Vec<Vec<u8>>,
}

impl Model {
    fn change(&mut self, offset: u64, byte: u8, len: usize) {
        for sector in &mut self.versions[offset as usize / SECTOR..][..len / SECTOR] {
            sector.push(byte);
        }
    }

    fn flush(&mut self) {
        self.versions
            .iter_mut()
            .for_each(|sector| drop(sector.drain(..sector.len() - 1)));
    }

    fn check(&self, image: &SimulatedDevice, what: &str, allowed: impl Fn(&[u8], u8) -> bool) {
        for (index, versions) in self.versions.iter().enumerate() {
            let found = image.read_raw((index * SECTOR) as u64, SECTOR);
            assert!(
                found.iter().all(|&byte| byte == found[0]),
                "{what}: sector {index} is mixed"
            );
            assert!(
                allowed(versions, found[0]),
                "{what}: sector {index} holds {}",
                found[0]
            );
        }
    }
}

#[test]
fn every_crash_image_is_one_a_power_cut_allows() {
    let seed = std::env::var("ESKER_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    println!("ESKER_SEED={seed}");
    let mut random = Random::new(seed);
    let sectors = 256;
    let mut device = SimulatedDevice::new((sectors * SECTOR) as u64, BLOCK);
    let mut model = Model {
        versions: vec![vec![0]; sectors],
    };
    for step in 0..3000 {
        let len = (1 + random.below(16)) as usize * SECTOR;
        let offset = random.below((sectors - 16) as u64) * SECTOR as u64;
        match random.below(20) {
            0 | 1 => {
                device.flush().unwrap();
                model.flush();
            }
            2 => {
                device.discard(offset, len as u64).unwrap();
                model.change(offset, 0, len);
            }
            3 => device = device.crash_image(CrashPolicy::KeepAll),
            4 => {
                let image = random_crash(&device, random.next());
                let what = format!("seed {seed}, step {step}");
                model.check(&image, &what, |versions, byte| versions.contains(&byte));
                let image = device.crash_image(CrashPolicy::LoseAll);
                model.check(&image, &what, |versions, byte| versions[0] == byte);
                model.check(&device, &what, |versions, byte| {
                    versions.last() == Some(&byte)
                });
            }
            5 if random.chance(0.2) => {
                device = random_crash(&device, random.next());
                for (index, versions) in model.versions.iter_mut().enumerate() {
                    *versions = device.read_raw((index * SECTOR) as u64, 1);
                }
            }
            _ => {
                let byte = 1 + random.below(255) as u8;
                write(&device, offset, byte, len).unwrap();
                model.change(offset, byte, len);
            }
        }
    }
}
