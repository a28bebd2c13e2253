//! Models of growth: units replaced and split, and directories doubled, under readers and
//! other writers. In models a unit has four buckets of one or two slots.

use super::*;
use crate::sync::thread;

fn depth(index: &Index) -> u32 {
    index.shards[0].directory.load().depth()
}

/// A lookup while its unit gets more slots.
#[test]
fn loom_growth_against_lookup() {
    model(|| {
        let hashes = crowd(1);
        let index = index_with(&hashes);
        let new = hash_at(0, 7);
        let writer = {
            let index = index.clone();
            thread::spawn(move || index.lock(0).insert(new, entry_at(100)).unwrap())
        };
        assert_eq!(index.get(hashes[0]), Some(entry_at(1)));
        let seen = index.get(new).is_some();
        assert_eq!(writer.join().unwrap(), None);
        let _ = seen;
        assert_eq!(index.get(new), Some(entry_at(100)));
        assert_eq!(index.get(hashes[0]), Some(entry_at(1)));
    });
}

/// A lookup while its unit splits and the directory doubles.
#[test]
fn loom_split_against_lookup() {
    model(|| {
        let hashes = crowd(2);
        let index = index_with(&hashes);
        assert_eq!(depth(&index), 0);
        let new = hash_at(3, 7);
        let writer = {
            let index = index.clone();
            thread::spawn(move || index.lock(0).insert(new, entry_at(100)).unwrap())
        };
        assert_eq!(index.get(hashes[7]), Some(entry_at(8)));
        if index.get(new).is_some() {
            assert_eq!(index.get(new), Some(entry_at(100)));
        }
        writer.join().unwrap();
        assert_eq!(depth(&index), 1);
        for (units, &hash) in (1..).zip(&hashes) {
            assert_eq!(index.get(hash), Some(entry_at(units)));
        }
        assert_eq!(index.get(new), Some(entry_at(100)));
    });
}

/// After a growth, writes go to the new unit: who saw the growth's insert sees them, and
/// who saw a later write sees the earlier.
#[test]
fn loom_writes_after_growth_are_seen_in_order() {
    model(|| {
        let hashes = crowd(1);
        let index = index_with(&hashes);
        let (new, first) = (hash_at(0, 7), hashes[0]);
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                index.lock(0).insert(new, entry_at(100)).unwrap();
                index.lock(0).remove(first);
            })
        };
        if index.get(first).is_none() {
            assert_eq!(index.get(new), Some(entry_at(100)));
        }
        writer.join().unwrap();
        assert_eq!(index.get(first), None);
    });
}

/// A scan over a unit that splits between and during its steps.
#[test]
fn loom_split_against_scan() {
    model(|| {
        let hashes = crowd(2);
        let index = index_with(&hashes);
        let writer = {
            let index = index.clone();
            thread::spawn(move || index.lock(0).insert(hash_at(3, 7), entry_at(100)).unwrap())
        };
        let mut found = Vec::new();
        let mut position = ScanPosition::START;
        // The first bucket's range, in one step or two.
        while position.shard() == 0 && position.offset() < 1 << (64 - SHARD_BITS - BUCKET_BITS) {
            position = index.scan_bucket(position, &mut found).unwrap();
        }
        found.sort_unstable_by_key(|entry| entry.address);
        assert_eq!(found, [entry_at(1), entry_at(2)]);
        writer.join().unwrap();
    });
}

/// Two writers of one unit, of which each insert makes it grow or splits it.
#[test]
fn loom_growth_against_insert() {
    for slots in [1, 2] {
        model(move || {
            let hashes = crowd(slots);
            let index = index_with(&hashes);
            let (one, two) = (hash_at(0, 7), hash_at(2, 7));
            let writer = {
                let index = index.clone();
                thread::spawn(move || index.lock(0).insert(one, entry_at(100)).unwrap())
            };
            assert_eq!(index.lock(0).insert(two, entry_at(101)).unwrap(), None);
            assert_eq!(writer.join().unwrap(), None);
            assert_eq!(index.get(one), Some(entry_at(100)));
            assert_eq!(index.get(two), Some(entry_at(101)));
            assert_eq!(index.len(), hashes.len() as u64 + 2);
        });
    }
}
