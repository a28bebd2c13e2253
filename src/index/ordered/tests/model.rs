//! Random operations on the map and on a `BTreeMap`.

use super::*;

/// An edge of a range: any kind of bound.
fn bound(key: &[u8], random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(7) {
        0 => Bound::Unbounded,
        1..4 => Bound::Included(key.to_vec()),
        _ => Bound::Excluded(key.to_vec()),
    }
}

fn by_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Whether a key is in a range, by the definition.
fn contains(first: &Bound<Vec<u8>>, last: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    let after = match first {
        Bound::Unbounded => true,
        Bound::Included(first) => key >= &first[..],
        Bound::Excluded(first) => key > &first[..],
    };
    let before = match last {
        Bound::Unbounded => true,
        Bound::Included(last) => key <= &last[..],
        Bound::Excluded(last) => key < &last[..],
    };
    after && before
}

fn range(first: &Bound<Vec<u8>>, last: &Bound<Vec<u8>>, model: &Model) -> Model {
    let inside = model
        .iter()
        .filter(|(key, _)| contains(first, last, key))
        .map(|(key, value)| (key.clone(), *value));
    inside.collect()
}

/// Does something random to both, and compares what it says.
fn step(map: &mut OrderedMap, model: &mut Model, kind: u64, growing: bool, random: &mut Random) {
    let wanted = key(kind, random);
    let value = random.next();
    let near = model.range(wanted.clone()..).next();
    let near = near.map_or(wanted.clone(), |(key, _)| key.clone());
    match random.below(if growing { 24 } else { 40 }) {
        0..12 => assert_eq!(map.insert(&wanted, value), model.insert(wanted, value)),
        12..15 => assert_eq!(map.get(&wanted), model.get(&wanted).copied()),
        15 => {
            let old = model.get(&near).copied().unwrap_or(7);
            let right = random.below(2) == 0;
            let done = map.update(&near, if right { old } else { !old }, value);
            assert_eq!(done, right && model.contains_key(&near));
            if done {
                model.insert(near, value);
            }
        }
        16 => {
            let found = model.range(wanted.clone()..).next();
            let found = found.map(|(key, value)| (key.clone(), *value));
            assert_eq!(map.first_at_or_after(&wanted), found);
            let bounds = (Bound::Excluded(wanted.clone()), Bound::Unbounded);
            let found = model.range(bounds).next();
            let found = found.map(|(key, value)| (key.clone(), *value));
            assert_eq!(map.first_after(&wanted), found);
        }
        17 => {
            let (first, last) = (bound(&wanted, random), bound(&key(kind, random), random));
            let mut seen = Model::new();
            map.visit((by_slice(&first), by_slice(&last)), &mut |key, value| {
                seen.insert(key.to_vec(), value).is_none()
            });
            assert_eq!(seen, range(&first, &last, model));
        }
        18 => {
            let mut out = vec![(Vec::new(), 1)];
            let max = random.below(100) as usize;
            map.read_from(Bound::Included(&wanted), max, &mut out);
            let expected = model.range(wanted..).take(max);
            assert!(out[1..].iter().map(|(k, v)| (k, v)).eq(expected));
        }
        19 if !growing || random.below(10) == 0 => {
            // Most ranges are narrow, so that something stays.
            let wide = random.below(20) == 0;
            let other = if wide {
                key(kind, random)
            } else {
                let width = 1 + random.below(100) as usize;
                let other = model.range(near.clone()..).nth(width);
                other.map_or(near.clone(), |(key, _)| key.clone())
            };
            let (first, last) = (bound(&near, random), bound(&other, random));
            let unbounded = first == Bound::Unbounded || last == Bound::Unbounded;
            if unbounded && random.below(20) > 0 {
                return;
            }
            let removed = map.remove_range(by_slice(&first), by_slice(&last));
            let expected = range(&first, &last, model);
            model.retain(|key, _| !expected.contains_key(key));
            check(&removed, &expected);
        }
        _ => assert_eq!(map.remove(&near), model.remove(&near)),
    }
}

