//! Applying: records and changed nodes from a plan.
//!
//! Records are made outside of every lock. Then the shards of all objects are locked, then
//! the appender: every record gets its seqno and place in one step, the nodes follow before
//! the shards go, so that the order of nodes is the order of replay.

mod nodes;
mod prepare;

use std::collections::BTreeMap;

use crate::format::{COMMIT_STREAM, Seqno};
use crate::log::{self, Claim, Log};
use crate::{Error, Result};

use super::pieces::Piece;
use super::plan::{Effect, Plan, Work};
use super::table::Usage;
use super::{ObjectId, Objects};
use prepare::Cursor;

/// With as many writers in the last groups or more, payload goes to heads of its own.
const BUSY_WRITERS: u64 = 3;

impl Objects {
    /// Applies a plan; returns the seqno whose commit makes it durable.
    pub(crate) fn apply(&self, log: &Log, plan: &mut Plan<'_>) -> Result<Seqno> {
        let ids = self.assign_ids(plan)?;
        let is_busy = log.recent_writers() >= BUSY_WRITERS;
        let cursor = self.prepare(log, plan, &ids, is_busy)?;
        self.admit(log, plan, &ids, &cursor)?;
        let rooms = cursor.rooms(log);
        let area: u64 = if is_busy { 0 } else { cursor.record_bytes(log) };
        let mut claim: Option<Claim<'_>> = None;
        loop {
            let mut shards = self.table.lock_all(ids.iter().map(|id| id.family));
            let changes = plan.has_collections().then(|| self.registry.changes.lock());
            let mut appender = log.appender();
            if !appender.has_room(&rooms, claim.is_some()) {
                drop((appender, changes, shards));
                log.wait_for_room(&rooms, Some(&mut claim))?;
                continue;
            }
            if area > 0 {
                appender.reserve_area(COMMIT_STREAM, area);
            }
            let mut places = Vec::with_capacity(cursor.prepared.len());
            for prepared in &cursor.prepared {
                let record = prepared.record();
                let Ok(appended) = appender.append(&record) else {
                    unreachable!("room for the transaction was counted")
                };
                places.push(appended);
            }
            if area > 0 {
                appender.reserve_area(COMMIT_STREAM, 0);
            }
            let seqno = appender.next_seqno() - 1;
            log.join_group(&mut appender);
            log.publish_clock(&appender);
            drop(appender);
            drop(claim.take());
            self.change_nodes(log, plan, &ids, &cursor, &places, &mut shards);
            self.change_names(plan, &ids);
            drop((changes, shards));
            log::Counters::add(&log.counters.user_bytes, plan.user_bytes);
            let bytes = cursor.record_bytes(log) + cursor.payload_bytes();
            log::Counters::add(&log.counters.record_bytes, bytes);
            return Ok(seqno);
        }
    }

    /// An id for every work.
    fn assign_ids(&self, plan: &Plan<'_>) -> Result<Vec<ObjectId>> {
        let mut ids: Vec<ObjectId> = Vec::with_capacity(plan.works.len());
        // Members of families this transaction begins.
        let mut members: BTreeMap<u64, u32> = BTreeMap::new();
        for work in &plan.works {
            let id = match (work.id, work.cloned_from) {
                (Some(id), _) => id,
                (None, None) => {
                    let family = self.table.new_family();
                    members.insert(family, 0);
                    ObjectId { family, member: 0 }
                }
                (None, Some(source)) => {
                    let family = ids[source].family;
                    let member = match members.get_mut(&family) {
                        Some(last) => {
                            *last += 1;
                            *last
                        }
                        None => {
                            let mut shard = self.table.write(family);
                            shard.new_member(family, self.unit).ok_or(Error::NoSpace {
                                what: "clones of an object",
                            })?
                        }
                    };
                    ObjectId { family, member }
                }
            };
            ids.push(id);
        }
        Ok(ids)
    }

    /// Refuses a transaction that would leave too little for the cleaner.
    fn admit(
        &self,
        log: &Log,
        plan: &Plan<'_>,
        ids: &[ObjectId],
        cursor: &Cursor<'_>,
    ) -> Result<()> {
        let new_bytes: u64 = cursor.live_bytes(log);
        if new_bytes == 0 {
            return Ok(());
        }
        if self.memory_limit_is_reached() {
            return Err(Error::NoSpace {
                what: "memory limit",
            });
        }
        let live = log.table().live_total() + new_bytes;
        let usable = log.usable_bytes(self.all_image_bytes());
        if live <= usable {
            return Ok(());
        }
        let freed = self.freed_bytes(plan, ids);
        if live - freed.min(live) > usable && freed < new_bytes {
            return Err(Error::NoSpace { what: "capacity" });
        }
        Ok(())
    }

    /// Bytes of payload that a plan's writes and removals give back, at least.
    fn freed_bytes(&self, plan: &Plan<'_>, ids: &[ObjectId]) -> u64 {
        let mut freed = 0;
        for effect in &plan.effects {
            let (work, first, end) = match effect {
                Effect::Write {
                    work, first, parts, ..
                } => (*work, *first, parts.last().map_or(0, Piece::end)),
                Effect::Unmap { work, first, end } => (*work, *first, *end),
                Effect::Remove { work } => (*work, 0, super::extents::BLOCKS_MAX),
                _ => continue,
            };
            let shard = self.table.read(ids[work].family);
            if let Some(node) = shard.get(ids[work]) {
                freed += node
                    .extents
                    .range(first, end)
                    .map(|extent| extent.bytes())
                    .sum::<u64>();
            }
        }
        freed
    }

    /// Brings the names of spaces in line with what the plan made of them.
    fn change_names(&self, plan: &Plan<'_>, ids: &[ObjectId]) {
        let changed =
            |work: &Work<'_>| work.is_removed || work.old_name.as_ref() != Some(&work.name);
        let works = || plan.works.iter().zip(ids).filter(|(work, _)| changed(work));
        for (work, id) in works() {
            if let Some(old) = &work.old_name {
                let mut names = work.space.names.write();
                if names.get(&**old) == Some(id) {
                    names.remove(&**old);
                    Usage::add(&work.space.usage.objects, -1);
                }
            }
        }
        for (work, id) in works().filter(|(work, _)| !work.is_removed) {
            let before = work.space.names.write().insert(work.name.clone(), *id);
            if before.is_none() {
                Usage::add(&work.space.usage.objects, 1);
            }
        }
    }
}
