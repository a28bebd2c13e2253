//! What a check asks of the key-value layer.

use crate::format::bytes::{u32_at, u64_at};
use crate::format::{Address, KeyHash, Kind, Record};
use crate::index::{Entry, Index, ScanPosition};
use crate::log::Log;

use super::chunks::{CHUNK_KEY_BYTES, ChunkHead, owner_of};
use super::{KeyValue, SHARDS_A_PARTITION, died};

/// How a chunk stands to the head of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belonging {
    /// The head has this chunk, of this write.
    Belongs,
    /// There is no head, or it is of another write or has fewer chunks.
    Orphan,
    /// The head cannot be read.
    Unknown,
}

/// A large value's chunks, as its head has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargeValue {
    pub(crate) owner: KeyHash,
    pub(crate) chunk_count: u32,
}

impl KeyValue {
    /// The entry under a record's key.
    pub(crate) fn entry_of(&self, record: &Record<'_>) -> Option<Entry> {
        self.index.get(self.record_hash(record)?)
    }

    /// The entry under a key of a caller.
    pub(crate) fn entry_of_key(&self, key: &[u8]) -> Option<Entry> {
        self.index.get(self.user_hash(key))
    }

    /// The partition of a record's key.
    pub(crate) fn partition_of(&self, record: &Record<'_>) -> Option<u32> {
        let shard = Index::shard_of(self.record_hash(record)?);
        Some((shard / SHARDS_A_PARTITION) as u32)
    }

    /// Visits every entry.
    pub(crate) fn for_each_entry(&self, f: &mut dyn FnMut(Entry)) {
        let mut position = Some(ScanPosition::START);
        let mut entries = Vec::new();
        while let Some(at) = position {
            position = self.index.scan_bucket(at, &mut entries);
            entries.drain(..).for_each(&mut *f);
        }
    }

    /// Whether a partition has an entry that `f` is true of.
    pub(crate) fn any_entry(&self, partition: u32, f: &mut dyn FnMut(Entry) -> bool) -> bool {
        let mut entries = Vec::new();
        for shard in super::shards_of(partition) {
            let mut position = Some(ScanPosition::of_shard(shard));
            while let Some(at) = position.filter(|at| at.shard() == shard) {
                position = self.index.scan_bucket(at, &mut entries);
                if entries.drain(..).any(&mut *f) {
                    return true;
                }
            }
        }
        false
    }

    /// Takes the entry of a record out of the index, if it is the record at `address`.
    pub(crate) fn drop_entry(&self, log: &Log, record: &Record<'_>, address: Address) -> bool {
        let Some(hash) = self.record_hash(record) else {
            return false;
        };
        let mut shard = self.index.lock(Index::shard_of(hash));
        if shard.get(hash).is_none_or(|entry| entry.address != address) {
            return false;
        }
        if let Some(old) = shard.remove(hash) {
            died(log, &old);
        }
        true
    }

    /// The large value a head describes; `None` when the head makes no sense.
    pub(crate) fn large_value(&self, head: &Record<'_>) -> Option<LargeValue> {
        let described = ChunkHead::decode(head.value).ok()?;
        Some(LargeValue {
            owner: self.user_hash(head.key),
            chunk_count: described.chunk_count,
        })
    }

    /// The first chunk of a large value that the index does not have.
    pub(crate) fn missing_chunk(&self, value: &LargeValue) -> Option<u32> {
        (0..value.chunk_count).find(|number| {
            self.index
                .get(self.chunk_hash(value.owner, *number))
                .is_none()
        })
    }

    /// Takes the chunks of a large value out of the index.
    pub(crate) fn drop_chunks(&self, log: &Log, value: &LargeValue) {
        for number in 0..value.chunk_count {
            let hash = self.chunk_hash(value.owner, number);
            if let Some(old) = self.index.lock(Index::shard_of(hash)).remove(hash) {
                died(log, &old);
            }
        }
    }

    /// How a chunk stands to its head, which is read.
    pub(crate) fn belonging(&self, log: &Log, chunk: &Record<'_>) -> Belonging {
        let number = u32_at(chunk.key, CHUNK_KEY_BYTES - 4);
        let (Ok(owner), Ok(number), Ok(stamp)) =
            (owner_of(chunk.key), number, u64_at(chunk.value, 0))
        else {
            return Belonging::Orphan;
        };
        let Some(entry) = self.index.get(owner).filter(|entry| entry.length.is_head()) else {
            return Belonging::Orphan;
        };
        let Ok(Some(head)) = self.load(log, entry, || true) else {
            return Belonging::Unknown;
        };
        match ChunkHead::decode(&head.value) {
            Ok(described)
                if head.kind == Kind::Head
                    && described.stamp == stamp
                    && number < described.chunk_count =>
            {
                Belonging::Belongs
            }
            Ok(_) => Belonging::Orphan,
            Err(_) => Belonging::Unknown,
        }
    }

    /// Whether the record of an entry can be read.
    pub(crate) fn verify_entry(&self, log: &Log, entry: Entry) -> crate::Result<()> {
        self.load(log, entry, || true).map(drop)
    }
}
