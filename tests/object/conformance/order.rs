//! The order of names, as listing shows it: every part counts, and in its place.

use esker::CollectionName;
use esker::object::{NO_GENERATION, NO_SNAP, SNAPDIR};

use super::listing::{assert_listed, fill};
use super::*;

/// Many names of one hash: told apart by all else, whatever their bytes.
pub fn names_of_one_hash(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 0xdead);
    create(store, group, 16);
    let mut texts: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    texts.extend([1, 10, 0x7f, 0x80, 0xc3, 0xfe, 0xff].map(|byte| vec![b'n', byte]));
    texts.extend((0..20).map(|len| vec![b'p'; len + 2]));
    texts.extend([
        b"n\0".to_vec(),
        b"n\0\0".to_vec(),
        b"n\0\xff".to_vec(),
        b"n\0\x01".to_vec(),
    ]);
    let names = fill(
        store,
        group,
        texts
            .iter()
            .map(|text| ObjectName::new(1, 0xbeef_dead, text.clone())),
    );
    texts.sort();
    assert!(
        names
            .iter()
            .map(ObjectName::name)
            .eq(texts.iter().map(Vec::as_slice))
    );
    assert_listed(store, group, &names);
}

pub fn two_hashes_are_kept_apart(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let names = (0..360).map(|n| {
        let hash = if n < 180 { 0xab00_0000 } else { 0xba00_0000 };
        ObjectName::new(META_POOL, hash, format!("{}", n % 180).repeat(n % 30 + 1))
    });
    let mut names = fill(store, META, names);
    assert_listed(store, META, &names);
    let gone: Vec<ObjectName> = names
        .iter()
        .filter(|name| name.hash() == 0xab00_0000)
        .cloned()
        .collect();
    for chunk in gone.chunks(60) {
        apply(store, META, |tx| {
            chunk
                .iter()
                .fold(tx, |tx, name| tx.remove(META, &Arc::new(name.clone())))
        });
    }
    names.retain(|name| name.hash() != 0xab00_0000);
    assert_listed(store, META, &names);
}

/// Namespace before key, key before name, name before snap, snap before generation.
pub fn every_part_has_its_place(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let texts: [&[u8]; 5] = [b"", b"a", b"a\0", b"a\xff", b"b"];
    let mut names = Vec::new();
    for nspace in texts {
        for key in texts {
            for name in texts {
                let whole = ObjectName::new(META_POOL, 7, name)
                    .with_nspace(nspace)
                    .with_key(key);
                names.push(whole);
            }
        }
    }
    for snap in [0, 1, 255, 256, u64::MAX - 2, NO_SNAP, SNAPDIR] {
        for generation in [0, 1, 255, 256, u64::MAX - 1, NO_GENERATION] {
            let name = ObjectName::new(META_POOL, 8, "s").with_snap(snap);
            names.push(name.with_generation(generation));
        }
    }
    names.sort();
    names.dedup();
    let count = names.len();
    assert_eq!(
        count,
        5 * (5 * 5 - 4) + 42,
        "a key that is the name is none"
    );
    let names = fill(store, META, names);
    assert_listed(store, META, &names);
}

/// The hash orders by its lowest bit first.
pub fn hashes_order_reversed(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let names = (0..32).map(|bit| ObjectName::new(META_POOL, 1 << bit, "o"));
    let names = fill(store, META, names);
    let bits: Vec<u32> = names
        .iter()
        .map(|name| name.hash().trailing_zeros())
        .collect();
    assert_eq!(bits, (0..32).rev().collect::<Vec<u32>>());
    assert_listed(store, META, &names);
}

/// Pools of all signs in one collection.
pub fn pools_in_meta(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let pools = [i64::MIN, -1000, -3, -2, -1, 0, 1, 5, 1 << 40, i64::MAX];
    let names = pools.map(|pool| ObjectName::new(pool, 3, "o"));
    let names = fill(store, META, names);
    assert!(names.iter().map(ObjectName::pool).eq(pools));
    assert_listed(store, META, &names);
}

/// Generations of one object, removed and added one by one, as scrub sees them.
pub fn generations_are_objects_of_their_own(store: &mut dyn ObjectInterface) {
    let group = CollectionName::pg(1, 0);
    create(store, group, 0);
    let base = ObjectName::new(1, 0x1234, "scrubbed");
    let generations = [0, 1, 2, 10, 11, 1 << 33, NO_GENERATION];
    let names = generations.map(|generation| base.clone().with_generation(generation));
    let mut names = fill(store, group, names);
    for (n, name) in names.iter().enumerate() {
        apply(store, group, |tx| {
            tx.write(group, &Arc::new(name.clone()), 0, [vec![n as u8; n + 1]])
        });
    }
    for (n, name) in names.iter().enumerate() {
        assert_data(store, group, name, &vec![n as u8; n + 1]);
    }
    assert_listed(store, group, &names);
    let (found, next) = store
        .collection_list(group, &names[2], &names[5], 10)
        .unwrap();
    assert!(found == names[2..5] && next == names[5]);
    let gone = Arc::new(names.remove(6));
    apply(store, group, |tx| tx.remove(group, &gone));
    assert_listed(store, group, &names);
}
