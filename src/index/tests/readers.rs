//! Real threads: lock-free readers and scans while a writer grows and splits units.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const KEYS: u64 = 60_000;
const FIXED: u32 = 9;

/// Inserts keys in order and tells how far; overwrites and relocates as it goes, and
/// inserts and removes keys from `KEYS` on.
fn write(index: &Index, published: &AtomicU64) {
    let mut random = Random::from_environment();
    for key in 0..KEYS {
        let mut shard = index.lock(0);
        shard.reserve(hash_of(key, FIXED), u64::MAX).unwrap();
        assert_eq!(
            shard.insert(hash_of(key, FIXED), entry_of(key, 0)).unwrap(),
            None
        );
        published.store(key + 1, Ordering::Release);
        let other = random.below(key + 1);
        let old = shard.get(hash_of(other, FIXED)).unwrap();
        assert!(shard.redirect(hash_of(other, FIXED), old.address, entry_of(other, key)));
        let passing = KEYS + random.below(KEYS);
        if shard.remove(hash_of(passing, FIXED)).is_none() && key % 2 == 0 {
            shard
                .insert(hash_of(passing, FIXED), entry_of(passing, key))
                .unwrap();
        }
    }
}

#[test]
fn readers_find_every_present_key_and_no_other() {
    let index = Index::new();
    let published = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (index, published, done) = (&index, &published, &done);
            scope.spawn(move || {
                let mut random = Random(reader);
                while !done.load(Ordering::Relaxed) {
                    let count = published.load(Ordering::Acquire).max(1);
                    // Often the newest, which is where units were just replaced.
                    let key = if random.below(2) == 0 {
                        random.below(count)
                    } else {
                        count - 1
                    };
                    let found = index.get(hash_of(key, FIXED));
                    assert!(count == 1 || found.is_some_and(|entry| key_of(entry) == key));
                    let absent = 2 * KEYS + random.below(KEYS);
                    assert_eq!(index.get(hash_of(absent, FIXED)), None);
                    let passing = KEYS + random.below(KEYS);
                    let found = index.get(hash_of(passing, FIXED));
                    assert!(found.is_none_or(|entry| key_of(entry) == passing));
                }
            });
        }
        write(&index, &published);
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn scans_return_what_is_there_throughout_once() {
    let index = Index::new();
    let published = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut scans = 0;
            while !done.load(Ordering::Relaxed) {
                let present = published.load(Ordering::Acquire);
                let mut seen = std::collections::HashMap::new();
                for entry in scan(&index) {
                    *seen.entry(key_of(entry)).or_insert(0) += 1;
                }
                for key in 0..present {
                    assert_eq!(seen.get(&key), Some(&1), "key {key}");
                }
                scans += 1;
            }
            println!("{scans} scans");
        });
        write(&index, &published);
        done.store(true, Ordering::Relaxed);
    });
}
