//! Clones and clones of ranges: independent of their source in every part.

use super::*;
use crate::contents::object_contents;
use crate::interface::Entries;

fn snap(object: &ObjectName, snap: u64) -> Arc<ObjectName> {
    Arc::new(object.clone().with_snap(snap))
}

/// An object with something in every part.
fn full(store: &mut dyn ObjectInterface, object: &Arc<ObjectName>) -> Vec<u8> {
    let data = pattern(1, 3 * 4096 + 100);
    apply(store, META, |tx| {
        tx.write(META, object, 0, [data.clone()])
            .setattrs(META, object, [("a", "1"), ("b", "2")])
            .omap_setkeys(META, object, [("k", "1"), ("l", "2")])
            .omap_setheader(META, object, "header")
    });
    data
}

pub fn a_clone_has_every_part(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    full(store, &object);
    let clone = snap(&object, 1);
    apply(store, META, |tx| tx.clone_object(META, &object, &clone));
    let expected = object_contents(store, META, &object);
    assert_eq!(object_contents(store, META, &clone), expected);
    store.remount();
    assert!(store.open_collection(META));
    assert_eq!(object_contents(store, META, &clone), expected);
    assert_eq!(object_contents(store, META, &object), expected);
}

/// Whatever happens to one, the other stays.
pub fn clones_are_independent(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    for change_source in [true, false] {
        let object = meta(format!("o {change_source}"));
        full(store, &object);
        let clone = snap(&object, 1);
        apply(store, META, |tx| tx.clone_object(META, &object, &clone));
        let expected = object_contents(store, META, &object);
        let (changed, kept) = match change_source {
            true => (&object, &clone),
            false => (&clone, &object),
        };
        apply(store, META, |tx| tx.write(META, changed, 10, [b"changed"]));
        assert_eq!(object_contents(store, META, kept), expected);
        apply(store, META, |tx| {
            tx.write(META, changed, 4096, [pattern(2, 4096)])
        });
        apply(store, META, |tx| tx.zero(META, changed, 8190, 100));
        assert_eq!(object_contents(store, META, kept), expected);
        apply(store, META, |tx| {
            tx.truncate(META, changed, 5000)
                .truncate(META, changed, 50_000)
        });
        assert_eq!(object_contents(store, META, kept), expected);
        apply(store, META, |tx| {
            tx.setattr(META, changed, "a", "changed")
                .rmattr(META, changed, "b")
                .omap_setkeys(META, changed, [("k", "changed"), ("new", "")])
                .omap_rmkeyrange(META, changed, "l", "m")
                .omap_setheader(META, changed, "changed")
        });
        assert_eq!(object_contents(store, META, kept), expected);
        apply(store, META, |tx| {
            tx.omap_clear(META, changed).rmattrs(META, changed)
        });
        assert_eq!(object_contents(store, META, kept), expected);
        apply(store, META, |tx| tx.remove(META, changed));
        assert_eq!(object_contents(store, META, kept), expected);
        store.remount();
        assert!(store.open_collection(META));
        assert_eq!(object_contents(store, META, kept), expected);
    }
}

pub fn a_clone_replaces_its_target(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (object, target) = (meta("o"), meta("target"));
    full(store, &object);
    apply(store, META, |tx| {
        tx.write(META, &target, 0, [pattern(5, 100_000)])
            .setattr(META, &target, "of the target", "x")
            .omap_setkeys(META, &target, [("of the target", "x")])
            .omap_setheader(META, &target, "of the target")
    });
    apply(store, META, |tx| tx.clone_object(META, &object, &target));
    let expected = object_contents(store, META, &object);
    assert_eq!(object_contents(store, META, &target), expected);
    let bare = meta("bare");
    apply(store, META, |tx| {
        tx.touch(META, &bare).clone_object(META, &bare, &target)
    });
    assert_data(store, META, &target, b"");
    assert_eq!(
        store.omap_get(META, &target).unwrap(),
        (vec![], Entries::new())
    );
    assert_eq!(object_contents(store, META, &object), expected);
}

