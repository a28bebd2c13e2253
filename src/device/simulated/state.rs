//! What a simulated device knows: its images, the changes between them, its faults.
//!
//! Promises: `durable` is what survives a power cut whatever happens; `current` is what
//! reads see; every change that is in one and may or may not come to be in the other is in
//! `unflushed`, oldest first. Everything here runs under the device's lock.

use std::io;

use super::fault::{
    Armed, BadRange, Counters, CrashPolicy, Discards, FaultError, Latency, OpKind, Random,
};
use super::memory::Memory;
use crate::sync::Arc;

/// What tears: a sector is written whole or not at all.
const SECTOR: usize = 512;

/// A change that no flush has made durable.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) id: u64,
    offset: u64,
    what: What,
    phase: Phase,
}

#[derive(Clone)]
enum What {
    Write(Arc<Vec<u8>>),
    Discard(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Given to the drive and not acknowledged; reads do not see it.
    InFlight,
    /// Acknowledged: the next flush makes it durable.
    Done,
    /// Failed, or covered by a flush that failed: no later flush makes it durable, yet it
    /// may turn up.
    Unknown,
}

impl Change {
    fn len(&self) -> u64 {
        match &self.what {
            What::Write(data) => data.len() as u64,
            What::Discard(len) => *len,
        }
    }

    fn overlaps(&self, offset: u64, len: u64) -> bool {
        self.offset < offset.saturating_add(len) && offset < self.offset.saturating_add(self.len())
    }

    fn apply(&self, memory: &mut Memory, discards: Discards) {
        match &self.what {
            What::Write(data) => memory.write(self.offset, data),
            What::Discard(len) if discards == Discards::Zeros => memory.zero(self.offset, *len),
            What::Discard(_) => {}
        }
    }

    /// Applies some of the sectors only.
    fn tear(&self, memory: &mut Memory, discards: Discards, random: &mut Random) {
        let sectors = self.len() / SECTOR as u64;
        let cut = random.below(sectors + 1);
        match &self.what {
            What::Discard(_) if discards != Discards::Zeros => {}
            What::Discard(_) => memory.zero(self.offset, cut * SECTOR as u64),
            What::Write(data) => {
                let style = random.below(3);
                for (index, sector) in (0_u64..).zip(data.chunks(SECTOR)) {
                    let survives = match style {
                        0 => index < cut,
                        1 => index >= cut,
                        _ => random.chance(0.5),
                    };
                    if survives {
                        memory.write(self.offset + index * SECTOR as u64, sector);
                    }
                }
            }
        }
    }
}

pub(super) struct BadReads {
    probability: f64,
    /// What the device held when the fault was set: the source of stale blocks.
    stale: Memory,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) current: Memory,
    pub(super) durable: Memory,
    unflushed: Vec<Change>,
    next_id: u64,
    pub(super) counters: Counters,
    pub(super) latency: Latency,
    pub(super) discards: Discards,
    /// Flushes report success and make nothing durable.
    pub(super) flushes_lie: bool,
    pub(super) faults: Vec<Armed>,
    pub(super) bad_reads: Option<BadReads>,
    pub(super) bad_ranges: Vec<(u64, u64, BadRange)>,
    /// Changes still allowed before the power is cut.
    pub(super) ops_left: Option<u64>,
    pub(super) is_cut: bool,
    pub(super) random: Random,
}

pub(super) fn power_cut() -> io::Error {
    io::Error::other("power cut")
}

impl State {
    /// Counts a call and says whether it fails; the inner error is that of a fault, `None`
    /// that of the power cut.
    pub(super) fn admit(&mut self, kind: OpKind, bytes: u64) -> Result<(), Option<FaultError>> {
        self.counters.count(kind, bytes);
        let verdict = self.judge(kind);
        self.counters.failures += u64::from(verdict.is_err());
        verdict
    }

    fn judge(&mut self, kind: OpKind) -> Result<(), Option<FaultError>> {
        if kind != OpKind::Read
            && let Some(left) = &mut self.ops_left
        {
            self.is_cut |= *left == 0;
            *left = left.saturating_sub(1);
        }
        if self.is_cut {
            return Err(None);
        }
        let mut failure = None;
        for fault in &mut self.faults {
            failure = fault.strike(kind).or(failure);
        }
        failure.map_or(Ok(()), |error| Err(Some(error)))
    }

