//! Applying: records and changed nodes from a plan.
//!
//! Records are made outside of every lock. Then the shards of all objects are locked, then
//! the appender: every record gets its seqno and place in one step, the nodes follow before
//! the shards go, so that the order of nodes is the order of replay.

mod nodes;
mod prepare;

use std::collections::BTreeMap;

use crate::format::{COMMIT_STREAM, Seqno};
use crate::log::{self, Claim, Log, Purpose};
use crate::{Error, Result};

use super::omap_changes::OmapChange;
use super::pieces::Piece;
use super::plan::{Effect, Plan};
use super::table::{Node, Usage};
use super::{ObjectId, Objects};
use prepare::Cursor;

/// With as many writers in the last groups or more, payload goes to heads of its own.
const BUSY_WRITERS: u64 = 3;

/// Images may grow until this part of the capacity is all that may be used.
const USABLE_LEAST_PART: u64 = 8;
/// What a node and an omap key take in an image beside their names and values, about.
const NODE_BYTES: u64 = 256;
const OMAP_KEY_BYTES: u64 = 24;

impl Objects {
    /// Applies a plan; returns the seqno whose commit makes it durable.
    pub(crate) fn apply(&self, log: &Log, plan: &mut Plan<'_>) -> Result<Seqno> {
        let ids = self.assign_ids(plan)?;
        let is_busy = log.recent_writers() >= BUSY_WRITERS;
        let cursor = self.prepare(log, plan, &ids, is_busy)?;
        self.admit(log, plan, &ids, &cursor)?;
        // What makes images larger may take no more than what stays in the log.
        let purpose = if cursor.live_bytes(log) > 0 || self.image_growth(plan, &ids) > 0 {
            Purpose::User
        } else {
            Purpose::Delete
        };
        let rooms = cursor.rooms(log, purpose);
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

    /// Refuses a transaction that would leave too little for the cleaner or for images.
    fn admit(
        &self,
        log: &Log,
        plan: &Plan<'_>,
        ids: &[ObjectId],
        cursor: &Cursor<'_>,
    ) -> Result<()> {
        let new_bytes: u64 = cursor.live_bytes(log);
        let live = log.table().live_total() + new_bytes;
        let images = self.all_image_bytes();
        let least = log.geometry().capacity / USABLE_LEAST_PART;
        let is_limited = self.memory_limit_is_reached();
        // Most often there is room for more than images can grow by.
        let most =
            cursor.record_bytes(log) + self.clone_bytes(plan, ids) + NODE_BYTES * ids.len() as u64;
        let usable = log.usable_bytes(images + most);
        if live <= usable && usable >= least && !is_limited {
            return Ok(());
        }
        let growth = self.image_growth(plan, ids);
        if new_bytes == 0 && growth <= 0 {
            return Ok(());
        }
        if is_limited {
            return Err(Error::NoSpace {
                what: "memory limit",
            });
        }
        let usable = log.usable_bytes(images + growth.max(0) as u64);
        let freed = self.freed_bytes(plan, ids);
        let fits = live - freed.min(live) <= usable && (growth <= 0 || usable >= least);
        if fits || (growth <= 0 && freed >= new_bytes) {
            Ok(())
        } else {
            Err(Error::NoSpace { what: "capacity" })
        }
    }

    /// Bytes that the copies of nodes take which a plan makes.
    fn clone_bytes(&self, plan: &Plan<'_>, ids: &[ObjectId]) -> u64 {
        let mut bytes = 0;
        for effect in &plan.effects {
            if let Effect::Clone { source, .. } = effect {
                let id = ids[*source];
                let shard = self.table.read(id.family);
                bytes += shard.get(id).map_or(0, Node::memory_bytes);
            }
        }
        bytes
    }

    /// By how much a plan makes images larger, about; negative when they become smaller.
    fn image_growth(&self, plan: &Plan<'_>, ids: &[ObjectId]) -> i64 {
        let mut growth = self.clone_bytes(plan, ids) as i64;
        for effect in &plan.effects {
            let Some(id) = effect.work().map(|work| ids[work]) else {
                continue;
            };
            let shard = self.table.read(id.family);
            let node = shard.get(id);
            growth += match effect {
                Effect::Create { work } => NODE_BYTES as i64 + plan.works[*work].name.len() as i64,
                Effect::Remove { .. } => -(node.map_or(0, Node::memory_bytes) as i64),
                Effect::Attributes { changes, .. } => {
                    let old = |name| {
                        let value = node.and_then(|node| node.attributes.get(name));
                        value.map_or(0, |value| (name.len() + value.len()) as i64)
                    };
                    let new = |name: &[u8], value: &[u8]| (name.len() + value.len()) as i64;
                    let changes = changes.iter();
                    changes
                        .map(|(name, value)| {
                            value.as_ref().map_or(0, |value| new(name, value)) - old(&**name)
                        })
                        .sum()
                }
                Effect::Omap {
                    change: OmapChange::Header(header),
                    ..
                } => {
                    let omap = node.and_then(|node| node.omap.as_ref());
                    let old = omap.and_then(|omap| omap.header.as_ref());
                    header.len() as i64 - old.map_or(0, |old| old.len() as i64)
                }
                Effect::Omap {
                    change: OmapChange::Set(entries),
                    ..
                } => {
                    let omap = node.and_then(|node| node.omap.as_ref());
                    let is_new = |key: &&std::borrow::Cow<'_, [u8]>| {
                        omap.is_none_or(|omap| omap.get(key).is_none())
                    };
                    let new = entries.keys().filter(is_new);
                    new.map(|key| key.len() as i64 + OMAP_KEY_BYTES as i64)
                        .sum()
                }
                _ => 0,
            };
        }
        growth
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
                // What is cloned is overwritten twice and given back once.
                Effect::Clone { .. } => return 0,
                _ => continue,
            };
            let shard = self.table.read(ids[work].family);
            let Some(family) = shard.families.get(&ids[work].family) else {
                continue;
            };
            // What clones share stays with them.
            let is_alone = family.members().nth(1).is_none();
            if let Some(node) = family.get(ids[work].member).filter(|_| is_alone) {
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
        let changed = |work: &super::plan::Work<'_>| {
            work.is_removed || work.old_name.as_ref() != Some(&work.name)
        };
        let works = || plan.works.iter().zip(ids).filter(|(work, _)| changed(work));
        let spaces: BTreeMap<_, _> = works()
            .map(|(work, _)| (work.space.id, &work.space))
            .collect();
        for (space_id, space) in spaces {
            let works = || works().filter(|(work, _)| work.space.id == space_id);
            // One hold: nobody finds a name absent that goes from one object to another.
            let mut names = space.names.write();
            let before = names.len() as i64;
            for (work, id) in works() {
                if let Some(old) = &work.old_name
                    && names.get(&**old) == Some(id)
                {
                    names.remove(&**old);
                }
            }
            for (work, id) in works().filter(|(work, _)| !work.is_removed) {
                names.insert(work.name.clone(), *id);
            }
            Usage::add(&space.usage.objects, names.len() as i64 - before);
        }
    }
}
