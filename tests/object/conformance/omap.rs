//! The omap: keys, values, header, and removal of ranges.

use std::collections::BTreeSet;

use super::*;
use crate::interface::{Bytes, Entries};

pub(super) fn entries(of: &[(&str, &str)]) -> Entries {
    let each = of.iter();
    each.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

fn omap(store: &dyn ObjectInterface, object: &ObjectName) -> Entries {
    store.omap_get(META, object).unwrap().1
}

fn keys(of: &[&str]) -> BTreeSet<Bytes> {
    of.iter().map(|key| key.as_bytes().to_vec()).collect()
}

pub fn omaps_of_absent_objects(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("absent");
    assert_errno(store.omap_get(META, &object), ENOENT);
    assert_errno(store.omap_get_header(META, &object), ENOENT);
    assert_errno(store.omap_get_keys(META, &object), ENOENT);
    assert_errno(store.omap_get_values(META, &object, &[b"k"]), ENOENT);
    assert_errno(store.omap_check_keys(META, &object, &[b"k"]), ENOENT);
    assert!(store.omap_iterator(META, &object).is_none());
    refuse(store, META, ENOENT, |tx| {
        tx.omap_setkeys(META, &object, [("k", "v")])
    });
    refuse(store, META, ENOENT, |tx| {
        tx.omap_rmkeys(META, &object, ["k"])
    });
    refuse(store, META, ENOENT, |tx| {
        tx.omap_rmkeyrange(META, &object, "a", "b")
    });
    refuse(store, META, ENOENT, |tx| {
        tx.omap_setheader(META, &object, "h")
    });
    apply(store, META, |tx| tx.omap_clear(META, &object));
    assert!(!store.exists(META, &object));
}

pub fn an_object_without_omap_has_an_empty_one(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| tx.touch(META, &object));
    assert_eq!(
        store.omap_get(META, &object).unwrap(),
        (vec![], Entries::new())
    );
    assert_eq!(store.omap_get_header(META, &object).unwrap(), b"");
    assert!(store.omap_get_keys(META, &object).unwrap().is_empty());
    assert!(
        store
            .omap_get_values(META, &object, &[b"k"])
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .omap_check_keys(META, &object, &[b"k"])
            .unwrap()
            .is_empty()
    );
    let mut iterator = store.omap_iterator(META, &object).unwrap();
    iterator.seek_to_first().unwrap();
    assert!(!iterator.valid());
    drop(iterator);
    apply(store, META, |tx| {
        tx.omap_rmkeys(META, &object, ["k"])
            .omap_rmkeyrange(META, &object, "a", "z")
            .omap_clear(META, &object)
            .omap_setkeys(META, &object, Entries::new())
            .omap_rmkeys(META, &object, Vec::<&[u8]>::new())
    });
    assert_eq!(
        store.omap_get(META, &object).unwrap(),
        (vec![], Entries::new())
    );
}

pub fn keys_are_set_read_and_removed(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .omap_setkeys(META, &object, [("b", "2"), ("a", "1"), ("c", "")])
            .omap_setheader(META, &object, "the header")
    });
    let (header, all) = store.omap_get(META, &object).unwrap();
    assert_eq!(header, b"the header");
    assert_eq!(all, entries(&[("a", "1"), ("b", "2"), ("c", "")]));
    let some: [&[u8]; 4] = [b"c", b"none", b"a", b""];
    assert_eq!(
        store.omap_get_values(META, &object, &some).unwrap(),
        entries(&[("a", "1"), ("c", "")])
    );
    assert_eq!(
        store.omap_check_keys(META, &object, &some).unwrap(),
        keys(&["a", "c"])
    );
    apply(store, META, |tx| {
        tx.omap_setkeys(META, &object, [("a", "new"), ("d", "4"), ("d", "5")])
            .omap_rmkeys(META, &object, ["b", "none"])
    });
    assert_eq!(
        omap(store, &object),
        entries(&[("a", "new"), ("c", ""), ("d", "5")])
    );
    assert_eq!(
        store.omap_get_keys(META, &object).unwrap(),
        keys(&["a", "c", "d"])
    );
}

/// One by one there, one by one away; the state is right after every step.
pub fn an_omap_grows_and_shrinks(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| tx.touch(META, &object));
    let mut expected = Entries::new();
    for n in 0..100 {
        let key = format!("key-{n}").into_bytes();
        let value = format!("value-{n}").into_bytes();
        let entry = [(key.clone(), value.clone())];
        apply(store, META, |tx| tx.omap_setkeys(META, &object, entry));
        expected.insert(key, value);
        assert_eq!(omap(store, &object), expected);
    }
    for n in 0..100 {
        let key = format!("key-{n}").into_bytes();
        apply(store, META, |tx| {
            tx.omap_rmkeys(META, &object, [key.as_slice()])
        });
        expected.remove(&key);
        assert_eq!(omap(store, &object), expected);
    }
}

pub fn clear_takes_keys_and_header(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    for removed in [false, true] {
        apply(store, META, |tx| {
            tx.touch(META, &object)
                .omap_setkeys(META, &object, [("a", "1")])
                .omap_setheader(META, &object, "h")
        });
        apply(store, META, |tx| tx.omap_clear(META, &object));
        assert_eq!(
            store.omap_get(META, &object).unwrap(),
            (vec![], Entries::new())
        );
        apply(store, META, |tx| {
            tx.omap_setkeys(META, &object, [("old", "1")])
                .omap_clear(META, &object)
                .omap_setkeys(META, &object, [("new", "2")])
        });
        assert_eq!(omap(store, &object), entries(&[("new", "2")]));
        if removed {
            apply(store, META, |tx| tx.remove(META, &object));
        }
    }
}

