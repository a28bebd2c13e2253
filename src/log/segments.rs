//! The segment table: what DRAM knows of each segment.
//!
//! ```text
//! Unwritten --prepare--> Free --take--> Open --roll--> Sealed --clean--> Cleaning
//!                         ^                                                 |
//!                         +--- header overwritten and flushed <-- Emptied <-+
//! ```
//!
//! Transitions happen under the appender's lock, except that a segment in the hands of
//! the checkpoint writer or the cleaner is theirs alone. Readers use `seed` and `written`
//! without a lock: `seed` changes with every life of a segment, so a record read across a
//! reuse does not verify (C5).

use crate::format::{Address, Generation, Geometry, Seed, SegmentId, Seqno};
use crate::sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Where a segment is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Never used, or given back to the device: on a file, zeros must be written first.
    Unwritten = 0,
    /// Ready; its header on media says so.
    Free = 1,
    /// Appended to by a head.
    Open = 2,
    /// Full of records.
    Sealed = 3,
    /// A victim the cleaner works on.
    Cleaning = 4,
    /// Nothing in it is needed once what replaces it is durable.
    Emptied = 5,
    /// Holds checkpoint pieces.
    Checkpoint = 6,
}

impl State {
    fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Unwritten,
            1 => Self::Free,
            2 => Self::Open,
            3 => Self::Sealed,
            4 => Self::Cleaning,
            5 => Self::Emptied,
            6 => Self::Checkpoint,
            _ => unreachable!("segment states are only stored by set_state"),
        }
    }
}

/// One segment.
pub(crate) struct Segment {
    state: AtomicU8,
    head: AtomicU8,
    /// Bytes of live records. Signed: recovery passes through transient negatives.
    live: AtomicI64,
    generation: AtomicU64,
    seed: AtomicU64,
    /// Bytes from the start that are on the device (not necessarily flushed).
    written: AtomicU32,
    /// Used bytes once sealed.
    end: AtomicU32,
    /// Clock when sealed.
    sealed_clock: AtomicU64,
    /// Mean clock at which its records were written by their callers.
    mean_clock: AtomicU64,
    last_seqno: AtomicU64,
    tombstone_bytes: AtomicU32,
    last_tombstone: AtomicU64,
    /// The last seqno of an operation of the object layer, 0 if there is none.
    last_pinned: AtomicU64,
    /// It has live records that cannot be read: never a victim again.
    quarantined: AtomicBool,
}

/// Relaxed suffices for the table's numbers: each is either a statistic for the cleaning
/// policy, or published by a lock (the appender's or the shard's) that the reader takes,
/// or (`seed`, `written`) only trusted after a checksum verified.
const NUMBER: Ordering = Ordering::Relaxed;

impl Segment {
    fn new() -> Self {
        Self {
            state: AtomicU8::new(State::Unwritten as u8),
            head: AtomicU8::new(0),
            live: AtomicI64::new(0),
            generation: AtomicU64::new(0),
            seed: AtomicU64::new(0),
            written: AtomicU32::new(0),
            end: AtomicU32::new(0),
            sealed_clock: AtomicU64::new(0),
            mean_clock: AtomicU64::new(0),
            last_seqno: AtomicU64::new(0),
            tombstone_bytes: AtomicU32::new(0),
            last_tombstone: AtomicU64::new(0),
            last_pinned: AtomicU64::new(0),
            quarantined: AtomicBool::new(false),
        }
    }

