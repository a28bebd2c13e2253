//! Models of the bucket protocol: lock-free readers against one writer, and writers against
//! each other. Which mutation of the code each model catches: `design/concurrency.md`.

use super::*;
use crate::sync::{Arc, thread};

/// An index with these entries.
fn index_with(entries: &[(KeyHash, u64)]) -> Arc<Index> {
    let index = Index::new();
    let mut shard = index.lock(0);
    for &(hash, units) in entries {
        shard.insert(hash, entry_at(units)).unwrap();
    }
    drop(shard);
    Arc::new(index)
}

fn spawn(index: &Arc<Index>, f: impl FnOnce(&Index) + 'static) -> thread::JoinHandle<()> {
    let index = index.clone();
    thread::spawn(move || f(&index))
}

/// A slot that goes from one key to another: the reader of the first never gets the
/// second's entry, nor any mixture.
#[test]
fn loom_slot_changes_key() {
    model(|| {
        let (first, second) = (hash_at(0, 1), hash_at(0, 2));
        let index = index_with(&[(first, 0x10)]);
        let writer = spawn(&index, move |index| {
            let mut shard = index.lock(0);
            assert_eq!(shard.remove(first), Some(entry_at(0x10)));
            assert_eq!(shard.insert(second, entry_at(0x21)).unwrap(), None);
        });
        let found = index.get(first);
        assert!(found.is_none() || found == Some(entry_at(0x10)));
        writer.join().unwrap();
        assert_eq!(index.get(second), Some(entry_at(0x21)));
    });
}

/// Overwrite, redirect and delete of one key: a reader never goes back in time.
#[test]
fn loom_overwrites_are_seen_in_order() {
    model(|| {
        let key = hash_at(1, 1);
        let index = index_with(&[(key, 1)]);
        let writer = spawn(&index, move |index| {
            let mut shard = index.lock(0);
            assert!(shard.redirect(key, Address::new(1), entry_at(3)));
            shard.remove(key);
        });
        let time = |found: Option<Entry>| found.map_or(4, |entry| entry.address.units());
        let first = index.get(key);
        let second = index.get(key);
        assert!(time(first) <= time(second));
        for found in [first, second].into_iter().flatten() {
            assert_eq!(found, entry_at(found.address.units()));
        }
        writer.join().unwrap();
        assert_eq!(index.get(key), None);
    });
}

/// An entry that moves back home, because a slot there got free, is never missed.
#[test]
fn loom_displaced_entry_moves_home() {
    model(|| {
        let (at_home, displaced) = (hash_at(0, 1), hash_at(0, 2));
        let index = index_with(&[(at_home, 1), (displaced, 2)]);
        let writer = spawn(&index, move |index| {
            index.lock(0).remove(at_home);
        });
        assert_eq!(index.get(displaced), Some(entry_at(2)));
        writer.join().unwrap();
        assert_eq!(index.get(displaced), Some(entry_at(2)));
    });
}

/// An entry that is displaced to make room for another is never missed.
#[test]
fn loom_entry_is_displaced() {
    model(|| {
        let (resident, next, new) = (hash_at(0, 1), hash_at(1, 1), hash_at(0, 2));
        let index = index_with(&[(resident, 1), (next, 2)]);
        let writer = spawn(&index, move |index| {
            index.lock(0).insert(new, entry_at(3)).unwrap();
        });
        assert_eq!(index.get(next), Some(entry_at(2)));
        writer.join().unwrap();
        for (hash, units) in [(resident, 1), (next, 2), (new, 3)] {
            assert_eq!(index.get(hash), Some(entry_at(units)));
        }
    });
}

/// A scan step returns an entry once while it moves between its two buckets.
#[test]
fn loom_scan_of_a_moving_entry() {
    long_model(|| {
        let (at_home, displaced) = (hash_at(0, 1), hash_at(0, 2));
        let index = index_with(&[(at_home, 1), (displaced, 2)]);
        let writer = spawn(&index, move |index| {
            index.lock(0).remove(at_home);
        });
        let mut found = Vec::new();
        index.scan_bucket(ScanPosition::START, &mut found);
        found.retain(|entry| *entry != entry_at(1));
        assert_eq!(found, [entry_at(2)]);
        writer.join().unwrap();
    });
}

/// The cleaner's relocation against a user's overwrite: the overwrite stays.
#[test]
fn loom_relocation_against_overwrite() {
    model(|| {
        let key = hash_at(0, 1);
        let index = index_with(&[(key, 1)]);
        let cleaner = spawn(&index, move |index| {
            // The record is copied outside of the lock, on what a read said.
            if let Some(entry) = index.get(key) {
                index.lock(0).redirect(key, Address::new(1), entry_at(9));
                assert!([1, 2].contains(&entry.address.units()));
            }
        });
        let replaced = index.lock(0).insert(key, entry_at(2)).ok().flatten();
        assert!([Some(entry_at(1)), Some(entry_at(9))].contains(&replaced));
        cleaner.join().unwrap();
        assert_eq!(index.get(key), Some(entry_at(2)));
    });
}

/// The cleaner's relocation against a delete, and a new write after it: nothing comes back.
#[test]
fn loom_relocation_against_delete() {
    model(|| {
        let key = hash_at(0, 1);
        let index = index_with(&[(key, 1)]);
        let cleaner = spawn(&index, move |index| {
            index.lock(0).redirect(key, Address::new(1), entry_at(9));
        });
        assert!(index.lock(0).remove(key).is_some());
        assert_eq!(index.get(key), None);
        assert!(matches!(index.lock(0).insert(key, entry_at(2)), Ok(None)));
        cleaner.join().unwrap();
        assert_eq!(index.get(key), Some(entry_at(2)));
        assert_eq!(index.len(), 1);
    });
}

/// Two writers of one key: each replaces exactly what was there.
#[test]
fn loom_two_writers() {
    model(|| {
        let key = hash_at(0, 1);
        let index = index_with(&[]);
        let writer = spawn(&index, move |index| {
            let replaced = index.lock(0).insert(key, entry_at(1)).ok().flatten();
            assert!(replaced.is_none() || replaced == Some(entry_at(2)));
        });
        let replaced = index.lock(0).insert(key, entry_at(2)).ok().flatten();
        writer.join().unwrap();
        let last = index.get(key);
        match replaced {
            Some(entry) => {
                assert_eq!(entry, entry_at(1));
                assert_eq!(last, Some(entry_at(2)));
            }
            None => assert_eq!(last, Some(entry_at(1))),
        }
        assert_eq!(index.len(), 1);
    });
}
