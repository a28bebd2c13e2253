//! Superblocks, geometry and segment headers of a store in any state.

use crate::device::{AlignedBuf, Device, ReadOp};
use crate::format::{
    Class, FrameHeader, Geometry, Invalid, SUPERBLOCK_BYTES, SegmentHeader, SegmentId, Superblock,
    VERSION,
};
use crate::log::{
    Found, READ_RETRIES, Superblocks, choose, parse_header, probe_geometry, read_retrying,
};
use crate::sync::SharedArc;
use crate::{Error, Result};

use super::report::SegmentCensus;

/// Bytes read at once of a segment.
const READ_BYTES: usize = 4 << 20;
/// Bytes read at once where payload is left out.
const WINDOW_BYTES: u64 = 32 << 10;

/// A superblock slot.
pub(super) struct Slot {
    pub(super) offset: u64,
    pub(super) content: std::result::Result<Superblock, Invalid>,
}

/// What is known of a store before anything in it is interpreted.
pub(super) struct Media {
    pub(super) device: SharedArc<dyn Device>,
    pub(super) slots: Vec<Slot>,
    /// The newest superblock of this store.
    pub(super) superblock: Option<Superblock>,
    /// Sequences of all slots that verify, of whatever store.
    pub(super) sequences: Vec<u64>,
    pub(super) geometry: Geometry,
    pub(super) headers: Vec<Found>,
}

impl Media {
    /// Reads superblocks and headers; without a superblock, looks for segment headers.
    pub(super) fn open(device: SharedArc<dyn Device>) -> Result<Self> {
        let [first, second, third, fourth] = slot_offsets(device.capacity());
        let mut slots = vec![read_slot(&*device, first), read_slot(&*device, second)];
        let mut version = None;
        for (slot, other) in &slots {
            version = version.or(other.filter(|_| slot.content.is_err()));
        }
        // The back slots are where the store ends, which may be before the device does.
        let known = slots
            .iter()
            .find_map(|(slot, _)| slot.content.as_ref().ok());
        let (third, fourth) = match known {
            Some(superblock) => {
                let [_, _, third, fourth] = slot_offsets(superblock.geometry.capacity);
                (third, fourth)
            }
            None => (third, fourth),
        };
        slots.push(read_slot(&*device, third));
        slots.push(read_slot(&*device, fourth));
        for (slot, other) in &slots {
            version = version.or(other.filter(|_| slot.content.is_err()));
        }
        let mut slots: Vec<Slot> = slots.into_iter().map(|(slot, _)| slot).collect();
        let superblock = choose(&*device, contents(&slots)).cloned();
        if superblock.is_none()
            && let Some(found) = version.filter(|found| *found != VERSION)
        {
            return Err(Error::Version {
                found,
                supported: VERSION,
            });
        }
        let geometry = match &superblock {
            Some(superblock) => superblock.geometry,
            None => probe_geometry(&*device).ok_or_else(|| Error::NotFound {
                what: "a superblock or a segment header".into(),
            })?,
        };
        if superblock.is_none() {
            let offsets = Geometry::superblock_offsets(geometry.capacity);
            slots = offsets
                .iter()
                .map(|at| read_slot(&*device, *at).0)
                .collect();
        }
        let sequences = contents(&slots)
            .map(|superblock| superblock.sequence)
            .collect();
        for slot in &mut slots {
            let foreign = matches!(&slot.content, Ok(found) if found.geometry != geometry);
            if foreign {
                slot.content = Err(Invalid::Field("of another store"));
            }
        }
        let headers = read_headers(&*device, &geometry);
        Ok(Self {
            device,
            slots,
            superblock,
            sequences,
            geometry,
            headers,
        })
    }

    pub(super) fn header(&self, segment: SegmentId) -> Option<&SegmentHeader> {
        match self.headers.get(segment as usize) {
            Some(Found::Header(header)) => Some(header),
            _ => None,
        }
    }

    /// Every header there is, by number.
    pub(super) fn used_headers(&self) -> impl Iterator<Item = &SegmentHeader> {
        self.headers.iter().filter_map(|found| match found {
            Found::Header(header) => Some(header),
            _ => None,
        })
    }

