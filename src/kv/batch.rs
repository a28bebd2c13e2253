//! Batches: several puts and deletes, all or nothing.
//!
//! All shards of a batch are locked in ascending order, its records are appended under one
//! hold of the appender's lock (so one group commit has them all), and the index is updated
//! before the locks go. Large values take this path too.

use std::collections::BTreeMap;

use crate::format::{KeyHash, Kind, LengthCode, RecordFields, content_hash, record_length};
use crate::index::{Entry, Index, ShardGuard};
use crate::log::{self, Log, NewRecord, Purpose, Room};
use crate::{Error, Result};

use super::chunks::{ChunkHead, chunk_key};
use super::{BATCH_BYTES_MAX, KeyValue, check_key, check_value, died, entry_at, set_entry};

/// An atomic group of puts and deletes, applied in the order they were added.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    ops: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: u64,
}

impl Batch {
    /// Most bytes of keys and values a batch may have.
    pub const BYTES_MAX: u64 = BATCH_BYTES_MAX;

    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.bytes += (key.len() + value.len()) as u64;
        self.ops.push((key.to_vec(), Some(value.to_vec())));
        self
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.bytes += key.len() as u64;
        self.ops.push((key.to_vec(), None));
        self
    }

    /// Number of puts and deletes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(super) fn with_put(mut self, key: &[u8], value: &[u8]) -> Self {
        self.put(key, value);
        self
    }

    pub(super) fn with_delete(mut self, key: &[u8]) -> Self {
        self.delete(key);
        self
    }
}

/// A record of a batch, before it has a place.
struct Planned {
    kind: Kind,
    key: Vec<u8>,
    value: Vec<u8>,
    length: LengthCode,
    /// What the record does to the index.
    change: Change,
}

enum Change {
    Insert(KeyHash),
    /// Removes the owner (if any) and chunks of it.
    Remove {
        owner: Option<KeyHash>,
        chunks: Vec<KeyHash>,
    },
}

/// A batch in records, and the chunks its keys had when it was planned.
struct Plan {
    records: Vec<Planned>,
    chunk_counts: BTreeMap<KeyHash, u32>,
    bytes: u64,
    largest: u64,
}

