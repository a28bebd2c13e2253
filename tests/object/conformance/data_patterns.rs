//! Long runs of writes: many extents, overlaps, appends, one block written again and again,
//! and the reads that have to cope with what they leave.

use super::*;
use crate::common::Random;

pub fn many_small_writes(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (a, b) = (meta("a"), meta("b"));
    let block = pattern(1, 4096);
    let units = (0..100).map(|n| {
        let mut tx = Transaction::new();
        tx.write(META, &a, n * 4096, [&block]);
        if n % 2 == 0 {
            tx.write(META, &b, n * 4096, [&block]);
        }
        vec![tx]
    });
    for result in store.queue_many(META, units.collect()) {
        result.unwrap();
    }
    assert_data(store, META, &a, &block.repeat(100));
    let sparse = [block.as_slice(), &[0; 4096]].concat().repeat(50);
    assert_data(store, META, &b, &sparse[..99 * 4096]);
}

/// Writes to one block: in one transaction, in one list, and one behind the other.
pub fn one_block_is_written_again_and_again(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("same block");
    let mut expected = vec![0; 4096];
    let writes: Vec<(usize, Vec<u8>)> = (0..60)
        .map(|n| ((n * 97) % 4000, pattern(n as u64, n % 90 + 1)))
        .collect();
    apply(store, META, |tx| {
        tx.truncate(META, &object, 0)
            .write(META, &object, 0, [vec![0; 4096]])
    });
    let transaction = |writes: &[(usize, Vec<u8>)]| {
        let mut tx = Transaction::new();
        for (at, bytes) in writes {
            tx.write(META, &object, *at as u64, [bytes.clone()]);
        }
        tx
    };
    store
        .queue_transactions(META, vec![transaction(&writes[..20])])
        .unwrap();
    let list = writes[20..40].chunks(1).map(transaction).collect();
    store.queue_transactions(META, list).unwrap();
    let units = writes[40..]
        .chunks(1)
        .map(|writes| vec![transaction(writes)]);
    for result in store.queue_many(META, units.collect()) {
        result.unwrap();
    }
    for (at, bytes) in &writes {
        put(&mut expected, *at, bytes);
    }
    assert_data(store, META, &object, &expected);
}

pub fn a_front_that_is_skipped_is_zero(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("skip front");
    apply(store, META, |tx| tx.touch(META, &object));
    let mut expected = Vec::new();
    write(store, META, &object, &mut expected, 4096, &[b'a'; 4096]);
    assert_data(store, META, &object, &expected);
    assert_eq!(store.read(META, &object, 0, 4096).unwrap(), vec![0; 4096]);
    assert_eq!(
        store.read(META, &object, 4096, 4096).unwrap(),
        vec![b'a'; 4096]
    );
}

pub fn small_unaligned_appends(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("appended");
    let mut expected = Vec::new();
    for n in 0..300_usize {
        let at = expected.len();
        write(
            store,
            META,
            &object,
            &mut expected,
            at,
            &pattern(n as u64, n % 517 + 1),
        );
    }
    assert_data(store, META, &object, &expected);
}

/// A tail is written while an earlier write of its block may still be on its way.
pub fn appends_behind_an_overwritten_tail(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let (a, b) = (meta("a"), meta("b"));
    let full = pattern(3, 4 * 4096);
    let mut expected = Vec::new();
    for object in [&a, &b] {
        expected.clear();
        write(store, META, object, &mut expected, 0, &full[..4096 + 100]);
        write(store, META, object, &mut expected, 4096, &full[..50]);
        write(
            store,
            META,
            object,
            &mut expected,
            4096 + 100,
            &full[..3000],
        );
        write(
            store,
            META,
            object,
            &mut expected,
            4096 + 3100,
            &full[..2000],
        );
    }
    apply(store, META, |tx| {
        tx.write(META, &a, 4096 + 5100, [full.clone()])
    });
    assert_data(store, META, &b, &expected);
    put(&mut expected, 4096 + 5100, &full);
    assert_data(store, META, &a, &expected);
}

pub fn many_big_writes(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("big");
    let big = pattern(1, 2 << 20);
    let mut expected = Vec::new();
    for n in 0..4 {
        write(store, META, &object, &mut expected, n * big.len(), &big);
    }
    assert_data(store, META, &object, &expected);
    for n in 0..3 {
        write(
            store,
            META,
            &object,
            &mut expected,
            n * big.len() + (1 << 20) + n,
            &big,
        );
    }
    assert_data(store, META, &object, &expected);
    let at = expected.len() - 1000;
    write(store, META, &object, &mut expected, at, &big);
    assert_data(store, META, &object, &expected);
}

pub fn mixed_sizes_fragment_an_object(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("fragments");
    let mut expected = Vec::new();
    let writes = [
        (0, 524_288),
        (1_048_576, 524_288),
        (524_288, 10),
        (786_432, 20_000),
        (1_000_000, 100_000),
        (300_000, 900_000),
        (2_000_000, 1),
        (1_999_000, 999),
        (4096, 8192),
        (4095, 2),
    ];
    for (n, (at, len)) in writes.into_iter().enumerate() {
        write(
            store,
            META,
            &object,
            &mut expected,
            at,
            &pattern(n as u64, len),
        );
    }
    assert_data(store, META, &object, &expected);
    store.remount();
    assert!(store.open_collection(META));
    assert_data(store, META, &object, &expected);
}

