//! What is encoded decodes to itself, and bytes of any kind are refused or decoded, also
//! behind a right checksum: no parse function panics.

use esker::format::{
    CheckpointSegment, Class, Clean, Cut, DELTA_BITS, Extent, FRAME_HEADER_BYTES, FrameHeader,
    Geometry, HEAD_COUNT, ImageRef, KEY_BYTES_MAX, Kind, LengthCode, PIECE_HEADER_BYTES,
    PartitionImages, Piece, PieceHeader, PieceKind, RecordFields, Root, RootRef,
    SEGMENT_HEADER_BYTES, Seed, SegmentHeader, Superblock, content_hash, parse_record,
    read_verified_record, record_length,
};
use proptest::collection::vec;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

fn geometries() -> impl Strategy<Value = Geometry> {
    let capacity = (8_u64 << 20) + (256 << 10)..=16 << 40;
    (capacity, any::<[u8; 16]>(), 9_u32..13)
        .prop_filter_map("too small", |(capacity, uuid, block)| {
            Geometry::plan(capacity, None, 1 << block, uuid, uuid)
        })
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Put),
        Just(Kind::Delete),
        Just(Kind::Head),
        Just(Kind::Chunk),
        Just(Kind::TrimChunks),
    ]
}

fn classes() -> impl Strategy<Value = Class> {
    prop_oneof![
        Just(Class::Free),
        Just(Class::Discarded),
        Just(Class::Checkpoint),
        (0..HEAD_COUNT as u8).prop_map(Class::Data),
    ]
}

fn extents() -> impl Strategy<Value = [Extent; HEAD_COUNT]> {
    any::<[(u32, u32); HEAD_COUNT]>()
        .prop_map(|pairs| pairs.map(|(segment, end)| Extent { segment, end }))
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = any::<(u32, u32, u32)>().prop_map(|(segment, offset, bytes)| Piece {
        segment,
        offset,
        bytes,
    });
    vec(piece, 0..5)
}

fn root_refs() -> impl Strategy<Value = RootRef> {
    (any::<u64>(), pieces()).prop_map(|(sequence, copies)| RootRef { sequence, copies })
}

fn cuts() -> impl Strategy<Value = Cut> {
    (any::<[u64; 3]>(), extents()).prop_map(|([epoch, group, seqno], extents)| Cut {
        epoch,
        group,
        seqno,
        extents,
    })
}

fn superblocks() -> impl Strategy<Value = Superblock> {
    let clean = any::<Option<[u64; 3]>>().prop_map(|clean| {
        clean.map(|[next_seqno, next_group, clock]| Clean {
            next_seqno,
            next_group,
            clock,
        })
    });
    let lists = (vec(cuts(), 0..=24), vec(root_refs(), 0..=2));
    (any::<[u64; 2]>(), geometries(), clean, lists).prop_map(
        |([sequence, epoch], geometry, clean, (cuts, roots))| Superblock {
            sequence,
            geometry,
            epoch,
            cuts,
            clean,
            roots,
        },
    )
}

fn images() -> impl Strategy<Value = Option<ImageRef>> {
    (any::<Option<[u64; 3]>>(), pieces()).prop_map(|(numbers, pieces)| {
        numbers.map(|[sequence, horizon, bytes]| ImageRef {
            sequence,
            horizon,
            bytes,
            pieces,
        })
    })
}

fn checkpoint_segments() -> impl Strategy<Value = CheckpointSegment> {
    any::<(u32, [u64; 5])>().prop_map(|(segment, numbers)| CheckpointSegment {
        segment,
        generation: numbers[0],
        epoch: numbers[1],
        opened_seqno: numbers[2],
        group: numbers[3],
        opened_clock: numbers[4],
    })
}

fn roots() -> impl Strategy<Value = Root> {
    let partition =
        (images(), images()).prop_map(|(newest, older)| PartitionImages { newest, older });
    let maps = vec(any::<(u64, u64)>(), 0..9);
    let lists = (vec(partition, 0..9), maps, vec(checkpoint_segments(), 0..9));
    let all = (any::<[u64; 6]>(), extents(), lists);
    all.prop_map(|(numbers, extents, (partitions, maps, segments))| Root {
        sequence: numbers[0],
        partitions,
        newest_horizon: numbers[1],
        older_horizon: numbers[2],
        covered_by_newest: maps.iter().map(|map| map.0).collect(),
        covered_by_older: maps.iter().map(|map| map.1).collect(),
        next_seqno: numbers[3],
        next_group: numbers[4],
        extents,
        clock: numbers[5],
        segments,
    })
}

