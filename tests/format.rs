//! The on-media format: sizes against `design/format.md`, and golden images of every
//! structure. A change here is a change of the format: it needs a new version, and a line in
//! the document's table of versions. Round trips of random content are in
//! `format/round_trips.rs`.

#[path = "format/round_trips.rs"]
mod round_trips;

use esker::format::{
    ADDRESS_BITS, CheckpointSegment, Class, Clean, Cut, Extent, FRAME_HEADER_BYTES, FrameHeader,
    Geometry, HEAD_COUNT, ImageRef, Kind, LENGTH_BITS, PIECE_HEADER_BYTES, PartitionImages, Piece,
    PieceHeader, PieceKind, RECORD_HEADER_BYTES, RecordFields, Root, RootRef, SEGMENT_HEADER_BYTES,
    SUPERBLOCK_BYTES, Seed, SegmentHeader, Superblock, content_hash, extent_key, extent_value,
    payload_checksums, record_length,
};

const DOCUMENT: &str = include_str!("../design/format.md");

/// The number in a row of the table of sizes.
fn documented(row: &str) -> usize {
    let start = format!("| {row} | ");
    let line = DOCUMENT
        .lines()
        .find(|line| line.starts_with(&start))
        .unwrap_or_else(|| panic!("no row {row}"));
    let number: String = line[start.len()..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    number.parse().unwrap()
}

#[test]
fn sizes_are_as_documented() {
    assert_eq!(documented("superblock slot"), SUPERBLOCK_BYTES as usize);
    assert_eq!(documented("segment header"), SEGMENT_HEADER_BYTES);
    assert_eq!(documented("frame header"), FRAME_HEADER_BYTES);
    assert_eq!(documented("record header"), RECORD_HEADER_BYTES);
    assert_eq!(documented("checkpoint piece header"), PIECE_HEADER_BYTES);
    assert_eq!(documented("address"), ADDRESS_BITS as usize);
    assert_eq!(documented("length code"), LENGTH_BITS as usize);
}

/// Bytes in hexadecimal, runs of zero bytes shortened, so that a difference can be read.
fn image(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        if zeros >= 4 {
            text.push_str(&format!("({zeros})"));
            rest = &rest[zeros..];
        } else {
            text.push_str(&format!("{first:02x}"));
            rest = &rest[1..];
        }
    }
    text
}

fn geometry() -> Geometry {
    Geometry::plan(64 << 20, None, 512, [0xaa; 16], [0xbb; 16]).unwrap()
}

fn seed() -> Seed {
    Seed::new(&[0xaa; 16], 2, 3, 4)
}

fn golden(name: &str, bytes: &[u8]) {
    let expected = GOLDEN
        .iter()
        .find(|(wanted, _)| *wanted == name)
        .map(|(_, image)| *image);
    assert_eq!(
        Some(image(bytes).as_str()),
        expected,
        "the image of {name} changed"
    );
}

#[test]
fn superblock_is_as_ever() {
    let piece = Piece {
        segment: 3,
        offset: 512,
        bytes: 700,
    };
    let superblock = Superblock {
        sequence: 6,
        geometry: geometry(),
        epoch: 7,
        cuts: vec![Cut {
            epoch: 1,
            group: 2,
            seqno: 3,
            extents: [Extent { segment: 4, end: 5 }; HEAD_COUNT],
        }],
        clean: Some(Clean {
            next_seqno: 8,
            next_group: 9,
            clock: 10,
        }),
        roots: vec![RootRef {
            sequence: 11,
            copies: vec![piece],
        }],
    };
    golden("superblock", &superblock.encode());
}

#[test]
fn segment_header_is_as_ever() {
    let header = SegmentHeader {
        geometry: geometry(),
        segment: 5,
        class: Class::Data(3),
        generation: 6,
        epoch: 7,
        opened_seqno: 8,
        group: 9,
        opened_clock: 10,
        extents: Some(
            [Extent {
                segment: 11,
                end: 12,
            }; HEAD_COUNT],
        ),
    };
    let mut block = [0; 512];
    header.encode(&mut block);
    golden("segment header", &block);
}

#[test]
fn frame_header_is_as_ever() {
    let header = FrameHeader {
        frame_bytes: 4096,
        data_bytes: 4000,
        record_count: 3,
        seals: true,
        payload: false,
        frame_index: 1,
        frame_count: 2,
        group: 9,
        base_seqno: 100,
        last_seqno: 110,
        clock: 5,
        extents: [Extent {
            segment: 2,
            end: 512,
        }; HEAD_COUNT],
    };
    let mut bytes = [0; FRAME_HEADER_BYTES];
    header.encode(seed(), 512, &mut bytes);
    golden("frame header", &bytes);
}

#[test]
fn record_is_as_ever() {
    let (key, value) = (b"key".as_slice(), b"value".as_slice());
    let fields = RecordFields {
        kind: Kind::Put,
        relocated: true,
        key,
        value,
        content: content_hash(key, value),
    };
    let length = record_length(Kind::Put, key.len(), value.len(), 8).unwrap();
    let mut bytes = vec![0; length.units() as usize * 8];
    fields.encode(seed(), 648, 7, &mut bytes);
    golden("record", &bytes);
}

