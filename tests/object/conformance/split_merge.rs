//! Placement groups split and merge: objects move by their hash, and nothing is lost.

use esker::CollectionName;

use super::listing::{assert_listed, fill};
use super::*;
use crate::contents::{contents, pages};

/// Creates the group with objects of both halves, splits it at `bits`, checks, and merges.
fn split_and_merge(store: &mut dyn ObjectInterface, bits: u32, count: u32, clones: bool) {
    let (low, high) = (CollectionName::pg(52, 0), CollectionName::pg(52, 1 << bits));
    create(store, low, bits);
    let names: Vec<ObjectName> = (0..count)
        .flat_map(|n| {
            let head = ObjectName::new(52, n << bits, format!("object {n}"));
            let clone = clones.then(|| head.clone().with_snap(u64::from(n) + 1));
            [Some(head), clone]
        })
        .flatten()
        .collect();
    let mut names = fill(store, low, names);
    for (n, name) in names.iter().enumerate().step_by(3) {
        let object = Arc::new(name.clone());
        apply(store, low, |tx| {
            tx.write(low, &object, 0, [vec![n as u8; 5000]])
                .setattr(low, &object, "n", vec![n as u8])
                .omap_setkeys(low, &object, [("n", vec![n as u8])])
        });
    }
    if clones {
        for name in names
            .iter()
            .filter(|name| name.snap() != esker::object::NO_SNAP)
            .step_by(2)
        {
            let clone = Arc::new(name.clone());
            let head = Arc::new(name.clone().with_snap(esker::object::NO_SNAP));
            apply(store, low, |tx| tx.clone_object(low, &head, &clone));
        }
    }
    names.sort();
    let before = contents(store).remove(&low).unwrap();

    store.create_new_collection(high);
    apply(store, low, |tx| {
        tx.create_collection(high, bits + 1)
            .split_collection(low, bits + 1, 1 << bits, high)
    });
    assert!(store.open_collection(high));
    let (upper, lower): (Vec<_>, Vec<_>) = names
        .iter()
        .cloned()
        .partition(|name| name.hash() & 1 << bits != 0);
    for (group, expected) in [(low, &lower), (high, &upper)] {
        assert_eq!(store.collection_bits(group).unwrap(), bits + 1);
        assert_listed(store, group, expected);
        assert!(store.open_collection(low) && store.open_collection(high));
        for name in expected {
            let found = crate::contents::object_contents(store, group, name);
            assert_eq!(found, before.objects[name], "{name}");
        }
    }
    // Both take part in transactions.
    for group in [low, high] {
        let CollectionName::Pg { seed, .. } = group else {
            continue;
        };
        let object = head(52, seed, "after the split");
        apply(store, group, |tx| tx.write(group, &object, 0, [b"new"]));
        assert_data(store, group, &object, b"new");
        apply(store, group, |tx| tx.remove(group, &object));
    }

    apply(store, high, |tx| tx.merge_collection(high, low, bits));
    assert!(!store.collection_exists(high) && !store.open_collection(high));
    assert_eq!(store.collection_bits(low).unwrap(), bits);
    assert_listed(store, low, &names);
    let after = contents(store).remove(&low).unwrap();
    assert_eq!(after, before);
}

pub fn groups_split_and_merge_few_bits(store: &mut dyn ObjectInterface) {
    split_and_merge(store, 0, 40, false);
}

pub fn groups_split_and_merge_many_bits(store: &mut dyn ObjectInterface) {
    split_and_merge(store, 10, 200, false);
}

pub fn groups_split_and_merge_with_clones(store: &mut dyn ObjectInterface) {
    split_and_merge(store, 10, 100, true);
}

pub fn groups_split_and_merge_at_the_last_bits(store: &mut dyn ObjectInterface) {
    split_and_merge(store, 31, 2, true);
}

pub fn groups_split_and_merge_when_large(store: &mut dyn ObjectInterface) {
    split_and_merge(store, 3, 1500, false);
}

