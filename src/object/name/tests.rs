//! Order, round trip and ranges of sort keys.

use proptest::prelude::*;

use super::*;

/// Short texts of few bytes: many prefixes of one another, and the bytes that escape.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0, 1, b'<', b'=', b'>', b'a', 0xfe, 0xff]);
    prop::collection::vec(byte, 0..4)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        prop::sample::select(vec![0, 1, 0xff, 0x100, u64::MAX - 1, u64::MAX]),
        any::<u64>(),
    ]
}

fn hash() -> impl Strategy<Value = u32> {
    prop_oneof![
        prop::sample::select(vec![0, 1, 2, 3, 1 << 31, u32::MAX - 1, u32::MAX]),
        any::<u32>(),
    ]
}

prop_compose! {
    fn some_name()(
        shard in prop::sample::select(vec![i8::MIN, -1, 0, 1, i8::MAX]),
        pool in prop::sample::select(vec![i64::MIN, -3, -1, 0, 1, 255, 256, i64::MAX]),
        hash in hash(),
        (nspace, key, name) in (text(), text(), text()),
        (snap, generation) in (number(), number()),
        is_max in prop::bool::weighted(0.05),
    ) -> ObjectName {
        if is_max {
            return ObjectName::max();
        }
        ObjectName::new(pool, hash, name)
            .with_shard(shard)
            .with_nspace(nspace)
            .with_key(key)
            .with_snap(snap)
            .with_generation(generation)
    }
}

/// Two names that often differ in one part alone.
fn two_names() -> impl Strategy<Value = (ObjectName, ObjectName)> {
    (some_name(), some_name(), 0..8).prop_map(|(a, other, part)| {
        let mut b = a.clone();
        match part {
            0 => b.shard = other.shard,
            1 => b.pool = other.pool,
            2 => b.hash = other.hash,
            3 => b.nspace = other.nspace,
            4 => b = b.with_key(other.key),
            5 => b.snap = other.snap,
            6 => b.generation = other.generation,
            _ => b = other,
        }
        if a.is_max || b.is_max {
            b = ObjectName::max();
        }
        (a, b)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn sort_keys_have_the_order_of_names((a, b) in two_names()) {
        prop_assert_eq!(a.sort_key().cmp(&b.sort_key()), a.cmp(&b));
        prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
    }

    #[test]
    fn sort_keys_give_names_back(name in some_name()) {
        prop_assert_eq!(ObjectName::from_sort_key(&name.sort_key()), Ok(name));
    }

    #[test]
    fn compact_forms_have_the_order_of_names_and_give_sort_keys_back((a, b) in two_names()) {
        prop_assume!(!a.is_max && !b.is_max);
        let (key_a, key_b) = (a.sort_key(), b.sort_key());
        let (compact_a, compact_b) = (compact(&key_a), compact(&key_b));
        prop_assert_eq!(compact_a.cmp(&compact_b), a.cmp(&b));
        prop_assert_eq!(expand(&compact_a), key_a);
        prop_assert_eq!(reversed_hash_of(&compact_b), b.reversed_hash());
        let (start, end) = ObjectName::hash_range(a.shard, a.pool, 3, a.hash);
        prop_assert_eq!(compact(&start) <= compact_b, start <= key_b);
        prop_assert_eq!(compact(&end) <= compact_b, end <= key_b);
        prop_assert!(compact_a < compact(&ObjectName::max().sort_key()));
    }

    #[test]
    fn damaged_sort_keys_do_not_panic(
        name in some_name(),
        at: prop::sample::Index,
        byte: u8,
        cut: prop::sample::Index,
    ) {
        let mut key = name.sort_key();
        let at = at.index(key.len());
        key[at] = byte;
        key.truncate(cut.index(key.len() + 1));
        if let Ok(name) = ObjectName::from_sort_key(&key) {
            prop_assert_eq!(name.sort_key(), key);
        }
    }

    #[test]
    fn any_bytes_are_a_sort_key_or_refused(mut key: Vec<u8>, zero: bool) {
        if zero {
            key.insert(0, 0);
        }
        if let Ok(name) = ObjectName::from_sort_key(&key) {
            prop_assert_eq!(name.sort_key(), key);
        }
    }

    #[test]
    fn hash_ranges_hold_exactly_their_objects(
        name in some_name(),
        bits in 0..=32u32,
        seed in hash(),
        low in prop::bool::ANY,
    ) {
        let seed = if low { name.hash & low_bits(bits) } else { seed };
        for (shard, pool) in [(name.shard, name.pool), (-1, 1), (i8::MAX, i64::MAX)] {
            let (start, end) = ObjectName::hash_range(shard, pool, bits, seed);
            let key = name.sort_key();
            let within = start <= key && key < end;
            let belongs = !name.is_max
                && (name.shard, name.pool) == (shard, pool)
                && name.hash & low_bits(bits) == seed & low_bits(bits);
            prop_assert_eq!(within, belongs);
        }
    }
}

#[test]
fn bounds_are_bounds() {
    let last = ObjectName::new(i64::MAX, u32::MAX, [0xff; 3])
        .with_shard(i8::MAX)
        .with_snap(u64::MAX);
    assert!(ObjectName::min() < last && last < ObjectName::max());
    let (start, end) = ObjectName::hash_range(i8::MAX, i64::MAX, 32, u32::MAX);
    assert!(start <= last.sort_key() && last.sort_key() < end);
    assert!(end <= ObjectName::max().sort_key());
    assert!(ObjectName::min() <= ObjectName::new(i64::MIN, 0, []).with_shard(i8::MIN));
}

#[test]
fn a_locator_key_that_is_the_name_is_none() {
    let name = ObjectName::new(1, 2, "a").with_key("a");
    assert_eq!(name, ObjectName::new(1, 2, "a"));
    assert_eq!(name.effective_key(), b"a");
    let keyed = ObjectName::new(1, 2, "b").with_key("a");
    assert!(keyed > name && keyed < ObjectName::new(1, 2, "aa"));
}
