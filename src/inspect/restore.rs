//! Segment headers that are damaged: finding the life of a segment by its frames.
//!
//! The seed of every checksum in a segment is made of the header's epoch and generation.
//! Both are small numbers, so a frame or piece that still begins with its magic number
//! can be tried against all of them; what verifies tells the header, except for the class
//! of the head, which only guides placement.

use crate::device::AlignedBuf;
use crate::format::{
    COMMIT_STREAM, Class, FrameHeader, Generation, PieceHeader, Seed, SegmentHeader, SegmentId,
};
use crate::log::Found;

use super::media::Media;

/// Seeds tried for one segment: about a second.
const TRIES_MAX: u64 = 20_000_000;
/// Blocks of a segment tried that begin like a frame or a piece.
const CANDIDATES_MAX: usize = 16;

/// What became of damaged headers.
#[derive(Default)]
pub(super) struct Restored {
    /// Headers to be written again.
    pub(super) headers: Vec<SegmentHeader>,
    /// Segments in which nothing verifies.
    pub(super) given_up: Vec<SegmentId>,
}

/// Tells damaged headers, and puts them among the media's.
pub(super) fn headers(media: &mut Media) -> Restored {
    let (mut epoch_max, mut generation_max) = (1, 1);
    for header in media.used_headers() {
        epoch_max = epoch_max.max(header.epoch);
        generation_max = generation_max.max(header.generation);
    }
    if let Some(superblock) = &media.superblock {
        epoch_max = epoch_max.max(superblock.epoch);
    }
    let in_use = |found: &Found| matches!(found, Found::Header(_));
    let end = media.headers.iter().rposition(in_use).unwrap_or(0);
    let mut restored = Restored::default();
    let mut buffer = AlignedBuf::new();
    for segment in 0..media.geometry.segment_count {
        match media.headers.get(segment as usize) {
            Some(Found::Damaged(_)) => {}
            Some(Found::Blank) if (segment as usize) < end => {}
            _ => continue,
        }
        media.read_segment(segment, &mut buffer);
        // One generation more than any header has: that of a segment just reused.
        match tell(media, segment, &buffer, epoch_max, generation_max + 1) {
            Some(header) => {
                if let Some(found) = media.headers.get_mut(segment as usize) {
                    *found = Found::Header(header);
                }
                restored.headers.push(header);
            }
            None => restored.given_up.push(segment),
        }
    }
    restored
}

/// What a candidate verifies as.
enum Told {
    Frame(FrameHeader),
    Piece,
}

fn tell(
    media: &Media,
    segment: SegmentId,
    bytes: &[u8],
    epoch_max: u64,
    generation_max: Generation,
) -> Option<SegmentHeader> {
    let geometry = media.geometry;
    let verify = |offset: usize, epoch, generation| {
        let seed = Seed::new(&geometry.uuid, epoch, segment, generation);
        let block = bytes.get(offset..)?;
        let at = offset as u64;
        if let Ok(frame) = FrameHeader::decode(block, seed, at, geometry.segment_bytes) {
            return Some(Told::Frame(frame));
        }
        PieceHeader::decode(block, seed, at)
            .ok()
            .map(|_| Told::Piece)
    };
    let block = geometry.block_bytes as usize;
    let candidates = (block..bytes.len()).step_by(block).filter(|offset| {
        let magic = bytes.get(offset + 8..offset + 12);
        magic == Some(b"esfr".as_slice()) || magic == Some(b"esck".as_slice())
    });
    let mut tries = TRIES_MAX;
    // The life of the highest epoch and generation is the last.
    let mut best: Option<(u64, Generation, usize, Told)> = None;
    for offset in candidates.take(CANDIDATES_MAX) {
        if let Some((epoch, generation, ..)) = &best
            && verify(offset, *epoch, *generation).is_some()
        {
            continue;
        }
        'search: for epoch in (1..=epoch_max).rev() {
            for generation in (1..=generation_max).rev() {
                if tries == 0 {
                    break 'search;
                }
                tries -= 1;
                let Some(told) = verify(offset, epoch, generation) else {
                    continue;
                };
                let newer = best
                    .as_ref()
                    .is_none_or(|(e, g, ..)| (epoch, generation) > (*e, *g));
                if newer {
                    best = Some((epoch, generation, offset, told));
                }
                break 'search;
            }
        }
    }
    let (epoch, generation, offset, told) = best?;
    let mut header = SegmentHeader {
        geometry,
        segment,
        class: Class::Checkpoint,
        generation,
        epoch,
        opened_seqno: 1,
        group: 1,
        opened_clock: 0,
        extents: None,
    };
    if let Told::Frame(frame) = told {
        header.class = Class::Data(COMMIT_STREAM);
        header.group = frame.group;
        header.opened_clock = frame.clock;
        // A first frame begins where the header ends; else records before it are lost.
        if offset as u64 == geometry.header_bytes() {
            header.opened_seqno = frame.base_seqno;
        }
    }
    Some(header)
}
