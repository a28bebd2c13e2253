//! Reading object data: copy out where it is, let the lock go, read, verify.
//!
//! A block that does not verify, or whose segment began another life meanwhile, is looked up
//! again: the cleaner moves payload. A block that is still where it was is read a few times
//! more, and only then is it damage, of that block alone.

use std::cell::RefCell;

use crate::device::{AlignedBuf, ReadOp};
use crate::format::{Address, Invalid, payload_checksum};
use crate::log::{Counters, Log};
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

    /// Parts of it that are read with one call each.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let blocks = (READ_BYTES_MAX / BLOCK_BYTES) as usize;
        let chunks = (0..)
            .step_by(READ_BYTES_MAX as usize)
            .zip(self.checksums.chunks(blocks));
        chunks.map(|(skip, checksums)| Piece {
            start: u64::from(self.first) * BLOCK_BYTES + skip,
            address: self.address,
            skip,
            bytes: (self.bytes() - skip).min(READ_BYTES_MAX) as usize,
            checksums,
        })
    }
}

/// Bytes read at a time; longer runs are several reads.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Pieces read at once.
const PIECES_MAX: usize = 64;
/// A thread keeps a buffer of at most this size.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::new()) };
}

/// What a read saw of a node under one hold of its shard's lock: a size, and the data that
/// goes with it.
pub(crate) struct Seen {
    id: ObjectId,
    renames: u16,
    pub(crate) bytes: u64,
    runs: Vec<Run>,
}

impl Seen {
    /// Looks at a range of a node.
    pub(crate) fn of(id: ObjectId, node: &Node, offset: u64, end: u64) -> Self {
        Self {
            id,
            renames: node.renames(),
            bytes: node.bytes,
            runs: runs(node, offset, end.min(node.bytes)),
        }
    }

    /// Whether a node still has the name and the size that were seen.
    fn is(&self, node: &Node) -> bool {
        self.renames == node.renames() && self.bytes == node.bytes
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
        let pieces: Vec<Piece> = runs.iter().flat_map(Run::pieces).collect();
        let mut left = pieces.as_slice();
        while !left.is_empty() {
            let (some, rest) = left.split_at(batch(left));
            left = rest;
            let wrong = BUFFER.with_borrow_mut(|buffer| -> Result<Option<u64>> {
                let bytes: usize = some.iter().map(|piece| piece.bytes).sum();
                buffer.resize_for_overwrite(bytes);
                let fresh = self.fetch_all(log, some, buffer)?;
                let mut rest: &[u8] = buffer;
                for (piece, fresh) in some.iter().zip(fresh) {
                    let (data, behind) = rest.split_at(piece.bytes);
                    rest = behind;
                    let blocks = data.chunks(BLOCK_BYTES as usize);
                    for ((number, block), sum) in (0..).zip(blocks).zip(piece.checksums) {
                        let start = piece.start + number * BLOCK_BYTES;
                        if !fresh || *sum != payload_checksum(block) {
                            return Ok(Some(start.max(from)));
                        }
                        let lo = start.max(from);
                        let hi = (start + block.len() as u64).min(end);
                        if lo < hi {
                            let part = &block[(lo - start) as usize..(hi - start) as usize];
                            into[(lo - offset) as usize..(hi - offset) as usize]
                                .copy_from_slice(part);
                        }
                    }
                }
                if buffer.capacity() > BUFFER_KEPT_BYTES {
                    *buffer = AlignedBuf::new();
                }
                Ok(None)
            })?;
            if wrong.is_some() {
                Counters::add(&log.counters.read_retries, 1);
                return Ok(wrong);
            }
        }
        Ok(None)
    }

    /// Reads pieces one behind the other into a buffer, those on the device in parallel where
    /// it can; says of each whether its segment still has the life it had.
    fn fetch_all(
        &self,
        log: &Log,
        pieces: &[Piece<'_>],
        into: &mut AlignedBuf,
    ) -> Result<Vec<bool>> {
        let mut fresh = Vec::with_capacity(pieces.len());
        let mut seeds = Vec::with_capacity(pieces.len());
        let mut ops = Vec::with_capacity(pieces.len());
        let mut rest: &mut [u8] = into;
        for (number, piece) in (0..).zip(pieces) {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(piece.bytes);
            rest = behind;
            let Some((id, segment, place)) = log.table().locate(piece.address) else {
                return Err(Error::Corrupt {
                    offset: log.geometry().device_offset(piece.address),
                    why: Invalid::Field("address"),
                });
            };
            let place = place + piece.skip;
            let end = place + part.len() as u64;
            let seed = segment.seed();
            let on_device = end <= u64::from(segment.written());
            if !on_device && log.appender().copy_pending(id, place as u32, part) {
                fresh.push(true);
            } else if end > log.geometry().segment_bytes {
                fresh.push(false);
            } else {
                fresh.push(true);
                seeds.push((number, segment, seed));
                // Blocks of the device: payload begins and ends on them.
                ops.push(ReadOp {
                    offset: log.geometry().segment_offset(id) + place,
                    into: part,
                });
            }
        }
        log.read_device_many(&mut ops)?;
        for (number, segment, seed) in seeds {
            let still: &mut bool = &mut fresh[number];
            *still &= segment.seed() == seed;
        }
        Ok(fresh)
    }
}

/// Part of a run that is read with one call.
struct Piece<'a> {
    /// First byte in the object.
    start: u64,
    address: Address,
    /// Bytes behind the address.
    skip: u64,
    bytes: usize,
    checksums: &'a [u32],
}

/// How many of the first pieces are read at once.
fn batch(pieces: &[Piece<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |piece: &&Piece<'_>| {
        bytes += piece.bytes as u64;
        bytes <= READ_BYTES_MAX
    };
    pieces
        .iter()
        .take(PIECES_MAX)
        .take_while(fits)
        .count()
        .max(1)
}
