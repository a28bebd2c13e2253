//! Tests of the ordered map.

mod allocator;
mod image;
mod memory;
mod model;
mod snapshot;

use super::*;
use crate::index::tests::Random;
use std::collections::BTreeMap;

/// What the map should be like.
type Model = BTreeMap<Vec<u8>, u64>;

/// A key like those of placement groups' logs: 31 bytes, ordered as the number is.
fn log_key(number: u64) -> Vec<u8> {
    format!("0000000123.{number:020}").into_bytes()
}

/// The numbers below `count` in random order.
fn shuffled(count: u64, random: &mut Random) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    numbers
}

/// A map of the log keys of these numbers, each with its number.
fn map_of(numbers: impl IntoIterator<Item = u64>) -> OrderedMap {
    let mut map = OrderedMap::default();
    for number in numbers {
        map.insert(&log_key(number), number);
    }
    map
}

/// Everything in a map.
fn content(map: &OrderedMap) -> Vec<(Vec<u8>, u64)> {
    let mut out = Vec::new();
    map.read_from(Bound::Unbounded, usize::MAX, &mut out);
    out
}

/// Checks that a map is like its model, and that its leaves are sound.
fn check(map: &OrderedMap, model: &Model) {
    assert_eq!(map.len(), model.len());
    assert!(content(map).iter().map(|(k, v)| (k, v)).eq(model));
    let last = map.last();
    let expected = model.last_key_value().map(|(k, v)| (k.clone(), *v));
    assert_eq!(last, expected);
    let mut copy = OrderedMap::<u64>::default();
    let mut leaves = 0;
    map.encode_leaves(&mut |chunk| {
        leaves += 1;
        assert_eq!(copy.decode_leaf(chunk), Ok(chunk.len()));
    });
    assert_eq!(copy.len(), model.len());
    assert!(leaves <= model.len());
}

/// A key of some kind: short ones of few bytes are prefixes of each other and meet the limits
/// of bytes; numbers share a lot; long ones share almost everything or nothing.
fn key(kind: u64, random: &mut Random) -> Vec<u8> {
    let few = [0, 1, b'a', 0x7f, 0x80, 0xff];
    let mut bytes = |count: u64| -> Vec<u8> {
        let bytes = (0..count).map(|_| few[random.below(6) as usize]);
        bytes.collect()
    };
    match kind {
        0 => {
            let count = 5.min(bytes(2).iter().map(|byte| u64::from(*byte % 5)).sum());
            bytes(count)
        }
        1 => log_key(random.below(3000)),
        2 => {
            let mut key = vec![random.below(2) as u8 * 0xff; KEY_BYTES_MAX - 3];
            key.truncate(
                [3, 126, 127, 128, 129, 16_383, 16_385, KEY_BYTES_MAX][random.below(8) as usize],
            );
            key.extend((0..random.below(4)).map(|_| random.below(3) as u8 * 0x7f));
            key
        }
        _ => {
            let mut key = vec![random.below(40) as u8];
            key.resize(random.below(1500) as usize + 1, random.below(3) as u8);
            key
        }
    }
}