/// Pieces that come in any order make one region.
pub fn regions_join_in_any_order(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let mut random = Random::new(7);
    for piece in [512, 1000, 4096, 6000] {
        let object = meta(format!("regions of {piece}"));
        let whole = pattern(piece as u64, piece * 24);
        let mut order: Vec<usize> = (0..24).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, random.below(n as u64 + 1) as usize);
        }
        let mut expected = Vec::new();
        for n in order {
            let at = n * piece;
            write(
                store,
                META,
                &object,
                &mut expected,
                at,
                &whole[at..at + piece],
            );
        }
        assert_data(store, META, &object, &whole);
        let extents = store.fiemap(META, &object, 0, whole.len() as u64).unwrap();
        let covered: u64 = extents.iter().map(|(_, len)| len).sum();
        assert!(covered >= whole.len() as u64, "{extents:?}");
    }
}

pub fn fiemap_of_a_hole_is_empty_or_coarse(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("hole");
    apply(store, META, |tx| tx.touch(META, &object));
    assert_eq!(store.fiemap(META, &object, 0, 1000).unwrap(), []);
    apply(store, META, |tx| tx.truncate(META, &object, 100_000));
    let extents = store.fiemap(META, &object, 0, 100_000).unwrap();
    assert!(
        extents.is_empty() || extents == [(0, 100_000)],
        "{extents:?}"
    );
    assert_errno(store.fiemap(META, &meta("absent"), 0, 1), ENOENT);
}

/// 4000 bits of data, far apart: none is missed, in any window.
pub fn fiemap_misses_no_data(store: &mut dyn ObjectInterface) {
    const STEP: u64 = 65_536;
    const COUNT: u64 = 4000;
    create(store, META, 0);
    let object = meta("dots");
    apply(store, META, |tx| {
        (0..COUNT).fold(tx, |tx, n| tx.write(META, &object, n * STEP, [b"foo"]))
    });
    let end = STEP * (COUNT - 1) + 3;
    assert_eq!(store.stat(META, &object).unwrap().size, end);
    for (first, count) in [(0, COUNT), (1, COUNT - 2), (COUNT / 2, 1), (COUNT - 1, 1)] {
        let start = first * STEP;
        let len = (count - 1) * STEP + 3;
        let extents = store.fiemap(META, &object, start, len).unwrap();
        assert!(extents[0].0 >= start, "begins before the window");
        let mut at = extents.iter().peekable();
        for dot in first..first + count {
            let (from, to) = (dot * STEP, dot * STEP + 3);
            while at.next_if(|(offset, len)| offset + len <= from).is_some() {}
            let covered = at
                .peek()
                .is_some_and(|(offset, len)| *offset <= from && offset + len >= to);
            assert!(covered, "dot {dot} is missing");
        }
    }
    let data = store.read(META, &object, STEP - 1, 6).unwrap();
    assert_eq!(data, b"\0foo\0\0");
}

/// 66,000 extents in one object, and 100,000 ranges in one read.
pub fn an_object_of_many_extents(store: &mut dyn ObjectInterface) {
    const COUNT: u64 = 66_000;
    create(store, META, 0);
    let object = meta("many extents");
    for first in (0..COUNT).step_by(6000) {
        apply(store, META, |tx| {
            (first..first + 6000).fold(tx, |tx, n| {
                tx.write(META, &object, n * 8192, [(n as u32).to_be_bytes().to_vec()])
            })
        });
    }
    let ranges: Vec<(u64, u64)> = (0..100_000).map(|n| (n * 5300 + n % 3, 1)).collect();
    let found = store.readv(META, &object, &ranges).unwrap();
    let end = (COUNT - 1) * 8192 + 4;
    let expected: Vec<u8> = ranges
        .iter()
        .filter(|(offset, _)| *offset < end)
        .map(|(offset, _)| match offset % 8192 {
            within @ 0..4 => ((offset / 8192) as u32).to_be_bytes()[within as usize],
            _ => 0,
        })
        .collect();
    assert_bytes(&found, &expected);
    let dots: Vec<(u64, u64)> = (0..COUNT).map(|n| (n * 8192, 4)).collect();
    let expected: Vec<u8> = (0..COUNT as u32).flat_map(u32::to_be_bytes).collect();
    assert_bytes(&store.readv(META, &object, &dots).unwrap(), &expected);
    apply(store, META, |tx| tx.truncate(META, &object, 8192 * 10));
    assert_eq!(store.readv(META, &object, &dots).unwrap(), expected[..40]);
}