fn seeds() -> impl Strategy<Value = Seed> {
    any::<u64>().prop_map(Seed::from_bits)
}

proptest! {
    #[test]
    fn records(
        (kind, relocated) in (kinds(), any::<bool>()),
        key in vec(any::<u8>(), 0..300),
        value in vec(any::<u8>(), 0..3000),
        (seed, offset) in (seeds(), any::<u64>()),
        delta in 0_u64..1 << DELTA_BITS,
        unit in 3_u32..8,
    ) {
        let unit_bytes = 1 << unit;
        let content = content_hash(&key, &value);
        let fields = RecordFields { kind, relocated, key: &key, value: &value, content };
        let length = record_length(kind, key.len(), value.len(), unit_bytes).unwrap();
        let mut bytes = vec![0xff; (length.units() * u64::from(unit_bytes)) as usize];
        fields.encode(seed, offset, delta, &mut bytes);
        let record = parse_record(&bytes, seed, offset, unit_bytes).unwrap();
        prop_assert_eq!((record.kind, record.relocated), (kind, relocated));
        prop_assert_eq!((record.key, record.value), (&key[..], &value[..]));
        prop_assert_eq!((record.delta, record.length), (delta, length));
    }

    #[test]
    fn frame_headers(
        (seed, offset) in (seeds(), 0_u64..1 << 30),
        (data, padding, count) in (FRAME_HEADER_BYTES as u32..1 << 28, 0_u32..4096, any::<u32>()),
        (seals, order) in (any::<bool>(), any::<(u16, u16)>()),
        (seqnos, numbers) in (any::<(u64, u64)>(), any::<(u64, u64)>()),
        extents in extents(),
    ) {
        let header = FrameHeader {
            frame_bytes: data + padding,
            data_bytes: data,
            record_count: count,
            payload: false,
            seals: seals || count == 0,
            frame_index: order.0.min(order.1.max(1) - 1),
            frame_count: order.1.max(1),
            group: numbers.0,
            base_seqno: seqnos.0.min(seqnos.1),
            last_seqno: seqnos.0.max(seqnos.1),
            clock: numbers.1,
            extents,
        };
        let mut bytes = [0xff; FRAME_HEADER_BYTES];
        header.encode(seed, offset, &mut bytes);
        prop_assert_eq!(FrameHeader::decode(&bytes, seed, offset, 1 << 31), Ok(header));
        prop_assert!(FrameHeader::decode(&bytes, seed, offset, offset + 100).is_err());
    }

    #[test]
    fn segment_headers(
        geometry in geometries(),
        class in classes(),
        segment in any::<u32>(),
        numbers in any::<[u64; 5]>(),
        extents in proptest::option::of(extents()),
    ) {
        let header = SegmentHeader {
            geometry,
            segment: segment % geometry.segment_count,
            class,
            generation: numbers[0],
            epoch: numbers[1],
            opened_seqno: numbers[2],
            group: numbers[3],
            opened_clock: numbers[4],
            extents,
        };
        let mut block = [0xff; 512];
        header.encode(&mut block);
        prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
    }

    #[test]
    fn superblocks_of_any_content(superblock in superblocks()) {
        prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }

    #[test]
    fn roots_and_pieces(
        root in roots(),
        (seed, offset) in (seeds(), any::<u64>()),
        (partition, index, sequence) in any::<(u32, u32, u64)>(),
    ) {
        let body = root.encode();
        let mut bytes = vec![0; PIECE_HEADER_BYTES + body.len() + 9];
        bytes[PIECE_HEADER_BYTES..][..body.len()].copy_from_slice(&body);
        let header = PieceHeader { kind: PieceKind::Root, partition, index, sequence };
        header.encode(seed, offset, &mut bytes, body.len());
        let (found, found_body) = PieceHeader::decode(&bytes, seed, offset).unwrap();
        prop_assert_eq!((found, found_body), (header, &body[..]));
        prop_assert_eq!(Root::decode(found_body), Ok(root));
    }

    #[test]
    fn addresses(geometry in geometries(), segment in any::<u32>(), offset in any::<u64>()) {
        let segment = segment % geometry.segment_count;
        let offset = offset % geometry.segment_bytes;
        let offset = offset - offset % u64::from(geometry.unit_bytes);
        let address = geometry.address(segment, offset);
        prop_assert_eq!(geometry.locate(address), Some((segment, offset)));
        let expected = geometry.segment_offset(segment) + offset;
        prop_assert_eq!(geometry.device_offset(address), expected);
    }

    #[test]
    fn length_codes(units in 1_u64..=255 << 13, head_units in 1_u64..8300) {
        let code = LengthCode::covering(units).unwrap();
        prop_assert!(code.units() >= units && (code.units() - units) * 128 <= units);
        let head = LengthCode::covering_head(head_units).unwrap();
        prop_assert!(head.is_head() && head.units() >= head_units);
        for code in [code, head] {
            prop_assert_eq!(LengthCode::from_bits(code.bits()), Ok(code));
        }
    }

    /// Bytes that are nothing, and bytes that are all but right: something written, with some
    /// bytes changed and the checksum made right again.
    #[test]
    fn no_bytes_make_a_parser_panic(
        superblock in superblocks(),
        root in roots(),
        noise in vec(any::<u8>(), 0..600),
        changes in vec((any::<u16>(), any::<u8>()), 0..6),
        (seed, offset, unit) in (seeds(), any::<u32>(), 3_u32..8),
    ) {
        let offset = u64::from(offset);
        let parse = |bytes: &[u8]| {
            let _ = Superblock::decode(bytes);
            let _ = Superblock::version(bytes);
            let _ = SegmentHeader::decode(bytes);
            let _ = FrameHeader::decode(bytes, seed, offset, 1 << 28);
            let _ = parse_record(bytes, seed, offset, 1 << unit);
            let _ = read_verified_record(bytes, 1 << unit);
            let _ = PieceHeader::decode(bytes, seed, offset);
            let _ = Root::decode(bytes);
        };
        parse(&noise);
        let change = |bytes: &mut [u8], from: usize| {
            for (at, value) in &changes {
                let at = from + usize::from(*at) % (bytes.len() - from);
                bytes[at] = *value;
            }
        };

        let mut slot = superblock.encode();
        let body = u32::from_le_bytes(slot[20..24].try_into().unwrap()) as usize;
        change(&mut slot[..32 + body], 24);
        let checksum = xxh3_64(&slot[16..32 + body]);
        slot[8..16].copy_from_slice(&checksum.to_le_bytes());
        parse(&slot);

        let mut block = [0; SEGMENT_HEADER_BYTES];
        let header = SegmentHeader {
            geometry: superblock.geometry,
            segment: 0,
            class: Class::Data(1),
            generation: 1,
            epoch: 1,
            opened_seqno: 1,
            group: 1,
            opened_clock: 1,
            extents: None,
        };
        header.encode(&mut block);
        change(&mut block, 8);
        let checksum = xxh3_64(&block[..SEGMENT_HEADER_BYTES - 8]);
        block[SEGMENT_HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        parse(&block);

        let mut frame = [0; FRAME_HEADER_BYTES];
        frame[8..12].copy_from_slice(b"esfr");
        change(&mut frame, 12);
        let checksum = seed.checksum(offset, &frame[8..]);
        frame[..8].copy_from_slice(&checksum.to_le_bytes());
        parse(&frame);

        let mut body = root.encode();
        change(&mut body, 0);
        parse(&body);
    }
}

#[test]
fn every_length_code_is_one_or_refused() {
    for bits in 0..=u16::MAX {
        let Ok(code) = LengthCode::from_bits(bits) else {
            continue;
        };
        assert_eq!(code.bits(), bits);
        if !code.is_head() && code.units() > 0 {
            assert_eq!(LengthCode::covering(code.units()), Some(code));
        }
    }
    assert!(record_length(Kind::Head, KEY_BYTES_MAX, 24, 8).is_some());
}
