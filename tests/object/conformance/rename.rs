//! Renames: of every part, in chains, and refused when the target is there.

use esker::CollectionName;

use super::*;
use crate::contents::object_contents;

pub fn a_rename_takes_every_part(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (a, b) = (meta("a"), meta("b"));
    apply(store, META, |tx| {
        tx.write(META, &a, 100, [pattern(1, 10_000)])
            .setattr(META, &a, "attr", "value")
            .omap_setkeys(META, &a, [("k", "v")])
            .omap_setheader(META, &a, "h")
    });
    let expected = object_contents(store, META, &a);
    apply(store, META, |tx| {
        tx.collection_move_rename(META, &a, META, &b)
    });
    assert!(!store.exists(META, &a));
    assert_eq!(object_contents(store, META, &b), expected);
    apply(store, META, |tx| tx.try_rename(META, &b, &a));
    assert!(!store.exists(META, &b));
    assert_eq!(object_contents(store, META, &a), expected);
    store.remount();
    assert!(store.open_collection(META));
    assert_eq!(object_contents(store, META, &a), expected);
}

pub fn a_name_is_free_after_a_rename(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (a, b) = (meta("a"), meta("b"));
    apply(store, META, |tx| {
        tx.write(META, &a, 0, [b"first"])
            .setattr(META, &a, "n", "1")
            .omap_setkeys(META, &a, [("n", "1")])
    });
    apply(store, META, |tx| {
        tx.collection_move_rename(META, &a, META, &b)
            .write(META, &a, 0, [b"second one"])
            .setattr(META, &a, "n", "2")
    });
    assert_data(store, META, &a, b"second one");
    assert_data(store, META, &b, b"first");
    assert_eq!(store.getattr(META, &a, b"n").unwrap(), b"2");
    assert_eq!(store.getattr(META, &b, b"n").unwrap(), b"1");
    assert!(store.omap_get_keys(META, &a).unwrap().is_empty());
    assert_eq!(store.omap_get_keys(META, &b).unwrap().len(), 1);
    apply(store, META, |tx| {
        tx.remove(META, &b)
            .collection_move_rename(META, &a, META, &b)
            .touch(META, &a)
    });
    assert_data(store, META, &b, b"second one");
    assert_data(store, META, &a, b"");
}

/// As an erasure-coded pool does it: the head becomes a generation, a new head is made.
pub fn heads_become_generations_in_a_chain(store: &mut dyn ObjectInterface) {
    let group = CollectionName::Pg {
        pool: 4,
        seed: 0,
        shard: 2,
        temp: false,
    };
    create(store, group, 0);
    let head = Arc::new(ObjectName::new(4, 0x77, "o").with_shard(2));
    let generation = |n| Arc::new(ObjectName::clone(&head).with_generation(n));
    apply(store, group, |tx| tx.write(group, &head, 0, [b"one"]));
    apply(store, group, |tx| {
        tx.collection_move_rename(group, &head, group, &generation(15))
            .touch(group, &head)
            .setattr(group, &head, "a", "2")
            .collection_move_rename(group, &head, group, &generation(17))
    });
    assert!(!store.exists(group, &head));
    assert_data(store, group, &generation(15), b"one");
    assert_data(store, group, &generation(17), b"");
    assert_eq!(store.getattr(group, &generation(17), b"a").unwrap(), b"2");
    assert_errno(store.getattr(group, &generation(15), b"a"), ENODATA);
}

pub fn objects_swap_names_in_one_transaction(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (a, b, c) = (meta("a"), meta("b"), meta("c"));
    apply(store, META, |tx| {
        tx.write(META, &a, 0, [b"A"]).write(META, &b, 0, [b"B"])
    });
    apply(store, META, |tx| {
        tx.try_rename(META, &a, &c)
            .try_rename(META, &b, &a)
            .try_rename(META, &c, &b)
    });
    assert_data(store, META, &a, b"B");
    assert_data(store, META, &b, b"A");
    assert!(!store.exists(META, &c));
    apply(store, META, |tx| {
        tx.try_rename(META, &a, &c)
            .write(META, &c, 1, [b"!"])
            .try_rename(META, &c, &a)
            .write(META, &a, 2, [b"!"])
    });
    assert_data(store, META, &a, b"B!!");
}

pub fn renames_of_absent_objects_are_ignored(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (a, b) = (meta("a"), meta("b"));
    apply(store, META, |tx| tx.try_rename(META, &a, &b));
    apply(store, META, |tx| {
        tx.collection_move_rename(META, &a, META, &b)
    });
    assert!(!store.exists(META, &a) && !store.exists(META, &b));
    apply(store, META, |tx| tx.write(META, &b, 0, [b"data"]));
    apply(store, META, |tx| {
        tx.try_rename(META, &a, &b)
            .collection_move_rename(META, &a, META, &b)
            .try_rename(META, &a, &a)
    });
    assert_data(store, META, &b, b"data");
}

pub fn renames_to_what_exists_are_refused(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (a, b) = (meta("a"), meta("b"));
    apply(store, META, |tx| {
        tx.write(META, &a, 0, [b"A"]).write(META, &b, 0, [b"B"])
    });
    refuse(store, META, EEXIST, |tx| tx.try_rename(META, &a, &b));
    refuse(store, META, EEXIST, |tx| {
        tx.collection_move_rename(META, &a, META, &b)
    });
    refuse(store, META, EEXIST, |tx| tx.try_rename(META, &a, &a));
    refuse(store, META, EEXIST, |tx| {
        tx.remove(META, &b).touch(META, &b).try_rename(META, &a, &b)
    });
    apply(store, META, |tx| {
        tx.remove(META, &b).try_rename(META, &a, &b)
    });
    assert_data(store, META, &b, b"A");
}

pub fn renames_stay_in_their_collection(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 0);
    create(store, META, 0);
    create(store, group, 0);
    let object = head(1, 1, "o");
    apply(store, group, |tx| tx.touch(group, &object));
    refuse(store, group, EINVAL, |tx| {
        tx.collection_move_rename(group, &object, META, &object)
    });
}

/// From the temporary pool into place: how a recovered object arrives.
pub fn temporary_objects_are_renamed_into_place(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(6, 3);
    create(store, group, 3);
    let temporary = head(-8, 0b1011, "temp_recovering_o");
    let object = head(6, 0b1011, "o");
    apply(store, group, |tx| {
        tx.write(group, &object, 0, [b"stale"])
            .write(group, &temporary, 0, [b"recovered"])
    });
    apply(store, group, |tx| {
        tx.setattr(group, &temporary, "a", "1")
            .remove(group, &object)
            .collection_move_rename(group, &temporary, group, &object)
    });
    assert_data(store, group, &object, b"recovered");
    assert_eq!(store.getattr(group, &object, b"a").unwrap(), b"1");
    assert!(!store.exists(group, &temporary));
}

/// Clones keep their data when one of them gets another name.
pub fn clones_are_renamed(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let clone = Arc::new(ObjectName::clone(&object).with_snap(4));
    let moved = meta("elsewhere");
    let data = pattern(1, 20_000);
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [&data])
            .clone_object(META, &object, &clone)
            .try_rename(META, &clone, &moved)
            .write(META, &object, 0, [b"x"])
    });
    assert_data(store, META, &moved, &data);
    apply(store, META, |tx| {
        tx.write(META, &moved, 5000, [b"y"])
            .try_rename(META, &object, &clone)
    });
    let mut expected = data.clone();
    put(&mut expected, 0, b"x");
    assert_data(store, META, &clone, &expected);
    expected = data;
    put(&mut expected, 5000, b"y");
    assert_data(store, META, &moved, &expected);
}
