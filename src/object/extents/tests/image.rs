//! Images: round trips, and bytes that are none.

use fastrand::Rng;

use super::model::Family;
use crate::object::extents::{Extent, ExtentMap, LeafReader, LeafWriter, References, Unit};

/// A family after some random steps.
fn family(seed: u64) -> Family {
    let mut rng = Rng::with_seed(seed);
    let mut family = Family::new(8 << (seed % 5), 300);
    for _ in 0..300 {
        family.step(&mut rng, 8, 5);
    }
    family
}

fn encode(family: &Family) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut written = LeafWriter::new();
    for member in &family.members {
        member.map.encode_shared(&mut written, &mut bytes);
    }
    bytes
}

/// As many maps as `count`, while the bytes are valid.
fn decode(bytes: &[u8], count: usize, unit: Unit) -> Option<Vec<ExtentMap>> {
    let mut read = LeafReader::new(unit);
    let mut maps = Vec::new();
    let mut used = 0;
    for _ in 0..count {
        let (map, more) = ExtentMap::decode_shared(&bytes[used..], &mut read).ok()?;
        used += more;
        maps.push(map);
    }
    assert!(used <= bytes.len());
    Some(maps)
}

fn extents(map: &ExtentMap) -> Vec<Extent<'_>> {
    map.iter().collect()
}

#[test]
fn a_family_comes_back_with_its_sharing() {
    for seed in 0..20 {
        println!("seed {seed}");
        let family = family(seed);
        let bytes = encode(&family);
        let maps = decode(&bytes, family.members.len(), family.unit).unwrap();
        for (map, member) in maps.iter().zip(&family.members) {
            assert_eq!(extents(map), extents(&member.map));
        }
        let mut live = [0, 0];
        let old = family.members.iter().map(|member| &member.map);
        let old = References::count(family.unit, old, &mut |piece| live[0] += piece.bytes);
        let new = References::count(family.unit, &maps, &mut |piece| live[1] += piece.bytes);
        assert!(old.pieces().eq(new.pieces()));
        assert_eq!(live[0], live[1]);
    }
}

#[test]
fn a_map_alone_comes_back() {
    let family = family(3);
    let mut bytes = Vec::new();
    family.members[0].map.encode(&mut bytes);
    let length = bytes.len();
    bytes.extend_from_slice(b"more");
    let (map, used) = ExtentMap::decode(&bytes, family.unit).unwrap();
    assert_eq!(used, length);
    assert_eq!(extents(&map), extents(&family.members[0].map));
}

#[test]
fn truncated_images_are_refused() {
    let family = family(4);
    let bytes = encode(&family);
    let mut length = 0;
    while length < bytes.len() {
        assert!(decode(&bytes[..length], family.members.len(), family.unit).is_none());
        length += if length < 2000 { 1 } else { 97 };
    }
}

#[test]
fn damaged_images_are_refused_or_are_maps() {
    let mut rng = Rng::with_seed(5);
    for seed in 0..4 {
        let family = family(seed);
        let bytes = encode(&family);
        for _ in 0..1500 {
            let mut damaged = bytes.clone();
            for _ in 0..rng.u32(1..4) {
                let at = rng.usize(..damaged.len());
                damaged[at] = if rng.bool() {
                    rng.u8(..)
                } else {
                    damaged[at] ^ 1 << rng.u8(..8)
                };
            }
            exercise(&damaged, &family, &mut rng);
        }
        for _ in 0..500 {
            let noise: Vec<u8> = (0..rng.usize(..200)).map(|_| rng.u8(..4)).collect();
            exercise(&noise, &family, &mut rng);
        }
    }
}

/// Whatever decodes can be used like any other map.
fn exercise(bytes: &[u8], family: &Family, rng: &mut Rng) {
    let Some(mut maps) = decode(bytes, family.members.len(), family.unit) else {
        return;
    };
    let mut references = References::count(family.unit, &maps, &mut |_| {});
    for map in &mut maps {
        assert_eq!(
            map.iter()
                .map(|extent| extent.checksums.len() as u64)
                .sum::<u64>(),
            map.len_blocks()
        );
        map.get(rng.u32(..));
        let first = rng.u32(..300);
        map.unmap(first, u64::from(first) + 3, &mut references, &mut |_| {});
    }
    for map in maps {
        map.release(&mut references, &mut |_| {});
    }
}