    /// Notes a write that was given to the drive; returns its id.
    pub(super) fn note_write(&mut self, offset: u64, data: &[u8]) -> u64 {
        self.note(offset, What::Write(Arc::new(data.to_vec())))
    }

    /// Notes a discard that was given to the drive; returns its id.
    pub(super) fn note_discard(&mut self, offset: u64, len: u64) -> u64 {
        self.note(offset, What::Discard(len))
    }

    fn note(&mut self, offset: u64, what: What) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.unflushed.push(Change {
            id,
            offset,
            what,
            phase: Phase::InFlight,
        });
        id
    }

    fn find(&mut self, id: u64) -> Option<&mut Change> {
        let index = self
            .unflushed
            .binary_search_by_key(&id, |change| change.id)
            .ok()?;
        self.unflushed.get_mut(index)
    }

    /// The drive acknowledged a change: reads see it from now on.
    pub(super) fn complete(&mut self, id: u64) {
        let discards = self.discards;
        if let Some(change) = self.find(id) {
            change.phase = Phase::Done;
            let change = change.clone();
            change.apply(&mut self.current, discards);
        }
    }

    /// The drive failed a change: it may turn up, or not.
    pub(super) fn lose_track(&mut self, id: u64) {
        if let Some(change) = self.find(id) {
            change.phase = Phase::Unknown;
        }
    }

    /// Where a flush that begins now ends: what it covers are the acknowledged changes.
    pub(super) fn covered(&self) -> Vec<u64> {
        let done = self
            .unflushed
            .iter()
            .filter(|change| change.phase == Phase::Done);
        done.map(|change| change.id).collect()
    }

    /// A flush succeeded: what it covered is durable.
    pub(super) fn settle(&mut self, covered: &[u64]) {
        let mut left = Vec::new();
        for change in std::mem::take(&mut self.unflushed) {
            if change.phase == Phase::Done && covered.binary_search(&change.id).is_ok() {
                change.apply(&mut self.durable, self.discards);
                // An older, failed change of the same place cannot turn up any more.
                left.retain(|older: &Change| {
                    older.phase != Phase::Unknown || !older.overlaps(change.offset, change.len())
                });
            } else {
                left.push(change);
            }
        }
        self.unflushed = left;
    }

    /// A flush failed: the kernel and the drive have forgotten what it covered.
    pub(super) fn forget(&mut self, covered: &[u64]) {
        for change in &mut self.unflushed {
            if covered.binary_search(&change.id).is_ok() {
                change.phase = Phase::Unknown;
            }
        }
    }

    pub(super) fn unflushed(&self) -> usize {
        self.unflushed.len()
    }

    /// Changes the bytes everywhere: in both images and in what is between them.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        self.current.write(offset, bytes);
        self.durable.write(offset, bytes);
        for change in &mut self.unflushed {
            let touched = change.overlaps(offset, bytes.len() as u64);
            if touched && let What::Write(data) = &mut change.what {
                let mut patched = data.to_vec();
                patch(&mut patched, change.offset, offset, bytes);
                *data = Arc::new(patched);
            }
        }
    }

    pub(super) fn set_bad_reads(&mut self, probability: f64) {
        let stale = self.current.clone();
        self.bad_reads = (probability > 0.0).then_some(BadReads { probability, stale });
    }

    /// Reads, with the faults of reading.
    pub(super) fn read(&mut self, offset: u64, into: &mut [u8], block: usize) -> io::Result<()> {
        self.current.read(offset, into);
        let end = offset + into.len() as u64;
        for &(from, to, bad) in &self.bad_ranges {
            if from >= end || offset >= to {
                continue;
            }
            if bad == BadRange::Unreadable {
                return Err(FaultError::Io.to_io());
            }
            let first = from.max(offset);
            for place in (first..to.min(end)).step_by(SECTOR) {
                if let Some(byte) = into.get_mut((place - offset) as usize) {
                    *byte ^= 0x10;
                }
            }
        }
        if let Some(bad) = &self.bad_reads
            && self.random.chance(bad.probability)
            && !into.is_empty()
        {
            self.counters.bad_reads += 1;
            spoil(bad, &mut self.random, offset, into, block);
        }
        Ok(())
    }

    /// A state in which the device can be after a crash now.
    pub(super) fn after_crash(&self, policy: CrashPolicy) -> Self {
        let mut after = Self {
            latency: self.latency,
            discards: self.discards,
            bad_ranges: self.bad_ranges.clone(),
            durable: self.durable.clone(),
            next_id: self.next_id,
            ..Self::default()
        };
        match policy {
            CrashPolicy::LoseAll => {}
            CrashPolicy::KeepAll => {
                // What was in flight has ended before anyone can open the device again, so
                // it did or did not happen; here it did not.
                let settled = self.unflushed.iter().filter(|c| c.phase != Phase::InFlight);
                after.unflushed = settled.cloned().collect();
                after.current = self.current.clone();
                after.flushes_lie = self.flushes_lie;
                return after;
            }
            CrashPolicy::Random { seed } => self.keep_some(&mut after.durable, seed),
        }
        after.current = after.durable.clone();
        after
    }

    /// Any subset of the unflushed changes in any order, so that a sector holds any one of
    /// its versions since the last flush.
    fn keep_some(&self, image: &mut Memory, seed: u64) {
        let mut random = Random::new(seed);
        // One fixed share would make "nearly all" and "nearly nothing" of a long list too
        // rare to be seen.
        let kept = [0.1, 0.5, 0.9]
            .get(random.below(3) as usize)
            .copied()
            .unwrap_or(0.5);
        let mut order: Vec<&Change> = self.unflushed.iter().collect();
        for index in (1..order.len()).rev() {
            order.swap(index, random.below(index as u64 + 1) as usize);
        }
        for change in order {
            if random.chance(0.25) {
                change.tear(image, self.discards, &mut random);
            } else if random.chance(kept) {
                change.apply(image, self.discards);
            }
        }
    }

    /// The same state, with its unflushed changes, faults and counters.
    pub(super) fn copy(&self) -> Self {
        Self {
            current: self.current.clone(),
            durable: self.durable.clone(),
            unflushed: self.unflushed.clone(),
            faults: self.faults.clone(),
            bad_ranges: self.bad_ranges.clone(),
            random: self.random.clone(),
            bad_reads: self.bad_reads.as_ref().map(|bad| BadReads {
                probability: bad.probability,
                stale: bad.stale.clone(),
            }),
            ..*self
        }
    }
}

