//! Applying: records and changed nodes from a plan.
//!
//! Records are made outside of every lock. Then the shards of all objects are locked, then
//! the appender: every record gets its seqno and place in one step, the nodes follow before
//! the shards go, so that the order of nodes is the order of replay.

mod admit;
mod nodes;
mod prepare;

use std::collections::BTreeMap;

use crate::format::{COMMIT_STREAM, Seqno};
use crate::log::{self, Claim, Log, Purpose};
use crate::sync::Ordering;
use crate::{Error, Result};

use super::plan::{Plan, Work};
use super::table::Usage;
use super::{ObjectId, Objects};

/// With as many writers in the last groups or more, payload goes to heads of its own.
const BUSY_WRITERS: u64 = 3;

impl Objects {
    /// Applies a plan; returns the seqno whose commit makes it durable.
    pub(crate) fn apply(&self, log: &Log, plan: &mut Plan<'_>) -> Result<Seqno> {
        let ids = self.assign_ids(plan)?;
        let is_busy = log.recent_writers() >= BUSY_WRITERS;
        let cursor = self.prepare(log, plan, &ids, is_busy)?;
        let growth = self.image_growth(plan, &ids);
        self.admit(log, plan, &ids, &cursor, growth.net)?;
        // What makes images larger may take no more than what stays in the log.
        let purpose = if cursor.live_bytes(log) > 0 || growth.net > 0 {
            Purpose::User
        } else {
            Purpose::Delete
        };
        let rooms = cursor.rooms(log, purpose, growth.added);
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
            appender.images_grow(growth.added);
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

    /// Brings the names of spaces in line with what the plan made of them.
    fn change_names(&self, plan: &Plan<'_>, ids: &[ObjectId]) {
        let changed =
            |work: &Work<'_>| work.is_removed || work.old_name.as_ref() != Some(&work.name);
        let works = || plan.works.iter().zip(ids).filter(|(work, _)| changed(work));
        let spaces: BTreeMap<_, _> = works()
            .map(|(work, _)| (work.space.id, &work.space))
            .collect();
        for (space_id, space) in spaces {
            let works = || works().filter(|(work, _)| work.space.id == space_id);
            // One hold: nobody finds a name absent that goes from one object to another.
            let more = space.change_names(|names| {
                let before = names.len() as i64;
                for (work, id) in works() {
                    let Some(old) = &work.old_name else { continue };
                    if names.find(old) == Some(*id) {
                        names.remove(old);
                        self.table.add_name(id.family, old, -1);
                    }
                    if !work.is_removed {
                        // Relaxed: looked at under the locks that are held here.
                        space.renames.fetch_add(1, Ordering::Relaxed);
                    }
                }
                for (work, id) in works().filter(|(work, _)| !work.is_removed) {
                    names.insert(&work.name, *id);
                    self.table.add_name(id.family, &work.name, 1);
                }
                names.len() as i64 - before
            });
            Usage::add(&space.usage.objects, more);
        }
    }
}
