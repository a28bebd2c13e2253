//! Walking the frames of a segment, as recovery, the cleaner, `check` and `dump` do.
//!
//! Bytes are untrusted: a scan ends at the first frame that does not verify, and says
//! whether the segment was sealed there. Records are verified as they are visited.

use crate::device::{AlignedBuf, Device};
use crate::format::{
    ExtentRecord, FrameHeader, Geometry, Invalid, Kind, Record, Seed, SegmentHeader, SegmentId,
    Seqno, first_record_offset, parse_record, read_verified_record,
};
use crate::{Error, Result};

use super::READ_RETRIES;

/// Bytes read at a time; a longer frame is read whole.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// Reads with retries, without a log: for use before there is one.
pub(crate) fn read_retrying(device: &dyn Device, offset: u64, into: &mut AlignedBuf) -> Result<()> {
    let mut attempt = 0;
    loop {
        match device.read(offset, into) {
            Ok(()) => return Ok(()),
            Err(_) if attempt < READ_RETRIES => attempt += 1,
            Err(source) => {
                return Err(Error::Io {
                    op: "read",
                    offset,
                    source,
                });
            }
        }
    }
}

/// A frame in memory, with its payload or without.
pub(crate) struct ScannedFrame {
    pub(crate) header: FrameHeader,
    pub(crate) segment: SegmentId,
    seed: Seed,
    /// Offset of the frame in its segment.
    pub(crate) offset: u64,
    bytes: Vec<u8>,
    unit_bytes: u32,
    is_verified: bool,
}

/// A record of a scanned frame.
pub(crate) struct ScannedRecord<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) seqno: Seqno,
    /// Offset of the record in its segment.
    pub(crate) offset: u64,
    /// Of an extent record.
    pub(crate) payload: Option<ScannedPayload<'a>>,
}

/// The payload of a scanned record.
#[derive(Clone, Copy)]
pub(crate) struct ScannedPayload<'a> {
    extent: ExtentRecord<'a>,
    /// Its offset in its segment; `None` when damage hides it.
    pub(crate) offset: Option<u64>,
    /// Its bytes; empty when they were not read.
    pub(crate) bytes: &'a [u8],
}

impl ScannedPayload<'_> {
    /// Checks the bytes.
    pub(crate) fn verify(&self) -> std::result::Result<(), Invalid> {
        self.extent.verify_payload(self.bytes)
    }
}

impl ScannedFrame {
    /// Where the payload begins in the frame: before the end by the length of all of it. `None`
    /// when the records do not tell.
    fn payload_start(&self) -> Option<u64> {
        let mut at = first_record_offset(self.unit_bytes);
        let mut payload = 0;
        for _ in 0..self.header.record_count {
            let bytes = self.record_bytes(at)?;
            let record = read_verified_record(bytes, self.unit_bytes).ok()?;
            at += record.length.units() * u64::from(self.unit_bytes);
            if record.kind == Kind::Extent {
                let extent = ExtentRecord::decode(record.key, record.value).ok()?;
                payload += u64::from(extent.payload_bytes);
            }
        }
        let start = u64::from(self.header.frame_bytes).checked_sub(payload)?;
        (payload > 0 && start >= u64::from(self.header.data_bytes)).then_some(start)
    }

    /// The bytes of records from an offset in the frame.
    fn record_bytes(&self, at: u64) -> Option<&[u8]> {
        let at = usize::try_from(at).ok()?;
        self.bytes.get(at..self.header.data_bytes as usize)
    }

