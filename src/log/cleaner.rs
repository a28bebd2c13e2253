//! The space thread: prepares unused segments, empties victims, gives surplus back.
//!
//! The loop here is mechanism; who is cleaned, and where survivors go, is `policy`'s and
//! the owner's choice. A victim is freed in two group commits: the first makes everything
//! durable that was written before its last record was looked at (survivors, and the writes
//! that made the rest dead), the second overwrites its header (D9).

use std::time::{Duration, Instant};

use crate::device::{AlignedBuf, WriteOp};
use crate::format::{Class, SegmentId};
use crate::sync::Ordering;
use crate::{Error, Result};

use super::policy::{Candidate, select_victim};
use super::recovery::Found;
use super::{
    Counters, GROUP_BYTES, Log, NoRoom, Owner, Position, RESERVE, ScannedFrame, SegmentScanner,
    State,
};

/// Segments prepared with one flush.
const PREPARE_AT_ONCE: usize = 4;
/// Bytes written at a time when a segment is prepared.
const PREPARE_BYTES: usize = 4 << 20;
/// How often an idle space thread looks around.
const TICK: Duration = Duration::from_millis(200);
/// With this many free segments or fewer, emptied ones are committed before cleaning goes on.
const COMMIT_BELOW: usize = 5;
/// A victim must give back at least this share of a segment.
const GAIN_SHARE: u64 = 128;

impl Log {
    /// Free segments below which cleaning runs: the reserve, and what the groups in the air
    /// take before an emptied segment comes back.
    fn low_water(&self) -> usize {
        let margin = 2 + 2 * GROUP_BYTES / self.geometry.segment_bytes;
        let most = (u64::from(self.geometry.segment_count) / 16).max(2);
        RESERVE.user + margin.min(most) as usize
    }

