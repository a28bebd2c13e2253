//! Recovery: from whatever a crash left to exactly the acknowledged writes.
//!
//! 1. Read every segment's header, and the newest readable root.
//! 2. Load the newest image of every partition, or the older one where it is damaged.
//! 3. Replay: merge the frames of all segments the images do not cover, group by group,
//!    in the order of seqnos.
//! 4. Groups are flushed one after another, so only the last group of the crashed epoch
//!    can be incomplete: it counts if all its frames are there and verify, else none of it
//!    does (D4, D5). A frame missing anywhere before it is damage, not the end of the log.
//! 5. Make what was accepted durable, then a new open-epoch and the cut (D7). Only then
//!    may anything be served or written. Old segments are never appended to.

mod covered;
mod ends;
mod pieces;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::device::{AlignedBuf, Device, ReadOp};
use crate::format::{
    Class, Cut, Extent, Geometry, HEAD_COUNT, ImageRef, Invalid, PieceHeader, PieceKind, Root,
    SegmentHeader, SegmentId, Seqno,
};
use crate::sync::{Arc, SharedArc};
use crate::{Error, Result};

use pieces::{newest_root, read_piece, restore_headers};

use super::applier::Appliers;
use super::scanner::read_retrying;
use super::{
    Log, LogOptions, Owner, READ_RETRIES, ScannedFrame, SegmentScanner, SegmentTable, Start, State,
    Superblocks,
};

/// Segments read side by side that keep what they read ahead, 1 MiB each: more than were
/// ever open at once, so that only a log that nothing wrote is read more than once.
const WINDOWS_MAX: usize = 2 * HEAD_COUNT;

/// What a segment's first block says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found {
    /// A header of this store.
    Header(SegmentHeader),
    /// Never used: zeros, or a header of another store.
    Blank,
    /// Neither.
    Damaged(Invalid),
}

/// Reads the headers of all segments.
pub(crate) fn read_headers(device: &dyn Device, geometry: &Geometry) -> Result<Vec<Found>> {
    const AT_ONCE: u32 = 256;
    let block = geometry.header_bytes() as usize;
    let mut found = Vec::with_capacity(geometry.segment_count as usize);
    let mut blocks = AlignedBuf::zeroed(block * AT_ONCE as usize);
    let mut first = 0;
    while first < geometry.segment_count {
        let count = AT_ONCE.min(geometry.segment_count - first);
        let mut ops: Vec<ReadOp<'_>> = (first..first + count)
            .zip(blocks.chunks_exact_mut(block))
            .map(|(segment, into)| ReadOp {
                offset: geometry.segment_offset(segment),
                into,
            })
            .collect();
        let read = device.read_many(&mut ops);
        for (segment, bytes) in (first..first + count).zip(blocks.chunks_exact(block)) {
            let parsed = if read.is_ok() {
                parse_header(bytes, geometry, segment)
            } else {
                Found::Blank
            };
            found.push(match parsed {
                Found::Header(header) => Found::Header(header),
                _ => reread_header(device, geometry, segment)?,
            });
        }
        first += count;
    }
    Ok(found)
}

pub(crate) fn parse_header(bytes: &[u8], geometry: &Geometry, segment: SegmentId) -> Found {
    match SegmentHeader::decode(bytes) {
        Ok(header) if header.geometry.uuid != geometry.uuid => Found::Blank,
        Ok(header) if header.segment == segment && header.geometry == *geometry => {
            Found::Header(header)
        }
        Ok(_) => Found::Damaged(Invalid::Field("segment header")),
        Err(_) if bytes.iter().all(|byte| *byte == 0) => Found::Blank,
        Err(why) => Found::Damaged(why),
    }
}

