//! Group commit.
//!
//! Whoever needs a commit and finds no leader becomes the leader: it closes the group
//! being filled, writes all its frames in parallel, flushes once, acknowledges, and hands
//! over. A lone writer therefore pays no thread switch. One group is in the air at a time,
//! so every frame says of all earlier groups that they were flushed (D3).
//!
//! A failed write or flush poisons the log: what it covered is never acknowledged and
//! never retried, because the kernel may have dropped the dirty state (fsyncgate).

use std::time::{Duration, Instant};

use crate::device::WriteOp;
use crate::format::Seqno;
use crate::sync::{Arc, Condvar, MODEL, Mutex, MutexGuard, Ordering};
use crate::{Error, Result};

use super::appender::Group;
use super::{Appender, Counters, GROUP_AGE, GROUP_BYTES, Log};

/// Shared by all who wait for commits.
#[derive(Default)]
pub(crate) struct CommitState {
    leading: bool,
    /// The last seqno of the group in the air; the highest there is while it is filled.
    flying: Seqno,
    /// Who waits for the group in the air, and who for the next.
    waiting: [Vec<Arc<Waiter>>; 2],
    /// Callers that waited for the last group, and those that were late for it.
    last_writers: u64,
    /// Smoothed time of a write and flush.
    flush_time: Duration,
}