    /// The space thread.
    pub(crate) fn cleaner(&self, owner: &dyn Owner) {
        let mut last_tick = Instant::now();
        let mut last_appended = 0;
        while !self.is_stopping() {
            match self.make_space(owner) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, "making space failed");
                    if self.is_stopping() {
                        return;
                    }
                }
            }
            let appender = self.appender.lock();
            let appended = appender.appended_bytes();
            let idle_for = last_tick.elapsed();
            if idle_for >= TICK && appended == last_appended {
                drop(appender);
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
    pub(crate) fn make_space(&self, owner: &dyn Owner) -> Result<bool> {
        let (free, emptied, unwritten) = {
            let appender = self.appender.lock();
            (
                appender.free_count(),
                appender.emptied_count(),
                appender.unwritten_count(),
            )
        };
        let starving = self.starving.load(Ordering::Relaxed) > 0;
        let low_water = self.low_water();
        if unwritten > 0 && (free < low_water + PREPARE_AT_ONCE || starving) {
            self.prepare_some()?;
            return Ok(true);
        }
        if free <= COMMIT_BELOW && emptied > 0 {
            // What is emptied comes back before more is cleaned: else survivors of all
            // classes would have to share heads.
            self.commit_now()?;
            return Ok(true);
        }
        if free + emptied < low_water || (starving && emptied == 0) {
            return self.clean_one(owner);
        }
        if starving || (free < low_water && emptied > 0) {
            self.commit_now()?;
            return Ok(true);
        }
        // Segments with nothing in them cost nothing to free.
        if let Some(victim) = self.find_empty() {
            self.empty(owner, victim)?;
            return Ok(true);
        }
        if emptied > 0 && self.appender.lock().pending_bytes() == 0 {
            self.commit_now()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn victims(&self) -> impl Iterator<Item = (SegmentId, &super::Segment)> {
        self.table.iter().filter(|(_, segment)| {
            segment.state() == State::Sealed
                && segment.written() >= segment.end()
                && !segment.is_quarantined()
        })
    }

    fn find_empty(&self) -> Option<SegmentId> {
        let horizon = self.older_horizon.load(Ordering::Relaxed);
        self.victims()
            .find(|(_, segment)| {
                segment.live_bytes() == 0 && segment.needed_tombstone_bytes(horizon) == 0
            })
            .map(|(id, _)| id)
    }

    fn clean_one(&self, owner: &dyn Owner) -> Result<bool> {
        let horizon = self.older_horizon.load(Ordering::Relaxed);
        let segment_bytes = self.geometry.segment_bytes;
        let clock = self.appender.lock().clock();
        let mut tombstones = false;
        let candidates = self.victims().filter_map(|(segment, entry)| {
            let needed = u64::from(entry.needed_tombstone_bytes(horizon));
            tombstones |= needed > 0;
            let live_bytes = entry.live_bytes().max(0) as u64 + needed;
            let age = clock.saturating_sub(entry.sealed_clock());
            let gains = live_bytes + segment_bytes / GAIN_SHARE <= segment_bytes;
            gains.then_some(Candidate {
                segment,
                live_bytes,
                age,
            })
        });
        let victim = select_victim(candidates, segment_bytes).map(|victim| victim.segment);
        let fruitless = self.fruitless.fetch_add(1, Ordering::Relaxed);
        let patience = 2 * u64::from(self.geometry.segment_count);
        match victim {
            Some(victim) if fruitless < patience => {
                self.empty(owner, victim)?;
                Ok(true)
            }
            _ if self.appender.lock().emptied_count() > 0 => {
                self.commit_now()?;
                Ok(true)
            }
            _ if tombstones && fruitless < 2 * patience => {
                // Newer images make the tombstones superfluous.
                self.fruitless.fetch_add(patience / 4, Ordering::Relaxed);
                self.checkpoint_all(owner)?;
                self.checkpoint_all(owner)?;
                Ok(true)
            }
            _ => {
                self.stuck.store(true, Ordering::Relaxed);
                let _appender = self.appender.lock();
                self.space.notify_all();
                Ok(false)
            }
        }
    }

    /// Empties one victim.
    fn empty(&self, owner: &dyn Owner, victim: SegmentId) -> Result<()> {
        let horizon = self.older_horizon.load(Ordering::Relaxed);
        let segment = self.table.segment(victim);
        segment.set_state(State::Cleaning);
        if segment.live_bytes() > 0 || segment.needed_tombstone_bytes(horizon) > 0 {
            if let Err(error) = self.relocate_all(owner, victim, horizon) {
                segment.set_state(State::Sealed);
                return Err(error);
            }
        }
        if segment.live_bytes() != 0 {
            // Records that cannot be read stay where they are, so that reading them says so.
            tracing::error!(segment = victim, "live records of a segment cannot be read");
            segment.quarantine();
            segment.set_state(State::Sealed);
            return Ok(());
        }
        owner.segment_freed(victim);
        self.appender.lock().emptied(victim);
        Counters::add(&self.counters.victims_cleaned, 1);
        Ok(())
    }

    fn relocate_all(&self, owner: &dyn Owner, victim: SegmentId, horizon: u64) -> Result<()> {
        let mut block = AlignedBuf::zeroed(self.geometry.header_bytes() as usize);
        self.read_device(self.geometry.segment_offset(victim), &mut block)?;
        let Found::Header(header) = super::recovery::parse_header(&block, &self.geometry, victim)
        else {
            return Ok(());
        };
        let mut scanner = SegmentScanner::new(header, u64::MAX);
        loop {
            while let Some(frame) = scanner.take(&*self.device)? {
                match self.relocate_frame(owner, victim, &frame, horizon) {
                    Err(Error::Corrupt { offset, why }) => {
                        Counters::add(&self.counters.read_errors, 1);
                        tracing::error!(offset, %why, "a record in a victim is damaged");
                    }
                    other => other?,
                }
            }
            if self.table.segment(victim).live_bytes() == 0 || !scanner.resync(&*self.device)? {
                return Ok(());
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
        frame.visit(&self.geometry, &mut |found| {
            let address = self.geometry.address(victim, found.offset);
            let position = Position {
                address,
                seqno: found.seqno,
                head,
            };
            let mut attempts = 0;
            loop {
                match owner.relocate(self, &found.record, position, clock, horizon) {
                    Ok(_) => return Ok(()),
                    Err(NoRoom) if attempts < 4 => {
                        attempts += 1;
                        self.commit_now()?;
                    }
                    Err(NoRoom) => return Err(Error::NoSpace { what: "capacity" }),
                }
            }
        })
    }

    /// Writes zeros into never-used segments, so that later small writes into them need no
    /// work of the file system.
    fn prepare_some(&self) -> Result<()> {
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
        let mut block = AlignedBuf::zeroed(self.geometry.header_bytes() as usize);
        self.appender
            .lock()
            .free_header(segment, class)
            .encode(&mut block);
        let offset = self.geometry.segment_offset(segment);
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

    /// Gives the blocks of surplus free segments back to the device, at a bounded rate.
    fn discard_surplus(&self, elapsed: Duration) -> Result<()> {
        let rate = self.options.discard_bytes_per_second as f64;
        let budget = (rate * elapsed.as_secs_f64()) as u64 / self.geometry.segment_bytes;
        let keep = 2 * self.low_water() + PREPARE_AT_ONCE;
        let mut taken = Vec::new();
        {
            let mut appender = self.appender.lock();
            while (taken.len() as u64) < budget {
                let Some(segment) = appender.take_surplus(keep) else {
                    break;
                };
                taken.push(segment);
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        for segment in &taken {
            self.write_free_header(*segment, Class::Discarded)
                .inspect_err(|_| self.poison())?;
        }
        self.flush_device().inspect_err(|_| self.poison())?;
        for segment in taken {
            // The header stays: a generation must never come twice.
            let start = self.geometry.segment_offset(segment);
            let kept = self.geometry.header_bytes().max(4096);
            let len = self.geometry.segment_bytes - kept;
            if self.device.discard(start + kept, len).is_ok() {
                Counters::add(&self.counters.discarded_bytes, len);
            }
            self.appender.lock().discarded(segment);
        }
        Ok(())
    }
}
