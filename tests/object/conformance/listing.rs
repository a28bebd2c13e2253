//! Listing of collections: sorted, by pages, within bounds, and exact.

use esker::CollectionName;

use super::*;
use crate::contents::pages;

fn list(
    store: &dyn ObjectInterface,
    collection: CollectionName,
    start: &ObjectName,
    end: &ObjectName,
    max: usize,
) -> (Vec<ObjectName>, ObjectName) {
    store.collection_list(collection, start, end, max).unwrap()
}

/// Touches the objects, and returns their names sorted.
pub(super) fn fill(
    store: &mut dyn ObjectInterface,
    collection: CollectionName,
    objects: impl IntoIterator<Item = ObjectName>,
) -> Vec<ObjectName> {
    let mut names: Vec<ObjectName> = objects.into_iter().collect();
    for chunk in names.chunks(500) {
        apply(store, collection, |tx| {
            chunk
                .iter()
                .fold(tx, |tx, name| tx.touch(collection, &Arc::new(name.clone())))
        });
    }
    names.sort();
    names
}

/// Every page size gives the same, at once and after a remount.
#[track_caller]
pub(super) fn assert_listed(
    store: &mut dyn ObjectInterface,
    collection: CollectionName,
    expected: &[ObjectName],
) {
    for _ in 0..2 {
        for max in [1, 2, 3, 7, 50, expected.len().max(1), expected.len() + 1] {
            if max * 200 >= expected.len() {
                assert_eq!(pages(store, collection, max), expected, "pages of {max}");
            }
        }
        store.remount();
        assert!(store.open_collection(collection));
    }
}

pub fn an_empty_collection_lists_nothing(store: &mut dyn ObjectInterface) {
    let (min, max) = (ObjectName::min(), ObjectName::max());
    assert_errno(store.collection_list(META, &min, &max, 10), ENOENT);
    for collection in [META, CollectionName::pg(1, 3)] {
        create(store, collection, 2);
        let (listed, next) = list(store, collection, &min, &max, 10);
        assert!(listed.is_empty() && next.is_max());
    }
}

pub fn a_list_is_sorted_and_complete(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 0);
    create(store, group, 0);
    let names = (0..200_u32)
        .map(|n| ObjectName::new(1, n.wrapping_mul(0x9e37_79b9), format!("object_{n}")));
    let names = fill(store, group, names);
    assert_listed(store, group, &names);
    let (all, next) = list(store, group, &ObjectName::min(), &ObjectName::max(), 1000);
    assert!(all == names && next.is_max());
    let (page, next) = list(store, group, &ObjectName::min(), &ObjectName::max(), 200);
    assert!(page == names && next.is_max(), "the page is exactly full");
}

pub fn a_list_starts_and_ends_where_asked(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(2, 0);
    create(store, group, 0);
    let names = fill(
        store,
        group,
        (0..40).map(|n| ObjectName::new(2, n % 5, format!("{n}"))),
    );
    let max = ObjectName::max();
    for from in 0..40 {
        for to in from..40 {
            let (listed, next) = list(store, group, &names[from], &names[to], 100);
            assert_eq!(listed, &names[from..to], "the end is excluded");
            assert_eq!(next, names[to]);
            let (listed, next) = list(store, group, &names[from], &names[to], 3);
            assert_eq!(listed, &names[from..to.min(from + 3)]);
            assert_eq!(next, names[to.min(from + 3)]);
        }
        let (listed, next) = list(store, group, &names[from], &max, 100);
        assert!(listed == names[from..] && next.is_max());
    }
    // Bounds that are no objects.
    let before = names[7].clone().with_snap(0);
    let behind = names[9].clone().with_snap(u64::MAX);
    let (listed, next) = list(store, group, &before, &behind, 100);
    assert_eq!(listed, &names[7..10]);
    assert_eq!(next, behind);
    let (listed, _) = list(store, group, &names[9], &names[3], 100);
    assert!(listed.is_empty(), "the end is before the start");
    let (listed, next) = list(store, group, &max, &max, 100);
    assert!(listed.is_empty() && next.is_max());
    let (listed, next) = list(store, group, &ObjectName::min(), &max, 0);
    assert!(listed.is_empty() && next <= names[0]);
}

pub fn hashes_at_their_ends(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(3, 0x0f);
    create(store, META, 0);
    create(store, group, 4);
    let hashes = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];
    let names = hashes.map(|hash| ObjectName::new(META_POOL, hash, "o"));
    let names = fill(store, META, names);
    assert_listed(store, META, &names);
    assert_eq!(names.last().unwrap().hash(), u32::MAX);
    let hashes = [0x0f, 0x1f, 0x8000_000f, 0xffff_ffef, 0xffff_ffff];
    let names = hashes.map(|hash| ObjectName::new(3, hash, "o"));
    let names = fill(store, group, names);
    assert_listed(store, group, &names);
    assert_eq!(names.last().unwrap().hash(), u32::MAX);
}

