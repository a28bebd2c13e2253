//! The log: segments, heads, group commit, cleaning, checkpoints, recovery.
//!
//! It knows nothing of keys. The owner of the records (the key-value layer) is called
//! through [`Owner`]: replay this record; is this record live, and if so append it again;
//! write and load your part of the checkpoint. (RAMCloud's cut between log and index.)

mod ahead;
mod appender;
mod applier;
mod checkpoint;
mod cleaner;
mod committer;
mod frame;
mod image_room;
mod payload;
mod policy;
#[cfg(test)]
mod policy_tests;
mod rebuild;
mod recovery;
mod reserve;
mod retire;
mod scanner;
mod segments;
mod space;
mod superblocks;
#[cfg(all(test, loom))]
pub(crate) mod tests;

use std::time::Duration;

use crate::device::{Device, ReadOp};
use crate::format::{Address, Cut, Geometry, Invalid, LengthCode, Record, Seqno};
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, SharedArc};
use crate::{Error, Result};

pub(crate) use appender::{Appended, Appender, NewRecord, NoRoom, Purpose};
pub(crate) use applier::Lane;
pub(crate) use checkpoint::CheckpointState;
#[cfg(test)]
pub(crate) use cleaner::Effort;
pub(crate) use payload::{Room, max_payload};
use policy::spreads_commits;
pub(crate) use policy::{first_exponent, head_class, next_exponent, survivor_exponent};
pub(crate) use rebuild::{Rebuilt, log_to_rebuild};
pub(crate) use recovery::{Found, open_log, parse_header};
use reserve::RESERVE;
pub(crate) use scanner::{ScannedFrame, SegmentScanner, read_retrying};
pub(crate) use segments::{Segment, SegmentTable, State};
use space::Wait;
pub(crate) use space::{Claim, ImageBytes};
pub(crate) use superblocks::{
    Superblocks, choose, create_superblocks, find_superblock, probe_geometry,
};

use appender::Start;
use committer::CommitState;

/// Where a record is, as the log tells its owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) address: Address,
    pub(crate) seqno: Seqno,
    /// The head the record's segment belonged to.
    pub(crate) head: u8,
    /// The first byte of an extent record's payload; unknown in a damaged frame.
    pub(crate) payload: Option<Address>,
}

/// What became of a record the cleaner showed to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relocation {
    /// It is not needed.
    Dead,
    /// It was appended again.
    Moved,
}

/// The owner of the records in the log.
pub(crate) trait Owner: Send + Sync {
    /// Applies to the shards of `lane` what a record says of them. Every lane gets every
    /// record, in the order of seqnos; lanes run beside one another.
    fn replay(&self, log: &Log, record: &Record<'_>, position: Position, lane: Lane) -> Result<()>;

    /// Appends the record again if it is needed, and redirects what points to it, in one
    /// step against every writer of its key. `payload`: an extent record's, which verified
    /// against its checksums; empty for others. `horizon`: older tombstones are not needed.
    fn relocate(
        &self,
        log: &Log,
        record: &Record<'_>,
        payload: &[u8],
        position: Position,
        victim_clock: u64,
        horizon: Seqno,
    ) -> std::result::Result<Relocation, NoRoom>;

    /// Everything is replayed: derives what is not stored, live bytes among it.
    fn replayed(&self, _log: &Log) -> Result<()> {
        Ok(())
    }

    /// What can wait for the space thread.
    fn tidy(&self, _log: &Log) {}

    /// Whether there may be operations, which keep their segments from being cleaned.
    fn has_operations(&self) -> bool {
        false
    }

    /// Partitions the owner's state is checkpointed in.
    fn partition_count(&self) -> u32;

    /// Writes the image of a partition unit by unit into `sink`; `horizon` gives, under the
    /// locks that exclude writers of the unit, the seqno below which the unit has
    /// everything. Returns the lowest horizon used.
    fn image(
        &self,
        partition: u32,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno>;

    /// Loads one piece of a partition's image.
    fn load_image(
        &self,
        log: &Log,
        partition: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), Invalid>;

    /// Forgets what was loaded of a partition, before another image of it is loaded.
    fn clear_partition(&self, log: &Log, partition: u32);

    /// Whether all of a partition has been loaded. Nothing is loaded of one that was empty, or
    /// unknown to those who wrote the root.
    fn partition_is_whole(&self, partition: u32) -> bool;

    /// Bytes that one generation of images takes on flash, at most.
    fn image_bytes(&self) -> u64;

    /// The same of one partition, if it has operations, which the log cannot carry; else 0.
    fn pinning_image_bytes(&self, _partition: u32) -> u64 {
        0
    }
}

/// Counters of a log since it was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) user_bytes: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) cleaning_bytes: AtomicU64,
    pub(crate) checkpoint_bytes: AtomicU64,
    pub(crate) superblock_bytes: AtomicU64,
    pub(crate) prewrite_bytes: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) victims_cleaned: AtomicU64,
    pub(crate) waits_for_room: AtomicU64,
    pub(crate) partitions_imaged: AtomicU64,
    pub(crate) read_retries: AtomicU64,
    pub(crate) read_errors: AtomicU64,
    pub(crate) discarded_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        // Statistics: nothing is ordered by them.
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// What the log needs to know of the options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    pub(crate) read_only: bool,
    /// Bytes of log between two images of a partition; chosen from the index when `None`.
    pub(crate) checkpoint_interval_bytes: Option<u64>,
    pub(crate) discard_bytes_per_second: u64,
    /// Where the counters of a new log begin.
    pub(crate) first_number: u64,
}

