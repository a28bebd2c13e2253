//! Large values: chunks, each a record and an index entry of its own, and a head that is
//! written last and describes them.
//!
//! The key of chunk `i` is the owner's key hash and `i`: who overwrites or deletes a large
//! value knows its chunks from the index alone, without reading flash. A stamp in head and
//! chunks tells a reader that all are of one write. All chunks of a value and its head are
//! appended in one step, so a crash leaves all of them or none.

use crate::format::bytes::{u32_at, u64_at};
use crate::format::{Invalid, KeyHash, Kind, LengthCode, RECORD_HEADER_BYTES, record_length};
use crate::log::Log;

use super::{CHUNK_KEY, KeyValue};

/// Bytes of a chunk's key: the owner's key hash, the chunk's number.
pub(super) const CHUNK_KEY_BYTES: usize = 20;
/// Bytes before the data in a chunk's value.
pub(super) const STAMP_BYTES: usize = 8;
/// Bytes of a head's value.
pub(super) const HEAD_BYTES: usize = 24;
/// Larger records are split: a segment then wastes at most an eighth at its end.
const WHOLE_SHARE: u64 = 8;
/// Chunks are about this share of a segment.
const CHUNK_SHARE: u64 = 16;
/// The longest chunk: half of what a length code can say at the smallest unit.
const CHUNK_BYTES_MAX: u64 = 8 << 20;

/// What the head of a large value says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) stamp: u64,
    pub(super) value_bytes: u64,
    pub(super) chunk_bytes: u32,
    pub(super) chunk_count: u32,
}

impl ChunkHead {
    /// The split of a value.
    pub(super) fn plan(log: &Log, value_bytes: u64, stamp: u64) -> Self {
        let most = (log.geometry().segment_bytes / CHUNK_SHARE).min(CHUNK_BYTES_MAX);
        let overhead = (RECORD_HEADER_BYTES + CHUNK_KEY_BYTES + STAMP_BYTES) as u64;
        let chunk_bytes = most - overhead;
        Self {
            stamp,
            value_bytes,
            chunk_bytes: chunk_bytes as u32,
            chunk_count: value_bytes.div_ceil(chunk_bytes) as u32,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        crate::format::bytes::FieldWriter::new(&mut bytes)
            .u64(self.stamp)
            .u64(self.value_bytes)
            .u32(self.chunk_bytes)
            .u32(self.chunk_count);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let head = Self {
            stamp: u64_at(bytes, 0)?,
            value_bytes: u64_at(bytes, 8)?,
            chunk_bytes: u32_at(bytes, 16)?,
            chunk_count: u32_at(bytes, 20)?,
        };
        let chunks = head.value_bytes.checked_div(u64::from(head.chunk_bytes));
        let whole = chunks.is_some() && head.value_bytes <= super::VALUE_BYTES_MAX;
        let expected = head
            .value_bytes
            .div_ceil(u64::from(head.chunk_bytes).max(1));
        if !whole || u64::from(head.chunk_count) != expected {
            return Err(Invalid::Field("chunk head"));
        }
        Ok(head)
    }
}

/// The key of a chunk.
pub(super) fn chunk_key(owner: KeyHash, number: u32) -> [u8; CHUNK_KEY_BYTES] {
    let mut key = [0; CHUNK_KEY_BYTES];
    crate::format::bytes::FieldWriter::new(&mut key)
        .put(&owner.bits().to_le_bytes())
        .u32(number);
    key
}

/// The owner's key hash in a chunk's key or a trim's key.
pub(super) fn owner_of(key: &[u8]) -> Result<KeyHash, Invalid> {
    Ok(KeyHash::from_bits(u128::from_le_bytes(
        crate::format::bytes::array(key, 0)?,
    )))
}

impl KeyValue {
    /// The length of a record that is not split; `None` when it must be.
    pub(super) fn whole_length(
        &self,
        log: &Log,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Option<LengthCode> {
        let length = record_length(kind, key.len(), value.len(), log.geometry().unit_bytes)?;
        // A long key with a short value stays whole: there is nothing to split.
        let most = log.geometry().segment_bytes / WHOLE_SHARE;
        (log.record_bytes(length) <= most || value.len() < HEAD_BYTES * 8).then_some(length)
    }

    pub(super) fn chunk_hash(&self, owner: KeyHash, number: u32) -> KeyHash {
        self.hasher.hash(CHUNK_KEY, &chunk_key(owner, number))
    }

    /// Chunks the index has of an owner. Stable while the owner's shard is locked.
    pub(super) fn chunk_count(&self, owner: KeyHash) -> u32 {
        let mut count = 0;
        while self.index.get(self.chunk_hash(owner, count)).is_some() {
            count += 1;
        }
        count
    }
}
