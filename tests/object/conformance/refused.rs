//! What is refused: with which error, and with no effect at all.

use esker::CollectionName;

use super::*;

/// Runs a transaction that would change every part of an object, and then fails.
fn refuse_behind_changes<'a>(
    store: &mut dyn ObjectInterface,
    errno: i32,
    build: impl for<'t> FnOnce(&'t mut Transaction<'a>) -> &'t mut Transaction<'a>,
) {
    let (object, other) = (meta("o"), meta("other"));
    refuse(store, META, errno, |tx| {
        let tx = tx
            .write(META, &object, 3, [pattern(9, 9000)])
            .zero(META, &object, 5, 5)
            .setattr(META, &object, "a", "changed")
            .rmattr(META, &object, "b")
            .omap_setkeys(META, &object, [("k", "changed"), ("new", "")])
            .omap_rmkeyrange(META, &object, "l", "m")
            .omap_setheader(META, &object, "changed")
            .clone_object(META, &object, &meta("clone"))
            .try_rename(META, &other, &meta("renamed"))
            .remove(META, &meta("third"))
            .create_collection(CollectionName::pg(8, 8), 4)
            .truncate(META, &object, 1);
        build(tx)
    });
}

pub fn a_refused_transaction_has_no_effect(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [pattern(1, 10_000)])
            .setattrs(META, &object, [("a", "1"), ("b", "2")])
            .omap_setkeys(META, &object, [("k", "1"), ("l", "2")])
            .omap_setheader(META, &object, "h")
            .write(META, &meta("other"), 0, [b"other"])
            .touch(META, &meta("third"))
    });
    let absent = meta("absent");
    refuse_behind_changes(store, ENOENT, |tx| tx.setattr(META, &absent, "a", "1"));
    refuse_behind_changes(store, ENOENT, |tx| tx.rmattr(META, &absent, "a"));
    refuse_behind_changes(store, ENOENT, |tx| {
        tx.omap_setkeys(META, &absent, [("k", "v")])
    });
    refuse_behind_changes(store, ENOENT, |tx| tx.omap_rmkeys(META, &absent, ["k"]));
    refuse_behind_changes(store, ENOENT, |tx| {
        tx.omap_rmkeyrange(META, &absent, "a", "b")
    });
    refuse_behind_changes(store, ENOENT, |tx| tx.omap_setheader(META, &absent, "h"));
    refuse_behind_changes(store, ENOENT, |tx| tx.clone_object(META, &absent, &object));
    refuse_behind_changes(store, ENOENT, |tx| {
        tx.clone_range(META, &absent, &object, 0, 0, 0)
    });
    refuse_behind_changes(store, EINVAL, |tx| {
        tx.clone_range(META, &object, &meta("clone"), 0, 2, 0)
    });
    refuse_behind_changes(store, EINVAL, |tx| {
        tx.omap_rmkeyrange(META, &object, "b", "a")
    });
    refuse_behind_changes(store, EEXIST, |tx| tx.create_collection(META, 0));
    refuse_behind_changes(store, EEXIST, |tx| {
        tx.try_rename(META, &object, &meta("renamed"))
    });
    refuse_behind_changes(store, ENOTEMPTY, |tx| tx.remove_collection(META));
    refuse_behind_changes(store, E2BIG, |tx| tx.truncate(META, &object, u64::MAX));
    store.remount();
    assert!(store.open_collection(META));
    assert_data(store, META, &object, &pattern(1, 10_000));
}

pub fn collections_that_exist_are_not_created(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 2);
    create(store, group, 3);
    refuse(store, group, EEXIST, |tx| tx.create_collection(group, 3));
    refuse(store, group, EEXIST, |tx| tx.create_collection(group, 5));
    refuse(store, META, EEXIST, |tx| {
        tx.create_collection(META, 0).create_collection(META, 0)
    });
    apply(store, group, |tx| {
        tx.remove_collection(group).create_collection(group, 5)
    });
    assert_eq!(store.collection_bits(group).unwrap(), 5);
}

/// Every operation on a collection that is not there.
pub fn absent_collections_are_refused(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 2);
    let (a, b) = (head(1, 2, "a"), head(1, 2, "b"));
    store.create_new_collection(group);
    refuse(store, group, ENOENT, |tx| tx.touch(group, &a));
    refuse(store, group, ENOENT, |tx| tx.create(group, &a));
    refuse(store, group, ENOENT, |tx| tx.write(group, &a, 0, [b"data"]));
    refuse(store, group, ENOENT, |tx| tx.zero(group, &a, 0, 1));
    refuse(store, group, ENOENT, |tx| tx.truncate(group, &a, 0));
    refuse(store, group, ENOENT, |tx| tx.remove(group, &a));
    refuse(store, group, ENOENT, |tx| tx.setattr(group, &a, "a", "b"));
    refuse(store, group, ENOENT, |tx| tx.rmattrs(group, &a));
    refuse(store, group, ENOENT, |tx| tx.clone_object(group, &a, &b));
    refuse(store, group, ENOENT, |tx| {
        tx.clone_range(group, &a, &b, 0, 0, 0)
    });
    refuse(store, group, ENOENT, |tx| tx.omap_clear(group, &a));
    refuse(store, group, ENOENT, |tx| {
        tx.omap_setkeys(group, &a, [("k", "v")])
    });
    refuse(store, group, ENOENT, |tx| {
        tx.set_alloc_hint(group, &a, 1, 1, 0)
    });
    refuse(store, group, ENOENT, |tx| tx.try_rename(group, &a, &b));
    refuse(store, group, ENOENT, |tx| {
        tx.collection_move_rename(group, &a, group, &b)
    });
    refuse(store, group, ENOENT, |tx| tx.remove_collection(group));
    refuse(store, group, ENOENT, |tx| tx.collection_set_bits(group, 1));
    refuse(store, group, ENOENT, |tx| {
        tx.create_collection(group, 2)
            .remove_collection(group)
            .touch(group, &a)
    });
    assert!(!store.exists(group, &a));
    assert_errno(store.stat(group, &a), ENOENT);
    assert_errno(store.read(group, &a, 0, 0), ENOENT);
    assert_errno(store.fiemap(group, &a, 0, 1), ENOENT);
    assert_errno(store.omap_get(group, &a), ENOENT);
    assert!(store.omap_iterator(group, &a).is_none());
}

