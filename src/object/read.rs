//! Reading object data: copy out where it is, let the lock go, read, verify.
//!
//! A block that does not verify, or whose segment began another life meanwhile, is looked up
//! again: the cleaner moves payload. A block that is still where it was is read a few times
//! more, and only then is it damage, of that block alone.

use std::cell::RefCell;

use crate::device::AlignedBuf;
use crate::format::{Address, Invalid, payload_checksum};
use crate::log::{Counters, Log};
use crate::{Error, Result};

use super::extents::SECTOR_BYTES;
use super::{BLOCK_BYTES, ObjectId, Objects};

/// A run of blocks that lie one after another on the device.
struct Run {
    first: u32,
    address: Address,
    tail_sectors: u8,
    checksums: Vec<u32>,
}

impl Run {
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
        into.fill(0);
        if into.is_empty() {
            return Ok(());
        }
        let end = offset + into.len() as u64;
        let mut from = offset;
        let mut attempt = 0;
        while from < end {
            let runs = self.runs(id, from, end)?;
            let Some(done) = self.read_runs(log, &runs, offset, from, end, into)? else {
                return Ok(());
            };
            // Something moved: from there on it is looked up again.
            if done == from {
                attempt += 1;
                if attempt > crate::log::READ_RETRIES {
                    return self.damaged(log, id, from);
                }
            } else {
                attempt = 0;
            }
            into[(done - offset) as usize..].fill(0);
            from = done;
        }
        Ok(())
    }

    fn damaged(&self, log: &Log, id: ObjectId, at: u64) -> Result<()> {
        Counters::add(&log.counters.read_errors, 1);
        let shard = self.table.read(id.family);
        let block = shard.get(id).and_then(|node| node.extents.get((at / BLOCK_BYTES) as u32));
        let offset = block.map_or(0, |block| log.geometry().device_offset(block.address));
        Err(Error::Corrupt {
            offset,
            why: Invalid::Checksum,
        })
    }

    fn runs(&self, id: ObjectId, from: u64, end: u64) -> Result<Vec<Run>> {
        let shard = self.table.read(id.family);
        let node = shard.get(id).ok_or(Error::NoEntry("object"))?;
        let first = (from / BLOCK_BYTES) as u32;
        let extents = node.extents.range(first, end.div_ceil(BLOCK_BYTES));
        Ok(extents
            .map(|extent| Run {
                first: extent.first,
                address: extent.address,
                tail_sectors: extent.tail_sectors,
                checksums: extent.checksums.to_vec(),
            })
            .collect())
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
                            let part = &block[(lo - block_start) as usize..(hi - block_start) as usize];
                            into[(lo - offset) as usize..(hi - offset) as usize].copy_from_slice(part);
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