/// Splits and merges of groups with nothing, or with nothing in one half.
pub fn empty_halves(store: &mut dyn ObjectInterface) {
    let (low, high) = (CollectionName::pg(1, 0), CollectionName::pg(1, 1));
    for hashes in [&[][..], &[0, 2, 4], &[1, 3, 5]] {
        create(store, low, 0);
        let names = hashes.iter().map(|&hash| ObjectName::new(1, hash, "o"));
        let names = fill(store, low, names);
        store.create_new_collection(high);
        apply(store, low, |tx| {
            tx.create_collection(high, 1)
                .split_collection(low, 1, 1, high)
        });
        let moved = hashes.iter().filter(|&hash| hash % 2 == 1).count();
        assert_eq!(pages(store, high, 10).len(), moved);
        assert_eq!(pages(store, low, 10).len(), names.len() - moved);
        assert_eq!(store.collection_empty(high).unwrap(), moved == 0);
        apply(store, low, |tx| tx.merge_collection(high, low, 0));
        assert_eq!(pages(store, low, 10), names);
        apply(store, low, |tx| {
            names
                .iter()
                .fold(tx, |tx, name| tx.remove(low, &Arc::new(name.clone())))
                .remove_collection(low)
        });
    }
}

/// Groups of very different sizes become one.
pub fn skewed_groups_merge(store: &mut dyn ObjectInterface) {
    let (a, b) = (CollectionName::pg(4, 0x0), CollectionName::pg(4, 0x8));
    create(store, a, 4);
    create(store, b, 4);
    let of = |count: u32, seed: u32| {
        (0..count).map(move |n| ObjectName::new(4, n << 4 | seed, format!("{seed} {n}")))
    };
    let mut names = fill(store, a, of(1000, 0));
    names.extend(fill(store, b, of(10, 8)));
    names.sort();
    apply(store, b, |tx| tx.merge_collection(b, a, 3));
    assert_eq!(store.collection_bits(a).unwrap(), 3);
    assert_listed(store, a, &names);
    assert!(names.iter().all(|name| store.stat(a, name).is_ok()));

    let (c, d) = (CollectionName::pg(5, 0x0), CollectionName::pg(5, 0x8));
    create(store, c, 4);
    create(store, d, 4);
    let of = |count: u32, seed: u32| {
        (0..count).map(move |n| ObjectName::new(5, n << 4 | seed, format!("{seed} {n}")))
    };
    let mut names = fill(store, c, of(10, 0));
    names.extend(fill(store, d, of(1000, 8)));
    names.sort();
    apply(store, d, |tx| tx.merge_collection(d, c, 3));
    assert_listed(store, c, &names);
}

/// One group into eight in one transaction, and back into one.
pub fn a_group_splits_into_many(store: &mut dyn ObjectInterface) {
    let groups: Vec<CollectionName> = (0..8).map(|seed| CollectionName::pg(2, seed)).collect();
    create(store, groups[0], 0);
    let names = (0..400_u32).map(|n| {
        let pool = if n % 40 == 0 { -4 } else { 2 };
        ObjectName::new(pool, n.wrapping_mul(0x9e37_79b9), format!("{n}"))
    });
    let names = fill(store, groups[0], names);
    for &group in &groups[1..] {
        store.create_new_collection(group);
    }
    apply(store, groups[0], |tx| {
        (1..8).fold(tx, |tx, seed| {
            let group = groups[seed as usize];
            tx.create_collection(group, 3)
                .split_collection(groups[0], 3, seed, group)
        })
    });
    for (seed, &group) in (0..).zip(&groups) {
        assert_eq!(store.collection_bits(group).unwrap(), 3);
        let own = names.iter().filter(|name| name.hash() & 7 == seed);
        assert_listed(store, group, &own.cloned().collect::<Vec<_>>());
    }
    for &group in &groups {
        assert!(store.open_collection(group));
    }
    apply(store, groups[0], |tx| {
        groups[1..]
            .iter()
            .fold(tx, |tx, &group| tx.merge_collection(group, groups[0], 0))
    });
    assert_eq!(store.list_collections(), [groups[0]]);
    assert_listed(store, groups[0], &names);
}