    fn payload_of<'a>(
        &'a self,
        record: &Record<'a>,
        next: &mut Option<u64>,
        block_bytes: u32,
    ) -> std::result::Result<Option<ScannedPayload<'a>>, Invalid> {
        if record.kind != Kind::Extent {
            return Ok(None);
        }
        if !self.header.payload {
            return Err(Invalid::Field("an extent without payload"));
        }
        let extent = ExtentRecord::decode(record.key, record.value)?;
        if !extent.payload_bytes.is_multiple_of(block_bytes) {
            return Err(Invalid::Field("payload bytes"));
        }
        let payload_bytes = u64::from(extent.payload_bytes);
        let Some(at) = *next else {
            let (offset, bytes) = (None, [].as_slice());
            return Ok(Some(ScannedPayload {
                extent,
                offset,
                bytes,
            }));
        };
        let end = at + payload_bytes;
        *next = Some(end);
        Ok(Some(ScannedPayload {
            extent,
            offset: Some(self.offset + at),
            bytes: self
                .bytes
                .get(at as usize..end as usize)
                .unwrap_or_default(),
        }))
    }

    /// Visits the records in order.
    ///
    /// # Errors
    /// The visitor's, or `Corrupt` at the first record that does not verify.
    pub(crate) fn visit<'a>(
        &'a self,
        geometry: &Geometry,
        visitor: &mut dyn FnMut(ScannedRecord<'a>) -> Result<()>,
    ) -> Result<()> {
        let mut at = first_record_offset(self.unit_bytes);
        let mut seqno = self.header.base_seqno;
        let mut payload_at = if self.header.payload {
            self.payload_start()
        } else {
            None
        };
        let payload_is_known = payload_at.is_some() || !self.header.payload;
        for _ in 0..self.header.record_count {
            let offset = self.offset + at;
            let corrupt = |why| Error::Corrupt {
                offset: geometry.segment_offset(self.segment) + offset,
                why,
            };
            let bytes = self
                .record_bytes(at)
                .ok_or_else(|| corrupt(Invalid::Truncated))?;
            let record = if self.is_verified {
                read_verified_record(bytes, self.unit_bytes)
            } else {
                parse_record(bytes, self.seed, offset, self.unit_bytes)
            };
            let record = record.map_err(corrupt)?;
            seqno += record.delta;
            let payload = self
                .payload_of(&record, &mut payload_at, geometry.block_bytes)
                .map_err(corrupt)?;
            at += record.length.units() * u64::from(self.unit_bytes);
            visitor(ScannedRecord {
                record,
                seqno,
                offset,
                payload,
            })?;
        }
        let is_whole = at == u64::from(self.header.data_bytes)
            && seqno == self.header.last_seqno
            && payload_is_known;
        if is_whole || self.header.record_count == 0 {
            return Ok(());
        }
        Err(Error::Corrupt {
            offset: geometry.segment_offset(self.segment) + self.offset,
            why: Invalid::Field("frame content"),
        })
    }

    /// Checks every record, and payload that was read.
    pub(crate) fn verify(&self, geometry: &Geometry) -> Result<()> {
        self.visit(geometry, &mut |found| {
            let Some(payload) = found.payload.filter(|_| self.has_payload()) else {
                return Ok(());
            };
            payload.verify().map_err(|why| Error::Corrupt {
                offset: geometry.segment_offset(self.segment) + found.offset,
                why,
            })
        })
    }

    /// Whether all bytes of the frame are here, not only its records.
    fn has_payload(&self) -> bool {
        self.bytes.len() == self.header.frame_bytes as usize
    }

    /// Whether everything in the frame verified when it was read.
    pub(crate) fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// Checks the payload on the device, which was not read with the records.
    pub(crate) fn verify_on_device(&self, device: &dyn Device, geometry: &Geometry) -> Result<()> {
        if self.has_payload() {
            return self.verify(geometry);
        }
        let mut buffer = AlignedBuf::new();
        self.visit(geometry, &mut |found| {
            let Some(payload) = found.payload else {
                return Ok(());
            };
            let corrupt = |why| Error::Corrupt {
                offset: geometry.segment_offset(self.segment) + found.offset,
                why,
            };
            let offset = payload
                .offset
                .ok_or_else(|| corrupt(Invalid::Field("frame content")))?;
            let mut outcome = Ok(());
            for _ in 0..=READ_RETRIES {
                buffer.resize_for_overwrite(payload.extent.payload_bytes as usize);
                let at = geometry.segment_offset(self.segment) + offset;
                read_retrying(device, at, &mut buffer)?;
                outcome = payload.extent.verify_payload(&buffer).map_err(corrupt);
                if outcome.is_ok() {
                    break;
                }
            }
            outcome
        })
    }
}

