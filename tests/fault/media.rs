//! Where the structures of a store are on its media, found by the format alone.

use esker::device::{Device, SimulatedDevice};
use esker::format::{
    Class, FRAME_HEADER_BYTES, FrameHeader, Geometry, PIECE_HEADER_BYTES, PieceHeader,
    SEGMENT_HEADER_BYTES, SUPERBLOCK_BYTES, SegmentHeader, Superblock, first_record_offset,
    parse_record,
};

/// One structure.
#[derive(Debug, Clone, Copy)]
pub struct Structure {
    pub what: &'static str,
    pub offset: u64,
    pub bytes: u64,
    /// The group commit that wrote it; 0 where there is none.
    pub group: u64,
}

pub fn geometry(device: &SimulatedDevice) -> Geometry {
    let slots = Geometry::superblock_offsets(device.capacity());
    slots
        .iter()
        .find_map(|offset| {
            Superblock::decode(&device.read_raw(*offset, SUPERBLOCK_BYTES as usize)).ok()
        })
        .expect("a superblock")
        .geometry
}

/// Every structure on the media: superblock slots, segment headers, frame headers, records,
/// checkpoint pieces.
pub fn structures(device: &SimulatedDevice) -> Vec<Structure> {
    let geometry = geometry(device);
    let mut found = Vec::new();
    for offset in Geometry::superblock_offsets(device.capacity()) {
        let slot = device.read_raw(offset, SUPERBLOCK_BYTES as usize);
        if Superblock::decode(&slot).is_ok() {
            let used = slot.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            found.push(Structure {
                what: "superblock",
                offset,
                bytes: used as u64,
                group: 0,
            });
        }
    }
    for segment in 0..geometry.segment_count {
        let start = geometry.segment_offset(segment);
        let bytes = device.read_raw(start, geometry.segment_bytes as usize);
        let Ok(header) = SegmentHeader::decode(&bytes) else {
            continue;
        };
        found.push(Structure {
            what: "segment header",
            offset: start,
            bytes: SEGMENT_HEADER_BYTES as u64,
            group: header.group,
        });
        match header.class {
            Class::Data(_) => frames(&header, &bytes, &mut found),
            Class::Checkpoint => pieces(&header, &bytes, &mut found),
            Class::Free | Class::Discarded => {}
        }
    }
    found
}

fn frames(header: &SegmentHeader, segment: &[u8], found: &mut Vec<Structure>) {
    let geometry = header.geometry;
    let start = geometry.segment_offset(header.segment);
    let mut at = geometry.header_bytes();
    while at < geometry.segment_bytes {
        let rest = &segment[at as usize..];
        let Ok(frame) = FrameHeader::decode(rest, header.seed(), at, geometry.segment_bytes) else {
            return;
        };
        found.push(Structure {
            what: "frame header",
            offset: start + at,
            bytes: FRAME_HEADER_BYTES as u64,
            group: frame.group,
        });
        let mut record_at = at + first_record_offset(geometry.unit_bytes);
        for _ in 0..frame.record_count {
            let bytes = &segment[record_at as usize..];
            let record = parse_record(bytes, header.seed(), record_at, geometry.unit_bytes);
            let record = record.expect("a record of an intact store");
            let bytes = record.length.units() * u64::from(geometry.unit_bytes);
            found.push(Structure {
                what: "record",
                offset: start + record_at,
                bytes,
                group: frame.group,
            });
            record_at += bytes;
        }
        at += u64::from(frame.frame_bytes);
    }
}

fn pieces(header: &SegmentHeader, segment: &[u8], found: &mut Vec<Structure>) {
    let geometry = header.geometry;
    let start = geometry.segment_offset(header.segment);
    let mut at = geometry.header_bytes();
    while at < geometry.segment_bytes {
        let piece = PieceHeader::decode(&segment[at as usize..], header.seed(), at);
        let Ok((piece, body)) = piece else {
            at += u64::from(geometry.block_bytes);
            continue;
        };
        let bytes = (PIECE_HEADER_BYTES + body.len()) as u64;
        found.push(Structure {
            what: match piece.kind {
                esker::format::PieceKind::Image => "image",
                esker::format::PieceKind::Root => "root",
            },
            offset: start + at,
            bytes,
            group: 0,
        });
        at += geometry.round_to_block(bytes);
    }
}
