//! The records of one segment in memory, damaged or not.
//!
//! Frames follow one another; where one does not verify, the walk looks for the next block
//! that begins a frame of the same life, and for records between the two: a record
//! verifies on its own, by the segment's seed and its offset. What is lost with a frame
//! header is the seqno of its records, of which the neighbours give bounds.

use crate::Result;
use crate::format::{
    EXTENT_KEY_BYTES, ExtentRecord, FrameHeader, Invalid, Kind, RECORD_HEADER_BYTES, Record, Seed,
    SegmentHeader, Seqno, bytes::u64_at, first_record_offset, parse_record,
};

use super::ends::Tail;

/// The search for records in a gap hashes at most this many times the gap, and a constant:
/// crafted bytes must not make it quadratic.
const SALVAGE_FACTOR: u64 = 64;
const SALVAGE_BYTES: u64 = 64 << 20;

/// A record found.
pub(super) struct Located<'a> {
    pub(super) record: Record<'a>,
    pub(super) seqno: Seqno,
    /// Whether the seqno is its own and not a guess from below.
    pub(super) exact: bool,
    /// Byte offset in the segment.
    pub(super) offset: u64,
    /// Of an extent, where its payload is; `None` when damage hides it.
    pub(super) payload: Option<PayloadAt>,
}

/// The payload of an extent record.
#[derive(Debug, Clone, Copy)]
pub(super) struct PayloadAt {
    /// Byte offset in the segment.
    pub(super) offset: u64,
    pub(super) bytes: u32,
    /// Whether the bytes there are what the record says, as far as they were read.
    pub(super) is_sound: bool,
}

/// Bytes that should be records and are not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// Byte offsets in the segment.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Whether the frame around it verifies.
    pub(super) in_frame: bool,
    /// Whether records may be missing, or all were found.
    pub(super) loses: bool,
    /// A missing record has a seqno below this.
    pub(super) before: Seqno,
    /// Whether there should be records, for sure.
    pub(super) certain: bool,
    pub(super) why: Invalid,
}

/// A frame header that verifies.
pub(super) struct FrameAt {
    pub(super) header: FrameHeader,
    /// Byte offset in the segment.
    pub(super) offset: u64,
    /// Whether all its records and their payload verify.
    pub(super) is_whole: bool,
}

/// What a walk meets, in the order of offsets; a frame comes before its records.
pub(super) enum Item<'a> {
    Frame(FrameAt),
    Record(Located<'a>),
    Gap(Gap),
}

/// Where a walk ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// Byte offset in the segment after the last frame.
    pub(super) offset: u64,
    /// Whether nothing can follow.
    pub(super) sealed: bool,
    pub(super) last_seqno: Seqno,
}

/// One life of a segment, in memory.
pub(super) struct Life<'a> {
    pub(super) bytes: &'a [u8],
    /// Byte offset in the segment at which `bytes` starts.
    pub(super) base: u64,
    pub(super) header: SegmentHeader,
    /// Frames of later groups do not exist.
    pub(super) last_group: u64,
    /// Whether `bytes` has payload too.
    pub(super) has_payload: bool,
}