fn run(kind: u64, rounds: usize, steps: usize) {
    let mut random = Random::from_environment();
    let (mut map, mut model) = (OrderedMap::default(), Model::new());
    let mut most = 0;
    for round in 0..rounds {
        for _ in 0..steps {
            step(&mut map, &mut model, kind, round % 3 < 2, &mut random);
        }
        most = most.max(model.len());
        check(&map, &model);
    }
    println!("up to {most} keys");
    check(&map.take(), &model);
    check(&map, &Model::new());
}

#[test]
fn short_keys_match_the_model() {
    run(0, 12, 3000);
}

#[test]
fn numbers_match_the_model() {
    run(1, 12, 3000);
}

#[test]
fn keys_of_up_to_64_kib_match_the_model() {
    run(2, 6, 300);
}

#[test]
fn keys_that_fill_leaves_by_bytes_match_the_model() {
    run(3, 9, 1000);
}

#[test]
fn all_kinds_together_match_the_model() {
    let mut random = Random::from_environment();
    let (mut map, mut model) = (OrderedMap::default(), Model::new());
    for round in 0..6 {
        for _ in 0..1500 {
            let kind = [0, 1, 1, 3, 3, 3, 2][random.below(7) as usize];
            step(&mut map, &mut model, kind, round % 3 < 2, &mut random);
        }
        check(&map, &model);
    }
}

/// Many branches: the ranges go over edges of leaves and branches, and whole branches.
#[test]
fn ranges_of_a_large_map_match_the_model() {
    let mut random = Random::from_environment();
    let count = 60_000;
    let full = map_of(shuffled(count, &mut random));
    for _ in 0..60 {
        let mut map = full.snapshot();
        let (a, b) = (random.below(count), random.below(count));
        let b = if random.below(3) == 0 { a + b % 300 } else { b };
        let (first, last) = (log_key(a), log_key(b));
        let removed = map.remove_range(Bound::Included(&first), Bound::Excluded(&last));
        let inside: Vec<u64> = content(&removed).iter().map(|(_, value)| *value).collect();
        assert!(inside.into_iter().eq(a..b.min(count)));
        let outside: Vec<u64> = content(&map).iter().map(|(_, value)| *value).collect();
        assert!(
            outside
                .into_iter()
                .eq((0..count).filter(|n| !(a..b).contains(n)))
        );
        // What is left and what was taken go on as maps.
        for mut map in [map, removed] {
            let mut model: Model = content(&map).into_iter().collect();
            for _ in 0..300 {
                let key = log_key(random.below(count));
                assert_eq!(map.remove(&key), model.remove(&key));
                let key = log_key(random.below(count));
                assert_eq!(map.insert(&key, 5), model.insert(key, 5));
            }
            check(&map, &model);
        }
    }
    assert_eq!(full.len(), count as usize);
}

#[test]
fn orders_of_insertion_and_removal() {
    let count = 20_000;
    let up = map_of(0..count);
    let down = map_of((0..count).rev());
    let model: Model = (0..count).map(|number| (log_key(number), number)).collect();
    check(&up, &model);
    check(&down, &model);
    for (mut map, forward) in [(up, true), (down, false)] {
        for number in 0..count {
            let number = if forward { number } else { count - 1 - number };
            assert_eq!(map.remove(&log_key(number)), Some(number));
        }
        assert!(map.is_empty());
        assert_eq!(map.memory_bytes(), size_of::<OrderedMap>());
    }
}

#[test]
fn bounds_that_cross_are_an_empty_range() {
    let mut map = map_of(0..1000);
    let (low, high) = (log_key(10), log_key(900));
    for (first, last) in [
        (Bound::Included(&high[..]), Bound::Included(&low[..])),
        (Bound::Excluded(&high[..]), Bound::Excluded(&low[..])),
        (Bound::Excluded(&low[..]), Bound::Excluded(&low[..])),
        (Bound::Included(&low[..]), Bound::Excluded(&low[..])),
    ] {
        assert!(map.remove_range(first, last).is_empty());
        map.visit((first, last), &mut |_, _| unreachable!());
    }
    assert_eq!(map.len(), 1000);
}

#[test]
#[should_panic(expected = "at most 64 KiB")]
fn a_longer_key_is_refused() {
    OrderedMap::<u64>::default().insert(&vec![0; KEY_BYTES_MAX + 1], 1);
}
