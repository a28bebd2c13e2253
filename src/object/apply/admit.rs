//! What a full store still takes.
//!
//! Payload and omap values take space in the log, and everything of a node takes space in
//! images, of which there are two generations. A transaction that makes either larger is
//! refused while there is still room to clean, to write images, and for removals.

use std::borrow::Cow;

use crate::log::Log;
use crate::{Error, Result};

use super::super::extents::BLOCKS_MAX;
use super::super::omap_changes::OmapChange;
use super::super::pieces::Piece;
use super::super::plan::{Effect, Plan};
use super::super::table::Node;
use super::super::{ObjectId, Objects};
use super::prepare::Cursor;

/// Images may grow until this part of the capacity is all that may be used.
const USABLE_LEAST_PART: u64 = 8;
/// So much of what is usable is not for payload: who removes objects, and an OSD that starts on a
/// full store, must write records of their own, and cleaning gains little there.
const NO_PAYLOAD_PART: u64 = 32;
/// What a node and an omap key take in an image beside their names and values, about.
const NODE_BYTES: u64 = 256;
const OMAP_KEY_BYTES: u64 = 24;

/// By how much a transaction makes images larger.
#[derive(Clone, Copy, Default)]
pub(super) struct Growth {
    /// Bytes in all, negative when they become smaller.
    pub(super) net: i64,
    /// Bytes of what becomes larger: what becomes smaller may be imaged later.
    pub(super) added: u64,
}

impl Growth {
    fn add(&mut self, bytes: i64) {
        self.net += bytes;
        self.added += bytes.max(0) as u64;
    }
}

impl Objects {
    /// Refuses a transaction that would leave too little for the cleaner or for images.
    pub(super) fn admit(
        &self,
        log: &Log,
        plan: &Plan<'_>,
        ids: &[ObjectId],
        cursor: &Cursor<'_>,
        growth: i64,
    ) -> Result<()> {
        let new_bytes: u64 = cursor.live_bytes(log);
        let live = log.table().live_total() + new_bytes;
        let least = log.geometry().capacity / USABLE_LEAST_PART;
        let is_limited = self.memory_limit_is_reached();
        // Most often there is room for more than images can grow by.
        let most =
            cursor.record_bytes(log) + self.clone_bytes(plan, ids) + NODE_BYTES * ids.len() as u64;
        let usable_with = |growth| {
            let usable = log.usable_bytes(self.all_images(growth));
            match cursor.payload_bytes() {
                0 => usable,
                _ => usable - usable / NO_PAYLOAD_PART,
            }
        };
        let usable = usable_with(most);
        if live <= usable && usable >= least && !is_limited {
            return Ok(());
        }
        if new_bytes == 0 && growth <= 0 {
            return Ok(());
        }
        if is_limited {
            return Err(Error::NoSpace {
                what: "memory limit",
            });
        }
        let usable = usable_with(growth.max(0) as u64);
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

    /// By how much a plan makes images larger, about.
    pub(super) fn image_growth(&self, plan: &Plan<'_>, ids: &[ObjectId]) -> Growth {
        let mut growth = Growth::default();
        growth.add(self.clone_bytes(plan, ids) as i64);
        for effect in &plan.effects {
            let Some(id) = effect.work().map(|work| ids[work]) else {
                continue;
            };
            let shard = self.table.read(id.family);
            let node = shard.get(id);
            growth.add(match effect {
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
                    let is_new =
                        |key: &&Cow<'_, [u8]>| omap.is_none_or(|omap| omap.get(key).is_none());
                    let new = entries.keys().filter(is_new);
                    new.map(|key| key.len() as i64 + OMAP_KEY_BYTES as i64)
                        .sum()
                }
                _ => 0,
            });
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
                Effect::Remove { work } => (*work, 0, BLOCKS_MAX),
                // What is cloned is overwritten twice and given back once.
                Effect::Clone { .. } => return 0,
                _ => continue,
            };
            let shard = self.table.read(ids[work].family);
            let Some(family) = shard.families.get(ids[work].family) else {
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
}
