//! The bytes of an object in the model: whole blocks, absent ones zero.

use std::collections::BTreeMap;
use std::sync::Arc;

pub const BLOCK: u64 = 4096;

/// Nothing beyond the size is ever other than zero.
#[derive(Debug, Clone, Default)]
pub struct Data {
    pub size: u64,
    blocks: BTreeMap<u64, Arc<[u8; BLOCK as usize]>>,
}

impl Data {
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut offset = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (offset % BLOCK) as usize;
            let (part, later) = rest.split_at(rest.len().min(BLOCK as usize - within));
            let block = self.blocks.entry(offset / BLOCK);
            let block = block.or_insert_with(|| Arc::new([0; BLOCK as usize]));
            Arc::make_mut(block)[within..within + part.len()].copy_from_slice(part);
            offset += part.len() as u64;
            rest = later;
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset);
        }
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = offset + len;
        self.clear(offset, end);
        self.size = self.size.max(end);
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.clear(size, self.size);
        }
        self.size = size;
    }

    fn clear(&mut self, start: u64, end: u64) {
        let touched: Vec<u64> = self
            .blocks
            .range(start / BLOCK..end.div_ceil(BLOCK))
            .map(|(&block, _)| block)
            .collect();
        for block in touched {
            let base = block * BLOCK;
            let from = start.max(base) - base;
            let to = end.min(base + BLOCK) - base;
            if (from, to) == (0, BLOCK) {
                self.blocks.remove(&block);
            } else if let Some(bytes) = self.blocks.get_mut(&block) {
                Arc::make_mut(bytes)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Up to the end of the object.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        let Some(len) = end.checked_sub(offset) else {
            return Vec::new();
        };
        let mut bytes = vec![0; len as usize];
        for (&block, from) in self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = offset.max(block * BLOCK);
            let stop = end.min((block + 1) * BLOCK);
            bytes[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(
                &from[(start - block * BLOCK) as usize..(stop - block * BLOCK) as usize],
            );
        }
        bytes
    }

    /// The blocks within a range and the size, joined where they are adjacent.
    pub fn extents(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(len).min(self.size);
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for &block in self.blocks.keys() {
            let start = offset.max(block * BLOCK);
            let stop = end.min((block + 1) * BLOCK);
            if start >= stop {
                continue;
            }
            match extents.last_mut() {
                Some((last, len)) if *last + *len == start => *len += stop - start,
                _ => extents.push((start, stop - start)),
            }
        }
        extents
    }

    /// Bytes of the blocks that are there.
    pub fn stored(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    /// The blocks that are there, told apart by where they are: clones share them.
    pub fn places(&self) -> impl Iterator<Item = *const [u8; BLOCK as usize]> {
        self.blocks.values().map(Arc::as_ptr)
    }

    /// The range becomes what the source has there, holes as zeros.
    pub fn clone_range(&mut self, source: &Self, offset: u64, len: u64, target_offset: u64) {
        self.zero(target_offset, len);
        for (start, len) in source.extents(offset, len) {
            self.write(target_offset + start - offset, &source.read(start, len));
        }
    }
}
