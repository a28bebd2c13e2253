//! Reading object data: copy out where it is, let the lock go, read, verify.
//!
//! A block that does not verify, or whose segment began another life meanwhile, is looked up
//! again: the cleaner moves payload. A block that is still where it was is read a few times
//! more, and only then is it damage, of that block alone.

use std::cell::RefCell;

use crate::device::AlignedBuf;
use crate::format::{Address, Invalid, payload_checksum};
use crate::log::{Counters, Log};
use crate::sync::SharedArc;
use crate::{Error, Result};

use super::extents::SECTOR_BYTES;
use super::{BLOCK_BYTES, Node, ObjectId, Objects};

/// A run of blocks that lie one after another on the device.
struct Run {
    first: u32,
    address: Address,
    tail_sectors: u8,
    checksums: Vec<u32>,
}

impl Run {
    fn end(&self) -> u32 {
        self.first + self.checksums.len() as u32
    }

    fn bytes(&self) -> u64 {
        let whole = self.checksums.len() as u64 - 1;
        whole * BLOCK_BYTES + u64::from(self.tail_sectors) * SECTOR_BYTES
    }
}

/// Bytes read at a time; longer runs are several reads.
const READ_BYTES_MAX: u64 = 1 << 20;
/// A thread keeps a buffer of at most this size.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::new()) };
}

/// What a read saw of a node under one hold of its shard's lock: a size, and the data that
/// goes with it.
pub(crate) struct Seen {
    id: ObjectId,
    name: SharedArc<[u8]>,
    pub(crate) bytes: u64,
    runs: Vec<Run>,
}

impl Seen {
    /// Looks at a range of a node.
    pub(crate) fn of(id: ObjectId, node: &Node, offset: u64, end: u64) -> Self {
        Self {
            id,
            name: node.name.clone(),
            bytes: node.bytes,
            runs: runs(node, offset, end.min(node.bytes)),
        }
    }

    /// Whether a node still has the name and the size that were seen.
    fn is(&self, node: &Node) -> bool {
        SharedArc::ptr_eq(&self.name, &node.name) && self.bytes == node.bytes
    }

    fn address_of(runs: &[Run], at: u64) -> Option<Address> {
        let block = (at / BLOCK_BYTES) as u32;
        let run = runs
            .iter()
            .find(|run| (run.first..run.end()).contains(&block))?;
        Some(run.address)
    }
}

fn runs(node: &Node, from: u64, end: u64) -> Vec<Run> {
    if from >= end {
        return Vec::new();
    }
    let first = (from / BLOCK_BYTES) as u32;
    let extents = node.extents.range(first, end.div_ceil(BLOCK_BYTES));
    let runs = extents.map(|extent| Run {
        first: extent.first,
        address: extent.address,
        tail_sectors: extent.tail_sectors,
        checksums: extent.checksums.to_vec(),
    });
    runs.collect()
}

