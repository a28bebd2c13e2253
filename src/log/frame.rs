//! Frames as they are filled, and the heads that fill them.

use crate::device::AlignedBuf;
use crate::format::{Seed, SegmentHeader, SegmentId, Seqno};

use super::payload::{Area, Payload};
use super::policy::WriteTime;

/// A frame, being filled or closed.
pub(crate) struct Frame {
    pub(crate) segment: SegmentId,
    pub(super) seed: Seed,
    /// Offset in the segment where `bytes` starts: the segment header for a first frame.
    pub(crate) write_offset: u32,
    /// Of a first frame, written when the group is closed.
    pub(super) header: Option<SegmentHeader>,
    /// Offset in the segment of the frame header.
    pub(super) frame_offset: u32,
    pub(crate) bytes: AlignedBuf,
    /// Offset in the segment after the last record; set when the frame is closed.
    pub(super) data_end: u32,
    pub(super) records: u32,
    pub(super) base_seqno: Seqno,
    pub(super) last_seqno: Seqno,
    pub(super) seals: bool,
    /// Where records go in a frame with payload.
    pub(super) area: Option<Area>,
}

impl Frame {
    /// Offset in the segment after the last byte.
    pub(crate) fn end(&self) -> u32 {
        self.write_offset + self.bytes.len() as u32
    }

    pub(super) fn frame_offset(&self) -> u32 {
        self.frame_offset
    }

    /// Whether it has no records yet.
    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Makes an empty frame one with payload.
    pub(super) fn begin_area(&mut self, area: Area) {
        assert!(
            self.is_empty(),
            "a frame's kind is told by its first record"
        );
        self.bytes.resize((area.end - self.write_offset) as usize);
        self.area = Some(area);
    }

    /// Takes a place for a record; returns its offset in the segment.
    pub(super) fn take(&mut self, record_bytes: u32) -> u32 {
        if let Some(area) = &mut self.area {
            let offset = area.next;
            area.next += record_bytes;
            assert!(area.next <= area.end, "records stay in their area");
            return offset;
        }
        let offset = self.end();
        let len = self.bytes.len() + record_bytes as usize;
        self.bytes.resize_for_overwrite(len);
        offset
    }

    /// Appends payload; returns its offset in the segment.
    pub(super) fn push_payload(&mut self, payload: Payload<'_>) -> u32 {
        assert!(self.area.is_some(), "payload goes to a payload frame");
        let offset = self.end();
        for slice in payload {
            self.bytes.extend_from_slice(slice);
        }
        offset
    }

    pub(super) fn holds(&self, segment: SegmentId, offset: u32) -> bool {
        self.segment == segment && (self.write_offset..self.end()).contains(&offset)
    }
}

#[derive(Default)]
pub(super) struct Head {
    pub(super) segment: Option<SegmentId>,
    /// Offset in the segment of the next record (or payload, or frame when none is open).
    pub(super) next: u32,
    pub(super) frame: Option<Frame>,
    /// When the records in the segment were written by their callers, on average.
    pub(super) write_time: WriteTime,
    /// Bytes of records that the next payload frame is to have room for.
    pub(super) wanted_area: u64,
}
