//! What `statfs` and `pool_statfs` say.

use esker::CollectionName;

use super::*;

pub fn an_empty_store_has_its_space(store: &mut dyn ObjectInterface) {
    let statfs = store.statfs();
    assert!(
        statfs.total > 0 && statfs.available <= statfs.total,
        "{statfs:?}"
    );
    assert!(statfs.available > statfs.total / 2, "{statfs:?}");
    assert_eq!((statfs.allocated, statfs.data_stored), (0, 0));
    let pool = store.pool_statfs(1);
    assert_eq!(
        (pool.allocated, pool.data_stored, pool.omap_allocated),
        (0, 0, 0)
    );
}

pub fn data_is_counted(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let before = store.statfs();
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [pattern(1, 1 << 20)])
    });
    let full = store.statfs();
    assert_eq!(full.data_stored, 1 << 20);
    assert!(
        full.allocated >= 1 << 20 && full.allocated < 2 << 20,
        "{full:?}"
    );
    assert!(full.available < before.available);
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [pattern(2, 1 << 20)])
    });
    assert_eq!(
        store.statfs().data_stored,
        1 << 20,
        "an overwrite stores no more"
    );
    apply(store, META, |tx| tx.zero(META, &object, 0, 1 << 19));
    assert_eq!(
        store.statfs().data_stored,
        1 << 19,
        "zeros take their place"
    );
    apply(store, META, |tx| {
        tx.truncate(META, &object, (1 << 20) - 8192)
    });
    assert_eq!(store.statfs().data_stored, (1 << 19) - 8192);
    apply(store, META, |tx| tx.truncate(META, &object, 1 << 30));
    assert_eq!(
        store.statfs().data_stored,
        (1 << 19) - 8192,
        "holes are not stored"
    );
    store.remount();
    assert!(store.open_collection(META));
    assert_eq!(store.statfs().data_stored, (1 << 19) - 8192);
    apply(store, META, |tx| tx.remove(META, &object));
    assert_eq!(
        (store.statfs().data_stored, store.statfs().allocated),
        (0, 0)
    );
}

pub fn pools_are_counted_apart(store: &mut dyn ObjectInterface) {
    let (one, two) = (CollectionName::pg(1, 0), CollectionName::pg(2, 0));
    create(store, one, 0);
    create(store, two, 0);
    let (a, b, temporary) = (head(1, 1, "a"), head(2, 1, "b"), head(-3, 1, "t"));
    apply(store, one, |tx| {
        tx.write(one, &a, 0, [pattern(1, 1 << 16)])
            .write(one, &temporary, 0, [pattern(2, 1 << 16)])
            .omap_setkeys(one, &a, [("key", pattern(3, 5000))])
    });
    apply(store, two, |tx| tx.write(two, &b, 0, [pattern(4, 1 << 18)]));
    for _ in 0..2 {
        let (first, second) = (store.pool_statfs(1), store.pool_statfs(2));
        assert_eq!(first.data_stored, 2 << 16, "with the temporary object");
        assert_eq!(second.data_stored, 1 << 18);
        assert!(first.omap_allocated >= 5000, "{first:?}");
        assert_eq!(second.omap_allocated, 0);
        assert_eq!(store.pool_statfs(3).data_stored, 0);
        assert_eq!(store.statfs().data_stored, (2 << 16) + (1 << 18));
        store.remount();
        assert!(store.open_collection(one) && store.open_collection(two));
    }
    apply(store, one, |tx| tx.remove(one, &a).remove(one, &temporary));
    let first = store.pool_statfs(1);
    assert_eq!(
        (first.data_stored, first.allocated, first.omap_allocated),
        (0, 0, 0)
    );
    assert_eq!(store.pool_statfs(2).data_stored, 1 << 18);
}

pub fn omaps_are_counted(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let entries = (0..1000_u32).map(|n| (n.to_be_bytes().to_vec(), pattern(n.into(), 100)));
    apply(store, META, |tx| {
        tx.touch(META, &object).omap_setkeys(META, &object, entries)
    });
    let full = store.statfs();
    assert!(full.omap_allocated >= 104_000, "{full:?}");
    let clone = Arc::new(ObjectName::clone(&object).with_snap(1));
    apply(store, META, |tx| {
        tx.clone_object(META, &object, &clone)
            .omap_clear(META, &object)
    });
    assert!(store.statfs().omap_allocated >= 104_000);
    apply(store, META, |tx| tx.remove(META, &clone));
    assert_eq!(store.statfs().omap_allocated, 0);
}

/// Twenty rounds of filling and removing end as they began.
pub fn removed_space_comes_back(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    for round in 0..20 {
        let objects: Vec<_> = (0..16).map(|n| meta(format!("{round} {n}"))).collect();
        for (n, object) in objects.iter().enumerate() {
            apply(store, META, |tx| {
                tx.write(META, object, 0, [pattern(n as u64, 100_000)])
                    .omap_setkeys(META, object, [("k", pattern(n as u64, 1000))])
            });
        }
        assert!(store.statfs().data_stored >= 1_600_000);
        apply(store, META, |tx| {
            objects
                .iter()
                .fold(tx, |tx, object| tx.remove(META, object))
        });
        let statfs = store.statfs();
        assert_eq!(
            (statfs.data_stored, statfs.allocated, statfs.omap_allocated),
            (0, 0, 0)
        );
    }
}
