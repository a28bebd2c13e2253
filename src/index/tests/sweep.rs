//! What an entry costs: memory as the index counts it and as the process grows, and time.
//!
//! Small by default. `ESKER_SWEEP=16000000 cargo test --release --lib sweep -- --nocapture`
//! is the measurement in `design/`: the most bytes an entry takes between half that number
//! of entries and all of it, in steps that meet every phase of growth.

use std::time::{Duration, Instant};

use super::*;

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Time this thread has run: other work on the machine does not count.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn ns_each(time: Duration, count: u64) -> u128 {
    time.as_nanos() / u128::from(count)
}

#[test]
fn sweep() {
    let keys = std::env::var("ESKER_SWEEP")
        .ok()
        .and_then(|keys| keys.parse().ok());
    let keys: u64 = keys.unwrap_or(40_000);
    let full = keys >= 1_000_000;
    // In one shard when small, for units to be as full as in the large sweep.
    let fixed = if full { 0 } else { 8 };

    let resident_before = resident();
    let index = Index::new();
    let empty = if full { 0 } else { index.memory_bytes() };
    let steps = 256;
    let (mut counted_max, mut resident_max, mut pause_max) = (0.0_f64, 0.0_f64, Duration::ZERO);
    let mut inserting = Duration::ZERO;
    for step in 0..steps {
        let from = keys * step / steps;
        let to = keys * (step + 1) / steps;
        let start = cpu_time();
        let mut last = Instant::now();
        for key in from..to {
            let hash = hash_of(key, fixed);
            let mut shard = index.lock(Index::shard_of(hash));
            shard.reserve(hash, u64::MAX).unwrap();
            shard.insert(hash, entry_of(key & 0xff_ffff, 0)).unwrap();
            drop(shard);
            if step % 2 == 1 {
                let now = Instant::now();
                pause_max = pause_max.max(now - last);
                last = now;
            }
        }
        if step >= steps / 2 && step % 2 == 0 {
            inserting += cpu_time() - start;
        }
        if step >= steps / 2 {
            let counted = (index.memory_bytes() - empty) as f64 / to as f64;
            let grown = (resident() - resident_before) as f64 / to as f64;
            if full && step % 8 == 7 {
                println!("{to:>10} keys: {counted:.2} bytes a key, resident {grown:.2}");
            }
            counted_max = counted_max.max(counted);
            resident_max = resident_max.max(grown);
        }
    }
    println!("at most {counted_max:.2} bytes a key, resident {resident_max:.2}");
    println!(
        "insert {} ns, longest {pause_max:?}",
        ns_each(inserting, keys / 4)
    );
    assert!(counted_max < 17.2, "{counted_max}");
    assert!(!full || resident_max < 18.0, "{resident_max}");

    let mut random = Random::from_environment();
    let lookups = keys / 4;
    let start = cpu_time();
    for _ in 0..lookups {
        assert!(index.get(hash_of(random.below(keys), fixed)).is_some());
    }
    println!("hit {} ns", ns_each(cpu_time() - start, lookups));
    let start = cpu_time();
    for _ in 0..lookups {
        assert!(
            index
                .get(hash_of(keys + random.below(keys), fixed))
                .is_none()
        );
    }
    println!("miss {} ns", ns_each(cpu_time() - start, lookups));
    let start = cpu_time();
    for round in 0..lookups {
        let key = random.below(keys);
        let hash = hash_of(key, fixed);
        index
            .lock(Index::shard_of(hash))
            .insert(hash, entry_of(key & 0xff_ffff, round))
            .unwrap();
    }
    println!("overwrite {} ns", ns_each(cpu_time() - start, lookups));

    let start = cpu_time();
    assert_eq!(scan(&index).len() as u64, keys);
    println!("scan {} ns an entry", ns_each(cpu_time() - start, keys));

    let start = cpu_time();
    let mut image = Vec::new();
    for shard in 0..SHARDS {
        let mut position = Some(ScanPosition::of_shard(shard));
        while let Some(at) = position {
            position = index.lock(shard).image_unit(at, 0, &mut image);
        }
    }
    println!(
        "image {} ns an entry, {:.2} bytes",
        ns_each(cpu_time() - start, keys),
        image.len() as f64 / keys as f64
    );
    drop(index);
    let start = cpu_time();
    let copy = Index::new();
    let (mut rest, mut entries) = (&image[..], 0);
    for shard in 0..SHARDS {
        let mut guard = copy.lock(shard);
        while guard.finish_load().is_err() {
            let consumed = guard.load_unit(rest, &mut |_| entries += 1).unwrap();
            rest = &rest[consumed..];
        }
    }
    println!("load {:?} for {entries} entries", cpu_time() - start);
    assert_eq!(entries, keys);
    let loaded = (copy.memory_bytes() - empty) as f64 / keys as f64;
    println!("loaded index: {loaded:.2} bytes a key");
}