    /// The superblock as one that can be updated.
    pub(super) fn superblocks(&self, current: Superblock) -> Superblocks {
        let slots: Vec<_> = self
            .slots
            .iter()
            .map(|slot| slot.content.as_ref())
            .collect();
        Superblocks::new(current, &slots)
    }

    /// Headers of the segments with records, by number.
    pub(super) fn data_segments(&self) -> impl Iterator<Item = SegmentHeader> + '_ {
        let headers = self.used_headers().copied();
        headers.filter(|header| matches!(header.class, Class::Data(_)))
    }

    pub(super) fn census(&self) -> SegmentCensus {
        let mut census = SegmentCensus {
            total: self.headers.len() as u64,
            data: vec![0; crate::format::HEAD_COUNT],
            ..SegmentCensus::default()
        };
        for found in &self.headers {
            match found {
                Found::Header(header) => match header.class {
                    Class::Free => census.free += 1,
                    Class::Discarded => census.discarded += 1,
                    Class::Checkpoint => census.checkpoint += 1,
                    Class::Data(head) => {
                        if let Some(count) = census.data.get_mut(usize::from(head)) {
                            *count += 1;
                        }
                    }
                },
                Found::Blank => census.blank += 1,
                Found::Damaged(_) => census.damaged += 1,
            }
        }
        census
    }

    /// Reads a whole segment; what cannot be read is zeros.
    pub(super) fn read_segment(&self, segment: SegmentId, into: &mut AlignedBuf) {
        let bytes = self.geometry.segment_bytes as usize;
        if into.len() != bytes {
            into.resize(bytes);
        }
        self.read_range(self.geometry.segment_offset(segment), into);
    }

    /// Reads whole blocks; those that cannot be read are zeros.
    fn read_range(&self, start: u64, into: &mut [u8]) {
        let block = (self.device.block_bytes().max(4096) as usize).min(READ_BYTES);
        for (offset, piece) in (start..)
            .step_by(READ_BYTES)
            .zip(into.chunks_mut(READ_BYTES))
        {
            if self.device.read(offset, piece).is_ok() {
                continue;
            }
            for (offset, part) in (offset..).step_by(block).zip(piece.chunks_mut(block)) {
                let read = (0..=READ_RETRIES).any(|_| self.device.read(offset, part).is_ok());
                if !read {
                    part.fill(0);
                }
            }
        }
    }

    /// Reads the frames of a segment without their payload, which stays what it was in `into`;
    /// where frames end or one does not verify, all of the rest.
    pub(super) fn read_records(&self, header: &SegmentHeader, into: &mut AlignedBuf) {
        let segment_bytes = self.geometry.segment_bytes;
        if into.len() as u64 != segment_bytes {
            into.resize(segment_bytes as usize);
        }
        let mut window = Window {
            start: self.geometry.segment_offset(header.segment),
            from: 0,
            to: 0,
        };
        let block = self.geometry.header_bytes();
        let mut at = block;
        while at < segment_bytes {
            window.ensure(self, at, at + block, into);
            let bytes = into.get(at as usize..).unwrap_or_default();
            let frame = FrameHeader::decode(bytes, header.seed(), at, segment_bytes);
            let frame = frame.ok().filter(|frame| frame.frame_bytes > 0);
            let Some(frame) = frame else {
                return window.ensure(self, at, segment_bytes, into);
            };
            let end = self
                .geometry
                .round_to_block(at + u64::from(frame.data_bytes));
            window.ensure(self, at, end.min(segment_bytes), into);
            if frame.seals {
                return;
            }
            at += u64::from(frame.frame_bytes);
        }
    }

    /// Reads whole blocks around a range; `None` when they cannot be read or leave the
    /// device.
    pub(super) fn read_around(&self, offset: u64, bytes: u64) -> Option<Vec<u8>> {
        let block = u64::from(self.geometry.block_bytes.max(self.device.block_bytes()));
        let start = offset - offset % block;
        let end = offset.checked_add(bytes)?.checked_next_multiple_of(block)?;
        if end > self.device.capacity() {
            return None;
        }
        let mut buffer = AlignedBuf::zeroed((end - start) as usize);
        read_retrying(&*self.device, start, &mut buffer).ok()?;
        let at = (offset - start) as usize;
        buffer.get(at..at + bytes as usize).map(<[u8]>::to_vec)
    }
}

