//! Batches of reads or writes through `io_uring`, from any number of threads.
//!
//! A [`RingPool`] makes up to [`RINGS_MAX`] rings on demand, one per batch under way; a
//! batch that finds none free, and a kernel that refuses them, are served by the caller's
//! `pread`/`pwrite`. Promises: [`RingPool::run`] returns only when the kernel holds none of
//! the batch's buffers, whatever fails. Relies on the caller to finish what a ring left
//! short: it says per operation what the kernel said, and interprets nothing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use crate::sync::{AtomicUsize, Mutex, Ordering, thread};

/// Entries of one ring: operations of one batch that are in flight together. Flash gains
/// little beyond 32 in flight per thread.
const ENTRIES: u32 = 64;

/// Rings at most: more batches at once than this go by `pread`/`pwrite`, each on its own
/// thread, which keeps the device as busy.
const RINGS_MAX: usize = 16;

/// Longest operation given to a ring: its length is 32 bits and the kernel stops at 2 GiB.
const OP_BYTES_MAX: usize = 1 << 30;

/// What the kernel said of one operation: bytes done, or the negative `errno`.
pub(super) type Outcome = Option<i32>;

/// One operation for the kernel.
pub(super) enum RingOp<'a> {
    /// Fill the bytes from the offset.
    Read(u64, &'a mut [u8]),
    /// Write the bytes at the offset.
    Write(u64, &'a [u8]),
}

/// The rings of one device.
pub(super) struct RingPool {
    idle: Mutex<Vec<IoUring>>,
    made: AtomicUsize,
}

impl RingPool {
    /// A pool with one ring, or `None` where the kernel refuses `io_uring`.
    pub(super) fn new() -> Option<Self> {
        let ring = make_ring().ok()?;
        Some(Self {
            idle: Mutex::new(vec![ring]),
            made: AtomicUsize::new(1),
        })
    }

    /// Runs `ops` in parallel and says what became of each; `None` stands for an operation
    /// the kernel was not given, as all are when no ring is free.
    pub(super) fn run(&self, file: BorrowedFd<'_>, ops: &mut [RingOp<'_>]) -> Vec<Outcome> {
        let mut outcomes = vec![None; ops.len()];
        if let Some(mut ring) = self.take() {
            if run_batch(&mut ring, file, ops, &mut outcomes) {
                self.idle.lock().push(ring);
            } else {
                drop(ring);
                self.made.fetch_sub(1, Ordering::Relaxed);
            }
        }
        outcomes
    }

    fn take(&self) -> Option<IoUring> {
        if let Some(ring) = self.idle.lock().pop() {
            return Some(ring);
        }
        // Relaxed: a count that bounds memory and orders nothing.
        if self.made.fetch_add(1, Ordering::Relaxed) < RINGS_MAX
            && let Ok(ring) = make_ring()
        {
            return Some(ring);
        }
        self.made.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

fn make_ring() -> io::Result<IoUring> {
    // Completions are only waited for by the submitter, so the kernel need not interrupt
    // it (5.19); older kernels refuse the flag.
    IoUring::builder()
        .setup_coop_taskrun()
        .build(ENTRIES)
        .or_else(|_| IoUring::new(ENTRIES))
}

/// Runs a batch; false if the ring is not to be used again. Returns only when the kernel
/// has completed every operation it took. Nothing here may panic: the buffers would be
/// freed under the kernel.
fn run_batch(
    ring: &mut IoUring,
    file: BorrowedFd<'_>,
    ops: &mut [RingOp<'_>],
    outcomes: &mut [Outcome],
) -> bool {
    let mut waiting = ops.iter_mut().enumerate().peekable();
    let mut in_flight = 0_usize;
    loop {
        while let Some((index, op)) = waiting.peek_mut() {
            let entry = entry(file, op).user_data(*index as u64);
            #[expect(
                unsafe_code,
                reason = "the kernel reads and writes the batch's buffers"
            )]
            // SAFETY: the buffer of the operation is borrowed by this call, which does not
            // return before the kernel completed the operation or the ring is dropped with
            // the entry unsubmitted; the file descriptor is borrowed likewise.
            let pushed = unsafe { ring.submission().push(&entry) };
            if pushed.is_err() {
                break;
            }
            in_flight += 1;
            waiting.next();
        }
        if in_flight == 0 {
            return true;
        }
        let submitted = ring.submit_and_wait(in_flight);
        in_flight = in_flight.saturating_sub(reap(ring, outcomes));
        match submitted {
            Ok(_) => {}
            Err(error) if is_transient(&error) => thread::yield_now(),
            Err(_) => {
                drain(ring, in_flight, outcomes);
                return false;
            }
        }
    }
}

fn entry(file: BorrowedFd<'_>, op: &mut RingOp<'_>) -> squeue::Entry {
    let file = types::Fd(file.as_raw_fd());
    match op {
        RingOp::Read(offset, into) => {
            let len = into.len().min(OP_BYTES_MAX) as u32;
            opcode::Read::new(file, into.as_mut_ptr(), len)
                .offset(*offset)
                .build()
        }
        RingOp::Write(offset, data) => {
            let len = data.len().min(OP_BYTES_MAX) as u32;
            opcode::Write::new(file, data.as_ptr(), len)
                .offset(*offset)
                .build()
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
    )
}

/// Takes the completions that are there; returns how many.
fn reap(ring: &mut IoUring, outcomes: &mut [Outcome]) -> usize {
    let mut count = 0;
    for completion in ring.completion() {
        count += 1;
        if let Some(outcome) = outcomes.get_mut(completion.user_data() as usize) {
            *outcome = Some(completion.result());
        }
    }
    count
}

/// Waits, on a ring that cannot submit any more, for what the kernel took before. Entries
/// it did not take stay behind and go with the ring.
fn drain(ring: &mut IoUring, in_flight: usize, outcomes: &mut [Outcome]) {
    const GETEVENTS: u32 = 1; // IORING_ENTER_GETEVENTS
    let unsubmitted = ring.submission().len();
    let mut taken = in_flight.saturating_sub(unsubmitted);
    while taken > 0 {
        #[expect(
            unsafe_code,
            reason = "the crate has no safe call that waits and submits nothing"
        )]
        // SAFETY: submits nothing and passes no argument.
        let waited = unsafe { ring.submitter().enter::<()>(0, 1, GETEVENTS, None) };
        if waited.is_err() {
            thread::yield_now();
        }
        taken = taken.saturating_sub(reap(ring, outcomes));
    }
}
