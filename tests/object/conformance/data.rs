//! Object data: writes, zeros, truncation and reads at their edges.

use super::*;

fn blocks(of: &[u8]) -> Vec<u8> {
    of.iter().flat_map(|&byte| vec![byte; 4096]).collect()
}

pub fn whole_blocks_are_written_and_overwritten(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("foo");
    let mut expected = Vec::new();
    for (block, byte) in [(0, b'a'), (1, b'b'), (3, b'c'), (2, b'a'), (0, b'c')] {
        write(
            store,
            META,
            &object,
            &mut expected,
            block * 4096,
            &blocks(&[byte]),
        );
        assert_data(store, META, &object, &expected);
    }
    assert_data(store, META, &object, &blocks(b"cbac"));
}

pub fn small_writes_of_one_block_land(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("twins");
    apply(store, META, |tx| tx.touch(META, &object));
    assert_data(store, META, &object, b"");
    let mut expected = Vec::new();
    let rounds: [&[(usize, &[u8])]; 4] = [
        &[(0, b"abcde"), (10, b"abcde")],
        &[(0, b"edcba"), (10, b"edcba")],
        &[(20, b"1234567890")],
        &[(30, b"1234567890"), (1, b"DCB"), (13, b"BA")],
    ];
    for writes in rounds {
        apply(store, META, |tx| {
            let each = writes.iter();
            each.fold(tx, |tx, (at, bytes)| {
                tx.write(META, &object, *at as u64, [*bytes])
            })
        });
        for (at, bytes) in writes {
            put(&mut expected, *at, bytes);
        }
        assert_data(store, META, &object, &expected);
    }
    let zeros = "\0\0\0\0\0";
    let text = format!("eDCBa{zeros}edcBA{zeros}12345678901234567890");
    assert_data(store, META, &object, text.as_bytes());
}

pub fn an_object_goes_through_its_life(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("object");
    assert!(!store.exists(META, &object));
    apply(store, META, |tx| tx.touch(META, &object));
    assert!(store.exists(META, &object));
    apply(store, META, |tx| {
        tx.remove(META, &object).touch(META, &object)
    });
    assert_data(store, META, &object, b"");
    apply(store, META, |tx| {
        tx.remove(META, &object).write(META, &object, 0, [b"abcde"])
    });
    assert_data(store, META, &object, b"abcde");
    apply(store, META, |tx| tx.write(META, &object, 5, [b"fghij"]));
    assert_data(store, META, &object, b"abcdefghij");
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [b"0123456789"])
    });
    assert_data(store, META, &object, b"0123456789");
    apply(store, META, |tx| tx.write(META, &object, 3, [b"abcde"]));
    assert_data(store, META, &object, b"012abcde89");
    apply(store, META, |tx| {
        tx.truncate(META, &object, 0)
            .write(META, &object, 5, [b"fghij"])
    });
    assert_data(store, META, &object, b"\0\0\0\0\0fghij");
    apply(store, META, |tx| tx.write(META, &object, 0, [b"abcde"]));
    assert_data(store, META, &object, b"abcdefghij");
    apply(store, META, |tx| tx.remove(META, &object));
    assert!(!store.exists(META, &object));
    assert_errno(store.stat(META, &object), ENOENT);
    assert_errno(store.read(META, &object, 0, 0), ENOENT);
}

/// A write over a block's edge, then a write before it in the first block.
pub fn writes_over_block_edges_keep_their_neighbours(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("edges");
    let mut expected = Vec::new();
    let edge = [b"1".as_slice(), &[b'2'; 4096]].concat();
    write(store, META, &object, &mut expected, 4095, &edge);
    assert_data(store, META, &object, &expected);
    write(store, META, &object, &mut expected, 1, b"00");
    assert_data(store, META, &object, &expected);
    for at in [4094, 4095, 4096, 8191, 8192, 12287, 511, 512, 513] {
        write(
            store,
            META,
            &object,
            &mut expected,
            at,
            &pattern(at as u64, 3),
        );
        assert_data(store, META, &object, &expected);
    }
}

