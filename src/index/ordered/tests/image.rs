//! Leaves on media: round trips, and bytes that are not leaves.

use super::*;

fn chunks(map: &OrderedMap) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    map.encode_leaves(&mut |chunk| chunks.push(chunk.to_vec()));
    chunks
}

/// Maps of all kinds of keys, small enough to try much on each.
fn samples(random: &mut Random) -> Vec<OrderedMap> {
    let mut maps = vec![map_of(0..3), map_of(0..64)];
    for kind in [0, 1, 3] {
        let mut map = OrderedMap::default();
        for _ in 0..40 {
            map.insert(&key(kind, random), random.next());
        }
        maps.push(map);
    }
    let mut map = OrderedMap::default();
    map.insert(&[], 1);
    map.insert(&[0; 300], 2);
    map.insert(&[0; 301], 3);
    maps.push(map);
    maps
}

#[test]
fn round_trip() {
    let mut random = Random::from_environment();
    let mut maps = samples(&mut random);
    maps.push(map_of(shuffled(30_000, &mut random)));
    let mut long = OrderedMap::default();
    for _ in 0..60 {
        long.insert(&key(2, &mut random), 1);
    }
    maps.push(long);
    for map in maps {
        let image = chunks(&map).concat();
        let (mut copy, mut at) = (OrderedMap::<u64>::default(), 0);
        while at < image.len() {
            at += copy.decode_leaf(&image[at..]).unwrap();
        }
        assert_eq!(content(&copy), content(&map));
        // Slack differs.
        assert!(copy.memory_bytes() <= map.memory_bytes() * 17 / 16 + 1000);
        // It goes on as a map.
        let mut model: Model = content(&map).into_iter().collect();
        for _ in 0..200 {
            let kind = random.below(4);
            let wanted = key(kind, &mut random);
            assert_eq!(copy.insert(&wanted, 3), model.insert(wanted, 3));
        }
        check(&copy, &model);
    }
}

#[test]
fn leaves_out_of_order_are_refused() {
    let chunks = chunks(&map_of(0..200));
    let mut map = OrderedMap::<u64>::default();
    map.decode_leaf(&chunks[1]).unwrap();
    for chunk in &chunks[..2] {
        let refused = map.decode_leaf(chunk);
        assert_eq!(refused, Err(Invalid::Field("order of leaves")));
    }
    map.decode_leaf(&chunks[2]).unwrap();
    assert_eq!(map.len(), 128);
}

#[test]
fn every_truncation_is_refused() {
    for map in samples(&mut Random::from_environment()) {
        for chunk in chunks(&map) {
            let mut copy = OrderedMap::<u64>::default();
            for length in 0..chunk.len() {
                let refused = copy.decode_leaf(&chunk[..length]);
                assert_eq!(refused, Err(Invalid::Truncated));
            }
            assert!(copy.is_empty());
        }
    }
}

/// What damage leaves is refused, or is a sound map all the same.
#[test]
fn corruption_never_panics() {
    let mut random = Random::from_environment();
    let (mut refused, mut taken) = (0, 0);
    for map in samples(&mut random) {
        for chunk in chunks(&map) {
            for _ in 0..3000 {
                let mut bytes = chunk.clone();
                for _ in 0..=random.below(3) {
                    // The heads of keys are mostly in front.
                    let within = if random.below(2) == 0 { 40 } else { u64::MAX };
                    let at = random.below(within.min(bytes.len() as u64)) as usize;
                    bytes[at] = match random.below(3) {
                        0 => bytes[at] ^ 1 << random.below(8),
                        1 => bytes[at].wrapping_add(1),
                        _ => random.next() as u8,
                    };
                }
                let mut copy = OrderedMap::<u64>::default();
                let before = allocator::in_use();
                match copy.decode_leaf(&bytes) {
                    Err(_) => {
                        refused += 1;
                        assert!(copy.is_empty());
                    }
                    Ok(length) => {
                        taken += 1;
                        assert!(length <= bytes.len());
                        let memory = allocator::in_use() - before;
                        assert!(memory <= 64 + bytes.len() as i64 * 5 / 4);
                        let mut model: Model = content(&copy).into_iter().collect();
                        for (key, value) in &model {
                            assert_eq!(copy.get(key), Some(*value));
                        }
                        let wanted = key(random.below(2), &mut random);
                        assert_eq!(copy.insert(&wanted, 3), model.insert(wanted, 3));
                        check(&copy, &model);
                    }
                }
            }
        }
    }
    println!("{refused} refused, {taken} taken");
    assert!(refused > 1000 && taken > 1000);
}
