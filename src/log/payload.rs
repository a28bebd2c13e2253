//! Frames with payload: where records and payload go, and how much room they take.
//!
//! A payload frame has an *area* for its records, whole blocks, whose size is fixed when the
//! frame is opened; behind it payload is appended. So a record and its payload have their
//! places at once, and a frame still is one write. A record that does not fit in what is
//! left of the area closes the frame.

use crate::format::{COMMIT_STREAM, DELTA_BITS, Geometry, HEAD_COUNT, Seqno, first_record_offset};

use super::appender::{Appender, Purpose};
use super::frame::Frame;

/// The payload of an extent record: slices that are whole blocks together.
pub(crate) type Payload<'a> = &'a [&'a [u8]];

/// Bytes of a payload.
pub(crate) fn payload_bytes(payload: Payload<'_>) -> u64 {
    payload.iter().map(|slice| slice.len() as u64).sum()
}

/// Bytes for extra members that [`max_payload`] leaves in an extent record.
const EXTRA_BYTES: u64 = 1 << 10;

/// The most payload that one extent record with up to 256 extra members can have, a whole
/// number of blocks: record and payload must fit in an empty segment.
pub(crate) fn max_payload(geometry: &Geometry) -> u32 {
    let fixed = crate::format::RECORD_HEADER_BYTES
        + crate::format::EXTENT_KEY_BYTES
        + crate::format::EXTENT_FIXED_BYTES;
    let checksums = geometry.segment_bytes / crate::format::LOGICAL_BLOCK_BYTES as u64 * 4;
    let record = fixed as u64 + EXTRA_BYTES + checksums;
    // What a length code and the unit may add.
    let padded = record + record / 64 + 2 * u64::from(geometry.unit_bytes);
    max_payload_beside(geometry, padded)
}

/// The most payload that fits in an empty segment beside records of this many bytes.
pub(crate) fn max_payload_beside(geometry: &Geometry, record_bytes: u64) -> u32 {
    let area = area_bytes(geometry, record_bytes);
    geometry
        .segment_bytes
        .saturating_sub(geometry.header_bytes() + area) as u32
}

/// Bytes before the payload of a frame with this many bytes of records.
fn area_bytes(geometry: &Geometry, record_bytes: u64) -> u64 {
    geometry.round_to_block(first_record_offset(geometry.unit_bytes) + record_bytes)
}

/// What a record takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) record: u32,
    /// 0 for a record without payload.
    pub(super) payload: u32,
}

impl Size {
    pub(super) fn bytes(self) -> u64 {
        u64::from(self.record) + u64::from(self.payload)
    }
}

/// The records' part of a payload frame; offsets in the segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    /// Where the next record goes.
    pub(super) next: u32,
    pub(super) end: u32,
}

impl Area {
    fn takes(&self, record_bytes: u32) -> bool {
        self.end - self.next >= record_bytes
    }
}

/// Where in a segment a record would go.
enum Place {
    /// Into the head's open frame.
    Here,
    /// Into a frame that starts at this offset in the segment; the open one is closed, or
    /// becomes this one if it has no records.
    NewFrame(u64),
}

impl Appender {
    /// Asks that the next payload frame opened on this head has room for this many bytes of
    /// records at least, so that a transaction's records and its payload make one frame:
    /// extent records first. No more than the room that was asked for may be reserved; it is
    /// forgotten when the group is closed, and 0 takes it back.
    pub(crate) fn reserve_area(&mut self, head: u8, record_bytes: u64) {
        let open = self.heads.get(usize::from(head)).map(|head| &head.frame);
        let area = open.and_then(|frame| frame.as_ref()?.area);
        let has_it = area.is_some_and(|area| u64::from(area.end - area.next) >= record_bytes);
        if let Some(head) = self.heads.get_mut(usize::from(head)) {
            head.wanted_area = if has_it { 0 } else { record_bytes };
        }
    }

    fn place(&self, head_index: usize, size: Size) -> Option<Place> {
        let head = &self.heads[head_index];
        head.segment?;
        let next = u64::from(head.next);
        let Some(frame) = &head.frame else {
            return Some(Place::NewFrame(next));
        };
        if frame.is_empty() {
            let is_ordinary = size.payload == 0;
            let start = frame.frame_offset();
            return Some(if is_ordinary {
                Place::Here
            } else {
                Place::NewFrame(u64::from(start))
            });
        }
        let goes_here = match frame.area {
            Some(area) => area.takes(size.record),
            None => size.payload == 0,
        };
        // A frame that cannot express the seqno distance is closed, and the next one starts
        // on a block behind it.
        Some(if goes_here && self.delta_fits(frame) {
            Place::Here
        } else {
            Place::NewFrame(self.geometry.round_to_block(next))
        })
    }