pub fn reads_end_at_the_end(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.write(META, &object, 4090, [b"0123456789"])
    });
    let read = |offset, len| store.read(META, &object, offset, len).unwrap();
    assert_eq!(
        read(0, 0).len(),
        4100,
        "no length at the start is everything"
    );
    assert_eq!(read(4095, 0), b"", "no length elsewhere is nothing");
    assert_eq!(read(4098, 2), b"89");
    assert_eq!(read(4098, 1 << 40), b"89");
    assert_eq!(read(4099, u64::MAX), b"9");
    for offset in [4100, 4101, 8192, 1 << 33, u64::MAX] {
        assert_eq!(read(offset, 10), b"");
    }
}

pub fn data_in_pieces_is_joined(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("pieces");
    let pieces: Vec<Vec<u8>> = (0..40)
        .map(|n| pattern(n, (n * 37 % 700) as usize))
        .collect();
    apply(store, META, |tx| {
        tx.write(META, &object, 123, pieces.iter().map(Vec::as_slice))
    });
    let expected = [vec![0; 123], pieces.concat()].concat();
    assert_data(store, META, &object, &expected);
    let whole = pattern(9, 3 * 4096);
    let halves = whole.split_at(5000);
    apply(store, META, |tx| {
        tx.truncate(META, &object, 0).write(
            META,
            &object,
            0,
            [b"".as_slice(), halves.0, b"", halves.1, b""],
        )
    });
    assert_data(store, META, &object, &whole);
}

pub fn writes_without_data_leave_the_size(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("empty writes");
    apply(store, META, |tx| tx.write(META, &object, 100, [b""]));
    assert_data(store, META, &object, b"");
    apply(store, META, |tx| tx.write(META, &object, 0, [b"some data"]));
    for offset in [0, 5, 9, 10, 1 << 20] {
        apply(store, META, |tx| {
            tx.write(META, &object, offset, Vec::<&[u8]>::new())
        });
        assert_data(store, META, &object, b"some data");
    }
}

pub fn zeros_of_no_length_leave_the_size(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("empty zeros");
    apply(store, META, |tx| tx.zero(META, &object, 1 << 20, 0));
    assert_data(store, META, &object, b"");
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [b"some data"])
            .zero(META, &object, 1 << 20, 0)
            .zero(META, &object, 3, 0)
    });
    assert_data(store, META, &object, b"some data");
}

pub fn zeros_extend_the_object(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("zeros");
    apply(store, META, |tx| tx.zero(META, &object, 0, 4096));
    assert_data(store, META, &object, &[0; 4096]);
    apply(store, META, |tx| {
        tx.truncate(META, &object, 0).zero(META, &object, 100, 1)
    });
    assert_data(store, META, &object, &[0; 101]);
    let mut expected = pattern(1, 5 * 4096 + 77);
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [expected.clone()])
    });
    for (offset, len) in [
        (0, 1),
        (4095, 2),
        (4096, 4096),
        (9000, 4096),
        (20000, 1000),
        (20556, 1),
    ] {
        apply(store, META, |tx| tx.zero(META, &object, offset, len));
        put(&mut expected, offset as usize, &vec![0; len as usize]);
        assert_data(store, META, &object, &expected);
    }
}

pub fn zeros_may_be_big(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("big zeros");
    let mut expected = pattern(1, 1 << 20);
    apply(store, META, |tx| {
        tx.write(META, &object, 0, [expected.clone()])
    });
    apply(store, META, |tx| tx.zero(META, &object, 4099, 1_000_000));
    put(&mut expected, 4099, &vec![0; 1_000_000]);
    assert_data(store, META, &object, &expected);
    apply(store, META, |tx| tx.zero(META, &object, 0, 4 << 20));
    assert_data(store, META, &object, &vec![0; 4 << 20]);
}

