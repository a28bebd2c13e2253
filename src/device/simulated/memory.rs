//! A sparse array of bytes that is cheap to copy.
//!
//! Promises: what was never written reads as zeros; a copy shares every page with its
//! original until one of them writes to it, so that copying costs a pointer per page.

use std::collections::BTreeMap;

use crate::sync::Arc;

/// Small enough that the first write after a copy is cheap, large enough that a copy of a
/// test store is some thousand pointers at most.
const PAGE_BYTES: usize = 64 << 10;

#[derive(Clone, Default)]
pub(super) struct Memory {
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Memory {
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        let (mut offset, mut rest) = (offset, into);
        while !rest.is_empty() {
            let (page, start) = locate(offset);
            let count = rest.len().min(PAGE_BYTES - start);
            let (piece, tail) = rest.split_at_mut(count);
            match self
                .pages
                .get(&page)
                .and_then(|page| page.get(start..start + count))
            {
                Some(bytes) => piece.copy_from_slice(bytes),
                None => piece.fill(0),
            }
            (offset, rest) = (offset + count as u64, tail);
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let (mut offset, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (page, start) = locate(offset);
            let (piece, tail) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            let page = self
                .pages
                .entry(page)
                .or_insert_with(|| Arc::new(vec![0; PAGE_BYTES]));
            if let Some(bytes) = own(page).get_mut(start..start + piece.len()) {
                bytes.copy_from_slice(piece);
            }
            (offset, rest) = (offset + piece.len() as u64, tail);
        }
    }

    /// Makes a range zeros and gives whole pages back.
    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let (first, _) = locate(offset);
        let (last, _) = locate(end);
        // Only pages that are there cost anything: a range can be terabytes.
        let touched: Vec<u64> = self
            .pages
            .range(first..=last)
            .map(|(&page, _)| page)
            .collect();
        for page in touched {
            let page_start = page * PAGE_BYTES as u64;
            let from = offset.saturating_sub(page_start) as usize;
            let to = end.saturating_sub(page_start).min(PAGE_BYTES as u64) as usize;
            if from == 0 && to == PAGE_BYTES {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page)
                && let Some(bytes) = own(bytes).get_mut(from..to)
            {
                bytes.fill(0);
            }
        }
    }

    /// Memory in use, shared pages included.
    pub(super) fn resident_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }
}

fn locate(offset: u64) -> (u64, usize) {
    let page_bytes = PAGE_BYTES as u64;
    (offset / page_bytes, (offset % page_bytes) as usize)
}

/// The page's bytes, copied first if another memory shares them.
fn own(page: &mut Arc<Vec<u8>>) -> &mut [u8] {
    if Arc::get_mut(page).is_none() {
        *page = Arc::new(page.to_vec());
    }
    match Arc::get_mut(page) {
        Some(bytes) => bytes,
        None => &mut [],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(memory: &Memory, offset: u64, len: usize) -> Vec<u8> {
        let mut into = vec![0xee; len];
        memory.read(offset, &mut into);
        into
    }

    #[test]
    fn writes_cross_pages_and_the_rest_is_zero() {
        let mut memory = Memory::default();
        let offset = PAGE_BYTES as u64 * 3 - 100;
        memory.write(offset, &[7; 200]);
        assert_eq!(bytes(&memory, offset, 200), [7; 200]);
        assert_eq!(bytes(&memory, offset - 1, 1), [0]);
        assert_eq!(bytes(&memory, offset + 200, 1), [0]);
        assert_eq!(memory.resident_bytes(), 2 * PAGE_BYTES as u64);
    }

    #[test]
    fn a_copy_is_not_changed_by_its_original() {
        let mut memory = Memory::default();
        memory.write(0, &[1; 100]);
        let copy = memory.clone();
        memory.write(50, &[2; 100]);
        assert_eq!(bytes(&copy, 0, 100), [1; 100]);
        assert_eq!(bytes(&memory, 0, 50), [1; 50]);
        assert_eq!(bytes(&memory, 50, 100), [2; 100]);
    }

    #[test]
    fn zeroing_frees_pages_and_keeps_the_neighbours() {
        let page = PAGE_BYTES as u64;
        let mut memory = Memory::default();
        memory.write(0, &vec![9; PAGE_BYTES * 4]);
        memory.zero(page - 10, page * 2 + 20);
        assert_eq!(memory.resident_bytes(), 2 * page);
        assert_eq!(bytes(&memory, page - 11, 2), [9, 0]);
        assert_eq!(bytes(&memory, page * 3 + 9, 2), [0, 9]);
        memory.zero(0, u64::MAX);
        assert_eq!(memory.resident_bytes(), 0);
    }
}