/// With an object, after a remount, with some removed in the transaction, with a clone left.
pub fn collections_with_objects_are_not_removed(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(3, 1);
    create(store, group, 1);
    let objects: Vec<_> = (0..4)
        .map(|n| head(3, n * 2 + 1, format!("o{n}")))
        .collect();
    apply(store, group, |tx| {
        objects
            .iter()
            .fold(tx, |tx, object| tx.touch(group, object))
    });
    for _ in 0..2 {
        refuse(store, group, ENOTEMPTY, |tx| tx.remove_collection(group));
        refuse(store, group, ENOTEMPTY, |tx| {
            let some = objects[1..].iter();
            some.fold(tx, |tx, object| tx.remove(group, object))
                .remove_collection(group)
        });
        store.remount();
        assert!(store.open_collection(group));
    }
    let clone = Arc::new(ObjectName::clone(&objects[0]).with_snap(1));
    apply(store, group, |tx| {
        let all = objects[1..].iter();
        all.fold(tx.clone_object(group, &objects[0], &clone), |tx, object| {
            tx.remove(group, object)
        })
    });
    refuse(store, group, ENOTEMPTY, |tx| {
        tx.remove(group, &objects[0]).remove_collection(group)
    });
    store.remount();
    assert!(store.open_collection(group));
    refuse(store, group, ENOTEMPTY, |tx| {
        tx.remove(group, &objects[0]).remove_collection(group)
    });
    let temporary = head(-5, 1, "temporary");
    apply(store, group, |tx| {
        tx.remove(group, &objects[0])
            .remove(group, &clone)
            .touch(group, &temporary)
    });
    refuse(store, group, ENOTEMPTY, |tx| tx.remove_collection(group));
    refuse(store, group, ENOTEMPTY, |tx| {
        tx.remove(group, &temporary)
            .touch(group, &objects[0])
            .remove_collection(group)
    });
    refuse(store, group, ENOTEMPTY, |tx| {
        tx.try_rename(group, &temporary, &objects[0])
            .remove_collection(group)
    });
    apply(store, group, |tx| {
        tx.remove(group, &temporary).remove_collection(group)
    });
    assert_eq!(store.list_collections(), []);
}

/// What is removed within the transaction does not count, nor what came and went.
pub fn objects_removed_in_the_transaction_do_not_count(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(3, 0);
    for remount in [false, true] {
        create(store, group, 0);
        let objects: Vec<_> = (0..50).map(|n| head(3, n, format!("o{n}"))).collect();
        apply(store, group, |tx| {
            objects
                .iter()
                .fold(tx, |tx, object| tx.touch(group, object))
        });
        if remount {
            store.remount();
            assert!(store.open_collection(group));
        }
        let new = head(3, 7, "new");
        apply(store, group, |tx| {
            let tx = objects
                .iter()
                .fold(tx, |tx, object| tx.remove(group, object));
            tx.touch(group, &new)
                .remove(group, &new)
                .remove_collection(group)
        });
        assert!(!store.collection_exists(group));
    }
    // The rest of the transaction may make it anew.
    create(store, group, 0);
    let object = head(3, 1, "o");
    apply(store, group, |tx| {
        tx.write(group, &object, 0, [b"old"])
            .remove(group, &object)
            .remove_collection(group)
            .create_collection(group, 1)
            .touch(group, &head(3, 2, "new"))
    });
    assert_eq!(store.collection_bits(group).unwrap(), 1);
    assert!(!store.exists(group, &object));
}

pub fn bounds_are_no_objects(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let max = Arc::new(ObjectName::max());
    refuse(store, META, EINVAL, |tx| tx.touch(META, &max));
    refuse(store, META, EINVAL, |tx| tx.remove(META, &max));
    refuse(store, META, EINVAL, |tx| {
        tx.try_rename(META, &meta("a"), &max)
    });
    assert!(!store.exists(META, &max));
    refuse(store, META, EINVAL, |tx| tx.collection_set_bits(META, 33));
    refuse(store, META, EINVAL, |tx| {
        tx.create_collection(CollectionName::pg(1, 1), 33)
    });
}