impl KeyValue {
    /// Applies a batch, all of it or nothing.
    pub(crate) fn write(&self, log: &Log, batch: Batch) -> Result<()> {
        log.check_writable()?;
        if batch.bytes > BATCH_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "batch",
                len: batch.bytes,
                max: BATCH_BYTES_MAX,
            });
        }
        for (key, value) in &batch.ops {
            check_key(key)?;
            check_value(value.as_deref().unwrap_or_default())?;
        }
        if batch.is_empty() {
            return Ok(());
        }
        let user_bytes = batch.bytes;
        let only_deletes = batch.ops.iter().all(|(_, value)| value.is_none());
        let purpose = if only_deletes {
            Purpose::Delete
        } else {
            Purpose::User
        };
        let mut plan = self.plan(log, &batch)?;
        let mut claim = None;
        let seqno = loop {
            let mut shards = self.lock_all(&plan);
            // The keys may have got other chunks since they were counted.
            let changed = plan
                .chunk_counts
                .iter()
                .any(|(owner, count)| self.chunk_count(*owner) != *count);
            if changed {
                drop(shards);
                plan = self.plan(log, &batch)?;
                continue;
            }
            if plan.records.is_empty() {
                drop(shards);
                break log.appender().next_seqno() - 1;
            }
            self.reserve(&mut shards, &plan)?;
            let head = self.head_of(log, log::first_exponent());
            let room = [Room {
                bytes: plan.bytes,
                largest: plan.largest,
                records: plan.records.len() as u64,
                ..Room::new(head, purpose)
            }];
            let freed = self.freed(log, &plan);
            let mut appender = log.appender();
            if !only_deletes {
                self.admit(log, plan.bytes, freed)?;
            }
            if !appender.has_room(&room, claim.is_some()) {
                drop((appender, shards));
                if !only_deletes {
                    self.check_fits(log, plan.bytes)?;
                }
                log.wait_for_room(&room, Some(&mut claim))?;
                continue;
            }
            let mut entries = Vec::with_capacity(plan.records.len());
            let mut last_seqno = 0;
            for planned in &plan.records {
                let record = NewRecord {
                    fields: RecordFields {
                        kind: planned.kind,
                        relocated: false,
                        key: &planned.key,
                        value: &planned.value,
                        content: content_hash(&planned.key, &planned.value),
                    },
                    payload: None,
                    length: planned.length,
                    head,
                    // Room was counted; the floor must not stop the batch in its middle.
                    purpose: Purpose::Counted,
                    clock: None,
                };
                let Ok(appended) = appender.append(&record) else {
                    unreachable!("room for the batch was counted")
                };
                entries.push(appended.address);
                last_seqno = appended.seqno;
            }
            self.join(log, &mut appender);
            log.publish_clock(&appender);
            drop(appender);
            drop(claim.take());
            for (planned, address) in plan.records.iter().zip(entries) {
                self.change_index(log, &mut shards, planned, address)?;
            }
            break last_seqno;
        };
        log::Counters::add(&log.counters.user_bytes, user_bytes);
        log::Counters::add(&log.counters.record_bytes, plan.bytes);
        self.wait_as_promised(log, seqno)
    }

    fn plan(&self, log: &Log, batch: &Batch) -> Result<Plan> {
        let mut plan = Plan {
            records: Vec::new(),
            chunk_counts: BTreeMap::new(),
            bytes: 0,
            largest: 0,
        };
        // Chunks a key has after the ops before, where they differ from the index.
        let mut chunks_now: BTreeMap<KeyHash, u32> = BTreeMap::new();
        for (key, value) in &batch.ops {
            let owner = self.user_hash(key);
            let before = *chunks_now.entry(owner).or_insert_with(|| {
                let count = self.chunk_count(owner);
                plan.chunk_counts.insert(owner, count);
                count
            });
            let after = match value {
                None => {
                    self.plan_delete(log, &mut plan, key, owner, before)?;
                    0
                }
                Some(value) => self.plan_put(log, &mut plan, key, value, owner)?,
            };
            if value.is_some() && after < before {
                let mut range = [0; 8];
                crate::format::bytes::FieldWriter::new(&mut range)
                    .u32(after)
                    .u32(before);
                let chunks = (after..before)
                    .map(|number| self.chunk_hash(owner, number))
                    .collect();
                let change = Change::Remove {
                    owner: None,
                    chunks,
                };
                self.push(
                    log,
                    &mut plan,
                    Kind::TrimChunks,
                    &owner.bits().to_le_bytes(),
                    &range,
                    change,
                )?;
            }
            chunks_now.insert(owner, after);
        }
        Ok(plan)
    }

    fn plan_delete(
        &self,
        log: &Log,
        plan: &mut Plan,
        key: &[u8],
        owner: KeyHash,
        chunks: u32,
    ) -> Result<()> {
        let count = if chunks > 0 {
            chunks.to_le_bytes().to_vec()
        } else {
            Vec::new()
        };
        let chunks = (0..chunks)
            .map(|number| self.chunk_hash(owner, number))
            .collect();
        let change = Change::Remove {
            owner: Some(owner),
            chunks,
        };
        self.push(log, plan, Kind::Delete, key, &count, change)
    }

    /// Plans the records of a put; returns how many chunks the value has.
    fn plan_put(
        &self,
        log: &Log,
        plan: &mut Plan,
        key: &[u8],
        value: &[u8],
        owner: KeyHash,
    ) -> Result<u32> {
        if self.whole_length(log, Kind::Put, key, value).is_some() {
            self.push(log, plan, Kind::Put, key, value, Change::Insert(owner))?;
            return Ok(0);
        }
        let stamp = self.stamp(content_hash(key, value));
        let head = ChunkHead::plan(log, value.len() as u64, stamp);
        for (number, data) in (0..).zip(value.chunks(head.chunk_bytes as usize)) {
            let mut stamped = stamp.to_le_bytes().to_vec();
            stamped.extend_from_slice(data);
            let change = Change::Insert(self.chunk_hash(owner, number));
            self.push(
                log,
                plan,
                Kind::Chunk,
                &chunk_key(owner, number),
                &stamped,
                change,
            )?;
        }
        self.push(
            log,
            plan,
            Kind::Head,
            key,
            &head.encode(),
            Change::Insert(owner),
        )?;
        Ok(head.chunk_count)
    }

    fn push(
        &self,
        log: &Log,
        plan: &mut Plan,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        change: Change,
    ) -> Result<()> {
        let length = record_length(kind, key.len(), value.len(), log.geometry().unit_bytes)
            .ok_or(Error::InvalidArgument("record length"))?;
        let bytes = log.record_bytes(length);
        plan.bytes += bytes;
        plan.largest = plan.largest.max(bytes);
        plan.records.push(Planned {
            kind,
            key: key.to_vec(),
            value: value.to_vec(),
            length,
            change,
        });
        Ok(())
    }

    /// Locks all shards of a plan in ascending order.
    fn lock_all(&self, plan: &Plan) -> BTreeMap<usize, ShardGuard<'_>> {
        let mut numbers = std::collections::BTreeSet::new();
        for planned in &plan.records {
            match &planned.change {
                Change::Insert(hash) => {
                    numbers.insert(Index::shard_of(*hash));
                }
                Change::Remove { owner, chunks } => {
                    numbers.extend(
                        owner
                            .iter()
                            .chain(chunks)
                            .map(|hash| Index::shard_of(*hash)),
                    );
                }
            }
        }
        numbers.extend(
            plan.chunk_counts
                .keys()
                .map(|owner| Index::shard_of(*owner)),
        );
        numbers
            .into_iter()
            .map(|number| (number, self.index.lock(number)))
            .collect()
    }

    /// Bytes of records that die by a plan.
    fn freed(&self, log: &Log, plan: &Plan) -> u64 {
        let mut hashes: Vec<KeyHash> = Vec::new();
        for planned in &plan.records {
            match &planned.change {
                Change::Insert(hash) => hashes.push(*hash),
                Change::Remove { owner, chunks } => hashes.extend(owner.iter().chain(chunks)),
            }
        }
        // Each dies once, however often the batch names it.
        hashes.sort_unstable();
        hashes.dedup();
        let old = hashes.iter().filter_map(|hash| self.index.get(*hash));
        old.map(|old| log.record_bytes(old.length)).sum()
    }

    /// Refuses a batch that no amount of cleaning can make room for.
    fn check_fits(&self, log: &Log, bytes: u64) -> Result<()> {
        let most = log.most_bytes(log.images_with(self.index.image_bytes()));
        if log.table().live_total() + bytes > most {
            return Err(Error::NoSpace { what: "capacity" });
        }
        Ok(())
    }

    fn reserve(&self, shards: &mut BTreeMap<usize, ShardGuard<'_>>, plan: &Plan) -> Result<()> {
        let limit = self.index_limit();
        let mut inserted: BTreeMap<usize, Vec<KeyHash>> = BTreeMap::new();
        for planned in &plan.records {
            if let Change::Insert(hash) = planned.change {
                inserted
                    .entry(Index::shard_of(hash))
                    .or_default()
                    .push(hash);
            }
        }
        for (number, hashes) in &inserted {
            let Some(shard) = shards.get_mut(number) else {
                unreachable!("the plan's shards are locked")
            };
            shard
                .reserve_many(hashes, limit)
                .map_err(|_| Error::NoSpace {
                    what: "memory limit",
                })?;
        }
        Ok(())
    }

    fn change_index(
        &self,
        log: &Log,
        shards: &mut BTreeMap<usize, ShardGuard<'_>>,
        planned: &Planned,
        address: crate::format::Address,
    ) -> Result<()> {
        match &planned.change {
            Change::Insert(hash) => {
                let Some(shard) = shards.get_mut(&Index::shard_of(*hash)) else {
                    unreachable!("the plan's shards are locked")
                };
                let exponent = shard
                    .get(*hash)
                    .map_or_else(log::first_exponent, |old: Entry| old.exponent);
                let entry = entry_at(address, planned.length, exponent);
                set_entry(log, shard, *hash, entry)?;
            }
            Change::Remove { owner, chunks } => {
                for hash in owner.iter().chain(chunks) {
                    let Some(shard) = shards.get_mut(&Index::shard_of(*hash)) else {
                        unreachable!("the plan's shards are locked")
                    };
                    if let Some(old) = shard.remove(*hash) {
                        died(log, &old);
                    }
                }
            }
        }
        Ok(())
    }
}
