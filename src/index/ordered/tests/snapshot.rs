//! Snapshots: neither sees what the other does, and they share what neither changes.

use super::*;

#[test]
fn snapshots_keep_what_they_had() {
    let mut random = Random::from_environment();
    let (mut map, mut model) = (OrderedMap::default(), Model::new());
    let mut kept: Vec<(OrderedMap, Model)> = Vec::new();
    for round in 0..1200 {
        for _ in 0..8 {
            let key = log_key(random.below(4000));
            match random.below(16) {
                0..8 => {
                    assert_eq!(map.insert(&key, round), model.insert(key, round));
                }
                8..14 => assert_eq!(map.remove(&key), model.remove(&key)),
                14 => {
                    let old = model.get(&key).copied();
                    if map.update(&key, old.unwrap_or(0), 9) {
                        model.insert(key, 9);
                    } else {
                        assert_eq!(old, None);
                    }
                }
                _ => {
                    let end = log_key(random.below(4000));
                    if key < end && random.below(10) == 0 {
                        map.remove_range(Bound::Included(&key), Bound::Excluded(&end));
                        model.retain(|other, _| *other < key || *other >= end);
                    }
                }
            }
        }
        if random.below(20) == 0 {
            kept.push((map.snapshot(), model.clone()));
        }
        // A snapshot may become the map, as a clone of an object does.
        if kept.len() > 6 {
            let at = random.below(kept.len() as u64) as usize;
            let (snapshot, as_it_was) = kept.swap_remove(at);
            check(&snapshot, &as_it_was);
            if random.below(2) == 0 {
                (map, model) = (snapshot, as_it_was);
            }
        }
    }
    check(&map, &model);
    for (snapshot, as_it_was) in &kept {
        check(snapshot, as_it_was);
    }
}

#[test]
fn a_write_copies_only_what_it_touches() {
    let map = map_of(0..200_000);
    let before = allocator::in_use();
    let mut copy = map.snapshot();
    let pointers = allocator::in_use() - before;
    assert!(pointers < 2000, "a snapshot takes {pointers} bytes");
    // Nothing is copied for what does not happen.
    assert_eq!(copy.remove(&log_key(200_000)), None);
    assert!(!copy.update(&log_key(7), 8, 9));
    assert_eq!(allocator::in_use() - before, pointers);
    copy.insert(&log_key(100_000), 1);
    let written = allocator::in_use() - before - pointers;
    assert!(written < 5000, "a write copies {written} bytes");
    assert_eq!(map.get(&log_key(100_000)), Some(100_000));
}