/// The part of a segment that was read last.
struct Window {
    /// Byte offset on the device of the segment.
    start: u64,
    from: u64,
    to: u64,
}

impl Window {
    /// Reads a range of the segment's bytes, and some of what follows.
    fn ensure(&mut self, media: &Media, from: u64, to: u64, into: &mut AlignedBuf) {
        if self.from <= from && to <= self.to {
            return;
        }
        let begin = if (self.from..=self.to).contains(&from) {
            self.to
        } else {
            self.from = from;
            from
        };
        let block = u64::from(media.device.block_bytes().max(media.geometry.block_bytes));
        let begin = begin - begin % block;
        let end = to.max(begin + WINDOW_BYTES).next_multiple_of(block);
        let end = end.min(media.geometry.segment_bytes);
        if let Some(bytes) = into.get_mut(begin as usize..end as usize) {
            media.read_range(self.start + begin, bytes);
        }
        self.to = end;
    }
}

fn slot_offsets(capacity: u64) -> [u64; 4] {
    if capacity < Geometry::SMALLEST {
        // Too small for a store: only the front can be looked at.
        return [0, SUPERBLOCK_BYTES, 0, SUPERBLOCK_BYTES];
    }
    Geometry::superblock_offsets(capacity)
}

fn contents(slots: &[Slot]) -> impl Iterator<Item = &Superblock> + Clone {
    slots.iter().filter_map(|slot| slot.content.as_ref().ok())
}

/// A slot, and the format version it names behind a valid checksum.
fn read_slot(device: &dyn Device, offset: u64) -> (Slot, Option<u32>) {
    let mut bytes = AlignedBuf::zeroed(SUPERBLOCK_BYTES as usize);
    let fits = offset
        .checked_add(SUPERBLOCK_BYTES)
        .is_some_and(|end| end <= device.capacity());
    let mut slot = Slot {
        offset,
        content: Err(Invalid::Truncated),
    };
    let mut version = None;
    for _ in 0..=READ_RETRIES {
        if !fits || read_retrying(device, offset, &mut bytes).is_err() {
            break;
        }
        slot.content = Superblock::decode(&bytes);
        version = Superblock::version(&bytes);
        if slot.content.is_ok() {
            break;
        }
    }
    (slot, version)
}

/// Reads all segment headers; one that cannot be read is damaged.
fn read_headers(device: &dyn Device, geometry: &Geometry) -> Vec<Found> {
    const AT_ONCE: u32 = 256;
    let block = geometry.header_bytes().max(u64::from(device.block_bytes())) as usize;
    let mut headers = Vec::new();
    let mut blocks = AlignedBuf::zeroed(block * AT_ONCE as usize);
    let mut first = 0;
    while first < geometry.segment_count {
        let segments = first..(first.saturating_add(AT_ONCE)).min(geometry.segment_count);
        if geometry.segment_offset(first) >= device.capacity() {
            // The device ends before the store does.
            headers.resize(
                geometry.segment_count as usize,
                Found::Damaged(Invalid::Truncated),
            );
            break;
        }
        let mut ops: Vec<ReadOp<'_>> = segments
            .clone()
            .zip(blocks.chunks_exact_mut(block))
            .map(|(segment, into)| ReadOp {
                offset: geometry.segment_offset(segment),
                into,
            })
            .collect();
        let read = device.read_many(&mut ops).is_ok();
        for (segment, bytes) in segments.clone().zip(blocks.chunks_exact(block)) {
            let parsed = if read {
                parse_header(bytes, geometry, segment)
            } else {
                Found::Damaged(Invalid::Truncated)
            };
            headers.push(match parsed {
                Found::Header(header) => Found::Header(header),
                _ => reread_header(device, geometry, segment, block),
            });
        }
        first = segments.end;
    }
    headers
}

fn reread_header(
    device: &dyn Device,
    geometry: &Geometry,
    segment: SegmentId,
    block: usize,
) -> Found {
    let mut bytes = AlignedBuf::zeroed(block);
    let mut found = Found::Damaged(Invalid::Truncated);
    for _ in 0..READ_RETRIES {
        if read_retrying(device, geometry.segment_offset(segment), &mut bytes).is_err() {
            continue;
        }
        found = parse_header(&bytes, geometry, segment);
        if matches!(found, Found::Header(_)) {
            break;
        }
    }
    found
}