    /// Whether the head's open segment can take a record.
    pub(super) fn fits(&self, head_index: usize, size: Size) -> bool {
        let in_area = self.heads[head_index]
            .frame
            .as_ref()
            .is_some_and(|frame| frame.area.is_some());
        let next = u64::from(self.heads[head_index].next);
        let end = match self.place(head_index, size) {
            None => return false,
            Some(Place::Here) if in_area => next + u64::from(size.payload),
            Some(Place::Here) => next + u64::from(size.record),
            Some(Place::NewFrame(start)) => start + self.new_frame_bytes(size),
        };
        end <= self.geometry.segment_bytes
    }

    /// Bytes of a new frame with only this record.
    fn new_frame_bytes(&self, size: Size) -> u64 {
        if size.payload == 0 {
            first_record_offset(self.geometry.unit_bytes) + u64::from(size.record)
        } else {
            area_bytes(&self.geometry, u64::from(size.record)) + u64::from(size.payload)
        }
    }

    pub(super) fn delta_fits(&self, frame: &Frame) -> bool {
        self.next_seqno - frame.last_seqno < 1 << DELTA_BITS
    }

    /// Makes sure the head has a frame that can take the record of `seqno`; it fits in the
    /// segment.
    pub(super) fn open_frame(&mut self, head_index: usize, seqno: Seqno, size: Size) {
        match self.place(head_index, size) {
            Some(Place::NewFrame(_)) => {}
            Some(Place::Here) | None => return,
        }
        let is_empty = self.heads[head_index]
            .frame
            .as_ref()
            .is_some_and(Frame::is_empty);
        if !is_empty {
            self.close_frame(head_index, false);
            self.start_frame(head_index, seqno, None);
        }
        if size.payload > 0 {
            self.begin_area(head_index, size);
        }
    }

    /// Turns a frame without records into a payload frame.
    fn begin_area(&mut self, head_index: usize, size: Size) {
        let geometry = self.geometry;
        let head = &mut self.heads[head_index];
        let wanted = std::mem::take(&mut head.wanted_area).max(u64::from(size.record));
        let Some(frame) = head.frame.as_mut() else {
            unreachable!("a frame was opened")
        };
        let start = u64::from(frame.frame_offset());
        let fits = |area: &u64| start + area + u64::from(size.payload) <= geometry.segment_bytes;
        let area = Some(area_bytes(&geometry, wanted)).filter(fits);
        let area = area.unwrap_or_else(|| area_bytes(&geometry, u64::from(size.record)));
        let end = (start + area) as u32;
        frame.begin_area(Area {
            next: head.next,
            end,
        });
        head.next = end;
    }
}

/// Room that a caller needs of one head. What it appends of another length, or in more
/// records, is not accounted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) head: u8,
    pub(crate) purpose: Purpose,
    /// Bytes of records, with payload or without.
    pub(crate) bytes: u64,
    /// Bytes of the longest record.
    pub(crate) largest: u64,
    pub(crate) records: u64,
    /// How many of them have payload.
    pub(crate) payload_records: u64,
    pub(crate) payload: u64,
    /// Bytes of the longest payload of one record.
    pub(crate) largest_payload: u64,
    /// Bytes by which images become larger, once the records are applied.
    pub(crate) image_growth: u64,
}

impl Room {
    /// Room for nothing.
    pub(crate) fn new(head: u8, purpose: Purpose) -> Self {
        Self {
            head,
            purpose,
            bytes: 0,
            largest: 0,
            records: 0,
            payload_records: 0,
            payload: 0,
            largest_payload: 0,
            image_growth: 0,
        }
    }

    /// Room for one record without payload.
    pub(crate) fn of_one(head: u8, purpose: Purpose, bytes: u64) -> Self {
        let mut room = Self::new(head, purpose);
        room.add(bytes, 0);
        room
    }

    /// Adds a record of this many bytes with a payload of this many, 0 for none.
    pub(crate) fn add(&mut self, record_bytes: u64, payload_bytes: u64) {
        self.bytes += record_bytes;
        self.largest = self.largest.max(record_bytes);
        self.records += 1;
        self.payload_records += u64::from(payload_bytes > 0);
        self.payload += payload_bytes;
        self.largest_payload = self.largest_payload.max(payload_bytes);
    }

    fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.largest = self.largest.max(other.largest);
        self.records += other.records;
        self.payload_records += other.payload_records;
        self.payload += other.payload;
        self.largest_payload = self.largest_payload.max(other.largest_payload);
    }
}

/// Rooms by head: a head that is named twice needs both.
fn by_head(rooms: &[Room]) -> impl Iterator<Item = Room> {
    let mut heads: [Option<Room>; HEAD_COUNT] = [None; HEAD_COUNT];
    for room in rooms {
        match heads.get_mut(usize::from(room.head.min(COMMIT_STREAM))) {
            Some(Some(merged)) => merged.merge(room),
            Some(empty) => *empty = Some(*room),
            None => {}
        }
    }
    heads.into_iter().flatten()
}