/// Writes before and after a split in one transaction are found where they belong.
pub fn a_split_is_one_of_its_transaction(store: &mut dyn ObjectInterface) {
    let (low, high) = (CollectionName::pg(1, 0), CollectionName::pg(1, 1));
    create(store, low, 0);
    store.create_new_collection(high);
    let (even, odd, late) = (head(1, 2, "even"), head(1, 3, "odd"), head(1, 5, "late"));
    apply(store, low, |tx| {
        tx.write(low, &even, 0, [b"even"])
            .write(low, &odd, 0, [b"odd"])
            .create_collection(high, 1)
            .split_collection(low, 1, 1, high)
            .write(high, &odd, 3, [b"!"])
            .write(high, &late, 0, [b"late"])
    });
    assert_data(store, low, &even, b"even");
    assert_data(store, high, &odd, b"odd!");
    assert_data(store, high, &late, b"late");
    apply(store, low, |tx| {
        tx.remove(high, &late)
            .merge_collection(high, low, 0)
            .write(low, &odd, 0, [b"O"])
    });
    assert_data(store, low, &odd, b"Odd!");
    assert_eq!(pages(store, low, 5).len(), 2);
}

/// Removal is as after the split: the other half may be there.
pub fn a_half_is_removed_alone(store: &mut dyn ObjectInterface) {
    let (low, high) = (CollectionName::pg(1, 0), CollectionName::pg(1, 1));
    create(store, low, 0);
    let names = fill(
        store,
        low,
        (0..10).map(|hash| ObjectName::new(1, hash, "o")),
    );
    store.create_new_collection(high);
    apply(store, low, |tx| {
        tx.create_collection(high, 1)
            .split_collection(low, 1, 1, high)
    });
    refuse(store, high, ENOTEMPTY, |tx| tx.remove_collection(high));
    apply(store, high, |tx| {
        names
            .iter()
            .filter(|name| name.hash() % 2 == 1)
            .fold(tx, |tx, name| tx.remove(high, &Arc::new(name.clone())))
            .remove_collection(high)
    });
    assert_eq!(store.list_collections(), [low]);
    assert_eq!(pages(store, low, 100).len(), 5);
}

pub fn splits_and_merges_are_refused(store: &mut dyn ObjectInterface) {
    let (low, high) = (CollectionName::pg(1, 0), CollectionName::pg(1, 1));
    let (other_pool, absent) = (CollectionName::pg(2, 1), CollectionName::pg(1, 3));
    create(store, META, 0);
    create(store, low, 1);
    create(store, high, 1);
    create(store, other_pool, 1);
    apply(store, low, |tx| tx.touch(low, &head(1, 2, "o")));
    apply(store, high, |tx| tx.touch(high, &head(1, 3, "o")));
    refuse(store, low, ENOENT, |tx| {
        tx.split_collection(low, 2, 3, absent)
    });
    refuse(store, low, ENOENT, |tx| {
        tx.split_collection(absent, 1, 1, high)
    });
    refuse(store, low, EINVAL, |tx| {
        tx.split_collection(low, 2, 1, high)
    });
    refuse(store, low, EINVAL, |tx| {
        tx.split_collection(low, 1, 0, high)
    });
    refuse(store, low, EINVAL, |tx| {
        tx.split_collection(low, 1, 1, other_pool)
    });
    refuse(store, low, EINVAL, |tx| {
        tx.split_collection(low, 1, 1, META)
    });
    refuse(store, low, EINVAL, |tx| {
        tx.split_collection(low, 33, 1, high)
    });
    refuse(store, low, ENOENT, |tx| {
        tx.merge_collection(absent, high, 1)
    });
    refuse(store, low, ENOENT, |tx| {
        tx.merge_collection(high, absent, 1)
    });
    refuse(store, low, EINVAL, |tx| tx.merge_collection(low, high, 1));
    refuse(store, low, EINVAL, |tx| tx.merge_collection(low, low, 0));
    refuse(store, low, EINVAL, |tx| {
        tx.merge_collection(other_pool, low, 0)
    });
    refuse(store, low, EINVAL, |tx| tx.merge_collection(META, low, 0));
}
