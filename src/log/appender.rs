//! Appending: seqnos, open heads, and the frames of the group being filled.
//!
//! One lock covers it all: a seqno and a place in a frame are taken in one step, so the
//! records of every closed group are exactly those up to a seqno, over all heads
//! (invariant D4). Callers hold the lock of the index shard of the key, so that the index
//! is updated in the order of seqnos (C2). Appending never waits and never does I/O: when
//! there is no room it says so, and the caller lets its locks go before it waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::device::AlignedBuf;
use crate::format::{
    Address, COMMIT_STREAM, Class, Extent, FrameHeader, Geometry, HEAD_COUNT, Kind, LengthCode,
    RecordFields, SegmentHeader, SegmentId, Seqno, first_record_offset,
};
use crate::sync::Arc;

use super::frame::{Frame, Head};
use super::image_room::ImageRoom;
use super::payload::{Payload, Size, payload_bytes};
use super::policy::{SurvivorRoom, survivor_room};
use super::reserve::Reserve;
use super::segments::{SegmentTable, State};

/// Who appends: decides how much of the reserve may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A caller's put.
    User,
    /// A caller's delete: may use what puts may not.
    Delete,
    /// A caller's batch whose room was counted before: may use everything.
    Counted,
    /// The cleaner's survivor: may use everything.
    Survivor,
}

/// There is no free segment for this purpose now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// A record to append.
pub(crate) struct NewRecord<'a> {
    pub(crate) fields: RecordFields<'a>,
    /// An extent record's payload; others have none.
    pub(crate) payload: Option<Payload<'a>>,
    pub(crate) length: LengthCode,
    pub(crate) head: u8,
    pub(crate) purpose: Purpose,
    /// Clock at which a caller wrote it; the present for a caller's own write.
    pub(crate) clock: Option<u64>,
}

/// Where a record went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    pub(crate) address: Address,
    pub(crate) seqno: Seqno,
    /// The first byte of its payload, if it has any.
    pub(crate) payload: Option<Address>,
}

/// A group being written.
pub(crate) struct Group {
    pub(crate) frames: Vec<Arc<Frame>>,
    /// Every seqno up to here is in this or an earlier group.
    pub(crate) last_seqno: Seqno,
    /// Segment headers this group writes besides its frames: of emptied segments that become
    /// free, and of new checkpoint segments.
    pub(crate) headers: Vec<(SegmentId, SegmentHeader)>,
    pub(crate) writers: u64,
    /// Bytes of callers' records.
    pub(crate) user_bytes: u64,
}

/// State behind the appender's lock.
pub(crate) struct Appender {
    pub(super) geometry: Geometry,
    pub(super) table: Arc<SegmentTable>,
    epoch: u64,
    pub(super) reserve: Reserve,
    pub(super) next_seqno: Seqno,
    next_group: u64,
    pub(super) clock: u64,
    pub(super) heads: [Head; HEAD_COUNT],
    /// Frames of this group whose heads moved on to another segment.
    closed: Vec<Frame>,
    in_flight: Vec<Arc<Frame>>,
    in_flight_bytes: u64,
    pending_bytes: u64,
    pending_records: u64,
    /// Of these, bytes of callers' records.
    pending_user_bytes: u64,
    /// When the first record of this group was appended.
    oldest_pending: Option<Instant>,
    /// Callers of this group that wait for its commit.
    writers: u64,
    gathering: u64,
    free: VecDeque<SegmentId>,
    /// Segments never used, to be prepared.
    unwritten: VecDeque<SegmentId>,
    /// Emptied segments, each with the seqno that must be durable before it is freed.
    emptied: Vec<(SegmentId, Seqno)>,
    /// Segments that the group being written frees.
    freeing: usize,
    /// Somebody asks the flusher for a commit.
    commit_wanted: bool,
    /// Segments kept from puts besides the reserve, because commits are slow.
    pub(super) slack: usize,
    /// Smoothed time of a commit.
    pub(super) commit_time: Duration,
    /// There was nothing to gain: no slack before this clock.
    pub(super) no_slack_before: u64,
    /// Groups written, and commits of the flusher that had nothing to write.
    rounds: u64,
    /// Headers of checkpoint segments that the next group writes.
    headers: Vec<(SegmentId, SegmentHeader)>,
    /// How far each head's open segment is filled by the groups closed so far.
    extents: [Extent; HEAD_COUNT],
    /// Free segments kept for one large batch.
    pub(super) claimed: usize,
    pub(super) image_room: ImageRoom,
    buffers: Vec<AlignedBuf>,
    appended_bytes: u64,
    overhead_bytes: u64,
}

