//! A device in memory that behaves as badly as a real one may, on request and repeatably.
//!
//! The fault model. What may happen:
//! - Until a flush that began after a write was acknowledged succeeds, a power cut may lose
//!   the write, keep it, or keep any of its 512-byte sectors, whatever became of writes
//!   before and after it. A sector then holds any one of its versions since the last flush.
//!   Discards likewise. Writes under way at the cut are such writes, too.
//! - A process kill loses nothing acknowledged, but what was not flushed stays at risk.
//! - A write or discard that fails with `EIO` may have happened or not, in part or whole;
//!   one that fails with `ENOSPC` did not happen. The rest of its batch goes on.
//! - A flush that fails has forgotten what it covered: no later flush makes it durable,
//!   and it still may turn up.
//! - Any call may fail, once or from some call on; a flush may lie.
//! - A read may return one wrong block (zeros, an older or a neighbour's content, a flipped
//!   bit) while the media is right; a range may be unreadable or wrong for good.
//! - Media may change under us ([`SimulatedDevice::corrupt`]).
//!
//! What may not: a sector is never a mixture; a flushed write is never lost, save by the
//! faults just named; a read without a fault returns the latest acknowledged write.
//!
//! Promises: the same calls in the same order and the same seeds give the same bytes,
//! counts and failures. Copies share memory, so hundreds of crash images are cheap, and
//! only what was written takes memory, so that capacities can be real. Misaligned calls
//! panic, as direct I/O would refuse them.

mod fault;
mod memory;
mod state;

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::{Device, DeviceInfo, ReadOp, WriteOp, assert_aligned, check_end};
use crate::sync::{Mutex, MutexGuard, thread};
use fault::{Armed, Random};
use state::{State, power_cut};

pub use fault::{BadRange, Counters, CrashPolicy, Discards, Fault, FaultError, Latency, OpKind};

/// An in-memory device with faults, latencies, counters and power cuts.
pub struct SimulatedDevice {
    capacity: u64,
    block: u32,
    mode: Mode,
    wants_prewrite: bool,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Keeps what was written and what was not flushed.
    Full,
    /// Keeps what was written only: no memory is spent on crash images.
    Durable,
    /// Keeps nothing.
    Null,
}

impl SimulatedDevice {
    /// A device of `capacity` zero bytes, a multiple of `block_bytes`.
    #[must_use]
    pub fn new(capacity: u64, block_bytes: u32) -> Self {
        assert!(block_bytes >= 512, "blocks of {block_bytes} bytes");
        assert!(
            block_bytes.is_power_of_two(),
            "blocks of {block_bytes} bytes"
        );
        assert!(
            capacity.is_multiple_of(block_bytes.into()),
            "capacity of {capacity} bytes"
        );
        Self {
            capacity,
            block: block_bytes,
            mode: Mode::Full,
            wants_prewrite: false,
            state: Mutex::new(State::default()),
        }
    }

    /// A device that counts and drops writes and reads as zeros.
    #[must_use]
    pub fn null(capacity: u64) -> Self {
        let mut device = Self::new(capacity, 4096);
        device.mode = Mode::Null;
        device
    }

    /// Treats every write as durable at once, so that no memory is spent on what a power
    /// cut could lose: for long runs that take no crash image.
    #[must_use]
    pub fn without_crashes(mut self) -> Self {
        assert!(
            self.mode != Mode::Null,
            "a null device keeps nothing to lose"
        );
        self.mode = Mode::Durable;
        self
    }

    /// Wants ranges written once before use, as a file does.
    #[must_use]
    pub fn with_prewrite(mut self) -> Self {
        self.wants_prewrite = true;
        self
    }

