//! Opening, locking and probing a file, before it is a device.
//!
//! Promises: whoever holds the lock is the only writer; what [`enable_direct`] says of the
//! alignment was tried by a read. Relies on `flock`, which works between processes and
//! between two handles of one process.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::super::AlignedBuf;
use super::{BLOCK_MIN, FileOptions, Kind, failed, is_unsupported, retry};
use crate::{Error, Result};

/// `udev` holds a shared lock on a block device for some milliseconds after a writer
/// closed it, and the io_uring of a killed process keeps its file, and so the lock, until
/// the I/O under way has ended. A store that restarts at once waits it out, this often and
/// this long.
const LOCK_TRIES: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

pub(super) fn kind_of(path: &Path) -> Result<Kind> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(Kind::BlockDevice),
        Ok(metadata) if metadata.is_file() => Ok(Kind::Regular),
        Ok(_) => Err(Error::InvalidArgument(
            "neither a regular file nor a block device",
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::NotFound {
            what: path.display().to_string(),
        }),
        Err(error) => Err(failed("open")(error)),
    }
}

pub(super) fn open_file(
    path: &Path,
    kind: Kind,
    options: &FileOptions,
    flags: OFlags,
) -> Result<File> {
    let mut flags = flags | OFlags::CLOEXEC;
    flags |= if options.read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    if kind == Kind::BlockDevice && !options.read_only {
        // On a block device this asks the kernel for sole use: mounts included.
        flags |= OFlags::EXCL;
    }
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(Errno::BUSY) if kind == Kind::BlockDevice => Err(Error::InUse),
        Err(Errno::NOENT) => Err(Error::NotFound {
            what: path.display().to_string(),
        }),
        Err(Errno::EXIST) => Err(Error::Exists {
            what: path.display().to_string(),
        }),
        Err(error) => Err(failed("open")(error)),
    }
}

pub(super) fn lock(file: &File, options: &FileOptions) -> Result<()> {
    let operation = if options.read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let mut tries = LOCK_TRIES;
    loop {
        tries -= 1;
        match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if tries == 0 => return Err(Error::InUse),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(failed("lock")(error)),
        }
    }
    // A creator that failed removes its file before it unlocks it: what we hold is then
    // nobody's.
    if file.metadata().map_err(failed("lock"))?.nlink() == 0 {
        return Err(Error::InUse);
    }
    Ok(())
}

/// Switches the page cache off, if the file system can do without; returns the alignment
/// it demands. It is set on the open file, because opening with the flag can leave a new
/// file behind where it is refused.
pub(super) fn enable_direct(file: &File, kind: Kind, logical: u32) -> io::Result<Option<u32>> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    if rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(None);
    }
    let first = match kind {
        Kind::Regular => file_alignment(file),
        Kind::BlockDevice => Some(logical),
    };
    for block in [first.unwrap_or(logical), AlignedBuf::ALIGN as u32] {
        if probe_read(file, block)? {
            return Ok(Some(block));
        }
    }
    rustix::fs::fcntl_setfl(file, flags)?;
    Ok(None)
}

/// The alignment of direct I/O that the kernel states (6.1), if it does.
fn file_alignment(file: &File) -> Option<u32> {
    let mask = StatxFlags::DIOALIGN;
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, mask).ok()?;
    let stated = stat.stx_mask & mask.bits() != 0 && stat.stx_dio_offset_align != 0;
    let align = stat
        .stx_dio_offset_align
        .max(stat.stx_dio_mem_align)
        .max(BLOCK_MIN);
    stated.then_some(align)?.checked_next_power_of_two()
}

/// Whether the file can be read directly in blocks of `block` bytes.
fn probe_read(file: &File, block: u32) -> io::Result<bool> {
    let mut buf = AlignedBuf::zeroed(block as usize);
    // The second block, as the first says nothing of the offset's alignment; its being
    // past the end is no refusal.
    match retry(|| rustix::io::pread(file, &mut buf[..], u64::from(block))) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
        Err(error) if is_unsupported(&error) => Ok(false),
        // A bad sector is not the file system's refusal.
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(true),
        Err(error) => Err(error),
    }
}