/// Bytes of a buffered group commit: large enough that headers and padding of nine heads
/// do not matter, small enough that emptied segments come back soon.
pub(crate) const GROUP_BYTES: u64 = 1 << 20;
/// A buffered group is committed when its first record has waited this long.
const GROUP_AGE: Duration = Duration::from_millis(50);

/// A log on a device.
pub(crate) struct Log {
    device: SharedArc<dyn Device>,
    geometry: Geometry,
    options: LogOptions,
    table: Arc<SegmentTable>,
    appender: Mutex<Appender>,
    /// With the appender's lock: room came back, or will not.
    space: Condvar,
    /// With the appender's lock: the space thread or the checkpointer has something to do.
    work: Condvar,
    /// With the appender's lock: the flusher has something to do.
    flush: Condvar,
    /// With the appender's lock: a writer joined the group a leader gathers for.
    joined: Condvar,
    commit: Mutex<CommitState>,
    /// Every seqno up to here is durable; changed under the lock of `commit`.
    durable: AtomicU64,
    poisoned: AtomicBool,
    stopping: AtomicBool,
    /// How often the cleaner found nothing to gain while somebody waited for room.
    stuck: AtomicU64,
    /// Writers waiting for room now.
    starving: AtomicU64,
    checkpoint: Mutex<CheckpointState>,
    /// Held by the space thread while it does something; after `checkpoint`.
    upkeep: Mutex<()>,
    superblocks: Mutex<Superblocks>,
    /// Tombstones older than this are not needed for replay.
    older_horizon: AtomicU64,
    /// Appended bytes at which the checkpointer wants to be woken.
    checkpoint_due: AtomicU64,
    /// A crash now replays from here on.
    newest_horizon: AtomicU64,
    /// Partitions the cleaner asks to be imaged, so that tombstones can go.
    wants_checkpoint: AtomicU64,
    /// A checkpoint holds its lock and waits for room; no more when it is told that there is none.
    checkpoint_waits: AtomicBool,
    /// Bytes of the images of operations, and of the largest partition of them.
    pinning_images: [AtomicU64; 2],
    clock: AtomicU64,
    /// Writers that waited for the last group.
    recent_writers: AtomicU64,
    /// Bytes of callers' records in a commit, smoothed.
    commit_bytes: AtomicU64,
    pub(crate) counters: Counters,
}

/// See [`Log::quiet`].
pub(crate) struct Quiet<'a> {
    _checkpoint: MutexGuard<'a, CheckpointState>,
    _upkeep: MutexGuard<'a, ()>,
}