pub fn clones_without_a_source_are_refused(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (absent, object) = (meta("absent"), meta("o"));
    apply(store, META, |tx| tx.write(META, &object, 0, [b"data"]));
    refuse(store, META, ENOENT, |tx| {
        tx.clone_object(META, &absent, &object)
    });
    refuse(store, META, ENOENT, |tx| {
        tx.clone_object(META, &absent, &meta("new"))
    });
    refuse(store, META, ENOENT, |tx| {
        tx.clone_range(META, &absent, &object, 0, 1, 0)
    });
    refuse(store, META, ENOENT, |tx| {
        tx.remove(META, &object)
            .clone_object(META, &object, &absent)
    });
    refuse(store, META, EINVAL, |tx| {
        tx.clone_object(META, &object, &object)
    });
    refuse(store, META, EINVAL, |tx| {
        tx.clone_range(META, &object, &object, 0, 1, 2)
    });
}

/// What a transaction wrote just before is part of the clone, what it writes after is not.
pub fn clones_see_their_transaction(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let (one, two) = (snap(&object, 1), snap(&object, 2));
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [b"first"])
            .clone_object(META, &object, &one)
            .write(META, &object, 0, [b"SECOND"])
            .setattr(META, &object, "a", "2")
            .clone_object(META, &object, &two)
            .write(META, &object, 3, [b"third"])
            .rmattr(META, &object, "a")
    });
    assert_data(store, META, &one, b"first");
    assert_data(store, META, &two, b"SECOND");
    assert_data(store, META, &object, b"SECthird");
    assert_errno(store.getattr(META, &one, b"a"), ENODATA);
    assert_eq!(store.getattr(META, &two, b"a").unwrap(), b"2");
    assert_errno(store.getattr(META, &object, b"a"), ENODATA);
    apply(store, META, |tx| {
        tx.remove(META, &one)
            .clone_object(META, &two, &one)
            .remove(META, &two)
            .clone_object(META, &one, &two)
            .write(META, &two, 0, [b"x"])
    });
    assert_data(store, META, &one, b"SECOND");
    assert_data(store, META, &two, b"xECOND");
}

/// An omap with a clone: changes to either are seen in that one alone.
pub fn omaps_of_clones_are_apart(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let clone = snap(&object, 1);
    let entries = |from: u32, to: u32| (from..to).map(|n| (n.to_be_bytes().to_vec(), vec![7]));
    apply(store, META, |tx| {
        tx.touch(META, &object)
            .omap_setkeys(META, &object, entries(0, 1000))
            .omap_setheader(META, &object, "h")
            .clone_object(META, &object, &clone)
    });
    apply(store, META, |tx| {
        tx.omap_rmkeyrange(META, &object, vec![], 900_u32.to_be_bytes().to_vec())
    });
    apply(store, META, |tx| {
        tx.omap_setkeys(META, &clone, entries(1000, 1100))
    });
    let keys = |object: &ObjectName| store.omap_get_keys(META, object).unwrap();
    let expected = |from, to| entries(from, to).map(|(key, _)| key);
    assert!(keys(&object).into_iter().eq(expected(900, 1000)));
    assert!(keys(&clone).into_iter().eq(expected(0, 1100)));
    apply(store, META, |tx| tx.omap_clear(META, &object));
    assert!(
        store
            .omap_get_keys(META, &clone)
            .unwrap()
            .into_iter()
            .eq(expected(0, 1100))
    );
    assert_eq!(store.omap_get_header(META, &clone).unwrap(), b"h");
}