pub fn the_header_is_set_apart(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .omap_setheader(META, &object, "alone")
    });
    store.remount();
    assert!(store.open_collection(META));
    assert_eq!(store.omap_get_header(META, &object).unwrap(), b"alone");
    assert!(omap(store, &object).is_empty());
    let big = pattern(1, 50_000);
    apply(store, META, |tx| {
        tx.omap_setheader(META, &object, &big)
            .omap_setkeys(META, &object, [("a", "1"), ("b", "2")])
            .omap_rmkeyrange(META, &object, "", "z")
    });
    assert_eq!(
        store.omap_get(META, &object).unwrap(),
        (big, Entries::new())
    );
    apply(store, META, |tx| tx.omap_setheader(META, &object, ""));
    assert_eq!(store.omap_get_header(META, &object).unwrap(), b"");
}

pub fn ranges_are_half_open(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| tx.touch(META, &object));
    let all: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let cases: [(&str, &str, usize, usize); 9] = [
        ("k3", "k7", 3, 7),
        ("k3", "k3", 0, 0),
        ("", "", 0, 0),
        ("", "k1", 0, 1),
        ("k9", "z", 9, 10),
        ("k25", "k45", 3, 5),
        ("a", "b", 0, 0),
        ("x", "z", 0, 0),
        ("", "z", 0, 10),
    ];
    for (first, last, from, to) in cases {
        apply(store, META, |tx| {
            tx.omap_clear(META, &object)
                .omap_setheader(META, &object, "kept")
                .omap_setkeys(
                    META,
                    &object,
                    all.iter().map(|key| (key.as_bytes(), b"v".as_slice())),
                )
        });
        apply(store, META, |tx| {
            tx.omap_rmkeyrange(META, &object, first, last)
        });
        let mut expected: BTreeSet<Bytes> =
            all.iter().map(|key| key.clone().into_bytes()).collect();
        for key in &all[from..to] {
            expected.remove(key.as_bytes());
        }
        assert_eq!(
            store.omap_get_keys(META, &object).unwrap(),
            expected,
            "{first}..{last}"
        );
        assert_eq!(store.omap_get_header(META, &object).unwrap(), b"kept");
    }
    refuse(store, META, EINVAL, |tx| {
        tx.omap_rmkeyrange(META, &object, "b", "a")
    });
}

/// A range goes, and keys within it that are set later in the transaction stay.
pub fn ranges_and_keys_apply_in_order(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .omap_setkeys(META, &object, [("a", "1"), ("b", "1"), ("c", "1")])
            .omap_rmkeyrange(META, &object, "a", "c")
            .omap_setkeys(META, &object, [("b", "2")])
            .omap_rmkeys(META, &object, ["c"])
            .omap_setkeys(META, &object, [("c", "3"), ("d", "3")])
            .omap_rmkeyrange(META, &object, "d", "e")
    });
    assert_eq!(omap(store, &object), entries(&[("b", "2"), ("c", "3")]));
}

/// Values from nothing to megabytes, and keys of all bytes.
pub fn values_and_keys_of_all_sizes(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let mut expected = Entries::new();
    for (n, len) in [0, 1, 100, 511, 4096, 65_536, 1 << 20, (3 << 20) + 17]
        .into_iter()
        .enumerate()
    {
        expected.insert(
            format!("value of {len}").into_bytes(),
            pattern(n as u64, len),
        );
    }
    expected.insert(vec![], b"of the empty key".to_vec());
    expected.insert(pattern(99, 3000), b"of a long key".to_vec());
    for byte in 0..=255u8 {
        expected.insert(vec![byte], vec![byte]);
        expected.insert(vec![0xff, byte, 0], vec![]);
    }
    let (big, small): (Vec<_>, Vec<_>) = expected.iter().partition(|(_, value)| value.len() > 1000);
    apply(store, META, |tx| {
        tx.touch(META, &object).omap_setkeys(META, &object, small)
    });
    for entry in big {
        apply(store, META, |tx| tx.omap_setkeys(META, &object, [entry]));
    }
    for _ in 0..2 {
        assert!(omap(store, &object) == expected);
        store.remount();
        assert!(store.open_collection(META));
    }
    let some: Vec<&[u8]> = expected.keys().step_by(7).map(Vec::as_slice).collect();
    let found = store.omap_get_values(META, &object, &some).unwrap();
    assert_eq!(found.len(), some.len());
    assert!(found.iter().all(|(key, value)| expected[key] == *value));
}

pub fn omaps_of_objects_are_apart(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let names: [&[u8]; 4] = [b"a", b"a\0", b"aa", b""];
    for name in names {
        let object = meta(name);
        apply(store, META, |tx| {
            tx.touch(META, &object)
                .omap_setkeys(META, &object, [("k", name), ("", name), ("\u{7f}", name)])
                .omap_setheader(META, &object, name)
        });
    }
    apply(store, META, |tx| tx.omap_clear(META, &meta("a")));
    assert!(omap(store, &meta("a")).is_empty());
    for name in &names[1..] {
        let (header, omap) = store.omap_get(META, &meta(*name)).unwrap();
        assert_eq!((header.as_slice(), omap.len()), (*name, 3));
        assert!(omap.values().all(|value| value == name));
    }
}
