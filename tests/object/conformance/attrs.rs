//! Attributes: set, replaced, removed, and told apart from absent ones.

use super::*;
use crate::common::Random;
use crate::interface::Entries;

fn entries(of: &[(&str, &[u8])]) -> Entries {
    let each = of.iter();
    each.map(|(attr, value)| (attr.as_bytes().to_vec(), value.to_vec()))
        .collect()
}

pub fn attributes_of_absent_objects(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("absent");
    assert_errno(store.getattr(META, &object, b"a"), ENOENT);
    assert_errno(store.getattrs(META, &object), ENOENT);
    refuse(store, META, ENOENT, |tx| {
        tx.setattr(META, &object, "a", "b")
    });
    refuse(store, META, ENOENT, |tx| tx.rmattr(META, &object, "a"));
    refuse(store, META, ENOENT, |tx| {
        tx.setattrs(META, &object, Vec::<(&[u8], &[u8])>::new())
    });
    apply(store, META, |tx| tx.rmattrs(META, &object));
    assert!(!store.exists(META, &object));
    apply(store, META, |tx| tx.touch(META, &object));
    assert_errno(store.getattr(META, &object, b"a"), ENODATA);
    assert_eq!(store.getattrs(META, &object).unwrap(), Entries::new());
    apply(store, META, |tx| {
        tx.rmattr(META, &object, "a").rmattrs(META, &object)
    });
    let nowhere = esker::CollectionName::pg(9, 9);
    assert_errno(store.getattr(nowhere, &object, b"a"), ENOENT);
}

pub fn attributes_are_set_replaced_and_removed(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let big = pattern(1, 10_000);
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .setattr(META, &object, "small", "value")
            .setattr(META, &object, "big", &big)
    });
    let expected = entries(&[("small", b"value"), ("big", &big)]);
    assert_eq!(store.getattrs(META, &object).unwrap(), expected);
    apply(store, META, |tx| {
        tx.setattr(META, &object, "small", &big).setattrs(
            META,
            &object,
            [("big", "tiny"), ("third", "3")],
        )
    });
    let expected = entries(&[("small", &big), ("big", b"tiny"), ("third", b"3")]);
    assert_eq!(store.getattrs(META, &object).unwrap(), expected);
    apply(store, META, |tx| {
        tx.rmattr(META, &object, "small")
            .rmattr(META, &object, "none")
    });
    assert_errno(store.getattr(META, &object, b"small"), ENODATA);
    assert_eq!(store.getattr(META, &object, b"big").unwrap(), b"tiny");
    apply(store, META, |tx| tx.rmattrs(META, &object));
    assert_eq!(store.getattrs(META, &object).unwrap(), Entries::new());
    assert_errno(store.getattr(META, &object, b"big"), ENODATA);
}

pub fn the_last_setter_wins(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .setattrs(META, &object, [("a", "1"), ("b", "1"), ("a", "2")])
            .setattr(META, &object, "b", "2")
            .setattr(META, &object, "c", "1")
            .rmattr(META, &object, "c")
            .rmattr(META, &object, "d")
            .setattr(META, &object, "d", "1")
    });
    let expected = entries(&[("a", b"2"), ("b", b"2"), ("d", b"1")]);
    assert_eq!(store.getattrs(META, &object).unwrap(), expected);
    apply(store, META, |tx| {
        tx.rmattrs(META, &object).setattr(META, &object, "e", "1")
    });
    assert_eq!(
        store.getattrs(META, &object).unwrap(),
        entries(&[("e", b"1")])
    );
}

pub fn empty_values_are_values(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .setattr(META, &object, "empty", "")
            .setattr(META, &object, "", "of an empty name")
    });
    for _ in 0..2 {
        assert_eq!(store.getattr(META, &object, b"empty").unwrap(), b"");
        assert_eq!(
            store.getattr(META, &object, b"").unwrap(),
            b"of an empty name"
        );
        assert_errno(store.getattr(META, &object, b"other"), ENODATA);
        assert_eq!(store.getattrs(META, &object).unwrap().len(), 2);
        store.remount();
        assert!(store.open_collection(META));
    }
    apply(store, META, |tx| tx.rmattr(META, &object, "empty"));
    assert_errno(store.getattr(META, &object, b"empty"), ENODATA);
}

pub fn attributes_and_omap_are_apart(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .setattr(META, &object, "key", "attribute")
            .omap_setkeys(META, &object, [("key", "omap"), ("other", "omap")])
    });
    assert_eq!(
        store.getattrs(META, &object).unwrap(),
        entries(&[("key", b"attribute")])
    );
    apply(store, META, |tx| tx.rmattrs(META, &object));
    let (_, omap) = store.omap_get(META, &object).unwrap();
    assert_eq!(omap, entries(&[("key", b"omap"), ("other", b"omap")]));
    apply(store, META, |tx| {
        tx.setattr(META, &object, "key", "back")
            .omap_clear(META, &object)
    });
    assert_eq!(
        store.getattrs(META, &object).unwrap(),
        entries(&[("key", b"back")])
    );
}

pub fn names_of_attributes_are_bytes(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let mut expected = Entries::new();
    for byte in 0..=255u8 {
        expected.insert(vec![byte], vec![byte, 1]);
        expected.insert(vec![b'x', byte, byte], vec![byte; 5]);
    }
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .setattrs(META, &object, expected.clone())
    });
    assert_eq!(store.getattrs(META, &object).unwrap(), expected);
    for (attr, value) in &expected {
        assert_eq!(store.getattr(META, &object, attr).unwrap(), *value);
    }
}

/// Many objects, attributes of all sizes up to 10 kB, set and removed at random.
pub fn attributes_at_random(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let mut random = Random::new(5);
    let objects: Vec<_> = (0..10).map(|n| meta(format!("o{n}"))).collect();
    let mut expected = vec![Entries::new(); objects.len()];
    apply(store, META, |tx| {
        objects.iter().fold(tx, |tx, object| tx.touch(META, object))
    });
    for round in 0..300 {
        let at = random.below(objects.len() as u64) as usize;
        let attr = format!("attribute {}", random.below(12)).into_bytes();
        if random.below(4) == 0 {
            apply(store, META, |tx| {
                tx.rmattr(META, &objects[at], attr.clone())
            });
            expected[at].remove(&attr);
        } else {
            let len = if random.below(3) == 0 { 10_000 } else { 100 };
            let value = pattern(round, random.below(len) as usize);
            apply(store, META, |tx| {
                tx.setattr(META, &objects[at], attr.clone(), value.clone())
            });
            expected[at].insert(attr, value);
        }
    }
    for _ in 0..2 {
        for (object, expected) in objects.iter().zip(&expected) {
            assert_eq!(store.getattrs(META, object).unwrap(), *expected);
        }
        store.remount();
        assert!(store.open_collection(META));
    }
}