/// A walk over the frames of one segment.
pub(crate) struct SegmentScanner {
    pub(crate) header: SegmentHeader,
    seed: Seed,
    /// Offset of the next frame.
    offset: u64,
    window: AlignedBuf,
    window_at: u64,
    /// Memory of a frame that is done with, for the next one.
    spare: Vec<u8>,
    next: Option<FrameHeader>,
    sealed: bool,
    /// Frames of later groups do not exist.
    last_group: u64,
    /// Payload is not read.
    records_only: bool,
    /// Reads zeros for blocks that cannot be read.
    past_bad_blocks: bool,
    met_bad_blocks: bool,
}

impl SegmentScanner {
    /// A walk from the first frame of the segment with this header.
    pub(crate) fn new(header: SegmentHeader, last_group: u64) -> Self {
        Self {
            seed: header.seed(),
            offset: header.geometry.header_bytes(),
            header,
            window: AlignedBuf::new(),
            window_at: 0,
            spare: Vec::new(),
            next: None,
            sealed: false,
            last_group,
            records_only: false,
            past_bad_blocks: false,
            met_bad_blocks: false,
        }
    }

    /// The same walk, leaving payload where it is.
    pub(crate) fn records_only(mut self) -> Self {
        self.records_only = true;
        self
    }

    /// The same walk, taking blocks that cannot be read for zeros: one bad block must not
    /// hide a segment from the cleaner. Not for recovery, where zeros look like the end.
    pub(crate) fn past_bad_blocks(mut self) -> Self {
        self.past_bad_blocks = true;
        self
    }

    /// The same walk, with the segment's first bytes read already, and memory to use again.
    pub(crate) fn with_memory(mut self, first: AlignedBuf, spare: Vec<u8>) -> Self {
        self.window = first;
        self.spare = spare;
        self
    }

    /// Ends the walk; its memory can be used again.
    pub(crate) fn into_memory(self) -> (AlignedBuf, Vec<u8>) {
        (self.window, self.spare)
    }

    /// Gives back a frame that is done with.
    pub(crate) fn done_with(&mut self, frame: ScannedFrame) {
        self.spare = frame.bytes;
    }

    /// Whether there were blocks that cannot be read.
    pub(crate) fn met_bad_blocks(&self) -> bool {
        self.met_bad_blocks
    }

    /// Gives the window's memory back; what is read next reads it again.
    pub(crate) fn rest(&mut self) {
        self.window = AlignedBuf::new();
    }

    /// Offset after the last valid frame seen.
    pub(crate) fn end(&self) -> u64 {
        self.offset
    }

