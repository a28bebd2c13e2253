//! The space thread: prepares unused segments, empties victims, gives surplus back.
//!
//! The loop here is mechanism; who is cleaned, and where survivors go, is `policy`'s and
//! the owner's choice. A victim is freed in two group commits: the first makes everything
//! durable that was written before its last record was looked at (survivors, and the writes
//! that made the rest dead), the second overwrites its header (D9).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::device::{AlignedBuf, WriteOp};
use crate::format::{Class, Invalid, SegmentHeader, SegmentId};
use crate::sync::Ordering;
use crate::{Error, Result};

use super::ahead::{ReadAhead, read_ahead, read_first};
use super::policy::{Candidate, cleaning_threshold_segments, select_victims};
use super::recovery::{Found, parse_header, reread_header};
use super::{
    Appender, Counters, Log, NoRoom, Owner, Position, Purpose, ScannedFrame, SegmentScanner, State,
};

/// Segments prepared with one flush.
const PREPARE_AT_ONCE: usize = 4;
/// Segments given back with one flush.
const DISCARD_AT_ONCE: usize = 16;
/// Bytes written at a time when a segment is prepared.
const PREPARE_BYTES: usize = 4 << 20;
/// How often an idle space thread looks around.
const TICK: Duration = Duration::from_millis(200);
/// With this many free segments or fewer, emptied ones are committed before cleaning goes on.
const COMMIT_BELOW: usize = 5;
/// The same while the flusher commits: cleaning goes on beside it.
const AWAIT_BELOW: usize = 2;
/// The flusher is asked for a commit when so many victims wait for one.
const COMMIT_VICTIMS: usize = 3;
/// Victims chosen at once.
const CHOOSE: usize = 4;
/// How soon it looks again while somebody waits for room.
const RETRY: Duration = Duration::from_millis(1);
/// Tombstones and operations that replay needs ask for a checkpoint at this share of the capacity.
const TOMBSTONE_SHARE: u64 = 32;
/// Victims cleaned for each segment of callers' writes while nobody waits, at most.
const VICTIMS_A_SEGMENT: u64 = 64;
/// So many images of every partition give hope while callers wait: two generations, and one
/// for what was under way. Images are written for ever else, and nobody is told that there is no
/// space.
const RENEWALS: u64 = 3;
/// A victim must give back at least this share of a segment.
const GAIN_SHARE: u64 = 128;

/// Bounds cleaning that gains nothing: the last percent of a full store can be gained by
/// copying everything again and again.
pub(crate) struct Effort {
    clock: u64,
    horizon: u64,
    /// Victims after which those who wait are told that there is no space.
    patience: u64,
    /// Victims cleaned since a caller wrote or a checkpoint let tombstones go.
    fruitless: u64,
    /// Bytes of victims that may be cleaned while nobody waits.
    credit: u64,
    segment_bytes: u64,
    asked_at: Option<u64>,
    /// Victims chosen before, best first.
    chosen: VecDeque<SegmentId>,
    /// Bytes of tombstones that replay needs, when they were chosen.
    held_bytes: u64,
    /// Partitions imaged when a caller last wrote.
    imaged_before: u64,
    /// Images of every partition since then have been enough.
    is_renewed: bool,
    /// Reads the next victim meanwhile. Whoever has it has the flusher too, and leaves
    /// commits to it.
    ahead: Option<ReadAhead>,
    window: AlignedBuf,
    frame: Vec<u8>,
}

impl Effort {
    pub(crate) fn new(segment_count: u32, segment_bytes: u64) -> Self {
        let patience = 2 * u64::from(segment_count);
        Self {
            clock: 0,
            horizon: 0,
            patience,
            fruitless: 0,
            credit: patience * segment_bytes,
            segment_bytes,
            asked_at: None,
            chosen: VecDeque::new(),
            held_bytes: 0,
            imaged_before: 0,
            is_renewed: false,
            ahead: None,
            window: AlignedBuf::new(),
            frame: Vec::new(),
        }
    }