/// Copies the part of `bytes`, at `offset`, that falls into `data`, at `start`.
fn patch(data: &mut [u8], start: u64, offset: u64, bytes: &[u8]) {
    let from = offset.max(start);
    let to = (offset + bytes.len() as u64).min(start + data.len() as u64);
    if from < to
        && let Some(into) = data.get_mut((from - start) as usize..(to - start) as usize)
        && let Some(part) = bytes.get((from - offset) as usize..(to - offset) as usize)
    {
        into.copy_from_slice(part);
    }
}

/// Makes one block of a read wrong: zeros, another time's or another place's content, or
/// one flipped bit. It always differs from the truth.
fn spoil(bad: &BadReads, random: &mut Random, offset: u64, into: &mut [u8], block: usize) {
    let index = random.below((into.len() / block).max(1) as u64) as usize;
    let at = offset + (index * block) as u64;
    let end = into.len().min((index + 1) * block);
    let Some(target) = into.get_mut(index * block..end) else {
        return;
    };
    let mut wrong = vec![0; target.len()];
    match random.below(4) {
        0 => {}
        1 => bad.stale.read(at, &mut wrong),
        2 => bad.stale.read(at.saturating_add(block as u64), &mut wrong),
        _ => wrong.copy_from_slice(target),
    }
    if wrong == *target {
        let bit = random.below(target.len() as u64 * 8);
        if let Some(byte) = wrong.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }
    target.copy_from_slice(&wrong);
}