impl Appender {
    /// Whether there is room now, for all of it; `claimed`: for the one who has the claim.
    /// Until the lock goes, appending what was asked for with [`Purpose::Counted`] works then.
    pub(crate) fn has_room(&self, rooms: &[Room], claimed: bool) -> bool {
        let records = rooms.iter().map(|room| room.records).sum();
        let needed: usize = by_head(rooms)
            .filter(|room| !self.fits_here(room, records))
            .map(|room| self.segments_for(&room, records))
            .sum();
        let growth = rooms.iter().map(|room| room.image_growth).sum();
        let floors = rooms.iter().map(|room| {
            let held = if claimed { 0 } else { self.held(room.purpose) };
            self.floor(room.purpose, growth) + held
        });
        needed == 0 || self.free_count() >= needed + floors.max().unwrap_or(0)
    }

    /// Whether all of it fits in the head's open segment.
    fn fits_here(&self, room: &Room, records: u64) -> bool {
        let head = &self.heads[usize::from(room.head)];
        if head.segment.is_none() {
            return false;
        }
        let next = u64::from(head.next);
        // Where the next record goes, if all are without payload and in one frame.
        let start = match &head.frame {
            _ if room.payload > 0 || frames_for(room, records) > 1 => None,
            Some(frame) if frame.area.is_none() && self.delta_fits(frame) => Some(next),
            Some(_) => None,
            None => Some(next + first_record_offset(self.geometry.unit_bytes)),
        };
        let end = match start {
            Some(start) => start + room.bytes,
            None => self.geometry.round_to_block(next) + self.most_bytes_of(room, records),
        };
        end <= self.geometry.segment_bytes
    }

    /// Most bytes that the records of a room take, from the start of a block.
    fn most_bytes_of(&self, room: &Room, records: u64) -> u64 {
        let geometry = &self.geometry;
        let frame = first_record_offset(geometry.unit_bytes) + u64::from(geometry.block_bytes);
        // An area may be reserved and stay empty, this one's or one left behind.
        let area = if room.payload > 0 {
            room.bytes + self.heads[usize::from(room.head)].wanted_area
        } else {
            0
        };
        room.bytes + area + room.payload + frames_for(room, records) * frame
    }

    /// Fresh segments that the records take at most.
    fn segments_for(&self, room: &Room, records: u64) -> usize {
        if room.records == 0 {
            return 0;
        }
        let geometry = &self.geometry;
        let first = first_record_offset(geometry.unit_bytes);
        // Each may waste up to the largest record at its end.
        let waste = if room.payload > 0 {
            first + u64::from(geometry.block_bytes) + room.largest + room.largest_payload
        } else {
            first + room.largest
        };
        let gain = (geometry.segment_bytes - geometry.header_bytes()).saturating_sub(waste);
        let bytes = if room.payload == 0 && frames_for(room, records) == 1 {
            room.bytes
        } else {
            self.most_bytes_of(room, records)
        };
        // Each has one record at least.
        let by_bytes = bytes
            .checked_div(gain)
            .map_or(room.records, |_| bytes.div_ceil(gain).min(room.records));
        by_bytes.min(self.segments_by_records(room, records)) as usize
    }

    /// The same where few records have payload, which may be large, and many have none: each
    /// with payload begins a segment, and so may one that follows it.
    fn segments_by_records(&self, room: &Room, records: u64) -> u64 {
        if room.payload == 0 {
            return u64::MAX;
        }
        let geometry = &self.geometry;
        let frame = first_record_offset(geometry.unit_bytes) + u64::from(geometry.block_bytes);
        let frames = 2 * room.payload_records + 1 + ((records - room.records) >> DELTA_BITS);
        let wanted = self.heads[usize::from(room.head)].wanted_area;
        let bytes = 2 * room.bytes + wanted + frames * frame;
        let segment = geometry.segment_bytes - geometry.header_bytes();
        let gain = segment.saturating_sub(frame + room.largest).max(1);
        2 * room.payload_records + bytes.div_ceil(gain) + 1
    }

    /// Fresh segments that all of it takes at most.
    pub(super) fn most_segments(&self, rooms: &[Room]) -> usize {
        let records = rooms.iter().map(|room| room.records).sum();
        let segments = by_head(rooms).map(|room| self.segments_for(&room, records));
        segments.sum()
    }
}

/// Frames of one head that may be begun for a room, when `records` are appended to all heads:
/// with payload each record may need one; else only one after a payload frame, and whenever
/// so many seqnos went elsewhere that a frame cannot express the distance.
fn frames_for(room: &Room, records: u64) -> u64 {
    if room.payload > 0 {
        room.records
    } else {
        1 + ((records - room.records) >> DELTA_BITS)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