/// A placement group at the end of the hashes lists its own objects, not its neighbours'.
pub fn groups_of_a_pool_list_their_own(store: &mut dyn ObjectInterface) {
    let groups: Vec<CollectionName> = (0..8).map(|seed| CollectionName::pg(5, seed)).collect();
    let mut expected = Vec::new();
    for (seed, &group) in groups.iter().enumerate() {
        create(store, group, 3);
        let hashes = [0, 8, 0x1230, 0x8000_0000, 0xffff_fff8];
        let names = hashes.map(|hash| ObjectName::new(5, hash | seed as u32, "o"));
        let temporary = ObjectName::new(-7, seed as u32, "t");
        expected.push(fill(store, group, names.into_iter().chain([temporary])));
    }
    for (&group, expected) in groups.iter().zip(&expected) {
        assert_listed(store, group, expected);
    }
}

/// Temporary objects, in pool -2 - pool, come before the others.
pub fn temporary_objects_come_first(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(833, 0);
    create(store, group, 0);
    let names = (0..50_u32).flat_map(|n| {
        let hash = n.wrapping_mul(0x0101_0101);
        [833, -835].map(|pool| ObjectName::new(pool, hash, format!("{n}")))
    });
    let names = fill(store, group, names);
    assert!(names[..50].iter().all(|name| name.pool() == -835));
    assert_listed(store, group, &names);
    for at in [0, 1, 49, 50, 51, 99] {
        let (listed, _) = list(store, group, &names[at], &ObjectName::max(), 10);
        assert_eq!(listed, &names[at..100.min(at + 10)]);
        let (listed, next) = list(store, group, &ObjectName::min(), &names[at], 1000);
        assert_eq!(listed, &names[..at]);
        assert_eq!(next, names[at]);
    }
}

/// Objects of shards in groups of that shard.
pub fn shards_list_their_own(store: &mut dyn ObjectInterface) {
    for shard in [0, 1, 5] {
        let temp = false;
        let group = CollectionName::Pg {
            pool: 4,
            seed: 1,
            shard,
            temp,
        };
        create(store, group, 1);
        let names = (0..20).flat_map(|n| {
            let head = ObjectName::new(4, n * 2 + 1, "o").with_shard(shard);
            [
                head.clone(),
                head.clone().with_generation(9),
                head.with_generation(10),
            ]
        });
        let names = fill(store, group, names);
        assert_listed(store, group, &names);
    }
}

pub fn removed_objects_are_not_listed(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let mut names = fill(
        store,
        META,
        (0..100).map(|n| ObjectName::new(META_POOL, n % 3, format!("{n}"))),
    );
    for gone in [0..1, 40..60, 78..79] {
        let removed: Vec<ObjectName> = names.drain(gone).collect();
        apply(store, META, |tx| {
            removed
                .iter()
                .fold(tx, |tx, name| tx.remove(META, &Arc::new(name.clone())))
        });
        assert_eq!(pages(store, META, 7), names);
    }
    assert_listed(store, META, &names);
}

/// A cursor goes on where it was, whatever was removed before it.
pub fn a_cursor_survives_removal(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 0);
    create(store, group, 0);
    let names = (0..300_u32).map(|n| ObjectName::new(1, n.wrapping_mul(77_777), format!("{n}")));
    let names = fill(store, group, names);
    let mut seen = Vec::new();
    let mut start = ObjectName::min();
    while !start.is_max() {
        let (page, next) = list(store, group, &start, &ObjectName::max(), 30);
        apply(store, group, |tx| {
            page.iter()
                .fold(tx, |tx, name| tx.remove(group, &Arc::new(name.clone())))
        });
        seen.extend(page);
        start = next;
    }
    assert_eq!(seen, names);
    assert!(store.collection_empty(group).unwrap());
}

pub fn emptiness_counts_what_is_there(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    assert!(store.collection_empty(META).unwrap());
    apply(store, META, |tx| {
        tx.touch(META, &meta("a")).remove(META, &meta("a"))
    });
    assert!(store.collection_empty(META).unwrap());
    apply(store, META, |tx| tx.touch(META, &meta("a")));
    assert!(!store.collection_empty(META).unwrap());
    store.remount();
    assert!(store.open_collection(META));
    assert!(!store.collection_empty(META).unwrap());
    apply(store, META, |tx| tx.remove(META, &meta("a")));
    assert!(store.collection_empty(META).unwrap());
}

pub fn thousands_of_objects(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(9, 0);
    create(store, group, 0);
    let names = (0..4000_u32).map(|n| {
        ObjectName::new(
            9,
            n.wrapping_mul(0x9e37_79b9),
            format!("object {n} {}", "x".repeat(100)),
        )
    });
    let names = fill(store, group, names);
    assert_listed(store, group, &names);
    for name in names.iter().step_by(97) {
        assert!(store.exists(group, name));
        assert!(!store.exists(group, &name.clone().with_snap(1)));
    }
}