    pub(crate) fn state(&self) -> State {
        // Acquire pairs with the Release of set_state: who sees a state sees what led to it.
        State::from_bits(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(crate) fn head(&self) -> u8 {
        self.head.load(NUMBER)
    }

    pub(crate) fn live_bytes(&self) -> i64 {
        self.live.load(NUMBER)
    }

    pub(crate) fn add_live(&self, bytes: i64) {
        self.live.fetch_add(bytes, NUMBER);
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation.load(NUMBER)
    }

    pub(crate) fn set_generation(&self, generation: Generation) {
        self.generation.store(generation, NUMBER);
    }

    pub(crate) fn seed(&self) -> Seed {
        Seed::from_bits(self.seed.load(Ordering::Acquire))
    }

    pub(crate) fn written(&self) -> u32 {
        // Acquire pairs with set_written: the device write happened before.
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn set_written(&self, bytes: u32) {
        self.written.store(bytes, Ordering::Release);
    }

    pub(crate) fn end(&self) -> u32 {
        self.end.load(NUMBER)
    }

    pub(crate) fn sealed_clock(&self) -> u64 {
        self.sealed_clock.load(NUMBER)
    }

    pub(crate) fn mean_clock(&self) -> u64 {
        self.mean_clock.load(NUMBER)
    }

    pub(crate) fn set_mean_clock(&self, clock: u64) {
        self.mean_clock.store(clock, NUMBER);
    }

    pub(crate) fn last_seqno(&self) -> Seqno {
        self.last_seqno.load(NUMBER)
    }

    pub(crate) fn set_last_seqno(&self, seqno: Seqno) {
        self.last_seqno.store(seqno, NUMBER);
    }

    /// Bytes of tombstones that replay from `horizon` still needs: all or nothing, by the
    /// newest of them.
    pub(crate) fn needed_tombstone_bytes(&self, horizon: Seqno) -> u32 {
        if self.last_tombstone.load(NUMBER) >= horizon {
            self.tombstone_bytes.load(NUMBER)
        } else {
            0
        }
    }

    pub(crate) fn add_tombstone(&self, seqno: Seqno, bytes: u32) {
        self.tombstone_bytes.fetch_add(bytes, NUMBER);
        self.last_tombstone.fetch_max(seqno, NUMBER);
    }

    /// Whether replay from `horizon` needs operations in it: then it stays as it is.
    pub(crate) fn is_pinned(&self, horizon: Seqno) -> bool {
        let last = self.last_pinned.load(NUMBER);
        last > 0 && last >= horizon
    }

    pub(crate) fn add_pinned(&self, seqno: Seqno) {
        self.last_pinned.fetch_max(seqno, NUMBER);
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.quarantined.load(NUMBER)
    }

    pub(crate) fn quarantine(&self) {
        self.quarantined.store(true, NUMBER);
    }

    /// Begins a life: `Open` for a head, or `Checkpoint`.
    pub(crate) fn begin(&self, state: State, head: u8, seed: Seed, clock: u64) {
        self.head.store(head, NUMBER);
        self.written.store(0, NUMBER);
        self.end.store(0, NUMBER);
        self.sealed_clock.store(0, NUMBER);
        self.mean_clock.store(clock, NUMBER);
        self.last_seqno.store(0, NUMBER);
        self.tombstone_bytes.store(0, NUMBER);
        self.last_tombstone.store(0, NUMBER);
        self.last_pinned.store(0, NUMBER);
        self.quarantined.store(false, NUMBER);
        // Release pairs with `seed`: a reader that verifies under the new seed sees `written`.
        self.seed.store(seed.to_bits(), Ordering::Release);
        self.set_state(state);
    }

    /// Ends appending at `end` bytes.
    pub(crate) fn seal(&self, end: u32, clock: u64) {
        self.end.store(end, NUMBER);
        self.sealed_clock.store(clock, NUMBER);
        self.set_state(State::Sealed);
    }
}

/// All segments of a store.
pub(crate) struct SegmentTable {
    geometry: Geometry,
    segments: Box<[Segment]>,
    live_total: AtomicI64,
    /// Whether the total is kept: in an open it would be what all threads wait for.
    has_total: AtomicBool,
}

impl SegmentTable {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            segments: (0..geometry.segment_count)
                .map(|_| Segment::new())
                .collect(),
            live_total: AtomicI64::new(0),
            has_total: AtomicBool::new(true),
        }
    }

    /// Keeps no total until [`Self::sum_up`].
    pub(crate) fn defer_total(&self) {
        self.has_total.store(false, NUMBER);
    }

    /// Adds up the segments; nothing is counted meanwhile.
    pub(crate) fn sum_up(&self) {
        let total = self.segments.iter().map(Segment::live_bytes).sum();
        self.live_total.store(total, NUMBER);
        self.has_total.store(true, NUMBER);
    }

    /// The segment of a number that is known to be in range.
    pub(crate) fn segment(&self, id: SegmentId) -> &Segment {
        &self.segments[id as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        (0..).zip(self.segments.iter())
    }

    /// The segment of an address and the byte offset in it; `None` when outside the store.
    pub(crate) fn locate(&self, address: Address) -> Option<(SegmentId, &Segment, u64)> {
        let (id, offset) = self.geometry.locate(address)?;
        Some((id, self.segments.get(id as usize)?, offset))
    }

    /// Counts a record at `address` as live (`bytes > 0`) or dead (`bytes < 0`).
    pub(crate) fn add_live(&self, address: Address, bytes: i64) {
        if let Some((_, segment, _)) = self.locate(address) {
            segment.add_live(bytes);
            if self.has_total.load(NUMBER) {
                self.live_total.fetch_add(bytes, NUMBER);
            }
        }
    }

    pub(crate) fn live_total(&self) -> u64 {
        self.live_total.load(NUMBER).max(0) as u64
    }

    pub(crate) fn count(&self, wanted: State) -> u64 {
        self.segments
            .iter()
            .filter(|segment| segment.state() == wanted)
            .count() as u64
    }
}
