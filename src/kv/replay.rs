//! What the log asks of its owner: replay, relocate, images.
//!
//! Every record, a caller's or a survivor's, got its seqno while the index shard of its key
//! was locked and the index was changed before the lock went. So replaying records in the
//! order of seqnos repeats exactly what the index went through, and a survivor needs no
//! special case: it was the current value when it was appended.

use std::ops::Range;

use crate::format::{
    COMMIT_STREAM, Invalid, KeyHash, Kind, Record, RecordFields, Seqno, record_length,
};
use crate::index::{Entry, Index, ScanPosition, ShardGuard};
use crate::log::{self, Lane, Log, NewRecord, NoRoom, Position, Purpose, Relocation};
use crate::{Error, Result};

use super::chunks::owner_of;
use super::{CHUNK_KEY, KeyValue, USER_KEY, born, died, entry_at, shards_of};

/// Chunk numbers in a trim's value.
fn trim_range(value: &[u8]) -> std::result::Result<Range<u32>, Invalid> {
    Ok(crate::format::bytes::u32_at(value, 0)?..crate::format::bytes::u32_at(value, 4)?)
}

/// Chunks a deleted value had.
fn deleted_chunks(value: &[u8]) -> std::result::Result<u32, Invalid> {
    if value.is_empty() {
        Ok(0)
    } else {
        crate::format::bytes::u32_at(value, 0)
    }
}

impl KeyValue {
    /// The hash under which the index has a record; `None` for trims.
    pub(super) fn record_hash(&self, record: &Record<'_>) -> Option<KeyHash> {
        match record.kind {
            Kind::Put | Kind::Head | Kind::Delete => Some(self.hasher.hash(USER_KEY, record.key)),
            Kind::Chunk => Some(self.hasher.hash(CHUNK_KEY, record.key)),
            Kind::TrimChunks | Kind::Extent | Kind::Object | Kind::OmapValue => None,
        }
    }

    pub(super) fn replay_record(
        &self,
        log: &Log,
        record: &Record<'_>,
        position: Position,
        lane: Lane,
    ) -> Result<()> {
        let corrupt = |why| {
            let offset = log.geometry().device_offset(position.address);
            Error::Corrupt { offset, why }
        };
        match record.kind {
            Kind::Put | Kind::Head | Kind::Chunk => {
                let Some(hash) = self.record_hash(record) else {
                    return Ok(());
                };
                if !lane.has(Index::shard_of(hash)) {
                    return Ok(());
                }
                let make = |old: Option<Entry>| {
                    let exponent = match old {
                        Some(old) => old.exponent,
                        None if position.head < COMMIT_STREAM => position.head,
                        None => log::first_exponent(),
                    };
                    entry_at(position.address, record.length, exponent)
                };
                let mut shard = self.index.lock(Index::shard_of(hash));
                let applied = shard.replay(hash, position.seqno, make);
                let applied =
                    applied.map_err(|_| corrupt(Invalid::Field("entries of the index")))?;
                if let Some((entry, old)) = applied {
                    born(log, &entry);
                    if let Some(old) = old {
                        died(log, &old);
                    }
                }
            }
            Kind::Delete => {
                let Some(hash) = self.record_hash(record) else {
                    return Ok(());
                };
                self.replay_remove(log, hash, position.seqno, lane);
                for number in 0..deleted_chunks(record.value).map_err(corrupt)? {
                    self.replay_remove(log, self.chunk_hash(hash, number), position.seqno, lane);
                }
            }
            Kind::TrimChunks => {
                let owner = owner_of(record.key).map_err(corrupt)?;
                for number in trim_range(record.value).map_err(corrupt)? {
                    self.replay_remove(log, self.chunk_hash(owner, number), position.seqno, lane);
                }
            }
            Kind::Extent | Kind::Object | Kind::OmapValue => {
                return Err(corrupt(Invalid::Field("kind of a key-value record")));
            }
        }
        Ok(())
    }

    fn replay_remove(&self, log: &Log, hash: KeyHash, seqno: Seqno, lane: Lane) {
        if !lane.has(Index::shard_of(hash)) {
            return;
        }
        let mut shard = self.index.lock(Index::shard_of(hash));
        if seqno < shard.horizon(hash) {
            return;
        }
        if let Some(old) = shard.remove(hash) {
            died(log, &old);
        }
    }

    pub(super) fn relocate_record(
        &self,
        log: &Log,
        record: &Record<'_>,
        position: Position,
        victim_clock: u64,
        horizon: Seqno,
    ) -> std::result::Result<Relocation, NoRoom> {
        match record.kind {
            Kind::Put | Kind::Head | Kind::Chunk => {
                self.relocate_entry(log, record, position, victim_clock)
            }
            // Replay refuses them.
            Kind::Extent | Kind::Object | Kind::OmapValue => Ok(Relocation::Dead),
            // A tombstone below the horizon of every image in force has done its work.
            Kind::Delete | Kind::TrimChunks if position.seqno < horizon => Ok(Relocation::Dead),
            Kind::Delete => {
                let Some(hash) = self.record_hash(record) else {
                    return Ok(Relocation::Dead);
                };
                let shard = self.index.lock(Index::shard_of(hash));
                let chunks = deleted_chunks(record.value).unwrap_or(0);
                if shard.get(hash).is_some() {
                    // The key has a newer record. Only chunks it does not have are still gone.
                    return self.relocate_trim(log, &shard, hash, 0..chunks);
                }
                self.append_again(log, record.kind, record.key, record.value, 0, None)?;
                Ok(Relocation::Moved)
            }
            Kind::TrimChunks => {
                let (Ok(owner), Ok(range)) = (owner_of(record.key), trim_range(record.value))
                else {
                    return Ok(Relocation::Dead);
                };
                let shard = self.index.lock(Index::shard_of(owner));
                self.relocate_trim(log, &shard, owner, range)
            }
        }
    }