impl Objects {
    /// Reads bytes of a node from `offset` on; what is not stored is zero. The caller has
    /// clipped the range to the object.
    pub(crate) fn read_node(
        &self,
        log: &Log,
        id: ObjectId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<()> {
        loop {
            let seen = {
                let shard = self.table.read(id.family);
                let node = shard.get(id).ok_or(Error::NoEntry("object"))?;
                Seen::of(id, node, offset, offset + into.len() as u64)
            };
            if self.read_seen(log, seen, offset, into)? {
                return Ok(());
            }
        }
    }

    /// Reads what was seen of a node; false when its payload moved and the object is gone, or
    /// has another name or size, since: then it is to be looked up again.
    pub(crate) fn read_seen(
        &self,
        log: &Log,
        mut seen: Seen,
        offset: u64,
        into: &mut [u8],
    ) -> Result<bool> {
        into.fill(0);
        let end = offset + into.len() as u64;
        let mut from = offset;
        let mut attempt = 0;
        while from < end {
            let Some(done) = self.read_runs(log, &seen.runs, offset, from, end, into)? else {
                return Ok(true);
            };
            // Something moved: from there on it is looked up again.
            if done > from {
                attempt = 0;
            }
            let before = Seen::address_of(&seen.runs, done);
            {
                let shard = self.table.read(seen.id.family);
                let Some(node) = shard.get(seen.id).filter(|node| seen.is(node)) else {
                    return Ok(false);
                };
                seen.runs = runs(node, done, end);
            }
            // Only where nothing moved has reading failed.
            if before == Seen::address_of(&seen.runs, done) {
                attempt += 1;
                if attempt > crate::log::READ_RETRIES {
                    self.damaged(log, seen.id, done)?;
                }
            } else {
                attempt = 0;
            }
            into[(done - offset) as usize..].fill(0);
            from = done;
        }
        Ok(true)
    }

    fn damaged(&self, log: &Log, id: ObjectId, at: u64) -> Result<()> {
        Counters::add(&log.counters.read_errors, 1);
        let shard = self.table.read(id.family);
        let block = shard
            .get(id)
            .and_then(|node| node.extents.get((at / BLOCK_BYTES) as u32));
        let offset = block.map_or(0, |block| log.geometry().device_offset(block.address));
        Err(Error::Corrupt {
            offset,
            why: Invalid::Checksum,
        })
    }

    /// Reads runs into the range `offset` of which `from..end` is wanted. Returns where a
    /// block did not verify; `None` when all is read.
    fn read_runs(
        &self,
        log: &Log,
        runs: &[Run],
        offset: u64,
        from: u64,
        end: u64,
        into: &mut [u8],
    ) -> Result<Option<u64>> {
        for run in runs {
            let start = u64::from(run.first) * BLOCK_BYTES;
            let bytes = run.bytes();
            let mut at = 0;
            while at < bytes {
                let step = READ_BYTES_MAX.min(bytes - at);
                let wanted = BUFFER.with_borrow_mut(|buffer| -> Result<Option<u64>> {
                    buffer.resize_for_overwrite(step as usize);
                    let fresh = self.fetch(log, run.address, at, buffer)?;
                    for (number, block) in (0..).zip(buffer.chunks(BLOCK_BYTES as usize)) {
                        let block_start = start + at + number * BLOCK_BYTES;
                        let sum = run.checksums.get((at / BLOCK_BYTES + number) as usize);
                        if !fresh || sum != Some(&payload_checksum(block)) {
                            return Ok(Some(block_start.max(from)));
                        }
                        let lo = block_start.max(from);
                        let hi = (block_start + block.len() as u64).min(end);
                        if lo < hi {
                            let part =
                                &block[(lo - block_start) as usize..(hi - block_start) as usize];
                            into[(lo - offset) as usize..(hi - offset) as usize]
                                .copy_from_slice(part);
                        }
                    }
                    if buffer.capacity() > BUFFER_KEPT_BYTES {
                        *buffer = AlignedBuf::new();
                    }
                    Ok(None)
                })?;
                if wanted.is_some() {
                    Counters::add(&log.counters.read_retries, 1);
                    return Ok(wanted);
                }
                at += step;
            }
        }
        Ok(None)
    }

    /// Reads payload, of which `skip` bytes are left out; false when its segment began
    /// another life meanwhile.
    fn fetch(&self, log: &Log, address: Address, skip: u64, into: &mut AlignedBuf) -> Result<bool> {
        let Some((id, segment, offset)) = log.table().locate(address) else {
            return Err(Error::Corrupt {
                offset: log.geometry().device_offset(address),
                why: Invalid::Field("address"),
            });
        };
        let offset = offset + skip;
        let seed = segment.seed();
        let on_device = offset + into.len() as u64 <= u64::from(segment.written());
        if !on_device && log.appender().copy_pending(id, offset as u32, into) {
            return Ok(true);
        }
        let device_offset = log.geometry().segment_offset(id) + offset;
        if offset + into.len() as u64 > log.geometry().segment_bytes {
            return Ok(false);
        }
        // Blocks of the device: payload begins and ends on them.
        log.read_device(device_offset, into)?;
        Ok(segment.seed() == seed)
    }
}
