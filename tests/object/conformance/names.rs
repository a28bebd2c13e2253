//! Names that are long or odd, and names that differ in one part alone.

use esker::CollectionName;

use super::listing::{assert_listed, fill};
use super::*;

pub fn a_name_has_any_bytes(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let all: Vec<u8> = (0..=255).collect();
    let object = meta([b"funny ".as_slice(), &all].concat());
    apply(store, META, |tx| tx.write(META, &object, 0, [b"data"]));
    store.remount();
    assert!(store.open_collection(META));
    assert_data(store, META, &object, b"data");
    let names = fill(
        store,
        META,
        [ObjectName::new(META_POOL, 0, all), (*object).clone()],
    );
    assert_listed(store, META, &names);
}

pub fn long_names(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let lengths = [
        100, 255, 256, 300, 500, 512, 1000, 1023, 1024, 1025, 2048, 4096,
    ];
    for len in lengths {
        let object = meta("n".repeat(len));
        let sibling = meta(format!("{}X", "n".repeat(len - 1)));
        apply(store, META, |tx| {
            tx.write(META, &object, 0, [len.to_string().into_bytes()])
                .touch(META, &sibling)
        });
        assert_data(store, META, &object, len.to_string().as_bytes());
        assert_data(store, META, &sibling, b"");
    }
    store.remount();
    assert!(store.open_collection(META));
    for len in lengths {
        assert_data(
            store,
            META,
            &meta("n".repeat(len)),
            len.to_string().as_bytes(),
        );
    }
}

/// 320 names of 500 bytes and more with one beginning.
pub fn long_names_with_one_beginning(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let beginning = "some very long beginning ".repeat(20);
    let names = (0..320).map(|n| ObjectName::new(META_POOL, n % 7, format!("{beginning}{n}")));
    let names = fill(store, META, names);
    assert_listed(store, META, &names);
    for chunk in names.chunks(100) {
        apply(store, META, |tx| {
            chunk
                .iter()
                .fold(tx, |tx, name| tx.remove(META, &Arc::new(name.clone())))
        });
    }
    assert!(store.collection_empty(META).unwrap());
}

/// Names as the object gateway makes them: about 1 kB, with a locator key and a namespace.
pub fn names_of_the_object_gateway(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 0);
    create(store, group, 0);
    let marker = "\u{1}default.4106.50_";
    let base = ObjectName::new(
        1,
        0x0d8e_a3c1,
        format!("{marker}{}", "bucket/key.".repeat(95)),
    )
    .with_nspace("shadow");
    let names = [
        base.clone(),
        base.clone().with_key("the locator key"),
        base.clone().with_key("the locator key").with_nspace(""),
        base.with_generation(3),
    ];
    for (n, name) in names.iter().enumerate() {
        let object = Arc::new(name.clone());
        apply(store, group, |tx| {
            tx.write(group, &object, 0, [vec![n as u8; 10]])
        });
    }
    for (n, name) in names.iter().enumerate() {
        assert_data(store, group, name, &[n as u8; 10]);
    }
    let names = fill(store, group, names);
    assert_listed(store, group, &names);
}

/// Objects whose names differ in one part share nothing.
pub fn every_part_tells_objects_apart(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let base = ObjectName::new(META_POOL, 5, "name")
        .with_nspace("space")
        .with_key("key");
    let others = [
        ObjectName::new(META_POOL - 1, 5, "name")
            .with_nspace("space")
            .with_key("key"),
        ObjectName::new(META_POOL, 6, "name")
            .with_nspace("space")
            .with_key("key"),
        ObjectName::new(META_POOL, 5, "nam")
            .with_nspace("space")
            .with_key("key"),
        ObjectName::new(META_POOL, 5, "key")
            .with_nspace("space")
            .with_key("name"),
        ObjectName::new(META_POOL, 5, "name")
            .with_nspace("spacek")
            .with_key("ey"),
        base.clone().with_nspace(""),
        base.clone().with_key(""),
        base.clone().with_shard(0),
        base.clone().with_snap(0),
        base.clone().with_generation(0),
    ];
    apply(store, META, |tx| {
        tx.write(META, &Arc::new(base.clone()), 0, [b"base"])
    });
    for other in &others {
        assert!(!store.exists(META, other), "{other}");
    }
    for (n, other) in others.iter().enumerate() {
        let object = Arc::new(other.clone());
        apply(store, META, |tx| {
            tx.write(META, &object, 0, [n.to_string().into_bytes()])
                .setattr(META, &object, "n", n.to_string().into_bytes())
        });
    }
    assert_data(store, META, &base, b"base");
    for (n, other) in others.iter().enumerate() {
        assert_data(store, META, other, n.to_string().as_bytes());
        assert_eq!(
            store.getattr(META, other, b"n").unwrap(),
            n.to_string().as_bytes()
        );
    }
}

/// The same name in two collections is two objects.
pub fn collections_tell_objects_apart(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(7, 1);
    create(store, META, 0);
    create(store, group, 1);
    let object = head(7, 3, "o");
    apply(store, group, |tx| tx.write(group, &object, 0, [b"group"]));
    assert!(!store.exists(META, &object));
    apply(store, META, |tx| tx.write(META, &object, 0, [b"in meta"]));
    assert_data(store, group, &object, b"group");
    assert_data(store, META, &object, b"in meta");
    apply(store, group, |tx| tx.remove(group, &object));
    assert_data(store, META, &object, b"in meta");
}
