//! Where bytes live: the one seam between the engine and the outside world.
//!
//! Crash tests, fault tests and in-memory stores are implementations of [`Device`], never
//! hooks in the engine. A device is an array of bytes, read and written in whole logical
//! blocks. Writes may reach media in any order and torn at 512 bytes until
//! [`Device::flush`] returns; after it, everything written before it began survives power
//! loss.
//!
//! [`FileDevice`] is a file or a block device, [`SimulatedDevice`] is memory that fails on
//! request. Both panic on a misaligned call, which is a bug of the caller, and return an
//! error for a range that leaves the device, which may come from damaged media:
//! `UnexpectedEof` for a read, `InvalidInput` for a change. [`AlignedBuf`] is the memory
//! that keeps the rules.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod aligned;
mod file;
mod ring;
mod simulated;

use std::io;

pub use aligned::AlignedBuf;
pub use file::{FileDevice, FileOptions};
pub use simulated::{
    BadRange, Counters, CrashPolicy, Discards, Fault, FaultError, Latency, OpKind, SimulatedDevice,
};

/// One write of a parallel batch.
#[derive(Debug, Clone, Copy)]
pub struct WriteOp<'a> {
    /// Byte offset on the device, a multiple of the block size.
    pub offset: u64,
    /// The bytes, a multiple of the block size long, in an aligned buffer.
    pub data: &'a [u8],
}

/// One read of a parallel batch.
#[derive(Debug)]
pub struct ReadOp<'a> {
    /// Byte offset on the device, a multiple of the block size.
    pub offset: u64,
    /// Where the bytes go, a multiple of the block size long, in an aligned buffer.
    pub into: &'a mut [u8],
}

/// What a device says of itself, for `stats` and `info`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct DeviceInfo {
    /// `file`, `block device`, `simulated` or the like.
    pub kind: &'static str,
    /// How calls are made: `io_uring`, `pread/pwrite` or `memory`.
    pub io: &'static str,
    /// Whether the page cache is bypassed (`O_DIRECT`).
    pub direct: bool,
    /// Logical block in bytes: every offset and length is a multiple of it.
    pub block_bytes: u32,
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Whether `discard` gives space back.
    pub discard: bool,
}

/// An array of bytes that survives power loss once flushed.
///
/// Implementations are shared by many threads. No method may panic on any input that
/// keeps the alignment rules; errors are the operating system's.
pub trait Device: Send + Sync {
    /// Size in bytes.
    fn capacity(&self) -> u64;

    /// Logical block in bytes, a power of two of at least 512.
    fn block_bytes(&self) -> u32;

    /// Reads all of `into` from `offset`.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Performs all reads, in parallel where the device can; fails if any fails.
    fn read_many(&self, ops: &mut [ReadOp<'_>]) -> io::Result<()> {
        for op in ops {
            self.read(op.offset, op.into)?;
        }
        Ok(())
    }

    /// Performs all writes, in parallel where the device can; fails if any fails. Not
    /// durable until [`Device::flush`].
    fn write_many(&self, ops: &[WriteOp<'_>]) -> io::Result<()>;

    /// Makes every completed write durable.
    fn flush(&self) -> io::Result<()>;

    /// Writes all, then flushes, as one step where the device can save a call.
    fn write_and_flush(&self, ops: &[WriteOp<'_>]) -> io::Result<()> {
        self.write_many(ops)?;
        self.flush()
    }

    /// Says that the bytes are no longer needed. Their content is undefined after it.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether a range must be physically written once before small flushed writes into
    /// it are cheap (true of files, whose unwritten extents cost a journal commit each).
    fn wants_prewrite(&self) -> bool {
        false
    }

    /// What the device says of itself.
    fn info(&self) -> DeviceInfo;
}

/// Checks what the caller of a device owes it: whole blocks in aligned memory.
fn assert_aligned(block: u32, offset: u64, bytes: &[u8]) {
    let block = block as usize;
    assert!(
        offset.is_multiple_of(block as u64),
        "offset {offset} is not on a {block} B block"
    );
    assert!(
        bytes.len().is_multiple_of(block),
        "{} bytes are not whole blocks",
        bytes.len()
    );
    let address = bytes.as_ptr() as usize;
    let aligned = bytes.is_empty() || address.is_multiple_of(block.min(AlignedBuf::ALIGN));
    assert!(
        aligned,
        "buffer at {address:#x} is not aligned to a {block} B block"
    );
}

/// Refuses a range that leaves the device. An offset can come from damaged media, so this
/// is an error, not a panic.
fn check_end(capacity: u64, offset: u64, len: u64, kind: io::ErrorKind) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(kind.into()),
    }
}
