//! Looking into a store from outside: `info`, `check`, `repair`, `dump`.
//!
//! Everything here works on media that may be damaged in any way: bytes are read whole
//! segments at a time, verified before they are believed, and whatever does not verify
//! becomes a [`Finding`], never a panic. Only [`check`] with [`CheckOptions::repair`]
//! writes.
//!
//! - `media.rs` reads superblocks and segment headers, also without any superblock.
//! - `walk.rs` visits the records of one segment and goes on behind damage.
//! - `check.rs` compares media with the index that an ordinary open makes of it, `objects.rs`
//!   with its objects; `online.rs` does so with what an open store has.
//! - `repair.rs` chooses what to do; `rebuild.rs` makes the index anew from the log, with
//!   `restore.rs` (segment headers), `order.rs` (which frames count, in which order),
//!   `doubt.rs` (which keys cannot be proven), `tidy.rs` (what is left incomplete) and
//!   `salvage.rs` (objects).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod check;
mod checkpoints;
mod doubt;
mod dump;
mod ends;
mod info;
mod media;
mod objects;
mod online;
mod order;
mod rebuild;
mod repair;
mod report;
mod restore;
mod salvage;
#[cfg(all(test, not(loom)))]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panics"
)]
mod tests;
mod tidy;
mod walk;

use std::path::Path;

use crate::device::{Device, FileDevice, FileOptions};
use crate::sync::SharedArc;
use crate::{Error, Result};

pub use dump::DumpOptions;
pub use info::{Info, SlotInfo};
pub use report::{
    CheckOptions, CheckReport, Finding, Key, Progress, SegmentCensus, Severity, Structure,
};

/// What a store says of itself: superblocks, geometry, roots, segments by class. Works on a
/// damaged store, and on one that is in use ([`Info::in_use`]): then what it shows may be
/// of several moments. Writes nothing.
///
/// # Errors
/// `NotFound` when neither a superblock nor a segment header is found, `Version`, `Io`.
pub fn info(path: impl AsRef<Path>) -> Result<Info> {
    let path = path.as_ref();
    match open_file(path, true) {
        Ok(device) => info_on(device),
        Err(Error::InUse) => {
            let mut info = info::of(&info::unlocked(path)?)?;
            info.in_use = true;
            Ok(info)
        }
        Err(error) => Err(error),
    }
}

/// As [`info`], on a device of the caller's.
///
/// # Errors
/// As for [`info`].
pub fn info_on(device: SharedArc<dyn Device>) -> Result<Info> {
    info::of(&media::Media::open(device)?)
}

/// Verifies every record on media against the index and the objects, the segment table against the
/// records, and every copy of the checkpoint; repairs what it can if asked to.
///
/// The default reads everything but the data of objects, which [`CheckOptions::deep`] reads
/// too, and writes nothing. Memory: one segment, the index, and
/// the lists of the report. The store must not be open elsewhere.
///
/// # Errors
/// `NotFound` when there is nothing like a store, `InUse`, `Version`, `Io`. Damage is no
/// error but a [`Finding`].
pub fn check(
    path: impl AsRef<Path>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport> {
    let device = open_file(path.as_ref(), !options.repair)?;
    check_on(device, options, progress)
}

/// As [`check`], on a device of the caller's.
///
/// # Errors
/// As for [`check`].
pub fn check_on(
    device: SharedArc<dyn Device>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport> {
    let media = media::Media::open(device.clone())?;
    let report = check::run(&media, options, progress)?;
    if !options.repair || (report.is_clean() && report.warnings == 0) {
        return Ok(report);
    }
    repair::run(media, report, options, progress)
}

/// Writes segments, and with [`DumpOptions::records`] frames and records, as text. Writes
/// nothing to the store.
///
/// # Errors
/// As for [`info`]; `Io` with `op` "write" when `out` fails.
pub fn dump(
    path: impl AsRef<Path>,
    options: &DumpOptions,
    out: &mut dyn std::io::Write,
) -> Result<()> {
    dump_on(open_file(path.as_ref(), true)?, options, out)
}

/// As [`dump`], of a device of the caller's.
///
/// # Errors
/// As for [`dump`].
pub fn dump_on(
    device: SharedArc<dyn Device>,
    options: &DumpOptions,
    out: &mut dyn std::io::Write,
) -> Result<()> {
    dump::run(&media::Media::open(device)?, options, out)
}

fn open_file(path: &Path, read_only: bool) -> Result<SharedArc<dyn Device>> {
    let options = FileOptions {
        read_only,
        direct_io: true,
        io_uring: true,
    };
    Ok(SharedArc::new(FileDevice::open(path, &options)?))
}