    /// Seeds the choice of bad reads; 0 if never called.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.state.lock().random = Random::new(seed);
        self
    }

    /// Makes calls take time; see [`SimulatedDevice::set_latency`].
    #[must_use]
    pub fn with_latency(self, latency: Latency) -> Self {
        self.set_latency(latency);
        self
    }

    /// Makes calls take time from now on. A change is under way, and a flush has done
    /// nothing yet, until its time is over.
    pub fn set_latency(&self, latency: Latency) {
        self.state.lock().latency = latency;
    }

    /// Calls so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state.lock().counters
    }

    /// Writes and discards that a power cut could lose now.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.state.lock().unflushed()
    }

    /// Memory that holds the content, in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.state.lock().current.resident_bytes()
    }

    /// Arranges a failure; several may be arranged.
    pub fn add_fault(&self, fault: Fault) {
        self.state.lock().faults.push(Armed::new(fault));
    }

    /// Makes each read return one wrong block with this probability. Stale content is what
    /// the device holds now. 0 ends it.
    pub fn set_bad_reads(&self, probability: f64) {
        self.state.lock().set_bad_reads(probability);
    }

    /// Makes a range bad for good.
    pub fn add_bad_range(&self, offset: u64, len: u64, bad: BadRange) {
        self.state
            .lock()
            .bad_ranges
            .push((offset, offset.saturating_add(len), bad));
    }

    /// Makes flushes report success and make nothing durable, or ends that.
    pub fn set_flushes_lie(&self, lie: bool) {
        self.state.lock().flushes_lie = lie;
    }

    /// Sets what discarded ranges read as; zeros if never called.
    pub fn set_discards(&self, discards: Discards) {
        self.state.lock().discards = discards;
    }

    /// Ends all faults but a power cut: arranged failures, bad reads, bad ranges, lying
    /// flushes, the operation limit.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.bad_reads = None;
        state.bad_ranges.clear();
        state.flushes_lie = false;
        state.ops_left = None;
    }

    /// Cuts the power after `count` more writes, flushes and discards, each write of a
    /// batch being one. The next one and every call after it fails with
    /// [`ErrorKind::Other`]; the state stays as it was then, and the write at which it
    /// stopped, with the rest of its batch, is one that [`CrashPolicy::Random`] may find on
    /// media in whole or part.
    pub fn set_op_limit(&self, count: u64) {
        self.state.lock().ops_left = Some(count);
    }

    /// Whether the power was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.state.lock().is_cut
    }

    /// A new device as this one could be after a crash now. It has this one's latencies
    /// and bad ranges and none of its other faults, and counts from 0.
    #[must_use]
    pub fn crash_image(&self, policy: CrashPolicy) -> Self {
        assert!(
            self.mode != Mode::Durable,
            "a device without crashes has no crash images"
        );
        let after = self.state.lock().after_crash(policy);
        self.with_state(after)
    }

    /// A new device in the same state, with what is not flushed, faults and counters.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let copy = self.state.lock().copy();
        self.with_state(copy)
    }

    /// As [`SimulatedDevice::snapshot`], with another capacity of at least the present one.
    #[must_use]
    pub fn grown(&self, capacity: u64) -> Self {
        assert!(capacity >= self.capacity, "a device does not shrink");
        assert!(
            capacity.is_multiple_of(self.block.into()),
            "capacity of {capacity} bytes"
        );
        Self {
            capacity,
            ..self.snapshot()
        }
    }

    fn with_state(&self, state: State) -> Self {
        Self {
            state: Mutex::new(state),
            ..*self
        }
    }

    /// Changes `len` bytes of the media with `f`, of which no call tells. Any offset and
    /// length are allowed.
    pub fn corrupt(&self, offset: u64, len: usize, f: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; len];
        let mut state = self.state.lock();
        state.current.read(offset, &mut bytes);
        f(&mut bytes);
        state.overwrite(offset, &bytes);
    }

    /// Inverts one bit of the media: bit 0 is the lowest of the byte at `offset`.
    pub fn flip_bit(&self, offset: u64, bit: u64) {
        self.corrupt(offset + bit / 8, 1, |bytes| {
            bytes.iter_mut().for_each(|byte| *byte ^= 1 << (bit % 8));
        });
    }

    /// Makes a range of the media zeros, as if it had never been written.
    pub fn erase(&self, offset: u64, len: usize) {
        self.corrupt(offset, len, |bytes| bytes.fill(0));
    }

    /// The latest content of a range, without faults, counts or latency. Any offset and
    /// length are allowed.
    #[must_use]
    pub fn read_raw(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.state.lock().current.read(offset, &mut bytes);
        bytes
    }

    /// Takes the time of a call, without the lock.
    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        if time.is_zero() {
            return state;
        }
        drop(state);
        pause(time);
        self.state.lock()
    }

    /// Reads under the lock what was admitted and has taken its time.
    fn finish_read(&self, state: &mut State, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if state.is_cut {
            return Err(power_cut());
        }
        state.read(offset, into, self.block as usize)
    }

    fn admit_read(&self, state: &mut State, offset: u64, into: &[u8]) -> io::Result<()> {
        let len = into.len() as u64;
        assert_aligned(self.block, offset, into);
        check_end(self.capacity, offset, len, ErrorKind::UnexpectedEof)?;
        let admitted = state.admit(OpKind::Read, len);
        admitted.map_err(|fault| fault.map_or_else(power_cut, |error| error.to_io()))
    }

    /// Admits a change and notes it; returns its id, if it is kept track of.
    fn admit_change(
        &self,
        state: &mut State,
        kind: OpKind,
        bytes: u64,
        note: impl FnOnce(&mut State) -> u64,
    ) -> io::Result<Option<u64>> {
        let admitted = state.admit(kind, bytes);
        let reached_drive = !matches!(admitted, Err(Some(FaultError::NoSpace)));
        let id = (self.mode == Mode::Full && reached_drive).then(|| note(state));
        match admitted {
            Ok(()) => Ok(id),
            Err(Some(error)) => {
                if let Some(id) = id {
                    state.lose_track(id);
                }
                Err(error.to_io())
            }
            Err(None) => Err(power_cut()),
        }
    }
}