/// A header that was not there is read again: one bad read must not lose a segment.
pub(crate) fn reread_header(
    device: &dyn Device,
    geometry: &Geometry,
    segment: SegmentId,
) -> Result<Found> {
    let mut block = AlignedBuf::zeroed(geometry.header_bytes() as usize);
    let mut found = Found::Blank;
    for _ in 0..READ_RETRIES {
        read_retrying(device, geometry.segment_offset(segment), &mut block)?;
        found = parse_header(&block, geometry, segment);
        if matches!(found, Found::Header(_)) {
            break;
        }
    }
    Ok(found)
}

/// Opens the log of an existing store and brings its owner up to date.
pub(crate) fn open_log(
    device: SharedArc<dyn Device>,
    superblocks: Superblocks,
    options: LogOptions,
    owner: &dyn Owner,
) -> Result<Log> {
    let geometry = superblocks.current.geometry;
    if geometry.block_bytes < device.block_bytes() {
        return Err(Error::InvalidArgument(
            "the device's blocks are larger than the store's",
        ));
    }
    let mut headers = read_headers(&*device, &geometry)?;
    let wants_prewrite = device.wants_prewrite();
    let table = Arc::new(SegmentTable::new(geometry));
    let log = Log::new(device, options, Arc::clone(&table), superblocks);
    let root = newest_root(&log, &headers)?;
    let restored = restore_headers(&log, &mut headers, &root);
    fill_table(&table, &headers, wants_prewrite);
    table.defer_total();
    let mut replay = Replay::new(&log, &headers, root);
    replay.restored = restored;
    replay.load_images(owner)?;
    replay.run(owner)?;
    owner.replayed(&log)?;
    table.sum_up();
    replay.finish(owner)?;
    Ok(log)
}

pub(super) fn fill_table(table: &SegmentTable, headers: &[Found], wants_prewrite: bool) {
    let segment_bytes = |header: &SegmentHeader| header.geometry.segment_bytes as u32;
    for ((_, segment), found) in table.iter().zip(headers) {
        match found {
            Found::Header(header) => {
                segment.set_generation(header.generation);
                match header.class {
                    Class::Free => segment.set_state(State::Free),
                    Class::Discarded => segment.set_state(State::Unwritten),
                    Class::Checkpoint => {
                        segment.begin(State::Checkpoint, 0, header.seed(), header.opened_clock);
                        segment.set_written(segment_bytes(header));
                    }
                    Class::Data(head) => {
                        segment.begin(State::Open, head, header.seed(), header.opened_clock);
                        segment.set_written(segment_bytes(header));
                        segment.seal(segment_bytes(header), header.opened_clock);
                    }
                }
            }
            _ if wants_prewrite => segment.set_state(State::Unwritten),
            _ => segment.set_state(State::Free),
        }
    }
}

pub(super) fn header_of(found: &Found) -> Option<SegmentHeader> {
    match found {
        Found::Header(header) => Some(*header),
        _ => None,
    }
}

struct Replay<'a> {
    log: &'a Log,
    headers: &'a [Found],
    /// Headers of checkpoint segments that were damaged.
    restored: Vec<SegmentHeader>,
    root: Root,
    /// Every write before it is in the loaded images.
    horizon: Seqno,
    used_older: bool,
    /// The epoch whose last group may be incomplete; `None` after a clean stop.
    unsettled: Option<u64>,
    accepted_group: u64,
    accepted_seqno: Seqno,
    seen_group: u64,
    seen_seqno: Seqno,
    seen_unsettled: bool,
    clock: u64,
    /// How far the heads' segments had been filled before a group, as the newest group says
    /// that frames or headers of the unsettled epoch, or the root, are of.
    extents: [Extent; HEAD_COUNT],
    extents_group: u64,
    /// Scanned segments that were not sealed: header and end of the frames seen.
    unsealed: Vec<(SegmentHeader, u64)>,
    /// Segments with frames of the dropped last group, and where those begin.
    dropped: BTreeMap<SegmentId, u64>,
    /// Groups of the unsettled epoch up to this one were flushed, whatever became of their
    /// frames since.
    flushed_group: u64,
}