/// A caller that waits for a commit. Each has its own lock: when a group is done, those it
/// covers would else all queue for the one of the state.
struct Waiter {
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Waiter {
    fn new() -> Self {
        Self {
            woken: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    fn wait(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            woken = self.wake.wait(woken);
        }
    }

    fn wake(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }
}

impl CommitState {
    /// Everybody who waits.
    pub(super) fn waiters(&mut self) -> Waiters {
        let [mut all, next] = std::mem::take(&mut self.waiting);
        all.extend(next);
        Waiters(all)
    }

    /// Those of the group that is done, and one of the next, which leads it.
    fn group_ended(&mut self) -> Waiters {
        let [mut done, mut next] = std::mem::take(&mut self.waiting);
        done.extend(next.pop());
        self.waiting[0] = next;
        Waiters(done)
    }
}

/// Callers to be woken without any lock.
#[must_use]
pub(super) struct Waiters(Vec<Arc<Waiter>>);

impl Waiters {
    pub(super) fn wake(self) {
        // The last is the next leader, and has the most to do.
        for waiter in self.0.iter().rev() {
            waiter.wake();
        }
    }
}

/// A leader whose last group had company waits up to this share of a flush for it to return:
/// without it, writers fall into two halves that alternate.
const GATHER_SHARE: u32 = 4;
/// More gathering than this helps nobody.
const GATHER_MAX: Duration = if MODEL {
    // Models have no clock.
    Duration::ZERO
} else {
    Duration::from_millis(1)
};

impl Log {
    /// Returns when every seqno up to `seqno` is durable.
    pub(crate) fn commit_through(&self, seqno: Seqno) -> Result<()> {
        // Acquire: what the leader did is visible to whoever sees its seqno.
        while self.durable.load(Ordering::Acquire) < seqno {
            let state = self.commit.lock();
            if self.durable.load(Ordering::Acquire) < seqno {
                self.lead_or_wait(state, seqno)?;
            }
        }
        Ok(())
    }

    /// Commits whatever there is, with the headers of emptied segments that may be freed.
    pub(crate) fn commit_now(&self) -> Result<()> {
        let mut state = self.commit.lock();
        while state.leading {
            self.lead_or_wait(state, 0)?;
            state = self.commit.lock();
        }
        self.lead_or_wait(state, 0)
    }

    /// Asks the flusher for a commit, and does not wait for it.
    pub(crate) fn ask_commit(&self) {
        self.appender.lock().want_commit();
        self.flush.notify_one();
    }

    /// Asks the flusher for a commit, and waits until it, or one that was under way, is done.
    pub(crate) fn await_commit(&self) -> Result<()> {
        let mut appender = self.appender.lock();
        let rounds = appender.rounds();
        appender.want_commit();
        self.flush.notify_one();
        while appender.rounds() == rounds {
            if self.is_poisoned() {
                return Err(Error::Poisoned);
            }
            if self.is_stopping() {
                return Ok(());
            }
            appender = self.work.wait_for(appender, GROUP_AGE);
        }
        Ok(())
    }

    /// The last durable seqno.
    pub(crate) fn durable(&self) -> Seqno {
        self.durable.load(Ordering::Acquire)
    }

    /// Commits what there is, or waits until the leader is done: with the group in the air,
    /// if that has `seqno`, or with the next, which the caller may have to lead then.
    fn lead_or_wait(&self, mut state: MutexGuard<'_, CommitState>, seqno: Seqno) -> Result<()> {
        if self.is_poisoned() {
            return Err(Error::Poisoned);
        }
        if state.leading {
            let waiter = Arc::new(Waiter::new());
            let is_late = seqno > state.flying;
            state.waiting[usize::from(is_late)].push(Arc::clone(&waiter));
            drop(state);
            waiter.wait();
            return Ok(());
        }
        state.leading = true;
        state.flying = Seqno::MAX;
        let (last_writers, flush_time) = (state.last_writers, state.flush_time);
        drop(state);
        self.gather(last_writers, flush_time);
        let group = self.appender.lock().close_group(self.durable());
        if let Some(group) = &group {
            self.commit.lock().flying = group.last_seqno;
        }
        let outcome = group.map(|group| self.write_group(group)).transpose();
        let mut state = self.commit.lock();
        state.leading = false;
        match outcome {
            Ok(Some(written)) => {
                assert!(
                    written.last_seqno >= self.durable(),
                    "durability never goes back"
                );
                self.durable.store(written.last_seqno, Ordering::Release);
                state.last_writers = written.writers + written.late;
                self.recent_writers
                    .store(written.writers, Ordering::Relaxed);
                state.flush_time = (state.flush_time * 7 + written.time) / 8;
            }
            Ok(None) => state.last_writers = 0,
            Err(error) => {
                self.poisoned.store(true, Ordering::Release);
                drop(state);
                self.poison();
                return Err(error);
            }
        }
        let waiters = state.group_ended();
        drop(state);
        waiters.wake();
        Ok(())
    }

    /// Gives writers of the last group the chance to be in this one too.
    fn gather(&self, wanted: u64, flush_time: Duration) {
        if wanted < 2 {
            return;
        }
        let deadline = Instant::now() + (flush_time / GATHER_SHARE).min(GATHER_MAX);
        let mut appender = self.appender.lock();
        appender.gather_for(wanted);
        while appender.pending_writers() < wanted && !self.is_poisoned() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            appender = self.joined.wait_for(appender, left);
        }
        appender.gather_for(0);
    }

    /// Counts a caller that will wait for this group.
    pub(crate) fn join_group(&self, appender: &mut Appender) {
        if appender.add_writer() {
            self.joined.notify_one();
        }
    }

    fn write_group(&self, group: Group) -> Result<Written> {
        let started = Instant::now();
        let header_bytes = self.geometry.header_bytes() as usize;
        let mut headers = crate::device::AlignedBuf::zeroed(header_bytes * group.headers.len());
        for (block, (_, header)) in headers.chunks_exact_mut(header_bytes).zip(&group.headers) {
            header.encode(block);
        }
        let mut ops = Vec::with_capacity(group.frames.len() + group.headers.len());
        for frame in &group.frames {
            let offset =
                self.geometry.segment_offset(frame.segment) + u64::from(frame.write_offset);
            ops.push(WriteOp {
                offset,
                data: &frame.bytes,
            });
        }
        for (block, (segment, _)) in headers.chunks_exact(header_bytes).zip(&group.headers) {
            ops.push(WriteOp {
                offset: self.geometry.segment_offset(*segment),
                data: block,
            });
        }
        let first = ops.first().map_or(0, |op| op.offset);
        self.device
            .write_and_flush(&ops)
            .map_err(|source| Error::Io {
                op: "write and flush",
                offset: first,
                source,
            })?;
        Counters::add(&self.counters.groups, 1);
        Counters::add(&self.counters.flushes, 1);
        let mut written = Written {
            last_seqno: group.last_seqno,
            writers: group.writers,
            late: 0,
            time: started.elapsed(),
        };
        if group.user_bytes > 0 {
            // One leader at a time: nothing is lost between load and store.
            let before = self.commit_bytes.load(Ordering::Relaxed);
            let smoothed = (before * 7 + group.user_bytes) / 8;
            self.commit_bytes.store(smoothed, Ordering::Relaxed);
        }
        let freed = !group.headers.is_empty();
        let mut appender = self.appender.lock();
        written.late = appender.pending_writers();
        appender.commit_took(written.time);
        appender.group_written(group);
        self.space.notify_all();
        let checkpoint_due = self.checkpoint_due.load(Ordering::Relaxed);
        let due = appender.appended_bytes() >= checkpoint_due;
        let available = appender.free_count() + appender.emptied_count();
        let is_low = available < self.low_water(&appender);
        if freed || due || is_low || appender.emptied_count() > 0 {
            self.work.notify_all();
        }
        Ok(written)
    }

    /// The flusher thread: commits buffered writes when they are many or old.
    pub(crate) fn flusher(&self) {
        let mut appender = self.appender.lock();
        while !self.is_stopping() {
            let due = appender.pending_bytes() >= GROUP_BYTES
                || appender.commit_is_wanted()
                || appender.pending_age().is_some_and(|age| age >= GROUP_AGE);
            if !due {
                // The tick is what bounds the age of a lone buffered write.
                appender = self.flush.wait_for(appender, GROUP_AGE / 2);
                continue;
            }
            appender.commit_begins();
            let rounds = appender.rounds();
            drop(appender);
            if self.commit_now().is_err() {
                return;
            }
            appender = self.appender.lock();
            if appender.rounds() == rounds {
                // Nothing was written.
                appender.round_ends();
            }
            // Whoever waits for a commit, whatever it wrote.
            self.work.notify_all();
        }
    }
}

struct Written {
    last_seqno: Seqno,
    writers: u64,
    /// Callers that wait for the next group already.
    late: u64,
    time: Duration,
}
