//! Planning what concerns the data of objects.

use std::borrow::Cow;

use crate::{Error, Result};

use super::super::omap_changes::OmapChange;
use super::super::op::OBJECT_BYTES_MAX;
use super::super::pieces::{Piece, Source, cut};
use super::super::{BLOCK_BYTES, CollectionName, ObjectName};
use super::{COPY_BYTES, Effect, Planner};

impl<'t> Planner<'_, 't> {
    pub(super) fn check_end(offset: u64, len: u64) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= OBJECT_BYTES_MAX => Ok(end),
            _ => Err(Error::TooLarge {
                what: "object",
                len: offset.saturating_add(len),
                max: OBJECT_BYTES_MAX,
            }),
        }
    }

    pub(super) fn set(&mut self, work: usize, first: u32, count: u32, source: Source<'t>) {
        let piece = Piece {
            first,
            count,
            source,
        };
        let work = &mut self.plan.works[work];
        work.view.set(piece);
        work.pending.set(piece);
    }

    pub(super) fn extend(&mut self, work: usize, end: u64) {
        let work = &mut self.plan.works[work];
        if end > work.bytes {
            work.bytes = end;
            work.pending_bytes = Some(end);
        }
    }

    pub(super) fn write(
        &mut self,
        work: usize,
        offset: u64,
        data: &'t [Cow<'t, [u8]>],
    ) -> Result<()> {
        let len: u64 = data.iter().map(|slice| slice.len() as u64).sum();
        let end = Self::check_end(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.plan.user_bytes += len;
        let (whole_first, whole_end) = whole_blocks(offset, end);
        if whole_first < whole_end {
            let source = Source::Data {
                slices: data,
                offset: whole_first * BLOCK_BYTES - offset,
            };
            let count = (whole_end - whole_first) as u32;
            self.set(work, whole_first as u32, count, source);
        }
        for (block, from, to) in partial_blocks(offset, end) {
            let start = block * BLOCK_BYTES;
            let buffer = self.open_block(work, block as u32, (from, to))?;
            let mut at = from as usize;
            for slice in cut(data, start + from - offset, to - from) {
                self.plan.buffers[buffer][at..at + slice.len()].copy_from_slice(slice);
                at += slice.len();
            }
        }
        self.extend(work, end);
        Ok(())
    }

    pub(super) fn zero(&mut self, work: usize, offset: u64, len: u64) -> Result<()> {
        let end = Self::check_end(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let old_bytes = self.plan.works[work].bytes;
        self.punch(work, offset, end.min(old_bytes).max(offset))?;
        self.extend(work, end);
        Ok(())
    }

    pub(super) fn truncate(&mut self, work: usize, bytes: u64) -> Result<()> {
        Self::check_end(bytes, 0)?;
        let old_bytes = self.plan.works[work].bytes;
        if bytes < old_bytes {
            self.punch(work, bytes, old_bytes)?;
            let state = &mut self.plan.works[work];
            state.base_bytes = state.base_bytes.min(bytes);
        }
        if bytes != old_bytes {
            let state = &mut self.plan.works[work];
            state.bytes = bytes;
            state.pending_bytes = Some(bytes);
        }
        Ok(())
    }

    /// Makes a range zero that lies in the object.
    pub(super) fn punch(&mut self, work: usize, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        // What is behind the end of the object is zero already: its last block is whole.
        let end = if end >= self.plan.works[work].bytes {
            end.next_multiple_of(BLOCK_BYTES)
        } else {
            end
        };
        let (whole_first, whole_end) = whole_blocks(offset, end);
        if whole_first < whole_end {
            let count = (whole_end - whole_first) as u32;
            self.set(work, whole_first as u32, count, Source::Hole);
        }
        for (block, from, to) in partial_blocks(offset, end) {
            if self.is_hole(work, block as u32) {
                continue;
            }
            let buffer = self.open_block(work, block as u32, (from, to))?;
            self.plan.buffers[buffer][from as usize..to as usize].fill(0);
        }
        Ok(())
    }

    pub(super) fn is_hole(&self, work: usize, block: u32) -> bool {
        let work = &self.plan.works[work];
        match work.view.get(block) {
            Some(piece) => matches!(piece.source, Source::Hole),
            None => match work.base {
                Some(base) if u64::from(block) * BLOCK_BYTES < work.base_bytes => {
                    let shard = self.objects.table.read(base.family);
                    shard
                        .get(base)
                        .is_none_or(|node| node.extents.get(block).is_none())
                }
                _ => true,
            },
        }
    }

    /// A buffer with the content of a block, to be changed in the range `changed`. The old
    /// content is read only if some of it stays.
    pub(super) fn open_block(
        &mut self,
        work: usize,
        block: u32,
        changed: (u64, u64),
    ) -> Result<usize> {
        let state = &self.plan.works[work];
        let start = u64::from(block) * BLOCK_BYTES;
        let held = state.bytes.saturating_sub(start).min(BLOCK_BYTES);
        let keeps = (changed.0 > 0 && held > 0) || changed.1 < held;
        // A buffer that is not yet among the effects is this object's alone.
        let pending = state.pending.get(block).map(|piece| piece.source);
        if let Some(Source::Buffer(buffer)) = pending {
            return Ok(buffer);
        }
        let content = if keeps {
            self.read_block(work, block)?
        } else {
            vec![0; BLOCK_BYTES as usize]
        };
        let buffer = self.plan.buffers.len();
        self.plan.buffers.push(content);
        self.set(work, block, 1, Source::Buffer(buffer));
        Ok(buffer)
    }

    /// The content of a block at this point, zeros behind the end of the object.
    pub(super) fn read_block(&self, work: usize, block: u32) -> Result<Vec<u8>> {
        let mut content = vec![0; BLOCK_BYTES as usize];
        self.read_blocks(work, u64::from(block) * BLOCK_BYTES, &mut content)?;
        Ok(content)
    }

    /// The content of a range at this point: zeros where nothing is.
    pub(super) fn read_blocks(&self, work: usize, offset: u64, into: &mut [u8]) -> Result<()> {
        let state = &self.plan.works[work];
        let mut at = offset;
        let end = offset + into.len() as u64;
        while at < end {
            let block = (at / BLOCK_BYTES) as u32;
            let block_start = u64::from(block) * BLOCK_BYTES;
            let piece = state.view.get(block);
            // As far as one source goes.
            let to = match piece {
                Some(piece) => (piece.end() * BLOCK_BYTES).min(end),
                None => {
                    let next = state.view.iter().map(|piece| u64::from(piece.first));
                    let next = next.filter(|first| *first > u64::from(block)).min();
                    next.map_or(end, |first| (first * BLOCK_BYTES).min(end))
                }
            };
            let part = &mut into[(at - offset) as usize..(to - offset) as usize];
            match piece.map(|piece| (piece, piece.source)) {
                Some((_, Source::Hole)) => part.fill(0),
                Some((
                    piece,
                    Source::Data {
                        slices,
                        offset: from,
                    },
                )) => {
                    let skip = at - u64::from(piece.first) * BLOCK_BYTES;
                    let mut filled = 0;
                    for slice in cut(slices, from + skip, to - at) {
                        part[filled..filled + slice.len()].copy_from_slice(slice);
                        filled += slice.len();
                    }
                }
                Some((piece, Source::Buffer(buffer))) => {
                    // A buffer is one block.
                    debug_assert_eq!(piece.count, 1);
                    let from = (at - block_start) as usize;
                    let buffer = &self.plan.buffers[buffer];
                    part.copy_from_slice(&buffer[from..from + part.len()]);
                }
                None => {
                    let counts = state.base_bytes.clamp(at, to) - at;
                    let (read, zeros) = part.split_at_mut(counts as usize);
                    zeros.fill(0);
                    match state.base {
                        Some(base) => self.objects.read_node(self.log, base, at, read)?,
                        None => read.fill(0),
                    }
                }
            }
            at = to;
        }
        Ok(())
    }

    pub(super) fn clone(
        &mut self,
        collection: &CollectionName,
        source: &ObjectName,
        target: &ObjectName,
    ) -> Result<()> {
        let from = self.find_existing(collection, source)?;
        if source == target {
            return Err(Error::InvalidArgument(
                "an object is not cloned onto itself",
            ));
        }
        if let Some(old) = self.find(collection, target)? {
            self.remove(old);
        }
        // The clone copies the node, so everything must have reached it.
        self.flush(from);
        let space = self.plan.works[from].space.clone();
        let work = self.new_work(space, target, Some(from));
        self.plan.effects.push(Effect::Clone { work, source: from });
        let values = self.omap_values(from)?;
        let (base, base_bytes, bytes, view) = {
            let from = &self.plan.works[from];
            (from.base, from.base_bytes, from.bytes, from.view.clone())
        };
        let to = &mut self.plan.works[work];
        (to.base, to.base_bytes, to.bytes, to.view) = (base, base_bytes, bytes, view);
        if !values.is_empty() {
            to.omap.push(OmapChange::Set(values));
        }
        Ok(())
    }

    pub(super) fn clone_range(
        &mut self,
        collection: &CollectionName,
        source: &ObjectName,
        target: &ObjectName,
        source_offset: u64,
        len: u64,
        target_offset: u64,
    ) -> Result<()> {
        let from = self.find_existing(collection, source)?;
        let end = Self::check_end(target_offset, len)?;
        let source_end = source_offset.checked_add(len);
        if source_end.is_none_or(|end| end > self.plan.works[from].bytes) {
            return Err(Error::InvalidArgument("range of a clone"));
        }
        let to = self.find_or_create(collection, target)?;
        let mut at = 0;
        while at < len {
            let mut some = vec![0; (len - at).min(COPY_BYTES) as usize];
            self.read_blocks(from, source_offset + at, &mut some)?;
            self.copy(to, target_offset + at, &some)?;
            at += some.len() as u64;
        }
        self.plan.user_bytes += len;
        self.extend(to, if len == 0 { 0 } else { end });
        Ok(())
    }

    /// Writes a copy of bytes, block by block: what is zero becomes a hole where it can.
    pub(super) fn copy(&mut self, work: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let start = offset + at as u64;
            let block = start / BLOCK_BYTES;
            let from = (start - block * BLOCK_BYTES) as usize;
            let part = &bytes[at..bytes.len().min(at + BLOCK_BYTES as usize - from)];
            let end = start + part.len() as u64;
            if part.iter().all(|byte| *byte == 0) {
                self.punch(work, start, end.min(self.plan.works[work].bytes.max(start)))?;
            } else {
                let to = from + part.len();
                let changed = (from as u64, to as u64);
                let buffer = self.open_block(work, block as u32, changed)?;
                self.plan.buffers[buffer][from..to].copy_from_slice(part);
                self.extend(work, end);
            }
            at += part.len();
        }
        Ok(())
    }
}

/// The blocks that lie wholly in a range of bytes.
fn whole_blocks(offset: u64, end: u64) -> (u64, u64) {
    (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES)
}

/// The blocks a range of bytes covers in part: block, and from and to in it.
fn partial_blocks(offset: u64, end: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let first = offset / BLOCK_BYTES;
    let last = (end - 1) / BLOCK_BYTES;
    let in_block = move |block: u64| {
        let start = block * BLOCK_BYTES;
        let from = offset.max(start) - start;
        let to = end.min(start + BLOCK_BYTES) - start;
        (block, from, to)
    };
    let is_partial = |(_, from, to): &(u64, u64, u64)| *from > 0 || *to < BLOCK_BYTES;
    let second = (last != first).then(|| in_block(last));
    [Some(in_block(first)), second]
        .into_iter()
        .flatten()
        .filter(move |part| is_partial(part))
}
