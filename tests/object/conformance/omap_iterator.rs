//! Iterators over the omap: bounds, order, several at once.

use super::omap::entries;
use super::*;
use crate::common::Random;
use crate::interface::{Bytes, Entries, OmapIterator};

fn rest(iterator: &mut dyn OmapIterator) -> Vec<(Bytes, Bytes)> {
    let mut rest = Vec::new();
    while iterator.valid() {
        rest.push((iterator.key(), iterator.value()));
        iterator.next().unwrap();
    }
    rest
}

fn at(iterator: &dyn OmapIterator) -> Option<String> {
    iterator
        .valid()
        .then(|| String::from_utf8(iterator.key()).unwrap())
}

fn with_keys(store: &mut dyn ObjectInterface, keys: &[&str]) -> Arc<ObjectName> {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.touch(META, &object).omap_setkeys(
            META,
            &object,
            keys.iter().map(|key| (key.as_bytes(), key.as_bytes())),
        )
    });
    object
}

pub fn bounds_are_lower_and_upper(store: &mut dyn ObjectInterface) {
    let object = with_keys(store, &["b", "bb", "d", "f"]);
    let mut iterator = store.omap_iterator(META, &object).unwrap();
    for (key, lower, upper) in [
        ("", Some("b"), Some("b")),
        ("a", Some("b"), Some("b")),
        ("b", Some("b"), Some("bb")),
        ("ba", Some("bb"), Some("bb")),
        ("bb", Some("bb"), Some("d")),
        ("c", Some("d"), Some("d")),
        ("f", Some("f"), None),
        ("f\0", None, None),
        ("g", None, None),
    ] {
        iterator.lower_bound(key.as_bytes()).unwrap();
        assert_eq!(
            at(iterator.as_ref()).as_deref(),
            lower,
            "lower bound of {key}"
        );
        iterator.upper_bound(key.as_bytes()).unwrap();
        assert_eq!(
            at(iterator.as_ref()).as_deref(),
            upper,
            "upper bound of {key}"
        );
    }
}

pub fn iterators_walk_from_anywhere(store: &mut dyn ObjectInterface) {
    let all = ["a", "c", "e", "g", "i"];
    let object = with_keys(store, &all);
    let mut iterator = store.omap_iterator(META, &object).unwrap();
    assert!(!iterator.valid(), "valid before its first seek");
    iterator.seek_to_first().unwrap();
    assert_eq!(rest(iterator.as_mut()).len(), 5);
    assert!(!iterator.valid());
    for first in 0..all.len() {
        iterator.lower_bound(all[first].as_bytes()).unwrap();
        let found = rest(iterator.as_mut());
        let expected = all[first..].iter().map(|key| key.as_bytes().to_vec());
        assert!(found.iter().map(|(key, _)| key.clone()).eq(expected));
        assert!(found.iter().all(|(key, value)| key == value));
    }
    iterator.seek_to_first().unwrap();
    assert_eq!(
        at(iterator.as_ref()).as_deref(),
        Some("a"),
        "sought again after its end"
    );
}

pub fn several_iterators_at_once(store: &mut dyn ObjectInterface) {
    let object = with_keys(store, &["a", "b", "c"]);
    let mut one = store.omap_iterator(META, &object).unwrap();
    let mut two = store.omap_iterator(META, &object).unwrap();
    one.seek_to_first().unwrap();
    two.lower_bound(b"b").unwrap();
    one.next().unwrap();
    one.next().unwrap();
    assert_eq!(at(one.as_ref()).as_deref(), Some("c"));
    assert_eq!(at(two.as_ref()).as_deref(), Some("b"));
    two.seek_to_first().unwrap();
    assert_eq!(at(one.as_ref()).as_deref(), Some("c"));
    assert_eq!(rest(two.as_mut()).len(), 3);
}