impl Log {
    fn new(
        device: SharedArc<dyn Device>,
        options: LogOptions,
        table: Arc<SegmentTable>,
        superblocks: Superblocks,
    ) -> Self {
        let geometry = superblocks.current.geometry;
        let start = Start {
            epoch: superblocks.current.epoch,
            next_seqno: 1,
            next_group: 1,
            clock: 0,
        };
        Self {
            appender: Mutex::new(Appender::new(geometry, table.clone(), RESERVE, start)),
            device,
            geometry,
            options,
            table,
            space: Condvar::new(),
            work: Condvar::new(),
            flush: Condvar::new(),
            joined: Condvar::new(),
            commit: Mutex::new(CommitState::default()),
            durable: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stuck: AtomicU64::new(0),
            starving: AtomicU64::new(0),
            checkpoint: Mutex::new(CheckpointState::default()),
            upkeep: Mutex::new(()),
            superblocks: Mutex::new(superblocks),
            older_horizon: AtomicU64::new(0),
            checkpoint_due: AtomicU64::new(u64::MAX),
            newest_horizon: AtomicU64::new(0),
            wants_checkpoint: AtomicU64::new(0),
            checkpoint_waits: AtomicBool::new(false),
            pinning_images: [AtomicU64::new(0), AtomicU64::new(0)],
            clock: AtomicU64::new(0),
            recent_writers: AtomicU64::new(0),
            commit_bytes: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    /// The log of a new store.
    pub(crate) fn create(
        device: SharedArc<dyn Device>,
        superblocks: Superblocks,
        options: LogOptions,
    ) -> Self {
        let table = Arc::new(SegmentTable::new(superblocks.current.geometry));
        if !device.wants_prewrite() {
            for (_, segment) in table.iter() {
                segment.set_state(State::Free);
            }
        }
        let first_number = options.first_number;
        for (_, segment) in table.iter() {
            segment.set_generation(first_number - 1);
        }
        let log = Self::new(device, options, table, superblocks);
        let epoch = log.superblocks.lock().current.epoch;
        log.checkpoint.lock().number_from(first_number - 1);
        log.start_appender(Start {
            epoch,
            next_seqno: first_number,
            next_group: first_number,
            clock: first_number - 1,
        });
        log
    }

    fn start_appender(&self, start: Start) {
        *self.appender.lock() = Appender::new(self.geometry, self.table.clone(), RESERVE, start);
        self.durable.store(start.next_seqno - 1, Ordering::Release);
        self.clock.store(start.clock, Ordering::Relaxed);
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn table(&self) -> &SegmentTable {
        &self.table
    }

    pub(crate) fn device(&self) -> &SharedArc<dyn Device> {
        &self.device
    }

    pub(crate) fn options(&self) -> &LogOptions {
        &self.options
    }

    /// Holds up cleaning and checkpoints for as long as what it returns lives.
    pub(crate) fn quiet(&self) -> Quiet<'_> {
        let _checkpoint = self.checkpoint.lock();
        let _upkeep = self.upkeep.lock();
        Quiet {
            _checkpoint,
            _upkeep,
        }
    }

    /// Publishes the appender's clock for those who do not hold its lock.
    pub(crate) fn publish_clock(&self, appender: &Appender) {
        self.clock.store(appender.clock(), Ordering::Relaxed);
    }

    /// The appender, locked: a seqno and a place are taken in one step.
    pub(crate) fn appender(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock()
    }

    /// Bytes of a record of this length.
    pub(crate) fn record_bytes(&self, length: LengthCode) -> u64 {
        length.units() * u64::from(self.geometry.unit_bytes)
    }

    /// Refuses writes of a store that is read-only or failed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        if self.is_poisoned() {
            Err(Error::Poisoned)
        } else {
            Ok(())
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        // Acquire pairs with the Release in `poison`.
        self.poisoned.load(Ordering::Acquire)
    }

    /// Ends all writing: a write or flush failed, so what is on media is unknown.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
        self.wake_everyone();
    }