impl Device for SimulatedDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_bytes(&self) -> u32 {
        self.block
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        self.admit_read(&mut state, offset, into)?;
        let latency = state.latency.read;
        let mut state = self.wait(state, latency);
        self.finish_read(&mut state, offset, into)
    }

    fn read_many(&self, ops: &mut [ReadOp<'_>]) -> io::Result<()> {
        let mut state = self.state.lock();
        for op in &*ops {
            self.admit_read(&mut state, op.offset, op.into)?;
        }
        let latency = state.latency.read;
        let mut state = self.wait(state, latency);
        ops.iter_mut()
            .try_for_each(|op| self.finish_read(&mut state, op.offset, op.into))
    }

    fn write_many(&self, ops: &[WriteOp<'_>]) -> io::Result<()> {
        for op in ops {
            assert_aligned(self.block, op.offset, op.data);
            check_end(
                self.capacity,
                op.offset,
                op.data.len() as u64,
                ErrorKind::InvalidInput,
            )?;
        }
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(power_cut());
        }
        let mut failure = None;
        let mut admitted = Vec::with_capacity(ops.len());
        for op in ops {
            let note = |state: &mut State| state.note_write(op.offset, op.data);
            match self.admit_change(&mut state, OpKind::Write, op.data.len() as u64, note) {
                Ok(id) => admitted.push((id, op)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let latency = state.latency.write;
        let cut_here = state.is_cut;
        let mut state = self.wait(state, latency);
        if state.is_cut && !cut_here {
            return Err(power_cut());
        }
        for (id, op) in admitted {
            match id {
                Some(id) => state.complete(id),
                None if self.mode == Mode::Durable => state.current.write(op.offset, op.data),
                None => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(power_cut());
        }
        let covered = state.covered();
        let admitted = state.admit(OpKind::Flush, 0);
        let latency = state.latency.flush;
        let mut state = self.wait(state, latency);
        match admitted {
            Ok(()) if state.is_cut => Err(power_cut()),
            Ok(()) => {
                if !state.flushes_lie {
                    state.settle(&covered);
                }
                Ok(())
            }
            Err(Some(error)) => {
                state.forget(&covered);
                Err(error.to_io())
            }
            Err(None) => Err(power_cut()),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        assert_aligned(self.block, offset | len, &[]);
        check_end(self.capacity, offset, len, ErrorKind::InvalidInput)?;
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(power_cut());
        }
        if state.discards == Discards::Unsupported {
            return Ok(());
        }
        let note = |state: &mut State| state.note_discard(offset, len);
        let id = self.admit_change(&mut state, OpKind::Discard, len, note)?;
        let latency = state.latency.discard;
        let mut state = self.wait(state, latency);
        if state.is_cut {
            return Err(power_cut());
        }
        match id {
            Some(id) => state.complete(id),
            None if self.mode == Mode::Durable && state.discards == Discards::Zeros => {
                state.current.zero(offset, len);
            }
            None => {}
        }
        Ok(())
    }

    fn wants_prewrite(&self) -> bool {
        self.wants_prewrite
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: if self.mode == Mode::Null {
                "null"
            } else {
                "simulated"
            },
            io: "memory",
            direct: true,
            block_bytes: self.block,
            capacity_bytes: self.capacity,
            discard: self.state.lock().discards != Discards::Unsupported,
        }
    }
}

/// Waits for `time`, to a few microseconds: the timer of the kernel is late by some 60 us,
/// so the rest of the wait is spent looking at the clock, with the core offered to others.
fn pause(time: Duration) {
    const TIMER_LATE: Duration = Duration::from_micros(100);
    let start = Instant::now();
    if time > TIMER_LATE * 2 {
        std::thread::sleep(time - TIMER_LATE);
    }
    while start.elapsed() < time {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests;