impl<'a> Replay<'a> {
    fn new(log: &'a Log, headers: &'a [Found], root: Root) -> Self {
        let superblock = log.superblocks.lock().current.clone();
        let clean = superblock.clean;
        let headers_found = || headers.iter().filter_map(header_of);
        let newest_group = |epoch: Option<u64>| {
            headers_found()
                .filter(|header| epoch.is_none_or(|epoch| header.epoch == epoch))
                .map(|header| header.group)
                .max()
                .unwrap_or(0)
        };
        let opened_seqno = headers_found()
            .filter(|header| matches!(header.class, Class::Data(_)))
            .map(|header| header.opened_seqno)
            .max();
        // A header of group n is written when group n - 1 has been flushed, and a root is
        // named when all groups begun before it was made have been.
        let flushed_group = newest_group(Some(superblock.epoch))
            .max(root.next_group)
            .saturating_sub(1);
        let mut replay = Self {
            log,
            headers,
            restored: Vec::new(),
            horizon: Seqno::MAX,
            used_older: false,
            unsettled: if clean.is_some() {
                None
            } else {
                Some(superblock.epoch)
            },
            accepted_group: superblock.cuts.last().map_or(0, |cut| cut.group),
            accepted_seqno: root.next_seqno.saturating_sub(1),
            seen_group: clean
                .map_or(root.next_group, |clean| {
                    clean.next_group.max(root.next_group)
                })
                .saturating_sub(1)
                .max(newest_group(None)),
            // Seqnos that headers name count as seen, so that a root always has a higher
            // one than the segments it covers.
            seen_seqno: clean
                .map_or(0, |clean| clean.next_seqno.saturating_sub(1))
                .max(root.next_seqno.saturating_sub(1))
                .max(opened_seqno.unwrap_or(0)),
            seen_unsettled: false,
            clock: clean.map_or(0, |clean| clean.clock).max(root.clock),
            extents: root.extents,
            extents_group: root.next_group,
            unsealed: Vec::new(),
            dropped: BTreeMap::new(),
            flushed_group,
            root,
        };
        for header in headers_found().filter(|header| header.epoch == superblock.epoch) {
            if let Some(extents) = &header.extents {
                replay.note_extents(header.group, extents);
            }
        }
        replay
    }