pub fn readv_joins_ranges(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("ranges");
    let data = pattern(1, 20_000);
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [&data])
            .truncate(META, &object, 30_000)
    });
    let readv = |ranges: &[(u64, u64)]| store.readv(META, &object, ranges).unwrap();
    assert_eq!(readv(&[]), b"");
    assert_bytes(&readv(&[(0, 20_000)]), &data);
    let parts = [&data[5..10], &data[4095..4097], &data[10_000..19_999]].concat();
    assert_bytes(&readv(&[(5, 5), (4095, 2), (10_000, 9_999)]), &parts);
    let tail = [&data[19_990..], &[0; 10_000]].concat();
    assert_bytes(&readv(&[(19_990, 50_000)]), &tail);
    assert_bytes(&readv(&[(29_999, 5), (30_000, 5), (1 << 40, 5)]), &[0]);
    assert_errno(store.readv(META, &meta("absent"), &[(0, 1)]), ENOENT);
}

/// Blocks of zeros are data like any other, whether a store detects them or not.
pub fn written_zeros_are_data(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    for len in [100, 4096, 65_536, 300_000] {
        let object = meta(format!("zeros of {len}"));
        let mut expected = Vec::new();
        write(store, META, &object, &mut expected, 0, &vec![0; len]);
        assert_data(store, META, &object, &expected);
        write(store, META, &object, &mut expected, len, &vec![0; len]);
        assert_data(store, META, &object, &expected);
        write(
            store,
            META,
            &object,
            &mut expected,
            len / 2,
            &pattern(1, len),
        );
        assert_data(store, META, &object, &expected);
        write(
            store,
            META,
            &object,
            &mut expected,
            len / 2 + 10,
            &vec![0; len - 20],
        );
        assert_data(store, META, &object, &expected);
        write(store, META, &object, &mut expected, len * 3, &vec![0; len]);
        assert_data(store, META, &object, &expected);
    }
}

/// Data that compresses well, not at all, and both, overwritten in part.
pub fn compressible_data_is_overwritten(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("compressible");
    let slow = |shift: usize, len: usize| -> Vec<u8> {
        (0..len).map(|n| ((n + shift) / 256) as u8).collect()
    };
    let mut expected = Vec::new();
    let size = 4 << 16;
    write(store, META, &object, &mut expected, 0, &slow(0, size));
    assert_data(store, META, &object, &expected);
    write(
        store,
        META,
        &object,
        &mut expected,
        0x8000,
        &slow(1, size - 0x9000),
    );
    assert_data(store, META, &object, &expected);
    write(store, META, &object, &mut expected, 0, &slow(2, 0x3f000));
    assert_data(store, META, &object, &expected);
    write(
        store,
        META,
        &object,
        &mut expected,
        0x3f000 - 1,
        &slow(3, 0x1001),
    );
    assert_data(store, META, &object, &expected);
    write(
        store,
        META,
        &object,
        &mut expected,
        0x10000,
        &pattern(1, 0x10000),
    );
    assert_data(store, META, &object, &expected);
}

/// Every offset with every length, over data that is there and over nothing.
pub fn every_alignment_is_written(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let offsets = [0, 1, 511, 512, 2048, 4095, 4096, 8192 + 4096 + 10, 65_536];
    let lengths = [1, 100, 512, 4096, 4097, 12_288 - 20, 65_536, 70_000];
    for offset in offsets {
        for len in lengths {
            let bytes = pattern((offset * 7 + len) as u64, len);
            let (fresh, full) = (meta(format!("fresh {offset} {len}")), meta("full"));
            let mut expected = Vec::new();
            write(store, META, &fresh, &mut expected, offset, &bytes);
            assert_data(store, META, &fresh, &expected);
            expected.clear();
            apply(store, META, |tx| {
                tx.remove(META, &full).remove(META, &fresh)
            });
            write(store, META, &full, &mut expected, 0, &[b'f'; 100_000]);
            write(store, META, &full, &mut expected, offset, &bytes);
            assert_data(store, META, &full, &expected);
        }
    }
}

/// Even blocks in one pass and odd ones in another, several times over.
pub fn interleaved_passes_fill_an_object(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("zipper");
    let mut expected = Vec::new();
    for pass in 0..6_usize {
        apply(store, META, |tx| {
            (0..100).filter(|n| n % 2 == pass % 2).fold(tx, |tx, n| {
                let bytes = pattern((pass * 1000 + n) as u64, 4096 - pass * 700);
                put(&mut expected, n * 4096, &bytes);
                tx.write(META, &object, (n * 4096) as u64, [bytes])
            })
        });
        assert_data(store, META, &object, &expected);
    }
}

/// One object lives through enough overwrites to fill a small store many times.
pub fn overwrites_give_their_space_back(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("churn");
    let mut random = Random::new(11);
    let mut expected = Vec::new();
    write(store, META, &object, &mut expected, 0, &pattern(1, 1 << 20));
    for round in 0..400 {
        let len = 1 + random.below(1 << 17) as usize;
        let at = random.below((1 << 20) - len as u64) as usize;
        write(
            store,
            META,
            &object,
            &mut expected,
            at,
            &pattern(round, len),
        );
    }
    assert_data(store, META, &object, &expected);
    let statfs = store.statfs();
    assert!(statfs.data_stored >= 1 << 20, "{statfs:?}");
    assert!(statfs.allocated <= 2 << 20, "{statfs:?}");
}