    /// Whether the last frame seen said that nothing follows, or nothing can.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed || self.offset == self.header.geometry.segment_bytes
    }

    /// The header of the next frame; `None` at the end.
    pub(crate) fn peek(&mut self, device: &dyn Device) -> Result<Option<FrameHeader>> {
        if self.next.is_some() || self.is_sealed() {
            return Ok(self.next);
        }
        let geometry = self.header.geometry;
        let room = geometry.segment_bytes - self.offset;
        let wanted = geometry
            .round_to_block(crate::format::FRAME_HEADER_BYTES as u64)
            .min(room);
        for attempt in 0..=READ_RETRIES {
            if attempt > 0 {
                // One bad read must not be taken for the end of the log.
                self.window.clear();
            }
            self.load(
                device,
                self.offset,
                wanted,
                if attempt > 0 { wanted } else { WINDOW_BYTES },
            )?;
            let at = (self.offset - self.window_at) as usize;
            let bytes = self.window.get(at..).unwrap_or_default();
            let decoded =
                FrameHeader::decode(bytes, self.seed, self.offset, geometry.segment_bytes);
            self.next = decoded
                .ok()
                .filter(|header| header.frame_bytes % geometry.block_bytes == 0);
            if self.next.is_some() {
                break;
            }
        }
        self.next = self.next.filter(|header| header.group <= self.last_group);
        Ok(self.next)
    }

    /// Takes the next frame whole; `None` at the end.
    pub(crate) fn take(&mut self, device: &dyn Device) -> Result<Option<ScannedFrame>> {
        let Some(header) = self.peek(device)? else {
            return Ok(None);
        };
        let mut frame = self.frame(device, header)?;
        for _ in 0..READ_RETRIES {
            frame.is_verified = frame.verify(&self.header.geometry).is_ok();
            if frame.is_verified {
                break;
            }
            self.window.clear();
            frame = self.frame(device, header)?;
        }
        self.next = None;
        self.sealed = header.seals;
        self.offset += u64::from(header.frame_bytes);
        Ok(Some(frame))
    }

    fn frame(&mut self, device: &dyn Device, header: FrameHeader) -> Result<ScannedFrame> {
        let geometry = &self.header.geometry;
        let wanted = if self.records_only && header.payload {
            geometry.round_to_block(u64::from(header.data_bytes))
        } else {
            u64::from(header.frame_bytes)
        };
        self.load(device, self.offset, wanted, WINDOW_BYTES)?;
        let at = (self.offset - self.window_at) as usize;
        let found = self.window.get(at..at + wanted as usize);
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        bytes.extend_from_slice(found.unwrap_or_default());
        Ok(ScannedFrame {
            header,
            segment: self.header.segment,
            seed: self.seed,
            offset: self.offset,
            bytes,
            unit_bytes: self.header.geometry.unit_bytes,
            is_verified: false,
        })
    }

    /// Tries the blocks after the end for another frame: damage in the middle must not hide
    /// what follows. True when one was found; the walk goes on there.
    pub(crate) fn resync(&mut self, device: &dyn Device) -> Result<bool> {
        if self.is_sealed() {
            return Ok(false);
        }
        let Some((offset, _)) = self.find_frame(device, u64::MAX)? else {
            return Ok(false);
        };
        self.offset = offset;
        Ok(self.peek(device)?.is_some())
    }

    /// The first valid frame after the end of the walk, within `limit` bytes.
    pub(crate) fn find_frame(
        &mut self,
        device: &dyn Device,
        limit: u64,
    ) -> Result<Option<(u64, FrameHeader)>> {
        let block_bytes = u64::from(self.header.geometry.block_bytes);
        self.find_frame_from(device, self.offset + block_bytes, limit)
    }

    /// The first valid frame from an offset on, within `limit` bytes.
    pub(crate) fn find_frame_from(
        &mut self,
        device: &dyn Device,
        from: u64,
        limit: u64,
    ) -> Result<Option<(u64, FrameHeader)>> {
        let geometry = self.header.geometry;
        let block_bytes = u64::from(geometry.block_bytes);
        let end = geometry.segment_bytes.min(from.saturating_add(limit));
        let mut offset = from;
        while offset + block_bytes <= end {
            self.load(device, offset, block_bytes, WINDOW_BYTES)?;
            let at = (offset - self.window_at) as usize;
            let bytes = self.window.get(at..).unwrap_or_default();
            let header = FrameHeader::decode(bytes, self.seed, offset, geometry.segment_bytes);
            match header {
                Ok(header) if header.group <= self.last_group => {
                    return Ok(Some((offset, header)));
                }
                _ => offset += block_bytes,
            }
        }
        Ok(None)
    }

    fn load(&mut self, device: &dyn Device, offset: u64, len: u64, at_once: u64) -> Result<()> {
        let window_end = self.window_at + self.window.len() as u64;
        if offset >= self.window_at && offset + len <= window_end {
            return Ok(());
        }
        let geometry = &self.header.geometry;
        let room = geometry.segment_bytes - offset;
        let bytes = len.max(at_once).min(room);
        self.window.resize_for_overwrite(bytes as usize);
        self.window_at = offset;
        let device_offset = geometry.segment_offset(self.header.segment) + offset;
        match read_retrying(device, device_offset, &mut self.window) {
            Err(Error::Io { .. }) if self.past_bad_blocks => {}
            other => return other,
        }
        let block_bytes = geometry.block_bytes as usize;
        let mut block = AlignedBuf::zeroed(block_bytes);
        for (at, into) in (device_offset..)
            .step_by(block_bytes)
            .zip(self.window.chunks_exact_mut(block_bytes))
        {
            if read_retrying(device, at, &mut block).is_ok() {
                into.copy_from_slice(&block);
            } else {
                into.fill(0);
                self.met_bad_blocks = true;
            }
        }
        Ok(())
    }
}
