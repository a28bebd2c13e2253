//! What maps take, counted by the allocator, and that they say so themselves.

use super::*;

/// A map made by `make`, and what the allocator says it takes, the map itself included.
fn measured(make: impl FnOnce() -> OrderedMap) -> (OrderedMap, usize) {
    let before = allocator::in_use();
    let map = make();
    let bytes = (allocator::in_use() - before) as usize + size_of::<OrderedMap>();
    assert_eq!(map.memory_bytes(), bytes, "what it says and what it takes");
    (map, bytes)
}

/// Bytes of the log keys' suffixes: what each does not share with the one before.
fn suffix_bytes(count: u64) -> u64 {
    // The last digit always differs, the one before in one of ten.
    (0..20)
        .map_while(|place| count.checked_div(10u64.pow(place)))
        .sum()
}

#[test]
fn small_maps_are_small() {
    let (_, none) = measured(OrderedMap::default);
    assert!(none <= 24);
    let (_, one) = measured(|| map_of(0..1));
    let (_, three) = measured(|| map_of(0..3));
    println!("empty {none}, one key {one}, three keys {three} bytes");
    // The map, the key, the value, and up to 44 for the leaf and the allocator.
    assert!(one <= 24 + 31 + 8 + 44);
    assert!(three <= 24 + 33 + 24 + 44);
}

#[test]
fn a_million_keys_take_24_bytes_and_their_suffixes_at_most() {
    let mut random = Random::from_environment();
    let count = 1_000_000;
    let limit = 24 * count + suffix_bytes(count);
    let order = shuffled(count, &mut random);
    for (name, numbers, limit) in [
        ("in order", (0..count).collect(), limit * 2 / 3),
        ("in random order", order, limit),
    ] {
        let (map, bytes) = measured(|| map_of(numbers.iter().copied()));
        let each = bytes as f64 / count as f64;
        println!("{name}: {each:.2} bytes a key");
        assert!(bytes as u64 <= limit);
        drop(map);
    }
}

/// Also counts what splits, joins and cuts do to the figures that the map keeps.
#[test]
fn memory_comes_back() {
    let mut random = Random::from_environment();
    let count = 100_000;
    let before = allocator::in_use();
    let mut map = map_of(shuffled(count, &mut random));
    let mut left = count;
    for number in shuffled(count, &mut random) {
        map.remove(&log_key(number));
        left -= 1;
        if left.is_power_of_two() || left % 10_000 == 0 {
            let bytes = map.memory_bytes();
            let used = allocator::in_use() - before + size_of::<OrderedMap>() as i64;
            // Only the order of the removals is still there.
            let order = (count as i64 * 8 + 8 + 15) / 16 * 16;
            assert_eq!(bytes as i64, used - order);
            // Nothing is printed here: what the test harness captures would be counted.
            assert!(bytes as u64 <= 32 * left + 400);
        }
    }
    assert_eq!(map.memory_bytes(), size_of::<OrderedMap>());
}

#[test]
fn the_figures_stay_right_under_everything() {
    let mut random = Random::from_environment();
    let before = allocator::in_use();
    let mut map = OrderedMap::<u64>::default();
    for round in 0..3000 {
        let (wanted, other) = {
            let kind = [0, 1, 1, 3][random.below(4) as usize];
            (key(kind, &mut random), key(kind, &mut random))
        };
        if round % 100 == 99 {
            drop(map.remove_range(Bound::Excluded(&wanted), Bound::Included(&other)));
        } else if random.below(3) > 0 {
            map.insert(&wanted, 1);
        } else {
            map.remove(&wanted);
        }
        drop((wanted, other));
        let used = allocator::in_use() - before;
        assert_eq!((map.memory_bytes() - size_of::<OrderedMap>()) as i64, used);
    }
}
