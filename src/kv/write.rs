//! Put and delete of one record.

use crate::format::{
    COMMIT_STREAM, KeyHash, Kind, LengthCode, RecordFields, Seqno, content_hash, record_length,
};
use crate::index::{Entry, Index, ShardGuard};
use crate::log::{self, GROUP_BYTES, Log, NewRecord, Purpose, Room};
use crate::sync::Ordering;
use crate::{Durability, Error, Options, Result};

use super::{Batch, KeyValue, check_key, check_value, died, entry_at, set_entry};

impl KeyValue {
    /// Stores `value` under `key`.
    pub(crate) fn put(&self, log: &Log, key: &[u8], value: &[u8]) -> Result<()> {
        log.check_writable()?;
        check_key(key)?;
        check_value(value)?;
        let Some(length) = self.whole_length(log, Kind::Put, key, value) else {
            return self.write(log, Batch::new().with_put(key, value));
        };
        let content = content_hash(key, value);
        let fields = RecordFields {
            kind: Kind::Put,
            relocated: false,
            key,
            value,
            content,
        };
        let seqno = self.write_one(log, fields, length, |shard, hash, old| {
            if old.is_some_and(|old| old.length.is_head()) {
                return Ok(None);
            }
            let room = shard.reserve(hash, self.index_limit());
            room.map_err(|_| Error::NoSpace {
                what: "memory limit",
            })?;
            Ok(Some(self.exponent_after(log, old, content)))
        })?;
        match seqno {
            Some(seqno) => self.wait_as_promised(log, seqno),
            // Chunks go with what they belonged to.
            None => self.write(log, Batch::new().with_put(key, value)),
        }
    }

    /// Removes the value under `key`; says whether there was one.
    pub(crate) fn delete(&self, log: &Log, key: &[u8]) -> Result<bool> {
        log.check_writable()?;
        check_key(key)?;
        let fields = RecordFields {
            kind: Kind::Delete,
            relocated: false,
            key,
            value: &[],
            content: content_hash(key, &[]),
        };
        let length = self.tombstone_length(log, key, &[])?;
        let mut was_there = false;
        let seqno = self.write_one(log, fields, length, |_, _, old| {
            was_there = old.is_some();
            let whole = old.filter(|old| !old.length.is_head());
            Ok(whole.map(|old| old.exponent))
        })?;
        match seqno {
            Some(seqno) => self.wait_as_promised(log, seqno)?,
            None if was_there => self.write(log, Batch::new().with_delete(key))?,
            None => {
                // Another's delete may be what we saw: ours promises no less.
                let last = log.appender().next_seqno() - 1;
                self.wait_as_promised(log, last)?;
            }
        }
        Ok(was_there)
    }

    /// Appends one record, a put or a tombstone, and changes the index, in one hold of the
    /// shard's lock (C2); returns the seqno. `choose` is told what the key has, and gives the
    /// exponent of the record, or `None`: then nothing is written.
    fn write_one(
        &self,
        log: &Log,
        fields: RecordFields<'_>,
        length: LengthCode,
        mut choose: impl FnMut(&mut ShardGuard<'_>, KeyHash, Option<Entry>) -> Result<Option<u8>>,
    ) -> Result<Option<Seqno>> {
        let hash = self.user_hash(fields.key);
        let bytes = log.record_bytes(length);
        let is_put = fields.kind == Kind::Put;
        let purpose = if is_put {
            Purpose::User
        } else {
            Purpose::Delete
        };
        let seqno = loop {
            let mut shard = self.index.lock(Index::shard_of(hash));
            let old = shard.get(hash);
            let Some(exponent) = choose(&mut shard, hash, old)? else {
                return Ok(None);
            };
            let head = self.head_of(log, exponent);
            // With the lock, so that many writers together do not pass the bound.
            let mut appender = log.appender();
            if is_put {
                let old_bytes = old.map_or(0, |old| log.record_bytes(old.length));
                self.admit(log, bytes, old_bytes)?;
            }
            let record = NewRecord {
                fields,
                payload: None,
                length,
                head,
                purpose,
                clock: None,
            };
            let Ok(appended) = appender.append(&record) else {
                drop((appender, shard));
                log.wait_for_room(&[Room::of_one(head, purpose, bytes)], None)?;
                continue;
            };
            self.join(log, &mut appender);
            log.publish_clock(&appender);
            drop(appender);
            if is_put {
                let entry = entry_at(appended.address, length, exponent);
                set_entry(log, &mut shard, hash, entry)?;
            } else if let Some(old) = shard.remove(hash) {
                died(log, &old);
            }
            break appended.seqno;
        };
        let user_bytes = fields.key.len() + fields.value.len();
        log::Counters::add(&log.counters.user_bytes, user_bytes as u64);
        log::Counters::add(&log.counters.record_bytes, bytes);
        Ok(Some(seqno))
    }

    /// Refuses a write that would leave too little for the cleaner, before any effect.
    pub(super) fn admit(&self, log: &Log, new_bytes: u64, old_bytes: u64) -> Result<()> {
        if new_bytes <= old_bytes {
            return Ok(());
        }
        let live = log.table().live_total() + new_bytes - old_bytes;
        // Images never take more than this: while it suffices, nothing is counted.
        let bound = 2 * self.index.memory_bytes() + (1 << 20);
        if live > log.usable_bytes(log.images_with(bound)) && live > self.usable_bytes(log) {
            return Err(Error::NoSpace { what: "capacity" });
        }
        Ok(())
    }

    /// The rewrite-interval exponent of a key after this write.
    pub(super) fn exponent_after(&self, log: &Log, old: Option<Entry>, random: u64) -> u8 {
        let Some(old) = old else {
            return log::first_exponent();
        };
        let Some((_, segment, _)) = log.table().locate(old.address) else {
            return old.exponent;
        };
        let interval = log.clock().saturating_sub(segment.mean_clock());
        log::next_exponent(
            old.exponent,
            interval,
            log.table().live_total(),
            random as u32,
        )
    }

    /// The head a caller's write goes to.
    pub(super) fn head_of(&self, log: &Log, exponent: u8) -> u8 {
        match self.durability {
            Durability::Committed if !log.spreads_commits() => COMMIT_STREAM,
            Durability::Committed | Durability::Buffered => log::head_class(exponent) as u8,
        }
    }

    /// Joins the group of a write that will be waited for; wakes the flusher for others.
    pub(super) fn join(&self, log: &Log, appender: &mut log::Appender) {
        match self.durability {
            Durability::Committed => log.join_group(appender),
            Durability::Buffered if appender.pending_bytes() >= GROUP_BYTES => log.wake_flusher(),
            Durability::Buffered => {}
        }
    }

    /// Waits for what the durability promises of a write with this seqno.
    pub(super) fn wait_as_promised(&self, log: &Log, seqno: u64) -> Result<()> {
        match self.durability {
            Durability::Committed => log.commit_through(seqno),
            Durability::Buffered => log.throttle(Options::BUFFERED_BYTES),
        }
    }

    /// A number no other value of this store has, for its chunks.
    pub(super) fn stamp(&self, content: u64) -> u64 {
        let count = self.stamps.fetch_add(1, Ordering::Relaxed);
        content.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn tombstone_length(
        &self,
        log: &Log,
        key: &[u8],
        value: &[u8],
    ) -> Result<LengthCode> {
        record_length(
            Kind::Delete,
            key.len(),
            value.len(),
            log.geometry().unit_bytes,
        )
        .ok_or(Error::InvalidArgument("key"))
    }
}