/// Keys beyond ASCII sort as unsigned bytes; a key is before those that it begins.
pub fn keys_sort_as_unsigned_bytes(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let mut keys: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    keys.extend((0..=255u8).map(|byte| vec![0x80, byte]));
    keys.extend((0..=255u8).map(|byte| vec![0, byte]));
    keys.extend([
        vec![],
        vec![0; 5],
        vec![0xff; 2],
        vec![0xff; 300],
        b"a\0b".to_vec(),
    ]);
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .omap_setkeys(META, &object, keys.iter().rev().map(|key| (key, key)))
    });
    keys.sort();
    keys.dedup();
    let mut iterator = store.omap_iterator(META, &object).unwrap();
    iterator.seek_to_first().unwrap();
    let found: Vec<Bytes> = rest(iterator.as_mut())
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(found, keys);
    for (n, key) in keys.iter().enumerate() {
        iterator.lower_bound(key).unwrap();
        assert_eq!(iterator.key(), *key);
        iterator.upper_bound(key).unwrap();
        let next = iterator.valid().then(|| iterator.key());
        assert_eq!(next.as_ref(), keys.get(n + 1));
    }
}

/// A large omap, read by pages from random places.
pub fn a_large_omap_is_read_by_pages(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("index");
    let mut expected = Entries::new();
    apply(store, META, |tx| tx.touch(META, &object));
    for batch in 0..10_u64 {
        let mut random = Random::new(batch);
        let entries: Entries = (0..1000)
            .map(|_| {
                let key = format!("{:020}", random.next() % 1_000_000_007).into_bytes();
                (key.clone(), [b"of ".as_slice(), &key].concat())
            })
            .collect();
        apply(store, META, |tx| {
            tx.omap_setkeys(META, &object, entries.clone())
        });
        expected.extend(entries);
    }
    let mut random = Random::new(3);
    let mut iterator = store.omap_iterator(META, &object).unwrap();
    for _ in 0..50 {
        let from = format!("{:020}", random.next() % 1_000_000_007).into_bytes();
        iterator.lower_bound(&from).unwrap();
        for (key, value) in expected.range(from..).take(100) {
            assert_eq!((&iterator.key(), &iterator.value()), (key, value));
            iterator.next().unwrap();
        }
    }
}

/// Seeks pass over what was removed, singly or by range.
pub fn iterators_pass_over_removed_keys(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("queue");
    let key = |n: u32| format!("{n:06}").into_bytes();
    let entries = (0..2000).map(|n| (key(n), key(n)));
    apply(store, META, |tx| {
        tx.touch(META, &object).omap_setkeys(META, &object, entries)
    });
    apply(store, META, |tx| {
        tx.omap_rmkeyrange(META, &object, key(100), key(1000))
    });
    let singly: Vec<Vec<u8>> = (1000..1900).map(key).collect();
    apply(store, META, |tx| tx.omap_rmkeys(META, &object, singly));
    {
        let mut iterator = store.omap_iterator(META, &object).unwrap();
        iterator.upper_bound(&key(99)).unwrap();
        assert_eq!(iterator.key(), key(1900));
        iterator.lower_bound(&key(98)).unwrap();
        for expected in [98, 99, 1900, 1901] {
            assert_eq!(iterator.key(), key(expected));
            iterator.next().unwrap();
        }
    }
    apply(store, META, |tx| {
        tx.omap_rmkeyrange(META, &object, "", key(2000))
    });
    let mut iterator = store.omap_iterator(META, &object).unwrap();
    iterator.lower_bound(b"").unwrap();
    assert!(!iterator.valid());
}

pub fn an_iterator_reads_a_clone(store: &mut dyn ObjectInterface) {
    let object = with_keys(store, &["a", "b"]);
    let clone = Arc::new(ObjectName::clone(&object).with_snap(7));
    apply(store, META, |tx| {
        tx.clone_object(META, &object, &clone)
            .omap_rmkeys(META, &object, ["a"])
            .omap_setkeys(META, &object, [("b", "changed"), ("c", "new")])
    });
    let mut iterator = store.omap_iterator(META, &clone).unwrap();
    iterator.seek_to_first().unwrap();
    let found: Entries = rest(iterator.as_mut()).into_iter().collect();
    assert_eq!(found, entries(&[("a", "a"), ("b", "b")]));
}