    /// Asks the background threads to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake_everyone();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.is_poisoned()
    }

    fn wake_everyone(&self) {
        // The locks are taken so that nobody is between its check and its wait.
        let waiters = self.commit.lock().waiters();
        waiters.wake();
        let _appender = self.appender.lock();
        self.space.notify_all();
        self.work.notify_all();
        self.flush.notify_all();
        self.joined.notify_all();
    }

    /// Bytes of records accepted from callers over the life of the store: the clock by
    /// which ages and rewrite intervals are measured.
    pub(crate) fn clock(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// How many writers waited for the last group: whether padding is shared by many.
    pub(crate) fn recent_writers(&self) -> u64 {
        self.recent_writers.load(Ordering::Relaxed)
    }

    /// Whether committed writes go to the heads of their classes now.
    pub(crate) fn spreads_commits(&self) -> bool {
        // Relaxed: a hint.
        spreads_commits(self.commit_bytes.load(Ordering::Relaxed))
    }

    /// Wakes the flusher, because a group is full.
    pub(crate) fn wake_flusher(&self) {
        self.flush.notify_one();
    }

    /// Waits until at most `bytes` are accepted and not on the device.
    pub(crate) fn throttle(&self, bytes: u64) -> Result<()> {
        let mut appender = self.appender.lock();
        while appender.unwritten_bytes() > bytes {
            if self.is_poisoned() {
                return Err(Error::Poisoned);
            }
            self.flush.notify_one();
            appender = self.space.wait_for(appender, Duration::from_millis(100));
        }
        Ok(())
    }

    /// The cuts in force; those of a store opened read-only include the one that its open
    /// would have made.
    pub(crate) fn cuts(&self) -> Vec<Cut> {
        self.superblocks.lock().current.cuts.clone()
    }

    /// The open-epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.superblocks.lock().current.epoch
    }

    /// Crashed epochs whose frames may still be on media.
    pub(crate) fn cut_count(&self) -> usize {
        self.superblocks.lock().current.cuts.len()
    }

    /// Bytes of segments a crash now would replay.
    pub(crate) fn replay_bytes(&self) -> u64 {
        let horizon = self.newest_horizon();
        let replayed = self.table.iter().filter(|(_, segment)| {
            matches!(segment.state(), State::Open | State::Sealed)
                && segment.last_seqno() >= horizon
        });
        replayed.count() as u64 * self.geometry.segment_bytes
    }

    /// Ends an orderly stop, after the background threads ended: everything durable, every
    /// head sealed, every partition imaged, then the clean mark. Without room for the images
    /// the mark is left out, and the next open replays.
    pub(crate) fn close(&self, owner: &dyn Owner) -> Result<()> {
        if self.is_poisoned() {
            return Err(Error::Poisoned);
        }
        self.appender.lock().seal_all();
        self.commit_now()?;
        let next_seqno = self.appender.lock().next_seqno();
        if self.newest_horizon() != next_seqno {
            match self.checkpoint_all(owner) {
                Err(Error::NoSpace { .. }) => {
                    tracing::warn!("no room for checkpoint images; the next open replays the log");
                    return Ok(());
                }
                other => other?,
            }
        }
        self.mark_clean()
    }

    /// A record's bytes died.
    pub(crate) fn record_died(&self, address: Address, bytes: u64) {
        self.table.add_live(address, -(bytes as i64));
    }

    /// Reads `into` from the device, counting errors and trying again: a transient error or
    /// a page of zeros under memory pressure must not become a lost value.
    pub(crate) fn read_device(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut attempt = 0;
        loop {
            match self.device.read(offset, into) {
                Ok(()) => return Ok(()),
                Err(_) if attempt < READ_RETRIES => {
                    attempt += 1;
                    Counters::add(&self.counters.read_retries, 1);
                }
                Err(source) => {
                    Counters::add(&self.counters.read_errors, 1);
                    return Err(Error::Io {
                        op: "read",
                        offset,
                        source,
                    });
                }
            }
        }
    }

    /// Performs all reads, in parallel where the device can; one that fails is tried again
    /// by itself.
    pub(crate) fn read_device_many(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        if ops.len() > 1 && self.device.read_many(ops).is_ok() {
            return Ok(());
        }
        ops.iter_mut()
            .try_for_each(|op| self.read_device(op.offset, op.into))
    }

    pub(crate) fn flush_device(&self) -> Result<()> {
        Counters::add(&self.counters.flushes, 1);
        self.device.flush().map_err(|source| Error::Io {
            op: "flush",
            offset: 0,
            source,
        })
    }
}

/// Reads are tried again this often. BlueStore's 3 would take one frame in 600 for damaged
/// where a fifth of the reads is bad; this makes it one in two million.
pub(crate) const READ_RETRIES: u32 = 8;
