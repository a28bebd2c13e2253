//! Payload that clones share: it lives as long as one of them needs it, and no longer.

use super::*;
use crate::common::Random;

fn snap(object: &ObjectName, snap: u64) -> Arc<ObjectName> {
    Arc::new(object.clone().with_snap(snap))
}

/// Zeros and truncation of an object leave a shared block's bytes to its clone, and take
/// them from the object for good.
pub fn a_shared_tail_is_zeroed_and_appended(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let clone = snap(&object, 1);
    let data = pattern(1, 4096 + 2000);
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [&data])
            .clone_object(META, &object, &clone)
    });
    apply(store, META, |tx| tx.truncate(META, &object, 4096 + 1000));
    apply(store, META, |tx| tx.zero(META, &object, 4096 + 1000, 500));
    let mut expected = data[..4096 + 1000].to_vec();
    expected.extend([0; 500]);
    assert_data(store, META, &object, &expected);
    assert_data(store, META, &clone, &data);
    let at = expected.len();
    write(store, META, &object, &mut expected, at + 300, b"appended");
    assert_data(store, META, &object, &expected);
    assert_data(store, META, &clone, &data);
    apply(store, META, |tx| {
        tx.truncate(META, &clone, 10).truncate(META, &clone, 6096)
    });
    let cut = [&data[..10], &[0; 6086]].concat();
    assert_data(store, META, &clone, &cut);
    assert_data(store, META, &object, &expected);
}

/// The object changes first in some blocks, then its clone in the same and in others.
pub fn sharing_ends_block_by_block(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let clone = snap(&object, 1);
    let mut here = pattern(1, 64 * 4096);
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [here.clone()])
            .clone_object(META, &object, &clone)
    });
    let mut there = here.clone();
    for block in (0..64).step_by(3) {
        write(
            store,
            META,
            &object,
            &mut here,
            block * 4096,
            &pattern(block as u64, 4096),
        );
    }
    assert_data(store, META, &clone, &there);
    for block in (0..64).step_by(2) {
        write(
            store,
            META,
            &clone,
            &mut there,
            block * 4096 + 100,
            &pattern(block as u64, 200),
        );
    }
    assert_data(store, META, &object, &here);
    assert_data(store, META, &clone, &there);
    apply(store, META, |tx| tx.remove(META, &object));
    assert_data(store, META, &clone, &there);
    store.remount();
    assert!(store.open_collection(META));
    assert_data(store, META, &clone, &there);
}

/// Space of shared blocks is counted once, and comes back with the last that has them.
pub fn the_last_reference_frees(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let clones: Vec<_> = (1..=10).map(|n| snap(&object, n)).collect();
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [pattern(1, 1 << 20)])
    });
    let alone = store.statfs().allocated;
    assert!(alone >= 1 << 20);
    apply(store, META, |tx| {
        clones
            .iter()
            .fold(tx, |tx, clone| tx.clone_object(META, &object, clone))
    });
    assert!(
        store.statfs().allocated <= 2 * alone,
        "clones copied the data"
    );
    assert!(store.statfs().data_stored >= 11 << 20);
    apply(store, META, |tx| tx.remove(META, &object));
    for clone in &clones[1..] {
        assert_data(store, META, &clones[0], &pattern(1, 1 << 20));
        apply(store, META, |tx| tx.remove(META, clone));
    }
    assert!(store.statfs().allocated >= 1 << 20);
    assert_data(store, META, &clones[0], &pattern(1, 1 << 20));
    apply(store, META, |tx| tx.remove(META, &clones[0]));
    assert_eq!(store.statfs().allocated, 0);
}

/// Clones of clones, and the object replaced by one of them: a rollback.
pub fn clones_of_clones_and_rollbacks(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    let mut expected = Vec::new();
    let mut kept = Vec::new();
    for n in 1..=6 {
        write(
            store,
            META,
            &object,
            &mut expected,
            (n * 3000) as usize,
            &pattern(n, 9000),
        );
        apply(store, META, |tx| {
            tx.clone_object(META, &object, &snap(&object, n))
        });
        kept.push(expected.clone());
    }
    for n in [3, 6, 1, 4] {
        apply(store, META, |tx| {
            tx.remove(META, &object)
                .clone_object(META, &snap(&object, n), &object)
        });
        assert_data(store, META, &object, &kept[n as usize - 1]);
        apply(store, META, |tx| {
            tx.clone_object(META, &snap(&object, n), &snap(&object, n + 10))
                .write(META, &object, 0, [b"scratch"])
        });
    }
    for (n, kept) in (1..).zip(&kept) {
        assert_data(store, META, &snap(&object, n), kept);
    }
    assert_data(store, META, &snap(&object, 14), &kept[3]);
}

/// Ranges moved between objects at random, against copies in memory.
pub fn clone_ranges_at_random(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let mut random = Random::new(21);
    let objects: Vec<_> = (0..5).map(|n| meta(format!("o{n}"))).collect();
    let mut expected = vec![Vec::new(); objects.len()];
    for (n, object) in objects.iter().enumerate() {
        write(
            store,
            META,
            object,
            &mut expected[n],
            0,
            &pattern(n as u64, 40_000),
        );
    }
    for round in 0..200 {
        let from = random.below(5) as usize;
        let to = (from + 1 + random.below(4) as usize) % 5;
        let align = if random.below(2) == 0 { 4096 } else { 1 };
        let size = expected[from].len() as u64;
        let offset = random.below(size) / align * align;
        let len = random.below(size - offset + 1);
        let target = random.below(60_000) / align * align;
        apply(store, META, |tx| {
            tx.clone_range(META, &objects[from], &objects[to], offset, len, target)
        });
        let bytes = expected[from][offset as usize..][..len as usize].to_vec();
        if len > 0 {
            put(&mut expected[to], target as usize, &bytes);
        }
        if round % 5 == 0 {
            let n = random.below(5) as usize;
            let at = random.below(40_000) as usize;
            write(
                store,
                META,
                &objects[n],
                &mut expected[n],
                at,
                &pattern(round, 3000),
            );
        }
        assert_data(store, META, &objects[to], &expected[to]);
    }
    for (object, expected) in objects.iter().zip(&expected) {
        assert_data(store, META, object, expected);
    }
}

/// Hundreds of clones of objects whose blocks were written apart: no reference is lost.
pub fn many_clones_of_many_objects(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let objects: Vec<_> = (0..16).map(|n| meta(format!("o{n}"))).collect();
    for (n, object) in objects.iter().enumerate() {
        for generation in 0..16_u64 {
            let clone = snap(object, generation);
            let bytes = pattern(n as u64 * 100 + generation, 500);
            apply(store, META, |tx| {
                tx.write(META, object, generation * 4096, [bytes])
                    .clone_object(META, object, &clone)
            });
        }
    }
    for (n, object) in objects.iter().enumerate() {
        for generation in 0..16_u64 {
            let mut expected = Vec::new();
            for earlier in 0..=generation {
                let bytes = pattern(n as u64 * 100 + earlier, 500);
                put(&mut expected, earlier as usize * 4096, &bytes);
            }
            assert_data(store, META, &snap(object, generation), &expected);
        }
        apply(store, META, |tx| {
            tx.remove(META, object).remove(META, &snap(object, 3))
        });
    }
}