pub fn clone_range_makes_the_range_the_same(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (source, target) = (meta("source"), meta("target"));
    let data = pattern(1, 50_000);
    apply(store, META, |tx| {
        tx.write(META, &source, 0, [&data])
            .setattr(META, &source, "a", "1")
            .omap_setkeys(META, &source, [("k", "v")])
    });
    let mut expected = Vec::new();
    let ranges = [
        (0, 10, 0),
        (10, 10, 10),
        (5, 4096, 4096),
        (4096, 8192, 8192),
        (4097, 8192, 9000),
        (0, 50_000, 3),
        (49_999, 1, 60_000),
        (100, 4096, 100_001),
        (8192, 4096, 4096),
    ];
    for (from, len, to) in ranges {
        apply(store, META, |tx| {
            tx.clone_range(META, &source, &target, from as u64, len as u64, to as u64)
        });
        put(&mut expected, to, &data[from..from + len]);
        assert_data(store, META, &target, &expected);
    }
    assert_data(store, META, &source, &data);
    assert_eq!(
        store.getattrs(META, &target).unwrap(),
        Entries::new(),
        "data alone is cloned"
    );
    assert_eq!(store.omap_get(META, &target).unwrap().1, Entries::new());
    apply(store, META, |tx| {
        tx.write(META, &source, 0, [pattern(2, 50_000)])
    });
    assert_data(store, META, &target, &expected);
}

pub fn clone_range_of_nothing_makes_the_target(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (source, target) = (meta("source"), meta("target"));
    apply(store, META, |tx| {
        tx.touch(META, &source)
            .clone_range(META, &source, &target, 0, 0, 100)
    });
    assert_data(store, META, &target, b"");
    apply(store, META, |tx| {
        tx.write(META, &target, 0, [b"data"])
            .clone_range(META, &source, &target, 0, 0, 2)
    });
    assert_data(store, META, &target, b"data");
}

pub fn clone_range_past_the_end_is_refused(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (source, target) = (meta("source"), meta("target"));
    apply(store, META, |tx| {
        tx.write(META, &source, 0, [pattern(1, 5000)])
    });
    for (offset, len) in [(0, 5001), (4999, 2), (5000, 1), (8192, 1)] {
        refuse(store, META, EINVAL, |tx| {
            tx.clone_range(META, &source, &target, offset, len, 0)
        });
    }
    apply(store, META, |tx| {
        tx.truncate(META, &source, 6000)
            .clone_range(META, &source, &target, 0, 6000, 0)
    });
    let expected = [pattern(1, 5000), vec![0; 1000]].concat();
    assert_data(store, META, &target, &expected);
}

/// Holes at the start, in the middle and at the end of the range become zeros over data.
pub fn clone_range_copies_holes(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let source = meta("source");
    let mut data = vec![0; 100_000];
    apply(store, META, |tx| {
        tx.touch(META, &source).truncate(META, &source, 100_000)
    });
    for at in [20_000, 40_960, 70_000] {
        write(
            store,
            META,
            &source,
            &mut data,
            at,
            &pattern(at as u64, 8192),
        );
    }
    let ranges = [
        (0, 10_000),
        (0, 25_000),
        (15_000, 10_000),
        (22_000, 30_000),
        (25_000, 10_000),
        (30_000, 60_000),
        (75_000, 25_000),
        (90_000, 10_000),
        (0, 100_000),
        (40_960, 8192),
    ];
    for (n, (from, len)) in ranges.into_iter().enumerate() {
        for shift in [0, 4096, 1000] {
            let target = meta(format!("target {n} {shift}"));
            let mut expected = Vec::new();
            write(store, META, &target, &mut expected, 0, &pattern(9, 110_000));
            apply(store, META, |tx| {
                tx.clone_range(META, &source, &target, from as u64, len as u64, shift)
            });
            put(&mut expected, shift as usize, &data[from..from + len]);
            assert_data(store, META, &target, &expected);
            apply(store, META, |tx| tx.remove(META, &target));
        }
    }
}

/// The target grows by the range, though it ends in a hole.
pub fn clone_range_of_a_hole_extends(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (source, target) = (meta("source"), meta("target"));
    apply(store, META, |tx| {
        tx.touch(META, &source).truncate(META, &source, 20_000)
    });
    apply(store, META, |tx| {
        tx.clone_range(META, &source, &target, 5000, 10_000, 7000)
    });
    assert_data(store, META, &target, &[0; 17_000]);
}