    fn relocate_entry(
        &self,
        log: &Log,
        record: &Record<'_>,
        position: Position,
        victim_clock: u64,
    ) -> std::result::Result<Relocation, NoRoom> {
        let Some(hash) = self.record_hash(record) else {
            return Ok(Relocation::Dead);
        };
        let mut shard = self.index.lock(Index::shard_of(hash));
        let Some(old) = shard
            .get(hash)
            .filter(|entry| entry.address == position.address)
        else {
            return Ok(Relocation::Dead);
        };
        let age = log.clock().saturating_sub(victim_clock);
        let exponent = log::survivor_exponent(old.exponent, age, log.table().live_total());
        let fields = RecordFields {
            kind: record.kind,
            relocated: true,
            key: record.key,
            value: record.value,
            content: crate::format::content_hash(record.key, record.value),
        };
        let new = NewRecord {
            fields,
            payload: None,
            length: old.length,
            head: exponent,
            purpose: Purpose::Survivor,
            clock: Some(victim_clock),
        };
        let appended = log.appender().append(&new)?;
        let entry = entry_at(appended.address, old.length, exponent);
        let redirected = shard.redirect(hash, old.address, entry);
        assert!(redirected, "the shard is locked");
        died(log, &old);
        log::Counters::add(&log.counters.cleaning_bytes, log.record_bytes(old.length));
        Ok(Relocation::Moved)
    }

    /// Says again that chunks in `range` are gone, of those the owner does not have now. The
    /// owner's shard is locked, so that its chunks do not change.
    fn relocate_trim(
        &self,
        log: &Log,
        _owner_shard: &ShardGuard<'_>,
        owner: KeyHash,
        range: Range<u32>,
    ) -> std::result::Result<Relocation, NoRoom> {
        let from = range.start.max(self.chunk_count(owner));
        if from >= range.end {
            return Ok(Relocation::Dead);
        }
        let mut value = [0; 8];
        crate::format::bytes::FieldWriter::new(&mut value)
            .u32(from)
            .u32(range.end);
        self.append_again(
            log,
            Kind::TrimChunks,
            &owner.bits().to_le_bytes(),
            &value,
            0,
            None,
        )?;
        Ok(Relocation::Moved)
    }

    fn append_again(
        &self,
        log: &Log,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        head: u8,
        clock: Option<u64>,
    ) -> std::result::Result<(), NoRoom> {
        let content = crate::format::content_hash(key, value);
        let length =
            record_length(kind, key.len(), value.len(), log.geometry().unit_bytes).ok_or(NoRoom)?;
        let fields = RecordFields {
            kind,
            relocated: true,
            key,
            value,
            content,
        };
        let record = NewRecord {
            fields,
            payload: None,
            length,
            head,
            purpose: Purpose::Survivor,
            clock,
        };
        log.appender().append(&record)?;
        log::Counters::add(&log.counters.cleaning_bytes, log.record_bytes(length));
        Ok(())
    }

    pub(super) fn image_partition(
        &self,
        partition: u32,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno> {
        let mut lowest = Seqno::MAX;
        let mut unit = Vec::new();
        for shard in shards_of(partition) {
            let mut position = Some(ScanPosition::of_shard(shard));
            while let Some(at) = position {
                unit.clear();
                // One unit at a time: the lock is held for the copy of a few kilobytes.
                let guard = self.index.lock(shard);
                let seqno = horizon();
                position = guard.image_unit(at, seqno, &mut unit);
                drop(guard);
                lowest = lowest.min(seqno);
                sink(&unit)?;
            }
        }
        Ok(lowest)
    }

    pub(super) fn load_partition_image(
        &self,
        log: &Log,
        partition: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), Invalid> {
        let shards = shards_of(partition);
        let mut rest = bytes;
        while let Some(position) = rest.first_chunk::<8>() {
            let shard = ScanPosition::from_bits(u64::from_le_bytes(*position)).shard();
            if !shards.contains(&shard) {
                return Err(Invalid::Field("shard of an image"));
            }
            let mut outside = false;
            let loaded = self.index.lock(shard).load_unit(rest, &mut |entry| {
                outside |= log.table().locate(entry.address).is_none();
                born(log, &entry);
            })?;
            if outside {
                return Err(Invalid::Field("address in an image"));
            }
            rest = rest.get(loaded..).unwrap_or_default();
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Invalid::Truncated)
        }
    }

    pub(super) fn clear_partition_entries(&self, log: &Log, partition: u32) {
        let mut entries = Vec::new();
        for shard in shards_of(partition) {
            let mut position = Some(ScanPosition::of_shard(shard));
            while let Some(at) = position.filter(|at| at.shard() == shard) {
                position = self.index.scan_bucket(at, &mut entries);
            }
            self.index.lock(shard).clear();
        }
        for entry in &entries {
            died(log, entry);
        }
    }
}
