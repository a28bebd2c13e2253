//! Reading roots and pieces of images.

use crate::device::AlignedBuf;
use crate::format::{Invalid, Piece, PieceHeader, PieceKind, Root, SegmentHeader};
use crate::{Error, Result};

use super::super::{Log, READ_RETRIES};
use super::Found;

/// Puts headers that are damaged, of checkpoint segments that the newest root names, in
/// their place; returns them. An older root may name segments that hold something else now.
pub(super) fn restore_headers(log: &Log, headers: &mut [Found], root: &Root) -> Vec<SegmentHeader> {
    let newest = log.superblocks.lock().current.roots.first().cloned();
    if newest.is_none_or(|newest| newest.sequence != root.sequence) {
        return Vec::new();
    }
    let mut restored = Vec::new();
    for life in &root.segments {
        if let Some(found) = headers.get_mut(life.segment as usize)
            && !matches!(found, Found::Header(_))
        {
            tracing::warn!(
                segment = life.segment,
                "a checkpoint segment's header is restored"
            );
            let header = life.header(log.geometry);
            *found = Found::Header(header);
            restored.push(header);
        }
    }
    restored
}

/// Reads the newest readable root; a store that has none yet has an empty one.
pub(super) fn newest_root(log: &Log, headers: &[Found]) -> Result<Root> {
    let superblock = log.superblocks.lock().current.clone();
    if superblock.roots.is_empty() {
        return Ok(Root::default());
    }
    let mut last = Error::Corrupt {
        offset: 0,
        why: Invalid::Missing("every root"),
    };
    for root in &superblock.roots {
        for copy in &root.copies {
            let expected = PieceHeader {
                kind: PieceKind::Root,
                partition: 0,
                index: 0,
                sequence: root.sequence,
            };
            match read_piece(log, headers, *copy, expected) {
                Ok(body) => match Root::decode(&body) {
                    Ok(root) => return Ok(root),
                    Err(why) => {
                        let offset =
                            log.geometry.segment_offset(copy.segment) + u64::from(copy.offset);
                        last = Error::Corrupt { offset, why };
                    }
                },
                Err(error) => last = error,
            }
        }
        tracing::warn!(sequence = root.sequence, "a root is damaged in every copy");
    }
    Err(last)
}

/// Reads and verifies one piece of an image or root.
pub(super) fn read_piece(
    log: &Log,
    headers: &[Found],
    piece: Piece,
    expected: PieceHeader,
) -> Result<Vec<u8>> {
    let geometry = &log.geometry;
    let corrupt = |why| Error::Corrupt {
        offset: geometry.segment_offset(piece.segment) + u64::from(piece.offset),
        why,
    };
    let Some(Found::Header(header)) = headers.get(piece.segment as usize) else {
        return Err(corrupt(Invalid::Missing("a checkpoint segment")));
    };
    let padded = geometry.round_to_block(u64::from(piece.bytes));
    if u64::from(piece.offset) + padded > geometry.segment_bytes
        || u64::from(piece.offset) % u64::from(geometry.block_bytes) != 0
    {
        return Err(corrupt(Invalid::Field("piece")));
    }
    let mut bytes = AlignedBuf::zeroed(padded as usize);
    let device_offset = geometry.segment_offset(piece.segment) + u64::from(piece.offset);
    let mut attempt = 0;
    loop {
        log.read_device(device_offset, &mut bytes)?;
        let outcome = PieceHeader::decode(&bytes, header.seed(), u64::from(piece.offset));
        match outcome {
            Ok((found, body)) if found == expected => return Ok(body.to_vec()),
            Ok(_) => return Err(corrupt(Invalid::Field("piece"))),
            Err(_) if attempt < READ_RETRIES => attempt += 1,
            Err(why) => return Err(corrupt(why)),
        }
    }
}