pub fn truncation_ignores_absent_objects(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("absent");
    for size in [0, 1, 1 << 20] {
        apply(store, META, |tx| tx.truncate(META, &object, size));
        assert!(!store.exists(META, &object));
    }
}

/// What truncation dropped never comes back, whatever extends the object later.
pub fn truncated_bytes_are_gone(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let full = pattern(1, 4 * 4096);
    let cuts = [0, 1, 511, 512, 4095, 4096, 4097, 10_000, 12_288, 16_383];
    for cut in cuts {
        for how in 0..4 {
            let object = meta(format!("{cut} {how}"));
            apply(store, META, |tx| tx.write(META, &object, 0, [full.clone()]));
            apply(store, META, |tx| tx.truncate(META, &object, cut));
            assert_data(store, META, &object, &full[..cut as usize]);
            let mut expected = full[..cut as usize].to_vec();
            expected.resize(full.len(), 0);
            apply(store, META, |tx| match how {
                0 => tx.truncate(META, &object, full.len() as u64),
                1 => tx.zero(META, &object, full.len() as u64 - 1, 1),
                2 => tx.write(META, &object, full.len() as u64 - 1, [[0]]),
                _ => tx
                    .truncate(META, &object, 1 << 20)
                    .truncate(META, &object, full.len() as u64),
            });
            assert_data(store, META, &object, &expected);
        }
    }
}

pub fn holes_are_zeros(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("holes");
    apply(store, META, |tx| {
        tx.touch(META, &object).truncate(META, &object, 100_000)
    });
    let mut expected = vec![0; 100_000];
    assert_data(store, META, &object, &expected);
    for at in [99_999, 50_000, 3, 8192] {
        write(store, META, &object, &mut expected, at, b"x");
        assert_data(store, META, &object, &expected);
    }
    write(store, META, &object, &mut expected, 300_000, b"end");
    assert_data(store, META, &object, &expected);
}

pub fn touch_and_create_change_nothing_of_an_object(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("o");
    apply(store, META, |tx| {
        tx.create(META, &object)
            .write(META, &object, 0, [b"data"])
            .setattr(META, &object, "a", "b")
            .omap_setkeys(META, &object, [("k", "v")])
    });
    let before = crate::contents::contents(store);
    apply(store, META, |tx| tx.touch(META, &object));
    apply(store, META, |tx| {
        tx.create(META, &object).touch(META, &object)
    });
    assert_same(&crate::contents::contents(store), &before, "after touch");
}

pub fn removal_ignores_absent_objects(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("absent");
    apply(store, META, |tx| {
        tx.remove(META, &object).remove(META, &object)
    });
    assert!(!store.exists(META, &object));
}

/// All parts go with an object; a new one of its name has none of them.
pub fn a_new_object_has_nothing_of_the_old(store: &mut dyn ObjectInterface) {
    create(store, META, 0);
    let object = meta("phoenix");
    for in_one in [true, false] {
        apply(store, META, |tx| {
            tx.write(META, &object, 0, [pattern(1, 10_000)])
                .setattr(META, &object, "a", "b")
                .omap_setkeys(META, &object, [("k", "v")])
                .omap_setheader(META, &object, "h")
        });
        if in_one {
            apply(store, META, |tx| {
                tx.remove(META, &object).touch(META, &object)
            });
        } else {
            apply(store, META, |tx| tx.remove(META, &object));
            apply(store, META, |tx| tx.touch(META, &object));
        }
        assert_data(store, META, &object, b"");
        assert!(store.getattrs(META, &object).unwrap().is_empty());
        let (header, omap) = store.omap_get(META, &object).unwrap();
        assert!(header.is_empty() && omap.is_empty());
        apply(store, META, |tx| tx.truncate(META, &object, 10_000));
        assert_data(store, META, &object, &[0; 10_000]);
    }
}