/// Buffers kept for reuse: enough for every head twice.
const SPARE_BUFFERS: usize = 2 * HEAD_COUNT;
/// A spare buffer larger than this is given back to the allocator.
const SPARE_BUFFER_BYTES: usize = 4 << 20;
/// Where recovery left the counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) epoch: u64,
    pub(crate) next_seqno: Seqno,
    pub(crate) next_group: u64,
    pub(crate) clock: u64,
}

impl Appender {
    pub(crate) fn new(
        geometry: Geometry,
        table: Arc<SegmentTable>,
        reserve: Reserve,
        start: Start,
    ) -> Self {
        let by_state = |wanted| {
            table
                .iter()
                .filter(|(_, segment)| segment.state() == wanted)
                .map(|(id, _)| id)
                .collect()
        };
        Self {
            geometry,
            epoch: start.epoch,
            reserve,
            next_seqno: start.next_seqno,
            next_group: start.next_group,
            clock: start.clock,
            heads: Default::default(),
            closed: Vec::new(),
            in_flight: Vec::new(),
            in_flight_bytes: 0,
            pending_bytes: 0,
            pending_records: 0,
            pending_user_bytes: 0,
            oldest_pending: None,
            writers: 0,
            gathering: 0,
            free: by_state(State::Free),
            unwritten: by_state(State::Unwritten),
            emptied: Vec::new(),
            freeing: 0,
            commit_wanted: false,
            slack: 0,
            commit_time: Duration::ZERO,
            no_slack_before: 0,
            rounds: 0,
            headers: Vec::new(),
            extents: Default::default(),
            claimed: 0,
            image_room: ImageRoom::default(),
            buffers: Vec::new(),
            appended_bytes: 0,
            overhead_bytes: 0,
            table,
        }
    }

    pub(crate) fn next_seqno(&self) -> Seqno {
        self.next_seqno
    }

    pub(crate) fn next_group(&self) -> u64 {
        self.next_group
    }

