//! A regular file or a block device as a [`Device`].
//!
//! Promises: one read-write user at a time, across processes and within one (`flock`, and
//! for block devices an exclusive open, which also refuses a mounted one); the page cache
//! is bypassed where the file system lets us (`O_DIRECT`); a call that is cut short or
//! interrupted is finished; a flush is `fdatasync`, begun after every write of its call
//! completed, and never repeated after it failed. A file shorter than it was at open gives
//! `UnexpectedEof`. Relies on offsets and buffers being aligned to the block
//! ([`AlignedBuf`](super::AlignedBuf)).
//!
//! One operation is one `pread` or `pwrite`: the shortest way. Several go through
//! `io_uring` together, where the kernel lets us.

mod opening;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use super::ring::{RingOp, RingPool};
use super::{Device, DeviceInfo, ReadOp, WriteOp, assert_aligned, check_end};
use crate::sync::{AtomicBool, Ordering};
use crate::{Error, Result};
use opening::{enable_direct, kind_of, lock, open_file};

/// Smallest logical block: what torn writes and every disk are made of.
const BLOCK_MIN: u32 = 512;

/// How to open a file or block device.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// Refuse writes; share the file with other readers.
    pub read_only: bool,
    /// Bypass the page cache where the file system allows it.
    pub direct_io: bool,
    /// Use `io_uring` where the kernel allows it.
    pub io_uring: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            direct_io: true,
            io_uring: true,
        }
    }
}

/// A regular file or block device.
pub struct FileDevice {
    file: File,
    kind: Kind,
    capacity: u64,
    block: u32,
    direct: bool,
    read_only: bool,
    rings: Option<RingPool>,
    /// Cleared by the first discard that is refused as unsupported.
    discards: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Regular,
    BlockDevice,
}

impl FileDevice {
    /// Whether there is a block device at `path`.
    pub fn is_block_device(path: &Path) -> bool {
        matches!(kind_of(path), Ok(Kind::BlockDevice))
    }

    /// Makes a file of `capacity` bytes, rounded down to whole blocks, or takes a whole
    /// block device, whose content is left alone; `capacity` then only has to fit.
    ///
    /// A file that is there already must be empty. On failure nothing is left behind. The
    /// directory entry is durable when this returns; the space is not reserved.
    pub fn create(path: &Path, capacity: u64, options: &FileOptions) -> Result<Self> {
        if options.read_only {
            return Err(Error::InvalidArgument(
                "a store cannot be created read-only",
            ));
        }
        match kind_of(path) {
            Ok(Kind::BlockDevice) => {
                let device = Self::open(path, options)?;
                if capacity > device.capacity {
                    return Err(Error::InvalidArgument(
                        "capacity is over the block device's",
                    ));
                }
                Ok(device)
            }
            Ok(Kind::Regular) => {
                let file = open_file(path, Kind::Regular, options, OFlags::empty())?;
                Self::create_in(file, path, capacity, options, false)
            }
            Err(Error::NotFound { .. }) => {
                let flags = OFlags::CREATE | OFlags::EXCL;
                let file = open_file(path, Kind::Regular, options, flags)?;
                Self::create_in(file, path, capacity, options, true)
            }
            Err(error) => Err(error),
        }
    }

    fn create_in(
        file: File,
        path: &Path,
        capacity: u64,
        options: &FileOptions,
        is_new: bool,
    ) -> Result<Self> {
        lock(&file, options)?;
        // Under the lock: another creator may have been faster.
        if file.metadata().map_err(failed("create"))?.len() > 0 {
            return Err(Error::Exists {
                what: path.display().to_string(),
            });
        }
        let undo = file.try_clone().map_err(failed("create"))?;
        let made = Self::lay_out(file, path, capacity, options);
        if made.is_err() {
            // The first error counts; what cannot be undone stays an empty file.
            let _ = if is_new {
                std::fs::remove_file(path)
            } else {
                undo.set_len(0)
            };
        }
        made
    }

