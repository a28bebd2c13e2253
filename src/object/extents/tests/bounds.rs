//! Bounds of memory, and a measurement of speed that is printed, not asserted:
//! `cargo test --release --lib extents::tests::bounds -- --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use fastrand::Rng;

use super::{unit, whole};
use crate::format::Address;
use crate::object::extents::{ExtentMap, Move, References, relocate};

/// Maps one block to a place from sector `sector` on.
fn put(map: &mut ExtentMap, references: &mut References, block: u32, sector: u64) {
    map.replace(whole(block, sector, &[block]), references, &mut |_| {});
}

/// Maps block after block of `order`, each at another place of the device.
fn scattered(order: &[u32]) -> (ExtentMap, References) {
    let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
    for (index, &block) in order.iter().enumerate() {
        put(&mut map, &mut references, block, 80 + index as u64 * 24);
    }
    (map, references)
}

fn shuffled(blocks: u32, rng: &mut Rng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..blocks).collect();
    rng.shuffle(&mut order);
    order
}

fn per_block(map: &ExtentMap) -> f64 {
    map.memory_bytes() as f64 / map.len_blocks() as f64
}

#[test]
fn random_blocks_take_20_bytes_each() {
    let mut rng = Rng::with_seed(1);
    for blocks in [64, 1024, 16 << 10] {
        let (map, _) = scattered(&shuffled(blocks, &mut rng));
        println!(
            "random, {blocks} blocks: {:.2} bytes a block",
            per_block(&map)
        );
        assert!(per_block(&map) <= 20.0);
        let (map, _) = scattered(&(0..blocks).collect::<Vec<_>>());
        println!(
            "ascending, {blocks} blocks: {:.2} bytes a block",
            per_block(&map)
        );
        assert!(per_block(&map) <= 20.0);
    }
}

#[test]
fn sequential_blocks_take_6_bytes_each() {
    for piece in [1, 3, 4, 16, 64, 129, 1024] {
        let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
        let mut block = 0;
        while block < 1024 {
            let checksums = vec![7; piece.min(1024 - block as usize)];
            let extent = whole(block, 80 + u64::from(block) * 8, &checksums);
            map.replace(extent, &mut references, &mut |_| panic!("nothing dies"));
            block += checksums.len() as u32;
        }
        println!(
            "sequential by {piece}: {:.2} bytes a block",
            per_block(&map)
        );
        assert!(per_block(&map) <= 6.0);
        assert_eq!(map.len_blocks(), 1024);
    }
}

#[test]
fn scattered_blocks_that_are_moved_together_take_6_bytes_each() {
    let mut rng = Rng::with_seed(2);
    let order = shuffled(1024, &mut rng);
    let (mut map, mut references) = scattered(&order);
    for (index, &block) in order.iter().enumerate() {
        let change = Move {
            first: block,
            count: 1,
            old: Address::new((80 + index as u64 * 24) * 64),
            new: Address::new((1_000_000 + u64::from(block) * 8) * 64),
            exponent: 3,
        };
        assert_eq!(relocate(&mut [&mut map], change, &mut references), 4096);
    }
    println!("moved together: {:.2} bytes a block", per_block(&map));
    assert!(per_block(&map) <= 6.0);
}

#[test]
fn clones_cost_what_they_differ_in() {
    let mut rng = Rng::with_seed(3);
    for (sort, mut map, mut references) in [
        {
            let (map, references) = scattered(&shuffled(1024, &mut rng));
            ("random", map, references)
        },
        {
            let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
            map.replace(whole(0, 80, &[7; 1024]), &mut references, &mut |_| {});
            ("sequential", map, references)
        },
    ] {
        let alone = map.memory_bytes();
        let mut clones = Vec::new();
        let mut bytes = 0;
        let mut best = f64::INFINITY;
        for clone in 0..512 {
            let start = Instant::now();
            clones.push(map.clone());
            // A clone's list of leaves and the leaf that the write copies are its own.
            let block = rng.u32(..1024);
            let extent = whole(block, 1_000_000 + clone * 24, &[1]);
            map.replace(extent, &mut references, &mut |_| {});
            best = best.min(start.elapsed().as_nanos() as f64);
            bytes += map.slots_bytes() + map.leaf(map.leaf_at(block)).memory_bytes();
        }
        let each = bytes / 512;
        println!(
            "{sort}: alone {alone} bytes; 512 clones {each} bytes and {} of references each, \
             {best:.0} ns a clone and write at best",
            references.memory_bytes() / 512
        );
        assert!(each <= 2300, "{each} bytes a clone");
        assert!(references.memory_bytes() / 512 <= 512);
        let mut live = 0;
        clones.push(map);
        References::count(unit(), &clones, &mut |piece| live += piece.bytes);
        assert_eq!(live, (1024 + 512) * 4096);
        let mut dead = 0;
        for map in clones {
            map.release(&mut references, &mut |piece| dead += piece.bytes);
        }
        assert_eq!(dead, live);
        assert!(references.is_empty());
    }
}

/// Nanoseconds of one of `count` runs of `action`, of the best hundredth of them: other
/// programs run on this machine too.
fn time(count: u32, mut action: impl FnMut(u32)) -> f64 {
    let batch = count / 100;
    let mut best = f64::INFINITY;
    for first in (0..count).step_by(batch as usize) {
        let start = Instant::now();
        for index in first..first + batch {
            action(index);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(batch));
    }
    best
}

#[test]
fn speed_is_printed() {
    let count = if cfg!(debug_assertions) {
        1000
    } else {
        300_000
    };
    let mut rng = Rng::with_seed(4);
    let (mut map, mut references) = scattered(&shuffled(1024, &mut rng));
    println!("{} leaves", map.leaf_count());
    let get = time(count, |_| {
        black_box(map.get(rng.u32(..1024)));
    });
    let overwrite = time(count, |index| {
        let sector = 1_000_000 + u64::from(index) * 24;
        put(&mut map, &mut references, rng.u32(..1024), sector);
    });
    let (map, mut references) = scattered(&shuffled(1023, &mut rng));
    let mut holed = map.clone();
    map.release(&mut references, &mut |_| {});
    let fill = time(count, |index| {
        let block = rng.u32(..1023);
        holed.unmap(block, u64::from(block) + 1, &mut references, &mut |_| {});
        put(
            &mut holed,
            &mut references,
            block,
            1_000_000 + u64::from(index) * 24,
        );
    });
    let (mut map, mut references) = (ExtentMap::new(), References::new(unit()));
    map.replace(whole(0, 80, &[7; 4096]), &mut references, &mut |_| {});
    let append = time(count, |index| {
        let sector = 1_000_000 + u64::from(index) * 8;
        put(&mut map, &mut references, index % 4096, sector);
    });
    println!(
        "get {get:.0} ns, overwrite {overwrite:.0} ns, unmap and write {fill:.0} ns, \
         sequential write {append:.0} ns"
    );
}