    /// How far each head's open segment is filled by the groups before the next.
    pub(crate) fn extents(&self) -> [Extent; HEAD_COUNT] {
        self.extents
    }

    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// Bytes of records appended since the log was opened, survivors included.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Headers and padding written since the log was opened.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.overhead_bytes
    }

    /// Bytes accepted and not yet on the device.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.pending_bytes + self.in_flight_bytes
    }

    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending_bytes
    }

    /// How long the oldest record of the group being filled has waited.
    pub(crate) fn pending_age(&self) -> Option<Duration> {
        self.oldest_pending.map(|since| since.elapsed())
    }

    pub(crate) fn pending_writers(&self) -> u64 {
        self.writers
    }

    /// Segments that can be taken without cleaning.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn unwritten_count(&self) -> usize {
        self.unwritten.len()
    }

    /// Segments that commits will make free, those of the group being written included.
    pub(crate) fn emptied_count(&self) -> usize {
        self.emptied.len() + self.freeing
    }

    /// Asks the flusher for a commit.
    pub(crate) fn want_commit(&mut self) {
        self.commit_wanted = true;
    }

    pub(crate) fn commit_is_wanted(&self) -> bool {
        self.commit_wanted
    }

    /// The flusher begins a commit.
    pub(crate) fn commit_begins(&mut self) {
        self.commit_wanted = false;
    }

    /// A commit ended.
    pub(crate) fn round_ends(&mut self) {
        self.rounds += 1;
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Counts a caller that waits for this group; true when a gathering leader has all it
    /// waits for.
    pub(crate) fn add_writer(&mut self) -> bool {
        self.writers += 1;
        self.writers == self.gathering
    }

    /// The leader waits until this many writers have joined; 0 when it does not.
    pub(crate) fn gather_for(&mut self, writers: u64) {
        self.gathering = writers;
    }

    /// Appends a record to the group being filled.
    pub(crate) fn append(&mut self, record: &NewRecord<'_>) -> Result<Appended, NoRoom> {
        let bytes = (record.length.units() * u64::from(self.geometry.unit_bytes)) as u32;
        let payload = record.payload.map_or(0, payload_bytes);
        assert!(
            (payload > 0) == (record.fields.kind == Kind::Extent)
                && payload.is_multiple_of(u64::from(self.geometry.block_bytes)),
            "extent records, and no others, have whole blocks of payload"
        );
        let size = Size {
            record: bytes,
            payload: payload as u32,
        };
        let head_index = self.head_with_room(record, size)?;
        let seqno = self.next_seqno;
        let clock = record.clock.unwrap_or(self.clock);
        self.open_frame(head_index, seqno, size);
        let head = &mut self.heads[head_index];
        let Some(frame) = head.frame.as_mut() else {
            unreachable!("open_frame just opened it")
        };
        let offset = frame.take(bytes);
        let at = (offset - frame.write_offset) as usize;
        let delta = seqno - frame.last_seqno;
        let into = &mut frame.bytes[at..at + bytes as usize];
        record
            .fields
            .encode(frame.seed, u64::from(offset), delta, into);
        frame.records += 1;
        frame.last_seqno = seqno;
        let payload_at = record.payload.map(|payload| frame.push_payload(payload));
        head.next = frame.end();
        head.write_time.add(clock, size.bytes());
        let segment = self.table.segment(frame.segment);
        segment.set_mean_clock(head.write_time.mean());
        segment.set_last_seqno(seqno);
        let address = self.geometry.address(frame.segment, u64::from(offset));
        // Counted here, not when the index is updated: a segment may be sealed and written
        // before that, and must not look empty to the cleaner (C4).
        let payload_at =
            payload_at.map(|offset| self.geometry.address(frame.segment, u64::from(offset)));
        match (record.fields.kind, payload_at) {
            (kind, _) if kind.is_tombstone() => segment.add_tombstone(seqno, bytes),
            (Kind::Object, _) => segment.add_pinned(seqno),
            (_, Some(payload_at)) => self.table.add_live(payload_at, payload as i64),
            (_, None) => self.table.add_live(address, i64::from(bytes)),
        }
        self.next_seqno += 1;
        self.pending_bytes += size.bytes();
        self.appended_bytes += size.bytes();
        self.pending_records += 1;
        if self.oldest_pending.is_none() {
            self.oldest_pending = Some(Instant::now());
        }
        if record.purpose != Purpose::Survivor {
            self.pending_user_bytes += size.bytes();
            self.clock += size.bytes();
        }
        Ok(Appended {
            address,
            seqno,
            payload: payload_at,
        })
    }

    /// The head a record goes to: its own, after moving it to a fresh segment if need be.
    /// When free segments are nearly gone a survivor may go to another class with room left, so
    /// that cleaning needs no more than one fresh segment at a time.
    fn head_with_room(&mut self, record: &NewRecord<'_>, size: Size) -> Result<usize, NoRoom> {
        let wanted = usize::from(record.head);
        if self.fits(wanted, size) {
            return Ok(wanted);
        }
        if record.purpose == Purpose::Survivor {
            match survivor_room(self.free.len() as u64, self.emptied_count() as u64) {
                SurvivorRoom::Open => {}
                SurvivorRoom::Commit => return Err(NoRoom),
                SurvivorRoom::Nearest => {
                    let classes = 0..usize::from(COMMIT_STREAM);
                    let with_room = classes.filter(|&head| self.fits(head, size));
                    if let Some(other) = with_room.min_by_key(|head| head.abs_diff(wanted)) {
                        return Ok(other);
                    }
                }
            }
        }
        let held = self.held(record.purpose);
        if self.free.len() <= self.floor(record.purpose, 0) + held {
            return Err(NoRoom);
        }
        self.roll(wanted)?;
        assert!(self.fits(wanted, size), "a record fits in a fresh segment");
        Ok(wanted)
    }

    pub(super) fn start_frame(
        &mut self,
        head_index: usize,
        seqno: Seqno,
        first: Option<SegmentHeader>,
    ) {
        let Some(segment) = self.heads[head_index].segment else {
            unreachable!("a frame is started in a segment")
        };
        let mut bytes = self.buffers.pop().unwrap_or_default();
        bytes.clear();
        let frame_offset = self.heads[head_index].next;
        let mut write_offset = frame_offset;
        if first.is_some() {
            bytes.resize(self.geometry.header_bytes() as usize);
            write_offset = 0;
        }
        let at = bytes.len();
        bytes.resize(at + first_record_offset(self.geometry.unit_bytes) as usize);
        let head = &mut self.heads[head_index];
        head.next = frame_offset + first_record_offset(self.geometry.unit_bytes) as u32;
        head.frame = Some(Frame {
            segment,
            seed: self.table.segment(segment).seed(),
            write_offset,
            header: first,
            frame_offset,
            bytes,
            data_end: 0,
            records: 0,
            base_seqno: seqno,
            last_seqno: seqno,
            seals: false,
            area: None,
        });
    }

    /// Pads the head's frame to whole blocks and puts it aside for the group.
    pub(super) fn close_frame(&mut self, head_index: usize, seals: bool) {
        let head = &mut self.heads[head_index];
        let Some(mut frame) = head.frame.take() else {
            return;
        };
        frame.data_end = frame.area.map_or(frame.end(), |area| area.next);
        frame.bytes.pad_to(self.geometry.block_bytes as usize);
        frame.seals = seals;
        head.next = frame.end();
        self.closed.push(frame);
    }

    /// Seals the head's segment; its last frame says so, unless the segment is full to the
    /// last block (D6).
    fn seal(&mut self, head_index: usize) {
        let Some(segment) = self.heads[head_index].segment else {
            return;
        };
        if self.heads[head_index].frame.is_none()
            && u64::from(self.heads[head_index].next) < self.geometry.segment_bytes
        {
            // An empty frame: its seqno range is the one before the next record.
            self.start_frame(head_index, self.next_seqno - 1, None);
        }
        self.close_frame(head_index, true);
        self.table
            .segment(segment)
            .seal(self.heads[head_index].next, self.clock);
        self.heads[head_index] = Head::default();
    }

    /// Seals all heads, for an orderly stop.
    pub(crate) fn seal_all(&mut self) {
        for head_index in 0..HEAD_COUNT {
            self.seal(head_index);
        }
    }

    /// Moves the head to a fresh segment.
    fn roll(&mut self, head_index: usize) -> Result<(), NoRoom> {
        let segment = self.free.pop_front().ok_or(NoRoom)?;
        self.seal(head_index);
        let header = self.begin_life(segment, Class::Data(head_index as u8));
        self.table
            .segment(segment)
            .begin(State::Open, head_index as u8, header.seed(), self.clock);
        let head = &mut self.heads[head_index];
        head.segment = Some(segment);
        head.next = self.geometry.header_bytes() as u32;
        let seqno = self.next_seqno;
        self.start_frame(head_index, seqno, Some(header));
        Ok(())
    }

    /// The header of a segment taken into use now.
    fn begin_life(&self, segment: SegmentId, class: Class) -> SegmentHeader {
        let entry = self.table.segment(segment);
        if entry.generation() == 0 {
            entry.set_generation(1);
        }
        SegmentHeader {
            geometry: self.geometry,
            segment,
            class,
            generation: entry.generation(),
            epoch: self.epoch,
            opened_seqno: self.next_seqno,
            group: self.next_group,
            opened_clock: self.clock,
            extents: None,
        }
    }

    /// Takes a free segment for checkpoint pieces, leaving `floor` behind. The next group
    /// writes its header: so headers become durable in the order segments are first used,
    /// and a hole among them is damage (D8).
    pub(crate) fn take_for_checkpoint(&mut self, floor: usize) -> Result<SegmentHeader, NoRoom> {
        if self.free.len() <= floor {
            return Err(NoRoom);
        }
        let segment = self.free.pop_front().ok_or(NoRoom)?;
        let header = self.begin_life(segment, Class::Checkpoint);
        self.table
            .segment(segment)
            .begin(State::Checkpoint, 0, header.seed(), self.clock);
        self.headers.push((segment, header));
        Ok(header)
    }

    /// Closes the group being filled and hands it over to be written. `durable` is the last
    /// durable seqno. `None` when there is nothing to write.
    pub(crate) fn close_group(&mut self, durable: Seqno) -> Option<Group> {
        assert!(self.in_flight.is_empty(), "one group is written at a time");
        for head_index in 0..HEAD_COUNT {
            self.close_frame(head_index, false);
            self.heads[head_index].wanted_area = 0;
        }
        let mut headers = self.take_frees(durable);
        let freeing = headers.len();
        headers.append(&mut self.headers);
        for (_, header) in &mut headers {
            header.extents = Some(self.extents);
        }
        if self.closed.is_empty() && headers.is_empty() {
            return None;
        }
        self.freeing = freeing;
        let id = self.next_group;
        self.next_group += 1;
        let mut frames = std::mem::take(&mut self.closed);
        let frame_count = frames.len() as u16;
        for (frame_index, frame) in (0..).zip(frames.iter_mut()) {
            self.finish_header(frame, id, frame_index, frame_count);
        }
        self.in_flight = frames.into_iter().map(Arc::new).collect();
        let frame_bytes: u64 = self
            .in_flight
            .iter()
            .map(|frame| frame.bytes.len() as u64)
            .sum();
        self.overhead_bytes +=
            frame_bytes - self.pending_bytes + headers.len() as u64 * self.geometry.header_bytes();
        self.in_flight_bytes = std::mem::take(&mut self.pending_bytes);
        self.pending_records = 0;
        self.oldest_pending = None;
        for (extent, head) in self.extents.iter_mut().zip(&self.heads) {
            *extent = head.segment.map_or_else(Extent::default, |segment| Extent {
                segment,
                end: head.next,
            });
        }
        Some(Group {
            frames: self.in_flight.clone(),
            last_seqno: self.next_seqno - 1,
            headers,
            writers: std::mem::take(&mut self.writers),
            user_bytes: std::mem::take(&mut self.pending_user_bytes),
        })
    }

    fn finish_header(&self, frame: &mut Frame, group: u64, frame_index: u16, frame_count: u16) {
        let header = FrameHeader {
            frame_bytes: frame.end() - frame.frame_offset,
            data_bytes: frame.data_end - frame.frame_offset,
            record_count: frame.records,
            seals: frame.seals,
            payload: frame.area.is_some(),
            frame_index,
            frame_count,
            group,
            base_seqno: frame.base_seqno,
            last_seqno: frame.last_seqno,
            clock: self.clock,
            extents: self.extents,
        };
        if let Some(first) = &mut frame.header {
            first.extents = Some(self.extents);
            first.encode(&mut frame.bytes);
        }
        let at = (frame.frame_offset - frame.write_offset) as usize;
        header.encode(
            frame.seed,
            u64::from(frame.frame_offset),
            &mut frame.bytes[at..],
        );
    }

    fn take_frees(&mut self, durable: Seqno) -> Vec<(SegmentId, SegmentHeader)> {
        let (ready, waiting) = std::mem::take(&mut self.emptied)
            .into_iter()
            .partition(|(_, needed)| *needed <= durable);
        self.emptied = waiting;
        let ready: Vec<(SegmentId, Seqno)> = ready;
        let free_header = |(segment, _): (SegmentId, Seqno)| {
            let entry = self.table.segment(segment);
            entry.set_generation(entry.generation() + 1);
            (segment, self.begin_life(segment, Class::Free))
        };
        ready.into_iter().map(free_header).collect()
    }

    /// The group reached media: its segments can be read from the device, and what it freed
    /// can be used.
    pub(crate) fn group_written(&mut self, group: Group) {
        for frame in &group.frames {
            self.table.segment(frame.segment).set_written(frame.end());
        }
        for (segment, header) in &group.headers {
            if header.class == Class::Free {
                self.table.segment(*segment).set_state(State::Free);
                self.free.push_back(*segment);
            }
        }
        self.freeing = 0;
        self.rounds += 1;
        self.in_flight_bytes = 0;
        drop(group);
        for frame in std::mem::take(&mut self.in_flight) {
            if let Ok(frame) = Arc::try_unwrap(frame) {
                self.keep_buffer(frame.bytes);
            }
        }
    }

    fn keep_buffer(&mut self, buffer: AlignedBuf) {
        if self.buffers.len() < SPARE_BUFFERS && buffer.capacity() <= SPARE_BUFFER_BYTES {
            self.buffers.push(buffer);
        }
    }

    /// A segment whose content is not needed once all seqnos assigned so far are durable.
    pub(crate) fn emptied(&mut self, segment: SegmentId) {
        self.table.segment(segment).set_state(State::Emptied);
        self.emptied.push((segment, self.next_seqno - 1));
    }

    /// Takes a never-used segment to prepare it.
    pub(crate) fn take_unwritten(&mut self) -> Option<SegmentId> {
        self.unwritten.pop_front()
    }

    /// Takes a free segment to give its blocks back, if more than `keep` are free.
    pub(crate) fn take_surplus(&mut self, keep: usize) -> Option<SegmentId> {
        if self.free.len() <= keep {
            None
        } else {
            self.free.pop_back()
        }
    }

    /// Gives a prepared segment to the free list.
    pub(crate) fn prepared(&mut self, segment: SegmentId) {
        self.table.segment(segment).set_state(State::Free);
        self.free.push_back(segment);
    }

    /// Puts a segment whose blocks were given back among those to prepare before use.
    pub(crate) fn discarded(&mut self, segment: SegmentId) {
        self.table.segment(segment).set_state(State::Unwritten);
        self.unwritten.push_back(segment);
    }

    /// The header that says a segment is free, in this state of the counters. It is written
    /// outside of groups, so it says nothing of any group (it does not prove one flushed).
    pub(crate) fn free_header(&self, segment: SegmentId, class: Class) -> SegmentHeader {
        SegmentHeader {
            group: 0,
            ..self.begin_life(segment, class)
        }
    }

    /// Copies bytes of a record that is not on the device yet; false when it is not here.
    pub(crate) fn copy_pending(&self, segment: SegmentId, offset: u32, into: &mut [u8]) -> bool {
        let open = self.heads.iter().filter_map(|head| head.frame.as_ref());
        let flying = self.in_flight.iter().map(|frame| &**frame);
        for frame in open.chain(&self.closed).chain(flying) {
            if frame.holds(segment, offset) {
                let at = (offset - frame.write_offset) as usize;
                let Some(bytes) = frame.bytes.get(at..at + into.len()) else {
                    return false;
                };
                into.copy_from_slice(bytes);
                return true;
            }
        }
        false
    }
}