    /// `imaged` partitions since the log was opened, of `partitions`.
    fn observe(&mut self, clock: u64, horizon: u64, imaged: u64, partitions: u64) {
        if clock != self.clock {
            let written = clock.saturating_sub(self.clock);
            let earned = written.saturating_mul(VICTIMS_A_SEGMENT);
            let most = self.patience * self.segment_bytes;
            self.credit = self.credit.saturating_add(earned).min(most);
            self.clock = clock;
            self.fruitless = 0;
            self.imaged_before = imaged;
        }
        self.is_renewed = imaged - self.imaged_before >= RENEWALS * partitions;
        if horizon != self.horizon {
            self.horizon = horizon;
            if !self.is_renewed {
                self.fruitless = 0;
            }
        }
    }

    fn may_clean(&self, starving: bool) -> bool {
        if starving {
            self.fruitless < self.patience
        } else {
            self.credit >= self.segment_bytes
        }
    }

    fn cleaned(&mut self) {
        self.fruitless += 1;
        self.credit = self.credit.saturating_sub(self.segment_bytes);
    }

    /// Whether newer images may still make anything superfluous.
    fn may_checkpoint(&self) -> bool {
        !self.is_renewed
    }

    /// Whether to ask for newer images: once for each horizon.
    fn may_ask(&mut self) -> bool {
        self.may_checkpoint() && self.asked_at.replace(self.horizon) != Some(self.horizon)
    }
}

impl Log {
    /// Free segments, emptied ones included, below which cleaning runs.
    pub(super) fn low_water(&self, appender: &Appender) -> usize {
        let kept = appender.floor(Purpose::User, 0);
        cleaning_threshold_segments(kept as u64) as usize + appender.slack()
    }

    /// The space thread.
    pub(crate) fn cleaner(&self, owner: &dyn Owner) {
        let (ahead, reader) = read_ahead();
        let mut effort = Effort::new(self.geometry.segment_count, self.geometry.segment_bytes);
        effort.ahead = Some(ahead);
        std::thread::scope(|scope| {
            scope.spawn(|| reader.run(&*self.device, &self.geometry));
            // Takes its end of the reader along, which ends that one too.
            self.clean(owner, effort);
        });
    }

