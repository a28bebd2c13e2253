//! Collections come and go, and what was committed is there after a remount.

use esker::{CollectionName, Transaction};

use super::*;
use crate::contents::contents;

pub fn an_empty_store_mounts_again(store: &mut dyn ObjectInterface) {
    assert_eq!(store.list_collections(), []);
    assert_eq!(store.check(), 0);
    store.remount();
    assert_eq!(store.list_collections(), []);
    assert_eq!(store.check(), 0);
}

pub fn objects_survive_a_remount(store: &mut dyn ObjectInterface) {
    let (a, b) = (meta("first"), meta("second"));
    store.create_new_collection(META);
    apply(store, META, |tx| {
        tx.create_collection(META, 0)
            .write(META, &a, 0, [b"some bytes"])
    });
    store.remount();
    assert!(store.open_collection(META));
    assert_data(store, META, &a, b"some bytes");
    apply(store, META, |tx| tx.write(META, &b, 0, [b"other bytes"]));
    apply(store, META, |tx| {
        tx.remove(META, &a).remove(META, &b).remove_collection(META)
    });
    store.remount();
    assert!(!store.open_collection(META));
    create(store, META, 0);
    assert!(!store.exists(META, &a) && !store.exists(META, &b));
}

pub fn overwrites_survive_a_remount(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let objects: Vec<_> = (0..100).map(|n| meta(format!("object {n}"))).collect();
    apply(store, META, |tx| {
        objects
            .iter()
            .fold(tx, |tx, object| tx.write(META, object, 0, [b"0123456789"]))
    });
    for (n, object) in objects.iter().enumerate() {
        let bytes = format!("{n:010}").into_bytes();
        apply(store, META, |tx| tx.write(META, object, 1, [bytes]));
    }
    store.remount();
    assert!(store.open_collection(META));
    for (n, object) in objects.iter().enumerate() {
        assert_data(store, META, object, format!("0{n:010}").as_bytes());
    }
}

/// All four parts, and again after two remounts without a change between them.
pub fn every_part_survives_remounts(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(3, 1);
    create(store, group, 2);
    let object = head(3, 0b101, "all parts");
    apply(store, group, |tx| {
        tx.write(group, &object, 5000, [pattern(1, 9000)])
            .setattrs(group, &object, [("a", "1"), ("b", "")])
            .omap_setkeys(group, &object, [("k", "v"), ("", "empty key")])
            .omap_setheader(group, &object, b"header")
    });
    let before = contents(store);
    for _ in 0..2 {
        store.remount();
        assert_same(&contents(store), &before, "after a remount");
    }
}

fn made_and_removed(store: &mut dyn ObjectInterface, collection: CollectionName, bits: u32) {
    for _ in 0..2 {
        assert!(!store.open_collection(collection));
        assert!(!store.collection_exists(collection));
        assert_errno(store.collection_bits(collection), ENOENT);
        assert_errno(store.collection_empty(collection), ENOENT);
        create(store, collection, bits);
        assert!(store.open_collection(collection));
        assert!(store.collection_exists(collection));
        assert_eq!(store.collection_bits(collection).unwrap(), bits);
        assert!(store.collection_empty(collection).unwrap());
        assert_eq!(store.list_collections(), [collection]);
        apply(store, collection, |tx| tx.remove_collection(collection));
    }
    assert_eq!(store.list_collections(), []);
}

pub fn the_meta_collection_is_made_and_removed(store: &mut dyn ObjectInterface) {
    made_and_removed(store, META, 0);
}

pub fn placement_groups_are_made_and_removed(store: &mut dyn ObjectInterface) {
    made_and_removed(store, CollectionName::pg(2, 1), 4);
    for (shard, temp) in [(0, false), (3, true), (-1, true)] {
        let group = CollectionName::Pg {
            pool: i64::MAX,
            seed: u32::MAX,
            shard,
            temp,
        };
        made_and_removed(store, group, 32);
    }
}

