//! Maps as bytes, for checkpoint images. A leaf that several maps share is written once.
//!
//! ```text
//! map     u32 leaves, then each: u32 number of the leaf in the image, and if no leaf
//!         before has it, the leaf
//! leaf    its words, little-endian; see `leaf.rs`
//! ```

use std::collections::HashMap;
use std::marker::PhantomData;

use super::leaf::Leaf;
use super::{ExtentMap, Leaves, Slot, Unit};
use crate::format::Invalid;
use crate::format::bytes::u32_at;

/// Bytes of a word in an image.
const WORD_BYTES: usize = size_of::<u32>();

/// The leaves that an image has so far. The maps cannot change meanwhile: a leaf is known
/// by its place in memory.
#[derive(Default)]
pub(crate) struct LeafWriter<'a> {
    numbers: HashMap<*const u32, u32>,
    maps: PhantomData<&'a ExtentMap>,
}

impl LeafWriter<'_> {
    /// One for a new image.
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

/// The leaves read from an image so far.
pub(crate) struct LeafReader {
    unit: Unit,
    leaves: Vec<Leaf>,
}

impl LeafReader {
    /// One for an image of a store with this unit.
    pub(crate) fn new(unit: Unit) -> Self {
        Self {
            unit,
            leaves: Vec::new(),
        }
    }

    /// Reads the leaf at the start of `bytes`, and returns the bytes it takes.
    fn read(&mut self, bytes: &[u8]) -> Result<usize, Invalid> {
        let word = |index: usize| u32_at(bytes, index * WORD_BYTES).ok();
        let count = Leaf::words_expected(word).ok_or(Invalid::Truncated)?;
        let used = count * WORD_BYTES;
        let (chunks, _) = bytes
            .get(..used)
            .ok_or(Invalid::Truncated)?
            .as_chunks::<WORD_BYTES>();
        let words: Vec<u32> = chunks.iter().copied().map(u32::from_le_bytes).collect();
        self.leaves.push(Leaf::checked(&words, self.unit)?);
        Ok(used)
    }
}

impl ExtentMap {
    /// Appends the map to an image of which `written` knows the leaves.
    pub(crate) fn encode_shared<'a>(&'a self, written: &mut LeafWriter<'a>, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&(self.leaf_count() as u32).to_le_bytes());
        for leaf in self.each_leaf() {
            let next = written.numbers.len() as u32;
            let number = *written.numbers.entry(leaf.identity()).or_insert(next);
            bytes.extend_from_slice(&number.to_le_bytes());
            if number == next {
                for word in leaf.words() {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
    }

    /// Reads a map from the start of untrusted `bytes`; also returns the bytes it takes.
    ///
    /// # Errors
    /// [`Invalid`] when they are not a map, or not one of a store with this unit.
    pub(crate) fn decode_shared(
        bytes: &[u8],
        read: &mut LeafReader,
    ) -> Result<(Self, usize), Invalid> {
        let count = u32_at(bytes, 0)?;
        let mut used = WORD_BYTES;
        let mut end = 0;
        let mut slots = Vec::new();
        for _ in 0..count {
            let number = u32_at(bytes, used)? as usize;
            used += WORD_BYTES;
            if number == read.leaves.len() {
                used += read.read(bytes.get(used..).ok_or(Invalid::Truncated)?)?;
            }
            let leaf = read.leaves.get(number);
            let slot = Slot::new(leaf.ok_or(Invalid::Field("number of a leaf"))?.clone());
            // Since leaves ascend, no leaf is twice in a map.
            if u64::from(slot.first) < end {
                return Err(Invalid::Field("first block of a leaf"));
            }
            end = slot.leaf.end();
            slots.push(slot);
        }
        slots.shrink_to_fit();
        let leaves = match slots.len() {
            0 => Leaves::Many(None),
            1 => Leaves::One(slots.remove(0).leaf),
            _ => Leaves::Many(Some(Box::new(slots))),
        };
        Ok((Self { leaves }, used))
    }

    /// Appends the map alone to `bytes`.
    #[cfg(test)]
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        self.encode_shared(&mut LeafWriter::new(), bytes);
    }

    /// As [`Self::decode_shared`], of a map that [`Self::encode`] wrote.
    ///
    /// # Errors
    /// [`Invalid`] when the bytes are not a map, or not one of a store with this unit.
    #[cfg(test)]
    pub(crate) fn decode(bytes: &[u8], unit: Unit) -> Result<(Self, usize), Invalid> {
        Self::decode_shared(bytes, &mut LeafReader::new(unit))
    }
}
