//! What can be asked of a simulated device, and what it counts: plain values.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

/// The calls of a device. Each operation of a batch is one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// One read.
    Read,
    /// One write.
    Write,
    /// One flush.
    Flush,
    /// One discard.
    Discard,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// `EIO`. What the failed call did is unknown.
    Io,
    /// `ENOSPC`. The failed call did nothing.
    NoSpace,
}

impl FaultError {
    pub(super) fn to_io(self) -> io::Error {
        match self {
            Self::Io => Errno::IO.into(),
            Self::NoSpace => Errno::NOSPC.into(),
        }
    }
}

/// A failure to come.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// The kind of call that fails; any if `None`.
    pub on: Option<OpKind>,
    /// Which of these calls fails first, counted from 1 as of now.
    pub nth: u64,
    /// How it fails.
    pub error: FaultError,
    /// Whether every such call after it fails, too.
    pub lasting: bool,
}

impl Fault {
    /// The `nth` call of a kind from now on fails with `EIO`, once.
    #[must_use]
    pub fn once(on: OpKind, nth: u64) -> Self {
        Self {
            on: Some(on),
            nth,
            error: FaultError::Io,
            lasting: false,
        }
    }
}

/// A fault and the calls it has seen.
#[derive(Clone)]
pub(super) struct Armed {
    fault: Fault,
    seen: u64,
}

impl Armed {
    pub(super) fn new(fault: Fault) -> Self {
        Self { fault, seen: 0 }
    }

    /// Counts a call; says how it is to fail.
    pub(super) fn strike(&mut self, kind: OpKind) -> Option<FaultError> {
        if self.fault.on.is_some_and(|on| on != kind) {
            return None;
        }
        self.seen += 1;
        let due = self.seen == self.fault.nth || (self.fault.lasting && self.seen > self.fault.nth);
        due.then_some(self.fault.error)
    }
}

/// A range that is bad for good: writing does not heal it, nor does a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadRange {
    /// Reads that touch it fail with `EIO`.
    Unreadable,
    /// Reads return it with one bit of every 512 bytes inverted.
    Flipped,
}

/// What a discarded range reads as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discards {
    /// Zeros.
    #[default]
    Zeros,
    /// What was there before: the discard frees nothing that can be seen.
    Stale,
    /// Discards are not supported; they do nothing.
    Unsupported,
}

/// What a power cut leaves of the writes and discards that no flush covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPolicy {
    /// Nothing.
    LoseAll,
    /// All that was acknowledged. This is a process kill, not a power cut: the drive's
    /// cache lives on, and a later power cut can still lose it.
    KeepAll,
    /// Any subset, in any order, any of it torn at 512 bytes; the seed says which.
    Random {
        /// The same seed on the same state gives the same image.
        seed: u64,
    },
}

/// How long each call takes. The operations of one batch take their time together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latency {
    /// A read.
    pub read: Duration,
    /// A write.
    pub write: Duration,
    /// A flush.
    pub flush: Duration,
    /// A discard.
    pub discard: Duration,
}

/// Calls made so far, failed ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes of discards.
    pub discard_bytes: u64,
    /// Calls that failed by a fault or by the power cut.
    pub failures: u64,
    /// Reads that returned wrong bytes by [`set_bad_reads`].
    ///
    /// [`set_bad_reads`]: super::SimulatedDevice::set_bad_reads
    pub bad_reads: u64,
}

impl Counters {
    /// Calls that change the device: what [`set_op_limit`] counts.
    ///
    /// [`set_op_limit`]: super::SimulatedDevice::set_op_limit
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.writes + self.flushes + self.discards
    }

    pub(super) fn count(&mut self, kind: OpKind, bytes: u64) {
        match kind {
            OpKind::Read => {
                self.reads += 1;
                self.read_bytes += bytes;
            }
            OpKind::Write => {
                self.writes += 1;
                self.write_bytes += bytes;
            }
            OpKind::Flush => self.flushes += 1,
            OpKind::Discard => {
                self.discards += 1;
                self.discard_bytes += bytes;
            }
        }
    }
}

/// A small generator (splitmix64): the same everywhere, so that a seed is a repeat.
#[derive(Clone, Default)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform below `bound`; 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with the given probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits are what an f64 holds exactly.
        ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}