/// A visitor of items.
pub(super) type Visitor<'v, 'a> = dyn FnMut(Item<'a>) -> Result<()> + 'v;

impl<'a> Life<'a> {
    fn seed(&self) -> Seed {
        self.header.seed()
    }

    fn frame_at(&self, offset: u64) -> std::result::Result<FrameHeader, Invalid> {
        let geometry = &self.header.geometry;
        let bytes = self
            .bytes
            .get((offset - self.base) as usize..)
            .ok_or(Invalid::Truncated)?;
        let frame = FrameHeader::decode(bytes, self.seed(), offset, geometry.segment_bytes)?;
        if frame.frame_bytes % geometry.block_bytes != 0 {
            return Err(Invalid::Field("frame length"));
        }
        Ok(frame)
    }

    /// The next frame of this life at or after `offset`, and the header's fault at `offset`.
    fn next_frame(&self, offset: u64) -> Option<(u64, FrameHeader)> {
        let step = self.header.geometry.block_bytes as usize;
        (offset..self.header.geometry.segment_bytes)
            .step_by(step)
            .find_map(|at| Some((at, self.frame_at(at).ok()?)))
            .filter(|(_, frame)| frame.group <= self.last_group)
    }

    /// Visits frames, records and gaps.
    pub(super) fn walk(&self, visitor: &mut Visitor<'_, 'a>) -> Result<End> {
        let geometry = &self.header.geometry;
        let mut end = End {
            offset: geometry.header_bytes(),
            sealed: false,
            last_seqno: self.header.opened_seqno.saturating_sub(1),
        };
        let mut group = 0;
        while end.offset < geometry.segment_bytes && !end.sealed {
            let Some((at, frame)) = self.next_frame(end.offset) else {
                break;
            };
            if frame.group < group {
                // Only a crafted store: a life's groups ascend.
                break;
            }
            if at > end.offset {
                let place = Tail {
                    to: at,
                    before: frame.base_seqno,
                    certain: true,
                };
                self.gap(end, place, visitor)?;
            }
            self.frame(at, &frame, visitor)?;
            group = frame.group;
            end.offset = at + u64::from(frame.frame_bytes);
            end.sealed = frame.seals;
            end.last_seqno = end.last_seqno.max(frame.last_seqno);
        }
        end.sealed |= end.offset >= geometry.segment_bytes;
        Ok(end)
    }

    /// Visits the frame at a byte offset in the segment, if there is one.
    pub(super) fn visit_frame(&self, offset: u64, visitor: &mut Visitor<'_, 'a>) -> Result<()> {
        match self.frame_at(offset) {
            Ok(frame) => self.frame(offset, &frame, visitor),
            Err(_) => Ok(()),
        }
    }

    /// Whether a walk meets no damage.
    pub(super) fn is_whole(&self) -> bool {
        let mut whole = true;
        let walked = self.walk(&mut |item| {
            whole &= match item {
                Item::Gap(_) => false,
                Item::Frame(frame) => frame.is_whole,
                Item::Record(_) => true,
            };
            Ok(())
        });
        walked.is_ok() && whole
    }

    fn frame(&self, at: u64, frame: &FrameHeader, visitor: &mut Visitor<'_, 'a>) -> Result<()> {
        let unit = self.header.geometry.unit_bytes;
        let from = at + first_record_offset(unit);
        let to = at + u64::from(frame.data_bytes);
        // Runs of records between gaps.
        let mut runs: Vec<Vec<(u64, Record<'a>)>> = vec![Vec::new()];
        let mut gaps = Vec::new();
        let mut pos = from;
        let mut count = 0;
        while pos < to && count < frame.record_count {
            match self.record_at(pos, to) {
                Ok(record) => {
                    let bytes = record.length.units() * u64::from(unit);
                    if let Some(run) = runs.last_mut() {
                        run.push((pos, record));
                    }
                    pos += bytes;
                    count += 1;
                }
                Err(why) => {
                    let next = self.salvage(pos + u64::from(unit), to).next();
                    let next = next.map_or(to, |(offset, _)| offset);
                    gaps.push((pos, next, why));
                    runs.push(Vec::new());
                    pos = next;
                }
            }
        }
        let sum: u64 = runs.iter().flatten().map(|(_, record)| record.delta).sum();
        let last = frame.base_seqno.saturating_add(sum);
        let counted = count == frame.record_count && gaps.is_empty();
        let is_whole = counted && (last == frame.last_seqno || count == 0) && pos <= to;
        if !is_whole && gaps.is_empty() {
            gaps.push((from, to, Invalid::Field("frame content")));
        }
        let payloads = self.payloads(at, frame, &runs);
        let is_sound = |payload: &Option<PayloadAt>| payload.is_some_and(|it| it.is_sound);
        visitor(Item::Frame(FrameAt {
            header: *frame,
            offset: at,
            is_whole: is_whole && payloads.iter().flatten().all(is_sound),
        }))?;
        self.runs(frame, &runs, &payloads, is_whole, visitor)?;
        for (from, to, why) in gaps {
            visitor(Item::Gap(Gap {
                from,
                to,
                in_frame: true,
                loses: count < frame.record_count || !counted,
                before: frame.last_seqno.saturating_add(1),
                certain: true,
                why,
            }))?;
        }
        Ok(())
    }

    /// Where the payload of a frame's records is, `Some` for extents. Payload ends where the
    /// frame ends and begins, if nothing was reserved, on the block after the records: so that
    /// of the last run is told from the end, that of others from the start if it verifies.
    fn payloads(
        &self,
        at: u64,
        frame: &FrameHeader,
        runs: &[Vec<(u64, Record<'a>)>],
    ) -> Vec<Option<Option<PayloadAt>>> {
        let geometry = &self.header.geometry;
        let extent_of = |record: &Record<'a>| {
            let extent = ExtentRecord::decode(record.key, record.value).ok()?;
            let is_blocks = extent.payload_bytes.is_multiple_of(geometry.block_bytes);
            (record.kind == Kind::Extent && is_blocks && frame.payload).then_some(extent)
        };
        let payload_at = |extent: &ExtentRecord<'a>, offset: u64| {
            let from = offset.checked_sub(self.base).map(|from| from as usize);
            let bytes = from.and_then(|from| {
                let to = from.checked_add(extent.payload_bytes as usize)?;
                self.bytes.get(from..to)
            });
            PayloadAt {
                offset,
                bytes: extent.payload_bytes,
                is_sound: !self.has_payload
                    || bytes.is_some_and(|bytes| extent.verify_payload(bytes).is_ok()),
            }
        };
        let mut payloads = Vec::new();
        let mut from_start = geometry.round_to_block(at + u64::from(frame.data_bytes));
        for (number, run) in runs.iter().enumerate() {
            let is_last = number + 1 == runs.len();
            let all: u64 = run
                .iter()
                .filter_map(|(_, record)| extent_of(record))
                .map(|extent| u64::from(extent.payload_bytes))
                .sum();
            let end = at + u64::from(frame.frame_bytes);
            let mut next = if is_last {
                end.checked_sub(all).filter(|next| *next >= from_start)
            } else {
                Some(from_start)
            };
            for (_, record) in run {
                if record.kind != Kind::Extent {
                    payloads.push(None);
                    continue;
                }
                let found = extent_of(record)
                    .zip(next)
                    .map(|(extent, offset)| payload_at(&extent, offset));
                next = found.map(|found| found.offset + u64::from(found.bytes));
                let found = found.filter(|found| is_last || found.is_sound);
                payloads.push(Some(found));
            }
            from_start = next.unwrap_or(end);
        }
        payloads
    }

    /// Gives records their seqnos: those before the first gap count from the frame's first,
    /// those after the last gap back from its last.
    fn runs(
        &self,
        frame: &FrameHeader,
        runs: &[Vec<(u64, Record<'a>)>],
        payloads: &[Option<Option<PayloadAt>>],
        is_whole: bool,
        visitor: &mut Visitor<'_, 'a>,
    ) -> Result<()> {
        let mut payloads = payloads.iter();
        let mut seqno = frame.base_seqno;
        for (index, run) in runs.iter().enumerate() {
            let is_first = index == 0;
            let is_last = index + 1 == runs.len();
            let tail: u64 = run.iter().skip(1).map(|(_, record)| record.delta).sum();
            let from_end = frame.last_seqno.saturating_sub(tail);
            for (number, (offset, record)) in run.iter().enumerate() {
                seqno = match number {
                    0 if !is_first && is_last => from_end.max(seqno),
                    _ => seqno.saturating_add(record.delta),
                };
                visitor(Item::Record(Located {
                    record: *record,
                    seqno: seqno.min(frame.last_seqno.max(frame.base_seqno)),
                    exact: is_whole || is_first || is_last,
                    offset: *offset,
                    payload: payloads.next().copied().flatten().flatten(),
                }))?;
            }
        }
        Ok(())
    }

    /// Visits what verifies between two frames.
    fn gap(&self, end: End, place: Tail, visitor: &mut Visitor<'_, 'a>) -> Result<()> {
        let (from, last_seqno) = (end.offset, end.last_seqno);
        let (to, next_seqno) = (place.to, place.before);
        let mut found = 0;
        let mut seqno = last_seqno;
        let mut end = from;
        for (offset, record) in self.salvage(from, to) {
            let follows = found > 0 && offset == end;
            seqno = seqno.saturating_add(if follows { record.delta.max(1) } else { 1 });
            end = offset + record.length.units() * u64::from(self.header.geometry.unit_bytes);
            found += 1;
            visitor(Item::Record(Located {
                record,
                seqno: seqno.min(next_seqno.saturating_sub(1)),
                exact: false,
                offset,
                payload: None,
            }))?;
        }
        let missing = next_seqno.saturating_sub(last_seqno).saturating_sub(1);
        visitor(Item::Gap(Gap {
            from,
            to,
            in_frame: false,
            loses: found < missing,
            before: next_seqno,
            certain: place.certain,
            why: self.frame_at(from).err().unwrap_or(Invalid::Checksum),
        }))
    }

    /// Visits what verifies after the last frame, where acknowledged data should be.
    pub(super) fn tail(&self, end: End, tail: Tail, visitor: &mut Visitor<'_, 'a>) -> Result<()> {
        self.gap(end, tail, visitor)
    }

    /// The record at a byte offset in the segment, which ends before `to`.
    pub(super) fn record_at(
        &self,
        offset: u64,
        to: u64,
    ) -> std::result::Result<Record<'a>, Invalid> {
        let bytes = self
            .bytes
            .get((offset - self.base) as usize..(to - self.base) as usize)
            .ok_or(Invalid::Truncated)?;
        parse_record(bytes, self.seed(), offset, self.header.geometry.unit_bytes)
    }

    /// Records that verify in a range, at any unit.
    fn salvage(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Record<'a>)> + '_ {
        let unit = u64::from(self.header.geometry.unit_bytes);
        let mut budget = to
            .saturating_sub(from)
            .saturating_mul(SALVAGE_FACTOR)
            .saturating_add(SALVAGE_BYTES);
        let mut pos = from.next_multiple_of(unit);
        std::iter::from_fn(move || {
            while pos < to && budget > 0 {
                let at = pos;
                let Some(bytes) = plausible_bytes(self.bytes, at - self.base, to - self.base)
                else {
                    pos += unit;
                    continue;
                };
                budget = budget.saturating_sub(bytes);
                match self.record_at(at, to) {
                    Ok(record) => {
                        pos += (record.length.units() * unit).max(unit);
                        return Some((at, record));
                    }
                    Err(_) => pos += unit,
                }
            }
            None
        })
    }
}

/// Bytes that verifying a record at `offset` would hash; `None` when there can be none.
fn plausible_bytes(bytes: &[u8], offset: u64, to: u64) -> Option<u64> {
    let packed = u64_at(bytes.get(offset as usize..)?, 8).ok()?;
    let (key_bytes, value_bytes) = (packed & 0x1_ffff, packed >> 17 & 0x3ff_ffff);
    let kind = Kind::decode(packed >> 43 & 7).ok()?;
    let len = RECORD_HEADER_BYTES as u64 + key_bytes + value_bytes;
    // Zeros must not look like records.
    let may_be = kind != Kind::Extent || key_bytes == EXTENT_KEY_BYTES as u64;
    (may_be && offset + len <= to).then_some(len)
}

/// Kind and key of a record that does not verify, as its header has them: to be believed
/// only if something else bears it out.
pub(super) fn claimed(bytes: &[u8]) -> Option<(Kind, &[u8])> {
    let packed = u64_at(bytes, 8).ok()?;
    let key_bytes = (packed & 0x1_ffff) as usize;
    let kind = Kind::decode(packed >> 43 & 7).ok()?;
    let key = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + key_bytes)?;
    Some((kind, key))
}
