//! The bounds of sizes: what fits is kept, one more is `TooLarge`.

use esker::object::{
    ATTR_NAME_BYTES_MAX, ATTR_VALUE_BYTES_MAX, NAME_BYTES_MAX, OBJECT_BYTES_MAX,
    OMAP_KEY_BYTES_MAX, OMAP_VALUE_BYTES_MAX,
};

use super::*;

pub fn objects_end_below_4_gib(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let last = OBJECT_BYTES_MAX - 4;
    assert_eq!(OBJECT_BYTES_MAX, 0xffff_fffe);
    apply(store, META, |tx| tx.write(META, &object, last, [b"last"]));
    assert_eq!(store.stat(META, &object).unwrap().size, OBJECT_BYTES_MAX);
    assert_eq!(
        store.read(META, &object, last - 2, 100).unwrap(),
        b"\0\0last"
    );
    assert_eq!(store.read(META, &object, 0, 3).unwrap(), b"\0\0\0");
    let extents = store.fiemap(META, &object, 0, u64::MAX).unwrap();
    assert!(
        extents
            .last()
            .is_some_and(|(offset, len)| offset + len >= OBJECT_BYTES_MAX)
    );
    refuse(store, META, E2BIG, |tx| {
        tx.write(META, &object, last + 1, [b"last"])
    });
    refuse(store, META, E2BIG, |tx| {
        tx.write(META, &object, u64::MAX, [b"last"])
    });
    refuse(store, META, E2BIG, |tx| {
        tx.write(META, &object, u64::MAX - 4, [b"last"])
    });
    refuse(store, META, E2BIG, |tx| tx.zero(META, &object, last + 1, 4));
    refuse(store, META, E2BIG, |tx| {
        tx.zero(META, &object, u64::MAX, u64::MAX)
    });
    refuse(store, META, E2BIG, |tx| tx.zero(META, &object, 0, u64::MAX));
    refuse(store, META, E2BIG, |tx| {
        tx.truncate(META, &object, OBJECT_BYTES_MAX + 1)
    });
    refuse(store, META, E2BIG, |tx| {
        tx.clone_range(META, &object, &meta("b"), 0, 4, last + 1)
    });
    apply(store, META, |tx| {
        tx.clone_range(META, &object, &meta("b"), last, 4, last)
    });
    assert_eq!(store.read(META, &meta("b"), last, 100).unwrap(), b"last");
    apply(store, META, |tx| tx.zero(META, &object, last, 4));
    assert_eq!(store.read(META, &object, last, 100).unwrap(), [0; 4]);
    apply(store, META, |tx| {
        tx.truncate(META, &object, 0)
            .truncate(META, &object, OBJECT_BYTES_MAX)
    });
    assert_eq!(store.stat(META, &object).unwrap().size, OBJECT_BYTES_MAX);
}

pub fn names_have_bounds(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let long = vec![b'n'; NAME_BYTES_MAX];
    let whole = ObjectName::new(META_POOL, 0, long.clone()).with_nspace(long.clone());
    let whole = Arc::new(whole.with_key(vec![b'k'; NAME_BYTES_MAX]));
    apply(store, META, |tx| tx.touch(META, &whole));
    assert!(store.exists(META, &whole));
    let longer = vec![b'n'; NAME_BYTES_MAX + 1];
    for name in [
        ObjectName::new(META_POOL, 0, longer.clone()),
        ObjectName::new(META_POOL, 0, "n").with_nspace(longer.clone()),
        ObjectName::new(META_POOL, 0, "n").with_key(longer),
    ] {
        let name = Arc::new(name);
        refuse(store, META, E2BIG, |tx| tx.touch(META, &name));
        refuse(store, META, E2BIG, |tx| tx.try_rename(META, &whole, &name));
    }
}

pub fn attributes_have_bounds(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let (attr, value) = (
        vec![b'a'; ATTR_NAME_BYTES_MAX],
        pattern(1, ATTR_VALUE_BYTES_MAX),
    );
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .setattr(META, &object, &attr, &value)
    });
    assert_bytes(&store.getattr(META, &object, &attr).unwrap(), &value);
    let longer = vec![b'a'; ATTR_NAME_BYTES_MAX + 1];
    refuse(store, META, E2BIG, |tx| {
        tx.setattr(META, &object, longer.clone(), "v")
    });
    refuse(store, META, E2BIG, |tx| tx.rmattr(META, &object, longer));
    let larger = vec![0; ATTR_VALUE_BYTES_MAX + 1];
    refuse(store, META, E2BIG, |tx| {
        tx.setattr(META, &object, "a", larger)
    });
    store.remount();
    assert!(store.open_collection(META));
    assert_bytes(&store.getattr(META, &object, &attr).unwrap(), &value);
}

pub fn omaps_have_bounds(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let (key, value) = (
        pattern(1, OMAP_KEY_BYTES_MAX),
        pattern(2, OMAP_VALUE_BYTES_MAX),
    );
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .omap_setkeys(META, &object, [(key.as_slice(), "v"), (b"k", "")])
    });
    assert_eq!(
        store.omap_get_values(META, &object, &[&key]).unwrap()[&key],
        b"v"
    );
    apply(store, META, |tx| {
        tx.omap_setkeys(META, &object, [("k", &value)])
    });
    assert_bytes(
        &store.omap_get_values(META, &object, &[b"k"]).unwrap()[b"k".as_slice()],
        &value,
    );
    let longer = vec![b'k'; OMAP_KEY_BYTES_MAX + 1];
    refuse(store, META, E2BIG, |tx| {
        tx.omap_setkeys(META, &object, [(longer.clone(), "v")])
    });
    refuse(store, META, E2BIG, |tx| {
        tx.omap_rmkeys(META, &object, [longer])
    });
    let larger = vec![0; OMAP_VALUE_BYTES_MAX + 1];
    refuse(store, META, E2BIG, |tx| {
        tx.omap_setkeys(META, &object, [("k", larger.clone())])
    });
    refuse(store, META, E2BIG, |tx| {
        tx.omap_setheader(META, &object, larger)
    });
}
