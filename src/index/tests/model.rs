//! Random operations against a `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Compares everything that the index says with the model.
fn compare(index: &Index, model: &BTreeMap<u64, Entry>, fixed: u32) {
    assert_eq!(index.len(), model.len() as u64);
    for (&key, &entry) in model {
        assert_eq!(index.get(hash_of(key, fixed)), Some(entry), "key {key}");
    }
    let mut scanned = scan(index);
    scanned.sort_unstable_by_key(|entry| entry.address);
    let mut expected: Vec<_> = model.values().copied().collect();
    expected.sort_unstable_by_key(|entry| entry.address);
    assert_eq!(scanned, expected);
}

fn run(random: &mut Random, fixed: u32, keys: u64, steps: u64) {
    let index = Index::new();
    let mut model = BTreeMap::new();
    for step in 0..steps {
        let key = random.below(keys);
        let hash = hash_of(key, fixed);
        let mut shard = index.lock(Index::shard_of(hash));
        let old = model.get(&key).copied();
        assert_eq!(shard.get(hash), old);
        assert_eq!(index.get(hash), old);
        let entry = entry_of(key, step);
        // Phases in which most steps insert alternate with such in which most remove.
        let inserts = if (step / keys).is_multiple_of(2) {
            8
        } else {
            3
        };
        match random.below(12) {
            0 => {
                let from = entry_of(key, random.below(step + 1)).address;
                let expected = old.is_some_and(|old| old.address == from);
                assert_eq!(shard.redirect(hash, from, entry), expected);
                if expected {
                    model.insert(key, entry);
                }
            }
            1 => {
                if let Some(old) = old {
                    assert!(shard.redirect(hash, old.address, entry));
                    model.insert(key, entry);
                }
            }
            choice if choice < inserts + 2 => {
                shard.reserve(hash, u64::MAX).unwrap();
                let memory = index.memory_bytes();
                assert_eq!(shard.insert(hash, entry), Ok(model.insert(key, entry)));
                assert_eq!(
                    index.memory_bytes(),
                    memory,
                    "a reserved insert does not grow"
                );
            }
            _ => assert_eq!(shard.remove(hash), model.remove(&key)),
        }
        drop(shard);
        if step % (steps / 4) == 0 {
            compare(&index, &model, fixed);
        }
    }
    compare(&index, &model, fixed);
}

#[test]
fn like_a_map_through_growth_splits_and_removals() {
    let mut random = Random::from_environment();
    // One unit that splits up to 5 times beyond what 8 + 3 fixed bits allow for.
    run(&mut random, 11, 12_000, 100_000);
    // Many units that only grow.
    run(&mut random, 4, 20_000, 60_000);
    run(&mut random, 0, 2_000, 10_000);
}

#[test]
fn reserved_batches_do_not_grow() {
    let mut random = Random::from_environment();
    let index = Index::new();
    let (mut next, mut grown, mut batches) = (0, 0, 0);
    while next < 40_000 {
        let mut shard = index.lock(0);
        let size = 1 + random.below(200);
        let batch: Vec<_> = (next..next + size).map(|key| hash_of(key, 9)).collect();
        // Some are present, some twice in the batch.
        let again = (0..size / 4).map(|_| hash_of(random.below(next + size), 9));
        let batch: Vec<_> = batch.into_iter().chain(again).collect();
        shard.reserve_many(&batch, u64::MAX).unwrap();
        let memory = index.memory_bytes();
        for (key, hash) in (next..).zip(&batch) {
            shard.insert(*hash, entry_of(key, 0)).unwrap();
        }
        // Room was counted, not arranged: some of these, which crowd
        // into one unit, make it grow after all.
        grown += u64::from(index.memory_bytes() != memory);
        batches += 1;
        next += size;
    }
    assert_eq!(index.len(), next);
    assert!(
        grown * 10 <= batches,
        "{grown} of {batches} batches grew after all"
    );
}

#[test]
fn the_memory_limit_holds_and_is_no_dead_end() {
    let index = Index::new();
    let limit = 3 << 20;
    let mut full = None;
    for key in 0.. {
        let hash = hash_of(key, 4);
        let mut shard = index.lock(Index::shard_of(hash));
        if let Err(error) = shard.reserve(hash, limit) {
            assert!(error.needed > limit);
            full = Some(key);
            break;
        }
        shard.insert(hash, entry_of(key, 0)).unwrap();
        assert!(index.memory_bytes() <= limit);
    }
    let full = full.unwrap();
    // Overwriting needs no room, and removing makes some.
    let hash = hash_of(0, 4);
    let mut shard = index.lock(Index::shard_of(hash));
    shard.reserve(hash, limit).unwrap();
    assert!(shard.insert(hash, entry_of(0, 1)).unwrap().is_some());
    drop(shard);
    for key in 0..full {
        let hash = hash_of(key, 4);
        index.lock(Index::shard_of(hash)).remove(hash).unwrap();
    }
    let hash = hash_of(full, 4);
    index
        .lock(Index::shard_of(hash))
        .reserve(hash, limit)
        .unwrap();
    assert_eq!(index.len(), 0);
}

#[test]
fn memory_per_entry() {
    // Every phase of growth and splitting at a depth, in one shard.
    let index = Index::new();
    let mut worst = 0.0_f64;
    let start = index.memory_bytes();
    let mut shard = index.lock(0);
    for key in 0..40_000 {
        shard.insert(hash_of(key, 8), entry_of(key, 0)).unwrap();
        if key > 10_000 && key % 100 == 0 {
            worst = worst.max((index.memory_bytes() - start) as f64 / key as f64);
        }
    }
    println!("at most {worst:.2} bytes an entry");
    assert!(worst < 17.5, "{worst}");
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Insert(u8),
    Remove(u8),
    Redirect(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => any::<u8>().prop_map(Op::Insert),
        2 => any::<u8>().prop_map(Op::Remove),
        1 => any::<u8>().prop_map(Op::Redirect),
    ];
    proptest::collection::vec(op, 1..400)
}

proptest! {
    /// Hashes with only few distinct buckets: chains of displaced entries, and overfull
    /// buckets that make units grow and split early.
    #[test]
    fn crowded_buckets(ops in ops(), buckets in 1_u64..6) {
        let hash = |key: u8| {
            let position = (mix(u64::from(key)) % buckets) << 48;
            KeyHash::from_bits(u128::from(position) << 64 | u128::from(mix(key.into())) << 48)
        };
        let index = Index::new();
        let mut model = BTreeMap::new();
        let mut shard = index.lock(0);
        for (step, op) in (0..).zip(ops) {
            match op {
                Op::Insert(key) => {
                    let entry = entry_of(key.into(), step);
                    prop_assert_eq!(shard.insert(hash(key), entry), Ok(model.insert(key, entry)));
                }
                Op::Remove(key) => prop_assert_eq!(shard.remove(hash(key)), model.remove(&key)),
                Op::Redirect(key) => {
                    let entry = entry_of(key.into(), step);
                    let old = model.get(&key).copied();
                    let from = old.map_or(entry.address, |old: Entry| old.address);
                    let done = shard.redirect(hash(key), from, entry);
                    prop_assert_eq!(done, old.is_some());
                    if done {
                        model.insert(key, entry);
                    }
                }
            }
            for key in 0..=u8::MAX {
                prop_assert_eq!(index.get(hash(key)), model.get(&key).copied());
            }
        }
        prop_assert_eq!(scan(&index).len(), model.len());
    }
}