/// Names that differ in one part alone are different collections.
pub fn many_collections_stand_side_by_side(store: &mut dyn ObjectInterface) {
    let mut names = vec![META];
    for pool in [0, 1, 10] {
        for seed in [0, 1, 2, 3] {
            for shard in [-1, 0, 1] {
                let temp = false;
                names.push(CollectionName::Pg {
                    pool,
                    seed,
                    shard,
                    temp,
                });
            }
        }
    }
    for &name in &names {
        create(store, name, if name == META { 0 } else { 2 });
    }
    for &name in &names {
        let CollectionName::Pg {
            pool, seed, shard, ..
        } = name
        else {
            continue;
        };
        let object = esker::ObjectName::new(pool, seed | 0x100, name.to_string());
        let object = Arc::new(object.with_shard(shard));
        apply(store, name, |tx| {
            tx.write(name, &object, 0, [name.to_string().into_bytes()])
        });
    }
    names.sort();
    let mut listed = store.list_collections();
    listed.sort();
    assert_eq!(listed, names);
    for &name in &names {
        let expected = usize::from(name != META);
        assert_eq!(crate::contents::pages(store, name, 10).len(), expected);
    }
    store.remount();
    let mut listed = store.list_collections();
    listed.sort();
    assert_eq!(listed, names);
}

pub fn collection_hints_change_nothing(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(15, 77);
    store.create_new_collection(group);
    let hint = [128u32.to_le_bytes().as_slice(), &5000u64.to_le_bytes()].concat();
    apply(store, group, |tx| {
        tx.create_collection(group, 7)
            .collection_hint(group, 1, hint)
            .collection_hint(group, 4711, b"of an unknown kind")
            .collection_hint(group, 1, b"")
    });
    assert_eq!(store.collection_bits(group).unwrap(), 7);
    assert!(store.collection_empty(group).unwrap());
}

pub fn alloc_hints_change_nothing(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("hinted");
    apply(store, META, |tx| {
        tx.set_alloc_hint(META, &object, 4 << 20, 4 << 10, 0)
    });
    assert!(!store.exists(META, &object), "a hint makes no object");
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .set_alloc_hint(META, &object, 4 << 20, 4 << 10, 0x3ff)
    });
    assert_data(store, META, &object, b"");
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [b"data"])
            .set_alloc_hint(META, &object, 1, u64::MAX, u32::MAX)
    });
    assert_data(store, META, &object, b"data");
}

pub fn bits_are_set_and_kept(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(4, 0);
    create(store, group, 0);
    for bits in [3, 32, 1, 0, 5] {
        apply(store, group, |tx| tx.collection_set_bits(group, bits));
        assert_eq!(store.collection_bits(group).unwrap(), bits);
        store.remount();
        assert!(store.open_collection(group));
        assert_eq!(store.collection_bits(group).unwrap(), bits);
    }
}

/// Empty transactions, empty lists and nops commit, also for a collection that is not there.
pub fn transactions_without_effect_commit(store: &mut dyn ObjectInterface) {
    store.create_new_collection(META);
    apply(store, META, |tx| tx);
    apply(store, META, |tx| tx.nop().nop());
    store.queue_transactions(META, vec![]).unwrap();
    store
        .queue_transactions(META, vec![Transaction::new(), Transaction::new()])
        .unwrap();
    assert_eq!(store.list_collections(), []);
    create(store, META, 0);
    apply(store, META, |tx| tx.nop());
    assert!(store.collection_empty(META).unwrap());
}

/// A list of transactions sees its earlier ones, and is one unit.
pub fn a_list_of_transactions_is_one(store: &mut dyn ObjectInterface) {
    store.create_new_collection(META);
    let object = meta("a");
    let mut first = Transaction::new();
    first.create_collection(META, 0);
    let mut second = Transaction::new();
    second.write(META, &object, 0, [b"one"]);
    let mut third = Transaction::new();
    third.write(META, &object, 3, [b"two"]);
    store
        .queue_transactions(META, vec![first, second, third])
        .unwrap();
    assert_data(store, META, &object, b"onetwo");

    let before = contents(store);
    let mut good = Transaction::new();
    good.write(META, &object, 0, [b"other"])
        .touch(META, &meta("b"));
    let mut bad = Transaction::new();
    bad.create_collection(META, 0);
    let result = store.queue_transactions(META, vec![good.clone(), bad, good]);
    assert_errno(result, EEXIST);
    assert_same(&contents(store), &before, "after a refused list");
}

/// A placement group's transactions also write to meta.
pub fn a_transaction_spans_collections(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 0);
    create(store, META, 0);
    create(store, group, 0);
    let (log, object) = (meta("log"), head(1, 0x1234, "o"));
    apply(store, group, |tx| {
        tx.touch(META, &log)
            .write(group, &object, 0, [b"data"])
            .omap_setkeys(META, &log, [("1", "entry")])
    });
    assert_data(store, group, &object, b"data");
    assert!(store.exists(META, &log));
    refuse(store, group, ENOENT, |tx| {
        tx.omap_setkeys(META, &log, [("2", "entry")]).setattr(
            group,
            &head(1, 1, "absent"),
            "a",
            "b",
        )
    });
}