    fn clean(&self, owner: &dyn Owner, mut effort: Effort) {
        let mut last_tick = Instant::now();
        let mut last_appended = 0;
        while !self.is_stopping() {
            let made = {
                let _upkeep = self.upkeep.lock();
                owner.tidy(self);
                self.make_space(owner, &mut effort)
            };
            match made {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, "making space failed");
                    if self.is_stopping() {
                        return;
                    }
                    self.give_up();
                }
            }
            if self.is_starving() {
                // Those who wait have patience for a few rounds only.
                let appender = self.appender.lock();
                drop(self.work.wait_for(appender, RETRY));
                continue;
            }
            let appender = self.appender.lock();
            let appended = appender.appended_bytes();
            let idle_for = last_tick.elapsed();
            if idle_for >= TICK && appended == last_appended {
                drop(appender);
                let _upkeep = self.upkeep.lock();
                let _ = self.discard_surplus(idle_for);
                last_tick = Instant::now();
            } else {
                if appended != last_appended {
                    last_appended = appended;
                    last_tick = Instant::now();
                }
                drop(self.work.wait_for(appender, TICK));
            }
        }
    }

    /// One step towards enough free segments; false when there is nothing to do.
    pub(crate) fn make_space(&self, owner: &dyn Owner, effort: &mut Effort) -> Result<bool> {
        let (free, emptied, unwritten, low_water) = {
            let appender = self.appender.lock();
            (
                appender.free_count(),
                appender.emptied_count(),
                appender.unwritten_count(),
                self.low_water(&appender),
            )
        };
        let starving = self.is_starving();
        if unwritten > 0 && (free < low_water + PREPARE_AT_ONCE || starving) {
            self.prepare_some()?;
            return Ok(true);
        }
        let (commit_below, has_flusher) = match effort.ahead {
            Some(_) => (AWAIT_BELOW, true),
            None => (COMMIT_BELOW, false),
        };
        if free <= commit_below && emptied > 0 {
            // What is emptied comes back before more is cleaned: else survivors of all
            // classes would have to share heads.
            self.commit(effort)?;
            return Ok(true);
        }
        if free + emptied < low_water || (starving && emptied == 0) {
            let done = self.clean_one(owner, effort, starving)?;
            if done && has_flusher && self.appender.lock().emptied_count() >= COMMIT_VICTIMS {
                self.ask_commit();
            }
            return Ok(done);
        }
        if starving || (free < low_water && emptied > 0) {
            self.commit(effort)?;
            return Ok(true);
        }
        // Segments with nothing in them cost nothing to free.
        if let Some(victim) = self.find_empty() {
            self.empty(owner, victim, effort)?;
            return Ok(true);
        }
        if emptied > 0 && self.appender.lock().pending_bytes() == 0 {
            self.commit_now()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// A commit: the flusher's, where there is one.
    fn commit(&self, effort: &Effort) -> Result<()> {
        if effort.ahead.is_some() {
            self.await_commit()
        } else {
            self.commit_now()
        }
    }

    fn is_sealed(&self, segment: &super::Segment) -> bool {
        segment.state() == State::Sealed && segment.written() >= segment.end()
    }

    fn is_victim(&self, segment: &super::Segment) -> bool {
        self.is_sealed(segment) && !segment.is_quarantined()
    }

    /// Whether cleaning the segment gives enough back.
    fn gains(&self, segment: &super::Segment, horizon: u64) -> bool {
        let needed = u64::from(segment.needed_tombstone_bytes(horizon));
        let live_bytes = segment.live_bytes().max(0) as u64 + needed;
        let segment_bytes = self.geometry.segment_bytes;
        live_bytes + segment_bytes / GAIN_SHARE <= segment_bytes
    }

    fn sealed(&self) -> impl Iterator<Item = (SegmentId, &super::Segment)> {
        self.table
            .iter()
            .filter(|(_, segment)| self.is_sealed(segment))
    }

    fn victims(&self) -> impl Iterator<Item = (SegmentId, &super::Segment)> {
        self.table
            .iter()
            .filter(|(_, segment)| self.is_victim(segment))
    }

    fn find_empty(&self) -> Option<SegmentId> {
        let horizon = self.older_horizon.load(Ordering::Relaxed);
        // Also of those with damage: nothing in them has to be read any more.
        self.sealed()
            .find(|(_, segment)| {
                segment.live_bytes() == 0
                    && segment.needed_tombstone_bytes(horizon) == 0
                    && !segment.is_pinned(horizon)
            })
            .map(|(id, _)| id)
    }

    fn is_starving(&self) -> bool {
        self.starving.load(Ordering::Relaxed) > 0
    }

    fn clean_one(&self, owner: &dyn Owner, effort: &mut Effort, starving: bool) -> Result<bool> {
        let horizon = self.older_horizon.load(Ordering::Relaxed);
        let segment_bytes = self.geometry.segment_bytes;
        let clock = self.appender.lock().clock();
        let imaged = self.counters.partitions_imaged.load(Ordering::Relaxed);
        effort.observe(clock, horizon, imaged, u64::from(owner.partition_count()));
        // What was chosen before is good enough, as long as it is a victim at all.
        effort.chosen.retain(|segment| {
            let entry = self.table.segment(*segment);
            self.is_victim(entry) && self.gains(entry, horizon)
        });
        if effort.chosen.len() < 2 {
            // Bytes of tombstones, and dead bytes beside operations, that replay needs.
            let mut held_bytes = 0;
            let candidates = self.victims().filter_map(|(segment, entry)| {
                let needed = u64::from(entry.needed_tombstone_bytes(horizon));
                held_bytes += needed;
                if entry.is_pinned(horizon) {
                    // What is dead in it is not to be had, but for newer images.
                    let live_bytes = entry.live_bytes().max(0) as u64 + needed;
                    held_bytes += u64::from(entry.end()).saturating_sub(live_bytes);
                    return None;
                }
                self.gains(entry, horizon).then(|| Candidate {
                    segment,
                    live_bytes: entry.live_bytes().max(0) as u64 + needed,
                    age: clock.saturating_sub(entry.sealed_clock()),
                })
            });
            let chosen = select_victims(candidates, segment_bytes, CHOOSE);
            effort.chosen = chosen.iter().map(|victim| victim.segment).collect();
            effort.held_bytes = held_bytes;
        }
        let held_bytes = effort.held_bytes;
        let victim = effort.chosen.front().copied();
        if held_bytes > self.geometry.capacity / TOMBSTONE_SHARE && effort.may_ask() {
            let all_twice = 2 * u64::from(owner.partition_count());
            self.wants_checkpoint.store(all_twice, Ordering::Relaxed);
            self.work.notify_all();
        }
        match victim {
            Some(victim) if effort.may_clean(starving) => {
                effort.cleaned();
                effort.chosen.pop_front();
                self.empty(owner, victim, effort)?;
                Ok(true)
            }
            _ if self.appender.lock().emptied_count() > 0 => {
                self.commit_now()?;
                Ok(true)
            }
            _ if !starving => Ok(false),
            _ if self.appender.lock().unwritten_bytes() > 0 => {
                // What is sealed and not written yet may be the victim that is looked for.
                self.commit_now()?;
                Ok(true)
            }
            _ if effort.may_checkpoint()
                && (held_bytes > 0
                    || self.images_are_scattered(owner)
                    || self.images_are_behind()) =>
            {
                // Newer images make tombstones and operations superfluous, lie close together,
                // and need no more room kept for them.
                match self.checkpoint_for_cleaner(owner) {
                    Some(Ok(_)) => Ok(true),
                    Some(Err(Error::NoSpace { .. })) => {
                        self.give_up();
                        Ok(false)
                    }
                    Some(Err(error)) => Err(error),
                    None => {
                        // Another is under way, and may wait for the room that it will make.
                        if self.checkpoint_waits.load(Ordering::Relaxed) {
                            self.give_up();
                        }
                        Ok(false)
                    }
                }
            }
            _ => {
                self.give_up();
                Ok(false)
            }
        }
    }

    /// Whether images hold more segments than they would if they were written anew: each
    /// open begins two more.
    fn images_are_scattered(&self, owner: &dyn Owner) -> bool {
        let least = (2 * owner.image_bytes()).div_ceil(self.geometry.segment_bytes) + 2;
        self.table.count(State::Checkpoint) > least
    }

    /// Empties one victim.
    fn empty(&self, owner: &dyn Owner, victim: SegmentId, effort: &mut Effort) -> Result<()> {
        let horizon = self.older_horizon.load(Ordering::Relaxed);
        let segment = self.table.segment(victim);
        segment.set_state(State::Cleaning);
        let mut whole = true;
        if segment.live_bytes() > 0 || segment.needed_tombstone_bytes(horizon) > 0 {
            match self.relocate_all(owner, victim, horizon, effort) {
                Ok(read_all) => whole = read_all,
                Err(error) => {
                    segment.set_state(State::Sealed);
                    return Err(error);
                }
            }
        }
        let tombstones_lost = !whole && segment.needed_tombstone_bytes(horizon) > 0;
        if segment.live_bytes() != 0 || tombstones_lost {
            // Records that cannot be read stay where they are, so that reading them says so.
            tracing::error!(segment = victim, "records of a segment cannot be read");
            segment.quarantine();
            segment.set_state(State::Sealed);
            return Ok(());
        }
        self.appender.lock().emptied(victim);
        Counters::add(&self.counters.victims_cleaned, 1);
        Ok(())
    }

    /// Relocates every record of a victim that can be read; says whether that was all.
    fn relocate_all(
        &self,
        owner: &dyn Owner,
        victim: SegmentId,
        horizon: u64,
        effort: &mut Effort,
    ) -> Result<bool> {
        let first = self.first_bytes(victim, effort);
        let parsed = first.as_ref().map(|bytes| {
            let header_bytes = self.geometry.header_bytes() as usize;
            parse_header(&bytes[..header_bytes], &self.geometry, victim)
        });
        let (header, first) = match parsed {
            Some(Found::Header(header)) => (header, first),
            _ => match reread_header(&*self.device, &self.geometry, victim) {
                Ok(Found::Header(header)) => (header, None),
                Ok(_) | Err(Error::Io { .. }) => return Ok(false),
                Err(other) => return Err(other),
            },
        };
        let spare = std::mem::take(&mut effort.frame);
        let mut scanner = SegmentScanner::new(header, u64::MAX)
            .past_bad_blocks()
            .with_memory(first.unwrap_or_default(), spare);
        let whole = self.relocate_scanned(owner, victim, horizon, &mut scanner)?;
        (effort.window, effort.frame) = scanner.into_memory();
        Ok(whole)
    }

    /// The first bytes of a victim, where they can be read; those of the next one are read
    /// meanwhile.
    fn first_bytes(&self, victim: SegmentId, effort: &mut Effort) -> Option<AlignedBuf> {
        let next = effort.chosen.front().copied();
        let window = &mut effort.window;
        let taken = effort.ahead.as_mut().and_then(|ahead| {
            let taken = ahead.take(victim, self.table.segment(victim).seed(), window);
            if let Some(next) = next {
                ahead.ask(next, self.table.segment(next).seed());
            }
            taken
        });
        taken.or_else(|| {
            let mut bytes = std::mem::take(window);
            read_first(&*self.device, &self.geometry, victim, &mut bytes).then_some(bytes)
        })
    }

    fn relocate_scanned(
        &self,
        owner: &dyn Owner,
        victim: SegmentId,
        horizon: u64,
        scanner: &mut SegmentScanner,
    ) -> Result<bool> {
        let segment = self.table.segment(victim);
        let mut whole = true;
        loop {
            while let Some(frame) = scanner.take(&*self.device)? {
                match self.relocate_frame(owner, victim, &frame, horizon) {
                    Err(Error::Corrupt { offset, why }) => {
                        Counters::add(&self.counters.read_errors, 1);
                        tracing::error!(offset, %why, "a record in a victim is damaged");
                        whole = false;
                    }
                    other => other?,
                }
                scanner.done_with(frame);
            }
            // Where a segment that a crash cut short ends is not known here.
            let end_known = u64::from(segment.end()) < self.geometry.segment_bytes;
            if scanner.is_sealed() || (end_known && scanner.end() >= u64::from(segment.end())) {
                return Ok(whole && !scanner.met_bad_blocks());
            }
            let found_more = scanner.resync(&*self.device)?;
            whole &= !found_more && !end_known;
            if !found_more {
                return Ok(whole && !scanner.met_bad_blocks());
            }
        }
    }

    fn relocate_frame(
        &self,
        owner: &dyn Owner,
        victim: SegmentId,
        frame: &ScannedFrame,
        horizon: u64,
    ) -> Result<()> {
        let segment = self.table.segment(victim);
        let (head, clock) = (segment.head(), segment.mean_clock());
        let mut damage = Ok(());
        frame.visit(&self.geometry, &mut |found| {
            let mut payload: &[u8] = &[];
            let mut payload_at = None;
            if let Some(found) = found.payload {
                let verified = frame.is_verified() || found.verify().is_ok();
                let Some(offset) = found.offset.filter(|_| verified) else {
                    // It stays, so that reading it says so; what comes after it may move.
                    damage = Err(Error::Corrupt {
                        offset: self.geometry.segment_offset(victim) + frame.offset,
                        why: Invalid::Checksum,
                    });
                    return Ok(());
                };
                payload = found.bytes;
                payload_at = Some(self.geometry.address(victim, offset));
            }
            let address = self.geometry.address(victim, found.offset);
            let position = Position {
                address,
                seqno: found.seqno,
                head,
                payload: payload_at,
            };
            let mut attempts = 0;
            loop {
                match owner.relocate(self, &found.record, payload, position, clock, horizon) {
                    Ok(_) => return Ok(()),
                    Err(NoRoom) if attempts < 4 => {
                        attempts += 1;
                        self.commit_now()?;
                    }
                    Err(NoRoom) => return Err(Error::NoSpace { what: "capacity" }),
                }
            }
        })?;
        damage
    }

    /// Writes zeros into never-used segments, so that later small writes into them need no
    /// work of the file system.
    pub(super) fn prepare_some(&self) -> Result<()> {
        let mut taken = Vec::new();
        {
            let mut appender = self.appender.lock();
            while taken.len() < PREPARE_AT_ONCE {
                let Some(segment) = appender.take_unwritten() else {
                    break;
                };
                taken.push(segment);
            }
        }
        if self.device.wants_prewrite() {
            for segment in &taken {
                self.prewrite(*segment).inspect_err(|_| self.poison())?;
            }
            self.flush_device().inspect_err(|_| self.poison())?;
        }
        let mut appender = self.appender.lock();
        for segment in taken {
            appender.prepared(segment);
        }
        self.space.notify_all();
        Ok(())
    }

    fn prewrite(&self, segment: SegmentId) -> Result<()> {
        let segment_bytes = self.geometry.segment_bytes as usize;
        let mut zeros = AlignedBuf::zeroed(PREPARE_BYTES.min(segment_bytes));
        let start = self.geometry.segment_offset(segment);
        let entry = self.table.segment(segment);
        entry.set_generation(entry.generation() + 1);
        let header = self.appender.lock().free_header(segment, Class::Free);
        for at in (0..segment_bytes).step_by(zeros.len()) {
            if at == 0 {
                header.encode(&mut zeros);
            }
            let op = WriteOp {
                offset: start + at as u64,
                data: &zeros,
            };
            self.device.write_many(&[op]).map_err(|source| Error::Io {
                op: "write",
                offset: op.offset,
                source,
            })?;
            Counters::add(&self.counters.prewrite_bytes, zeros.len() as u64);
            if at == 0 {
                let header_bytes = self.geometry.header_bytes() as usize;
                zeros[..header_bytes].fill(0);
            }
        }
        Ok(())
    }

    /// Writes a header that says a segment holds nothing. Not flushed.
    pub(crate) fn write_free_header(&self, segment: SegmentId, class: Class) -> Result<()> {
        let entry = self.table.segment(segment);
        entry.set_generation(entry.generation() + 1);
        let header = self.appender.lock().free_header(segment, class);
        self.write_header(&header)
    }

    /// Writes a segment's header; the caller flushes.
    pub(super) fn write_header(&self, header: &SegmentHeader) -> Result<()> {
        let mut block = AlignedBuf::zeroed(self.geometry.header_bytes() as usize);
        header.encode(&mut block);
        let offset = self.geometry.segment_offset(header.segment);
        self.device
            .write_many(&[WriteOp {
                offset,
                data: &block,
            }])
            .map_err(|source| Error::Io {
                op: "write",
                offset,
                source,
            })
    }

    /// Gives the blocks of surplus free segments back to the device, at a bounded rate and a
    /// few at a time: a slow device must hold up neither a stop nor those who wait for room.
    fn discard_surplus(&self, elapsed: Duration) -> Result<()> {
        let rate = self.options.discard_bytes_per_second as f64;
        let budget = (rate * elapsed.as_secs_f64()) as u64 / self.geometry.segment_bytes;
        let mut left = usize::try_from(budget).unwrap_or(usize::MAX);
        while left > 0 && !self.is_stopping() && !self.is_starving() {
            let discarded = self.discard_some(left.min(DISCARD_AT_ONCE))?;
            if discarded == 0 {
                break;
            }
            left -= discarded;
        }
        Ok(())
    }

    fn discard_some(&self, count: usize) -> Result<usize> {
        let mut taken = Vec::new();
        {
            let mut appender = self.appender.lock();
            let keep = 2 * self.low_water(&appender) + PREPARE_AT_ONCE;
            while taken.len() < count {
                let Some(segment) = appender.take_surplus(keep) else {
                    break;
                };
                taken.push(segment);
            }
        }
        if taken.is_empty() {
            return Ok(0);
        }
        for segment in &taken {
            self.write_free_header(*segment, Class::Discarded)
                .inspect_err(|_| self.poison())?;
        }
        self.flush_device().inspect_err(|_| self.poison())?;
        for segment in &taken {
            // The header stays: a generation must never come twice.
            let start = self.geometry.segment_offset(*segment);
            let kept = self.geometry.header_bytes().max(4096);
            let len = self.geometry.segment_bytes - kept;
            if self.device.discard(start + kept, len).is_ok() {
                Counters::add(&self.counters.discarded_bytes, len);
            }
            self.appender.lock().discarded(*segment);
        }
        Ok(taken.len())
    }
}