/// A frame of one extent record with 4608 bytes of payload, and an operation.
#[test]
fn payload_frame_is_as_ever() {
    let payload = vec![0x5a; 4608];
    let key = extent_key(0x0102_0304_0506_0708, 9);
    let value = extent_value(4608, 7, &[10, 11], &payload_checksums(&payload));
    let mut frame = vec![0; 512 + payload.len()];
    let mut at = 136;
    let records = [
        (Kind::Extent, key.as_slice(), value.as_slice()),
        (Kind::Object, b"op", b"value"),
    ];
    for (number, (kind, key, value)) in (0..).zip(records) {
        let fields = RecordFields {
            kind,
            relocated: false,
            key,
            value,
            content: content_hash(key, value),
        };
        let length = record_length(kind, key.len(), value.len(), 8).unwrap();
        let end = at + length.units() as usize * 8;
        fields.encode(seed(), 512 + at as u64, number, &mut frame[at..end]);
        at = end;
    }
    frame[512..].copy_from_slice(&payload);
    let header = FrameHeader {
        frame_bytes: frame.len() as u32,
        data_bytes: at as u32,
        record_count: 2,
        seals: false,
        payload: true,
        frame_index: 0,
        frame_count: 1,
        group: 9,
        base_seqno: 100,
        last_seqno: 101,
        clock: 5,
        extents: [Extent::default(); HEAD_COUNT],
    };
    header.encode(seed(), 512, &mut frame);
    assert!(frame[512..].iter().all(|byte| *byte == 0x5a));
    golden("payload frame up to its payload", &frame[..512]);
}

#[test]
fn root_piece_is_as_ever() {
    let image = ImageRef {
        sequence: 1,
        horizon: 2,
        bytes: 3,
        pieces: vec![Piece {
            segment: 4,
            offset: 512,
            bytes: 6,
        }],
    };
    let root = Root {
        sequence: 5,
        partitions: vec![PartitionImages {
            newest: Some(image),
            older: None,
        }],
        newest_horizon: 6,
        older_horizon: 7,
        covered_by_newest: vec![8],
        covered_by_older: vec![9],
        next_seqno: 10,
        next_group: 12,
        extents: [Extent {
            segment: 19,
            end: 20,
        }; HEAD_COUNT],
        clock: 11,
        segments: vec![CheckpointSegment {
            segment: 13,
            generation: 14,
            epoch: 15,
            opened_seqno: 16,
            group: 17,
            opened_clock: 18,
        }],
    };
    let body = root.encode();
    let mut bytes = vec![0; PIECE_HEADER_BYTES + body.len()];
    bytes[PIECE_HEADER_BYTES..].copy_from_slice(&body);
    let header = PieceHeader {
        kind: PieceKind::Root,
        partition: 0,
        index: 0,
        sequence: 5,
    };
    header.encode(seed(), 1024, &mut bytes, body.len());
    golden("root piece", &bytes);
}

/// The images of version 3.
const GOLDEN: &[(&str, &str)] = &[
    ("record", "6199a4e66642430e03000a0000c803006b657976616c7565"),
    (
        "frame header",
        "91b5ab61680737446573667200100000a00f000003000000010002000100000009(7)64(7)6e(7)0\
         5(7)02(4)02000002(4)02000002(4)02000002(4)02000002(4)02000002(4)02000002(4)02000\
         002(4)02000002(4)020000",
    ),
    (
        "payload frame up to its payload",
        "f8d3bbbd9e59fe946573667200140000d800000002(5)01000200000009(7)64(7)65(7)05(79)8b\
         2e16807694f2be0c0038(5)080706050403020109(4)12000007000000020000000a0000000b0000\
         004eda9dd9bbed1c36197c7be4e8905ff202000a0000b000006f7076616c7565(297)",
    ),
    (
        "segment header",
        "65736b65722e73670300000005000000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbb\
         bbbbbbbbbbbbbbbbb00000004(6)02(5)ff01000000020000080000000303010006(7)07(7)08(7\
         )09(7)0a(7)0b0000000c0000000b0000000c0000000b0000000c0000000b0000000c0000000b00\
         00000c0000000b0000000c0000000b0000000c0000000b0000000c0000000b0000000c000000fda\
         3a1536859b330(312)",
    ),
    (
        "root piece",
        "5a48e14bf23fa6be6573636b02(11)05(7)2201(6)4f77ccd5d8470b5b04(4)0200000600000001\
         01(7)02(7)03(7)dbffffff01(36)08(7)09(7)0d0000000e(7)0f(7)10(7)11(7)12(7)05(7)7a\
         ffffff0100000006(7)07(7)a4ffffff01000000a4ffffff010000000a(7)0c(7)1300000014000\
         0001300000014000000130000001400000013000000140000001300000014000000130000001400\
         00001300000014000000130000001400000013000000140000000b(7)44ffffff01000000",
    ),
    (
        "superblock",
        "65736b65722e736203054cb3b080202503000000f100000006(7)01(7)02(7)03(7)04000000050\
         0000004000000050000000400000005000000040000000500000004000000050000000400000005\
         00000004000000050000000400000005000000040000000500000003(4)020000bc0200000b(7)e\
         cffffff0100000006(7)aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbb\
         bbbbb00000004(6)02(5)ff010000000200000800000007(7)38ffffff010000000108(7)09(7)0\
         a(7)83ffffff01(3826)",
    ),
];
