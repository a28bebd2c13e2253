//! What a store says of itself.

use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Serialize;

use crate::device::{Device, DeviceInfo, WriteOp};
use crate::format::VERSION;
use crate::sync::SharedArc;
use crate::{Error, Result};

use super::media::Media;
use super::report::SegmentCensus;

/// What a store says of itself.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Info {
    /// Identity of the store, in hexadecimal.
    pub uuid: String,
    /// Format version.
    pub version: u32,
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segment_count: u32,
    /// Block in bytes: every write is a multiple.
    pub block_bytes: u32,
    /// Unit of addresses in bytes.
    pub unit_bytes: u32,
    /// Whether the geometry had to be told from segment headers, because no superblock
    /// verifies.
    pub from_segment_headers: bool,
    /// Whether the last stop was in order.
    pub clean: bool,
    /// Read-write opens so far.
    pub epoch: u64,
    /// Crashed epochs whose end is kept.
    pub cuts: u64,
    /// Sequences of the roots named, newest first.
    pub roots: Vec<u64>,
    /// Whether another process had the store open while this was read.
    pub in_use: bool,
    /// The superblock slots.
    pub superblocks: Vec<SlotInfo>,
    /// Segments by class.
    pub segments: SegmentCensus,
    /// What the device says of itself.
    pub device: DeviceInfo,
}

/// A superblock slot.
#[derive(Debug, Clone, Serialize)]
pub struct SlotInfo {
    /// Byte offset on the device.
    pub offset_bytes: u64,
    /// `valid`, or why not.
    pub state: String,
    /// Sequence, if valid.
    pub sequence: Option<u64>,
    /// Epoch, if valid.
    pub epoch: Option<u64>,
}

pub(super) fn of(media: &Media) -> Result<Info> {
    let geometry = &media.geometry;
    let superblock = media.superblock.as_ref();
    let slots = media.slots.iter().map(|slot| SlotInfo {
        offset_bytes: slot.offset,
        state: match &slot.content {
            Ok(_) => "valid".into(),
            Err(why) => why.to_string(),
        },
        sequence: slot.content.as_ref().ok().map(|found| found.sequence),
        epoch: slot.content.as_ref().ok().map(|found| found.epoch),
    });
    let newest_epoch = media.used_headers().map(|header| header.epoch);
    Ok(Info {
        uuid: geometry
            .uuid
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        version: VERSION,
        capacity_bytes: geometry.capacity,
        segment_bytes: geometry.segment_bytes,
        segment_count: geometry.segment_count,
        block_bytes: geometry.block_bytes,
        unit_bytes: geometry.unit_bytes,
        from_segment_headers: superblock.is_none(),
        clean: superblock.is_some_and(|superblock| superblock.clean.is_some()),
        epoch: match superblock {
            Some(superblock) => superblock.epoch,
            None => newest_epoch.max().unwrap_or(0),
        },
        cuts: superblock.map_or(0, |superblock| superblock.cuts.len() as u64),
        roots: superblock
            .map(|superblock| superblock.roots.iter().map(|root| root.sequence).collect())
            .unwrap_or_default(),
        in_use: false,
        superblocks: slots.collect(),
        segments: media.census(),
        device: media.device.info(),
    })
}

/// Opens a file that another process has open, for looking only.
pub(super) fn unlocked(path: &Path) -> Result<Media> {
    let failed = |source| Error::Io {
        op: "open",
        offset: 0,
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let capacity = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0)).map_err(failed)?;
    Media::open(SharedArc::new(Unlocked { file, capacity }))
}

/// A file that is only looked at: no lock, the page cache.
struct Unlocked {
    file: std::fs::File,
    capacity: u64,
}

impl Device for Unlocked {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write_many(&self, _: &[WriteOp<'_>]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }

    fn flush(&self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }

    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: "file in use",
            io: "pread",
            direct: false,
            block_bytes: 512,
            capacity_bytes: self.capacity,
            discard: false,
        }
    }
}