    fn lay_out(file: File, path: &Path, capacity: u64, options: &FileOptions) -> Result<Self> {
        file.set_len(capacity).map_err(failed("create"))?;
        let device = Self::finish(file, Kind::Regular, options)?;
        if device.capacity == 0 {
            return Err(Error::InvalidArgument("capacity is less than one block"));
        }
        device
            .file
            .set_len(device.capacity)
            .map_err(failed("create"))?;
        device.file.sync_all().map_err(failed("flush"))?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))
            .and_then(|directory| directory.sync_all())
            .map_err(failed("flush"))?;
        Ok(device)
    }

    /// Opens a file or block device and locks it: exclusively, or shared if read-only.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self> {
        let kind = kind_of(path)?;
        let file = open_file(path, kind, options, OFlags::empty())?;
        lock(&file, options)?;
        Self::finish(file, kind, options)
    }

    /// Finds out how the locked file is to be used.
    fn finish(file: File, kind: Kind, options: &FileOptions) -> Result<Self> {
        let size = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(failed("open"))?;
        let logical = match kind {
            Kind::Regular => BLOCK_MIN,
            Kind::BlockDevice => {
                let block = rustix::fs::ioctl_blksszget(&file).map_err(failed("open"))?;
                block.max(BLOCK_MIN).next_power_of_two()
            }
        };
        let direct_block = if options.direct_io {
            enable_direct(&file, kind, logical).map_err(failed("open"))?
        } else {
            None
        };
        let block = direct_block.unwrap_or(logical);
        Ok(Self {
            file,
            kind,
            capacity: size - size % u64::from(block),
            block,
            direct: direct_block.is_some(),
            read_only: options.read_only,
            rings: if options.io_uring {
                RingPool::new()
            } else {
                None
            },
            discards: AtomicBool::new(true),
        })
    }

    /// Reads the rest of `into`, of which `done` bytes are there.
    fn read_rest(&self, offset: u64, into: &mut [u8], done: usize) -> io::Result<()> {
        let mut done = self.whole_blocks(done);
        while let Some(rest) = into.get_mut(done..)
            && !rest.is_empty()
        {
            match self.file.read_at(rest, offset + done as u64) {
                // The file ends here: it was shortened since it was opened.
                Ok(count) if self.whole_blocks(count) == 0 => {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                Ok(count) => done += self.whole_blocks(count),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the rest of `data`, of which `done` bytes are written.
    fn write_rest(&self, offset: u64, data: &[u8], done: usize) -> io::Result<()> {
        let mut done = self.whole_blocks(done);
        while let Some(rest) = data.get(done..)
            && !rest.is_empty()
        {
            match self.file.write_at(rest, offset + done as u64) {
                Ok(count) if self.whole_blocks(count) == 0 => {
                    return Err(ErrorKind::WriteZero.into());
                }
                Ok(count) => done += self.whole_blocks(count),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A call that was cut short within a block is continued from the block's start, as
    /// direct I/O demands.
    fn whole_blocks(&self, bytes: usize) -> usize {
        bytes - bytes % self.block as usize
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.read_only {
            Err(Errno::ROFS.into())
        } else {
            Ok(())
        }
    }

    fn discard_range(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.kind {
            Kind::Regular => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                retry(|| rustix::fs::fallocate(&self.file, flags, offset, len))
            }
            Kind::BlockDevice => retry(|| block_discard(&self.file, offset, len)),
        }
    }
}

impl Device for FileDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_bytes(&self) -> u32 {
        self.block
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        assert_aligned(self.block, offset, into);
        check_end(
            self.capacity,
            offset,
            into.len() as u64,
            ErrorKind::UnexpectedEof,
        )?;
        self.read_rest(offset, into, 0)
    }

    fn read_many(&self, ops: &mut [ReadOp<'_>]) -> io::Result<()> {
        let rings = match &self.rings {
            Some(rings) if ops.len() > 1 => rings,
            _ => {
                return ops
                    .iter_mut()
                    .try_for_each(|op| self.read(op.offset, op.into));
            }
        };
        for op in &*ops {
            assert_aligned(self.block, op.offset, op.into);
            check_end(
                self.capacity,
                op.offset,
                op.into.len() as u64,
                ErrorKind::UnexpectedEof,
            )?;
        }
        let mut batch: Vec<_> = ops
            .iter_mut()
            .map(|op| RingOp::Read(op.offset, &mut *op.into))
            .collect();
        let outcomes = rings.run(self.file.as_fd(), &mut batch);
        for (op, outcome) in ops.iter_mut().zip(outcomes) {
            self.read_rest(op.offset, op.into, bytes_done(outcome)?)?;
        }
        Ok(())
    }

    fn write_many(&self, ops: &[WriteOp<'_>]) -> io::Result<()> {
        self.check_writable()?;
        for op in ops {
            assert_aligned(self.block, op.offset, op.data);
            check_end(
                self.capacity,
                op.offset,
                op.data.len() as u64,
                ErrorKind::InvalidInput,
            )?;
        }
        let rings = match &self.rings {
            Some(rings) if ops.len() > 1 => rings,
            _ => {
                return ops
                    .iter()
                    .try_for_each(|op| self.write_rest(op.offset, op.data, 0));
            }
        };
        let mut batch: Vec<_> = ops
            .iter()
            .map(|op| RingOp::Write(op.offset, op.data))
            .collect();
        let outcomes = rings.run(self.file.as_fd(), &mut batch);
        for (op, outcome) in ops.iter().zip(outcomes) {
            self.write_rest(op.offset, op.data, bytes_done(outcome)?)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.check_writable()?;
        self.file.sync_data()
    }

    /// Gives the range back: a punched hole in a file, `TRIM` on a block device. Where that
    /// is not supported nothing happens, and [`DeviceInfo::discard`] says so from then on.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        assert_aligned(self.block, offset | len, &[]);
        check_end(self.capacity, offset, len, ErrorKind::InvalidInput)?;
        // Relaxed: a hint; a discard too many is refused again.
        if len == 0 || !self.discards.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.discard_range(offset, len) {
            Err(error) if is_unsupported(&error) => {
                self.discards.store(false, Ordering::Relaxed);
                Ok(())
            }
            result => result,
        }
    }

    fn wants_prewrite(&self) -> bool {
        self.kind == Kind::Regular
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: match self.kind {
                Kind::Regular => "file",
                Kind::BlockDevice => "block device",
            },
            io: if self.rings.is_some() {
                "io_uring"
            } else {
                "pread/pwrite"
            },
            direct: self.direct,
            block_bytes: self.block,
            capacity_bytes: self.capacity,
            discard: !self.read_only && self.discards.load(Ordering::Relaxed),
        }
    }
}

/// An error of a call that has no offset.
fn failed<E: Into<io::Error>>(op: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Io {
        op,
        offset: 0,
        source: source.into(),
    }
}

fn block_discard(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    #[expect(unsafe_code, reason = "rustix has no call for BLKDISCARD")]
    // SAFETY: BLKDISCARD takes a pointer to two u64, offset and length in bytes.
    let request = unsafe { rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]) };
    #[expect(unsafe_code, reason = "rustix has no call for BLKDISCARD")]
    // SAFETY: the request is well-formed and only reads from our memory.
    unsafe {
        rustix::ioctl::ioctl(file, request)
    }
}

/// What a ring did of one operation: 0 if it is to be done again, by a plain call.
fn bytes_done(outcome: Option<i32>) -> io::Result<usize> {
    match outcome {
        None => Ok(0),
        Some(result) => usize::try_from(result).or_else(|_| {
            let error = io::Error::from_raw_os_error(result.saturating_neg());
            // Old kernels know io_uring but not these operations.
            let refused = error.kind() == ErrorKind::InvalidInput || is_unsupported(&error);
            if refused || is_transient(&error) {
                Ok(0)
            } else {
                Err(error)
            }
        }),
    }
}

fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    rustix::io::retry_on_intr(call).map_err(Into::into)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY)
    )
}

#[cfg(test)]
mod tests;
