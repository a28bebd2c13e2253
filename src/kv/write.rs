//! Put and delete of one record.

use crate::format::{COMMIT_STREAM, Kind, RecordFields, content_hash, record_length};
use crate::index::{Entry, Index};
use crate::log::{self, GROUP_BYTES, Log, NewRecord, Purpose, Room};
use crate::sync::Ordering;
use crate::{Durability, Error, Options, Result};

use super::{Batch, KeyValue, check_key, check_value, died, entry_at};

impl KeyValue {
    /// Stores `value` under `key`.
    pub(crate) fn put(&self, log: &Log, key: &[u8], value: &[u8]) -> Result<()> {
        log.check_writable()?;
        check_key(key)?;
        check_value(value)?;
        let Some(length) = self.whole_length(log, Kind::Put, key, value) else {
            return self.write(log, Batch::new().with_put(key, value));
        };
        let hash = self.user_hash(key);
        let content = content_hash(key, value);
        let fields = RecordFields {
            kind: Kind::Put,
            relocated: false,
            key,
            value,
            content,
        };
        let bytes = log.record_bytes(length);
        let seqno = loop {
            let mut shard = self.index.lock(Index::shard_of(hash));
            let old = shard.get(hash);
            if old.is_some_and(|old| old.length.is_head()) {
                drop(shard);
                return self.write(log, Batch::new().with_put(key, value));
            }
            let old_bytes = old.map_or(0, |old| log.record_bytes(old.length));
            shard
                .reserve(hash, self.index_limit())
                .map_err(|_| Error::NoSpace {
                    what: "memory limit",
                })?;
            let exponent = self.exponent_after(log, old, content);
            let head = self.head_of(exponent);
            // With the lock, so that many writers together do not pass the bound.
            let mut appender = log.appender();
            self.admit(log, bytes, old_bytes)?;
            let record = NewRecord {
                fields,
                payload: None,
                length,
                head,
                purpose: Purpose::User,
                clock: None,
            };
            let Ok(appended) = appender.append(&record) else {
                drop((appender, shard));
                log.wait_for_room(&[Room::of_one(head, Purpose::User, bytes)], None)?;
                continue;
            };
            self.join(log, &mut appender);
            log.publish_clock(&appender);
            drop(appender);
            let entry = entry_at(appended.address, length, exponent);
            if let Some(old) = shard.insert(hash, entry) {
                died(log, &old);
            }
            break appended.seqno;
        };
        log::Counters::add(&log.counters.user_bytes, (key.len() + value.len()) as u64);
        log::Counters::add(&log.counters.record_bytes, bytes);
        self.wait_as_promised(log, seqno)
    }

    /// Removes the value under `key`; says whether there was one.
    pub(crate) fn delete(&self, log: &Log, key: &[u8]) -> Result<bool> {
        log.check_writable()?;
        check_key(key)?;
        let hash = self.user_hash(key);
        let fields = RecordFields {
            kind: Kind::Delete,
            relocated: false,
            key,
            value: &[],
            content: content_hash(key, &[]),
        };
        let length = self.tombstone_length(log, key, &[])?;
        let bytes = log.record_bytes(length);
        let seqno = loop {
            let mut shard = self.index.lock(Index::shard_of(hash));
            let Some(old) = shard.get(hash) else {
                drop(shard);
                // Another's delete may be what we saw: ours promises no less.
                let last = log.appender().next_seqno() - 1;
                self.wait_as_promised(log, last)?;
                return Ok(false);
            };
            if old.length.is_head() {
                drop(shard);
                self.write(log, Batch::new().with_delete(key))?;
                return Ok(true);
            }
            let head = self.head_of(old.exponent);
            let mut appender = log.appender();
            let record = NewRecord {
                fields,
                payload: None,
                length,
                head,
                purpose: Purpose::Delete,
                clock: None,
            };
            let Ok(appended) = appender.append(&record) else {
                drop((appender, shard));
                log.wait_for_room(&[Room::of_one(head, Purpose::Delete, bytes)], None)?;
                continue;
            };
            self.join(log, &mut appender);
            log.publish_clock(&appender);
            drop(appender);
            if let Some(old) = shard.remove(hash) {
                died(log, &old);
            }
            break appended.seqno;
        };
        log::Counters::add(&log.counters.user_bytes, key.len() as u64);
        log::Counters::add(&log.counters.record_bytes, bytes);
        self.wait_as_promised(log, seqno)?;
        Ok(true)
    }

    /// Refuses a write that would leave too little for the cleaner, before any effect.
    pub(super) fn admit(&self, log: &Log, new_bytes: u64, old_bytes: u64) -> Result<()> {
        if new_bytes <= old_bytes {
            return Ok(());
        }
        let live = log.table().live_total() + new_bytes - old_bytes;
        // Images never take more than this: while it suffices, nothing is counted.
        let bound = 2 * self.index.memory_bytes() + (1 << 20);
        if live > log.usable_bytes(bound) && live > self.usable_bytes(log) {
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
    pub(super) fn head_of(&self, exponent: u8) -> u8 {
        match self.durability {
            Durability::Committed => COMMIT_STREAM,
            Durability::Buffered => log::head_class(exponent) as u8,
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
    ) -> Result<crate::format::LengthCode> {
        record_length(
            Kind::Delete,
            key.len(),
            value.len(),
            log.geometry().unit_bytes,
        )
        .ok_or(Error::InvalidArgument("key"))
    }
}