    fn load_images(&mut self, owner: &dyn Owner) -> Result<()> {
        let count = owner.partition_count();
        if self.root.partitions.len() > count as usize {
            return Err(Error::Corrupt {
                offset: 0,
                why: Invalid::Field("partitions of the root"),
            });
        }
        let next = crate::sync::AtomicU64::new(0);
        let loader = || -> Result<(Seqno, Vec<u32>)> {
            let (mut horizon, mut damaged) = (Seqno::MAX, Vec::new());
            loop {
                let partition = next.fetch_add(1, crate::sync::Ordering::Relaxed) as u32;
                if partition >= count {
                    return Ok((horizon, damaged));
                }
                let (lowest, used_older) = self.load_partition(owner, partition)?;
                horizon = horizon.min(lowest);
                if used_older {
                    damaged.push(partition);
                }
            }
        };
        let loaded = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(loader)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join())
                .collect::<Vec<_>>()
        });
        let mut lowest = Seqno::MAX;
        for outcome in loaded {
            let (horizon, damaged) = match outcome {
                Ok(outcome) => outcome?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            lowest = lowest.min(horizon);
            for partition in damaged {
                self.used_older = true;
                // The damaged image must not become the older one of the next root.
                if let Some(images) = self.root.partitions.get_mut(partition as usize) {
                    images.newest = images.older.clone();
                    let horizon = images.newest.as_ref().map_or(0, |image| image.horizon);
                    self.root.newest_horizon = self.root.newest_horizon.min(horizon);
                }
            }
        }
        self.horizon = lowest;
        self.add_partitions(count);
        Ok(())
    }

    /// Loads a partition's newest readable image; returns its horizon and whether it is the
    /// older one.
    fn load_partition(&self, owner: &dyn Owner, partition: u32) -> Result<(Seqno, bool)> {
        let Some(images) = self.root.partitions.get(partition as usize) else {
            // Before the first root everything is in the log; else see `add_partitions`.
            let is_new = !self.root.partitions.is_empty();
            return Ok((if is_new { Seqno::MAX } else { 0 }, false));
        };
        let Some(newest) = &images.newest else {
            return Ok((0, false));
        };
        let damage = match self.load_image(owner, partition, newest)? {
            Ok(()) => return Ok((newest.horizon, false)),
            Err(damage) => damage,
        };
        tracing::warn!(
            partition,
            "newest checkpoint image is damaged, using the older one"
        );
        owner.clear_partition(self.log, partition);
        let Some(older) = &images.older else {
            // There was none before: the log has everything.
            if self.root.older_horizon <= 1 {
                return Ok((0, true));
            }
            return Err(damage);
        };
        self.load_image(owner, partition, older)??;
        Ok((older.horizon, true))
    }

    /// `Ok(Err(_))` when the image is damaged.
    fn load_image(
        &self,
        owner: &dyn Owner,
        partition: u32,
        image: &ImageRef,
    ) -> Result<Result<()>> {
        for (index, piece) in (0..).zip(&image.pieces) {
            let expected = PieceHeader {
                kind: PieceKind::Image,
                partition,
                index,
                sequence: image.sequence,
            };
            let body = match read_piece(self.log, self.headers, *piece, expected) {
                Ok(body) => body,
                Err(damage @ Error::Corrupt { .. }) => return Ok(Err(damage)),
                Err(Error::Io { op, offset, source }) => {
                    return Ok(Err(Error::Io { op, offset, source }));
                }
                Err(other) => return Err(other),
            };
            if let Err(why) = owner.load_image(self.log, partition, &body) {
                let offset =
                    self.log.geometry.segment_offset(piece.segment) + u64::from(piece.offset);
                return Ok(Err(Error::Corrupt { offset, why }));
            }
        }
        if owner.partition_is_whole(partition) {
            return Ok(Ok(()));
        }
        Ok(Err(Error::Corrupt {
            offset: 0,
            why: Invalid::Missing("part of an image"),
        }))
    }

    fn run(&mut self, owner: &dyn Owner) -> Result<()> {
        self.check_holes()?;
        let log = self.log;
        std::thread::scope(|scope| {
            let appliers = Appliers::start(scope, log, owner);
            let scanned = self.scan(&appliers);
            // What a lane met comes first in the log.
            appliers.finish().and(scanned)
        })?;
        self.check_ends()
    }

    fn scan(&mut self, appliers: &Appliers<'_>) -> Result<()> {
        let device = &*self.log.device;
        let mut to_open = self.segments_to_scan().into_iter().peekable();
        let mut scanners: Vec<SegmentScanner> = Vec::new();
        let mut heap: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        loop {
            let next_open = to_open.peek().map(|header| header.group);
            let next_frame = heap.peek().map(|Reverse((group, _))| *group);
            let Some(group) = next_open.into_iter().chain(next_frame).min() else {
                break;
            };
            while let Some(header) = to_open.next_if(|header| header.group <= group) {
                let scanner = SegmentScanner::new(header, self.last_group_of(header.epoch));
                let mut scanner = scanner.records_only();
                let next = scanner.peek(device)?;
                if next.is_none() || heap.len() >= WINDOWS_MAX {
                    scanner.rest();
                }
                if let Some(frame) = next {
                    heap.push(Reverse((frame.group, scanners.len())));
                }
                scanners.push(scanner);
                self.saw(header.epoch, header.group);
            }
            let mut frames = Vec::new();
            while heap.peek().is_some_and(|Reverse((at, _))| *at == group) {
                let Some(Reverse((_, index))) = heap.pop() else {
                    break;
                };
                let Some(scanner) = scanners.get_mut(index) else {
                    break;
                };
                while scanner
                    .peek(device)?
                    .is_some_and(|header| header.group == group)
                {
                    let end = scanner.end();
                    if let Some(frame) = scanner.take(device)? {
                        frames.push((frame, scanner.header.epoch, end));
                    }
                }
                match scanner.peek(device)? {
                    Some(frame) if frame.group > group => {
                        if heap.len() >= WINDOWS_MAX {
                            scanner.rest();
                        }
                        heap.push(Reverse((frame.group, index)));
                    }
                    Some(_) => {
                        let offset = self.log.geometry.segment_offset(scanner.header.segment);
                        return Err(Error::Corrupt {
                            offset,
                            why: Invalid::Field("order of groups"),
                        });
                    }
                    None => scanner.rest(),
                }
            }
            let is_last = heap.is_empty() && to_open.peek().is_none();
            let accepted = self.group(group, &frames, is_last)?;
            for (frame, epoch, _) in &frames {
                self.saw(*epoch, frame.header.group);
            }
            let frames = frames.into_iter().map(|(frame, _, _)| frame).collect();
            if accepted && !appliers.send(frames) {
                break;
            }
        }
        for scanner in &mut scanners {
            self.check_gap(scanner)?;
            scanner.rest();
            self.scanned(scanner);
        }
        Ok(())
    }

    fn last_group_of(&self, epoch: u64) -> u64 {
        let superblocks = self.log.superblocks.lock();
        let cut = superblocks
            .current
            .cuts
            .iter()
            .find(|cut| cut.epoch == epoch);
        cut.map_or(u64::MAX, |cut| cut.group)
    }

    fn saw(&mut self, epoch: u64, group: u64) {
        self.seen_group = self.seen_group.max(group);
        self.seen_unsettled |= Some(epoch) == self.unsettled;
    }

    /// Accepts (true) or drops one group, all frames of which are at hand.
    fn group(
        &mut self,
        group: u64,
        frames: &[(ScannedFrame, u64, u64)],
        is_last: bool,
    ) -> Result<bool> {
        for (frame, epoch, _) in frames {
            self.seen_seqno = self.seen_seqno.max(frame.header.last_seqno);
            if Some(*epoch) == self.unsettled {
                self.note_extents(group, &frame.header.extents);
            }
        }
        let unsettled = frames
            .iter()
            .any(|(_, epoch, _)| Some(*epoch) == self.unsettled);
        // A group known to be flushed counts even if it is not complete any more: what is
        // missing is in the images, or was freed since.
        let may_drop = is_last && group > self.flushed_group && (unsettled || frames.is_empty());
        if may_drop && !self.is_complete(frames) {
            tracing::info!(group, "the last group commit is incomplete: dropped");
            for (frame, _, _) in frames {
                let first = self.dropped.entry(frame.segment).or_insert(frame.offset);
                *first = frame.offset.min(*first);
            }
            return Ok(false);
        }
        if frames.is_empty() {
            return Ok(false);
        }
        self.accepted_group = group;
        for (frame, _, _) in frames {
            self.clock = self.clock.max(frame.header.clock);
            self.accepted_seqno = self.accepted_seqno.max(frame.header.last_seqno);
            let segment = self.log.table.segment(frame.segment);
            segment.set_last_seqno(segment.last_seqno().max(frame.header.last_seqno));
        }
        Ok(true)
    }

    fn is_complete(&self, frames: &[(ScannedFrame, u64, u64)]) -> bool {
        let Some((first, _, _)) = frames.first() else {
            return false;
        };
        frames.len() == usize::from(first.header.frame_count)
            && frames.iter().all(|(frame, _, _)| {
                frame
                    .verify_on_device(&*self.log.device, &self.log.geometry)
                    .is_ok()
            })
    }

    fn scanned(&mut self, scanner: &SegmentScanner) {
        if !scanner.is_sealed() {
            self.unsealed.push((scanner.header, scanner.end()));
        }
    }

    /// Sets the counters and, unless read-only, makes the new epoch and the cut durable.
    fn finish(self, owner: &dyn Owner) -> Result<()> {
        let log = self.log;
        self.check_live()?;
        self.note_covered(owner.has_operations());
        let mut superblocks = log.superblocks.lock();
        let old_epoch = superblocks.current.epoch;
        if !log.options.read_only {
            self.free_holes()?;
            for header in &self.restored {
                log.write_header(header)?;
            }
            let horizon = self.root.older_horizon;
            let mut cuts = superblocks.current.cuts.clone();
            cuts.retain(|cut| cut.is_needed(horizon));
            cuts.extend(self.cut(old_epoch));
            log.retire_surplus(&mut cuts, self.headers)?;
            log.flush_device()?;
            superblocks.update(&*log.device, |next| {
                next.cuts = cuts;
                next.epoch += 1;
                next.clean = None;
            })?;
        } else {
            // In memory only: who inspects the store must know what does not count.
            let cut = self.cut(old_epoch);
            superblocks.current.cuts.extend(cut);
        }
        let start = Start {
            epoch: superblocks.current.epoch,
            // After a crash one seqno is left out: images taken from now on have a higher
            // horizon than any taken before the crash, see `Cut::is_needed`.
            next_seqno: self.seen_seqno.max(self.accepted_seqno)
                + 1
                + u64::from(self.unsettled.is_some()),
            next_group: self.seen_group.max(self.accepted_group) + 1,
            clock: self.clock,
        };
        drop(superblocks);
        log.begin(start, self.root, self.headers, owner);
        Ok(())
    }

    fn cut(&self, epoch: u64) -> Option<Cut> {
        if !self.seen_unsettled {
            return None;
        }
        let mut ends: BTreeMap<SegmentId, u64> = self
            .unsealed
            .iter()
            .map(|(header, end)| (header.segment, *end))
            .collect();
        // Frames of a dropped group do not count, nor does the seal one of them may carry.
        ends.extend(&self.dropped);
        let counts = |segment: SegmentId| {
            matches!(self.headers.get(segment as usize), Some(Found::Header(header))
                if header.epoch == epoch && header.group <= self.accepted_group)
        };
        let mut extents = [Extent::default(); HEAD_COUNT];
        let open = ends.into_iter().filter(|(segment, _)| counts(*segment));
        for (extent, (segment, end)) in extents.iter_mut().zip(open) {
            *extent = Extent {
                segment,
                end: end as u32,
            };
        }
        Some(Cut {
            epoch,
            group: self.accepted_group,
            seqno: self.accepted_seqno,
            extents,
        })
    }

    /// Blank headers below one in use are those of an unflushed group: they get a free
    /// header now, so that a hole always is damage.
    fn free_holes(&self) -> Result<()> {
        let class = if self.log.device.wants_prewrite() {
            Class::Discarded
        } else {
            Class::Free
        };
        let end = self
            .headers
            .iter()
            .rposition(|found| matches!(found, Found::Header(_)))
            .unwrap_or(0);
        for (segment, found) in (0..).zip(self.headers).take(end) {
            if matches!(found, Found::Blank) {
                self.log.write_free_header(segment, class)?;
            }
        }
        Ok(())
    }

    fn check_live(&self) -> Result<()> {
        for (id, segment) in self.log.table.iter() {
            let live = segment.live_bytes();
            if live == 0 || (live > 0 && segment.state() == State::Sealed) {
                continue;
            }
            let offset = self.log.geometry.segment_offset(id);
            return Err(Error::Corrupt {
                offset,
                why: Invalid::Missing("a segment with live records"),
            });
        }
        Ok(())
    }
}
