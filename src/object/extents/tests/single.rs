//! Single cases: merging, the tail rule, truncation, sharing, limits.

use super::{unit, whole};
use crate::format::Address;
use crate::object::extents::{
    BLOCKS_MAX, Dropped, Extent, ExtentMap, Move, References, SECTORS_MAX, relocate,
};

/// Puts `extent` into `map`; what dies, as first sector and bytes.
fn put(map: &mut ExtentMap, references: &mut References, extent: Extent<'_>) -> Vec<(u64, u64)> {
    let mut dead = Vec::new();
    map.replace(extent, references, &mut |piece| dead.push(sectors(piece)));
    dead
}

fn sectors(piece: Dropped) -> (u64, u64) {
    (unit().bytes(piece.address.units()) / 512, piece.bytes)
}

#[test]
fn pieces_of_a_sequential_write_become_one_extent() {
    let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
    for block in [0, 2, 1, 3] {
        let dead = put(
            &mut map,
            &mut references,
            whole(block, 80 + u64::from(block) * 8, &[block]),
        );
        assert!(dead.is_empty());
    }
    let extents: Vec<_> = map.iter().collect();
    assert_eq!(extents, [whole(0, 80, &[0, 1, 2, 3])]);
}

#[test]
fn a_short_block_ends_its_extent() {
    let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
    let short = Extent {
        tail_sectors: 3,
        ..whole(0, 80, &[1, 2])
    };
    put(&mut map, &mut references, short);
    put(&mut map, &mut references, whole(2, 96, &[3]));
    assert_eq!(map.iter().count(), 2);
    assert_eq!(map.get(1).unwrap().bytes, 3 * 512);
    // Without its last block the first is whole, and the short one's sectors die.
    let mut dead = Vec::new();
    map.unmap(1, 2, &mut references, &mut |piece| {
        dead.push(sectors(piece))
    });
    assert_eq!(dead, [(88, 3 * 512)]);
    assert_eq!(map.get(0).unwrap().bytes, 4096);
}

#[test]
fn the_last_block_of_all_can_be_mapped_and_truncated() {
    let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
    put(&mut map, &mut references, whole(u32::MAX - 1, 80, &[1, 2]));
    assert_eq!(map.end_block(), BLOCKS_MAX);
    assert_eq!(map.get(u32::MAX).unwrap().checksum, 2);
    let mut dead = Vec::new();
    map.unmap(u32::MAX, BLOCKS_MAX, &mut references, &mut |piece| {
        dead.push(sectors(piece))
    });
    assert_eq!(dead, [(88, 4096)]);
    assert_eq!(map.end_block(), BLOCKS_MAX - 1);
}

#[test]
fn shared_bytes_die_with_the_last_reference() {
    let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
    put(&mut map, &mut references, whole(0, 80, &[1, 2, 3]));
    let mut copy = map.clone();
    assert!(references.is_empty());
    assert!(put(&mut copy, &mut references, whole(1, 800, &[4])).is_empty());
    assert!(!references.is_empty());
    // Only the middle of the source is its own.
    let mut dead = Vec::new();
    map.release(&mut references, &mut |piece| dead.push(sectors(piece)));
    assert_eq!(dead, [(88, 4096)]);
    assert!(references.is_empty());
    dead.clear();
    copy.release(&mut references, &mut |piece| dead.push(sectors(piece)));
    dead.sort_unstable();
    assert_eq!(dead, [(80, 4096), (96, 4096), (800, 4096)]);
}

#[test]
fn a_relocated_leaf_stays_shared() {
    let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
    put(&mut map, &mut references, whole(0, 80, &[1, 2, 3]));
    let mut copy = map.clone();
    let sector = |sector: u64| Address::new(unit().units(sector * 512));
    let change = Move {
        first: 1,
        count: 2,
        old: sector(88),
        new: sector(800),
        exponent: 3,
    };
    let moved = relocate(&mut [&mut map, &mut copy], change, &mut references);
    assert_eq!(moved, 2 * 4096);
    assert!(references.is_empty());
    assert_eq!(map.leaf(0).identity(), copy.leaf(0).identity());
    assert_eq!(copy.get(2).unwrap().address, sector(808));
    // What was there once is not moved again.
    assert_eq!(
        relocate(&mut [&mut map, &mut copy], change, &mut references),
        0
    );
    // The rest follows, and all is one extent again.
    let change = Move {
        first: 0,
        count: 1,
        old: sector(80),
        new: sector(792),
        exponent: 3,
    };
    assert_eq!(
        relocate(&mut [&mut map, &mut copy], change, &mut references),
        4096
    );
    assert_eq!(copy.iter().collect::<Vec<_>>(), [whole(0, 792, &[1, 2, 3])]);
}

#[test]
#[should_panic(expected = "an extent has blocks")]
fn an_extent_of_nothing_is_refused() {
    put(
        &mut ExtentMap::new(),
        &mut References::new(unit()),
        whole(0, 80, &[]),
    );
}

#[test]
#[should_panic(expected = "tail")]
fn a_tail_of_nothing_is_refused() {
    let extent = Extent {
        tail_sectors: SECTORS_MAX + 1,
        ..whole(0, 80, &[1])
    };
    put(&mut ExtentMap::new(), &mut References::new(unit()), extent);
}
