//! Changing nodes as a plan says, when its records have their places.

use crate::format::Seqno;
use crate::log::{Appended, Log};

use super::super::attributes::Attributes;
use super::super::change;
use super::super::extents::Dropped;
use super::super::omap_changes::OmapChange;
use super::super::plan::{Effect, Plan, Work};
use super::super::records::OmapRecord;
use super::super::table::{Footprint, LockedShards, Shard, Usage};
use super::super::{ObjectId, Objects, OmapLocation};
use super::prepare::{Cursor, Prepared};

impl Objects {
    pub(super) fn change_nodes(
        &self,
        log: &Log,
        plan: &Plan<'_>,
        ids: &[ObjectId],
        cursor: &Cursor<'_>,
        places: &[Appended],
        shards: &mut LockedShards<'_>,
    ) {
        let mut at = 0;
        for (effect, count) in plan.effects.iter().zip(&cursor.counts) {
            let prepared = &cursor.prepared[at..at + count];
            let appended = &places[at..at + count];
            at += count;
            let Some(last) = appended.last() else {
                continue;
            };
            let version = last.seqno;
            let Some(work) = effect.work() else {
                if let Effect::Collection { slot, exists, bits } = effect {
                    slot.set(*exists, *bits, version);
                }
                continue;
            };
            let id = ids[work];
            let planned = &plan.works[work];
            let usage = &planned.space.usage;
            let shard = shards.of(id.family);
            let mut dead = |dropped: Dropped| {
                log.record_died(dropped.address, dropped.bytes);
                Usage::add(&usage.allocated_bytes, -(dropped.bytes as i64));
            };
            let before = Footprint::of(shard.get(id));
            match effect {
                Effect::Create { .. } => {
                    let (space, name) = (planned.space.clone(), &*planned.name);
                    change::create(shard, id, space, name, version, self.unit);
                }
                Effect::Clone { source, .. } => {
                    let source = ids[*source].member;
                    let (space, name) = (planned.space.clone(), &*planned.name);
                    let made = change::clone(shard, source, id, space, name, version, self.unit);
                    assert!(made, "the source was planned");
                }
                Effect::Remove { .. } => {
                    let removed = change::remove(shard, id, self.unit, &mut dead);
                    if let Some(omap) = removed.and_then(|mut node| node.omap.take()) {
                        self.bury(log, &planned.space, *omap);
                    }
                }
                Effect::Write { .. } => {
                    for (prepared, appended) in prepared.iter().zip(appended) {
                        let Some(address) = appended.payload else {
                            unreachable!("an extent has payload")
                        };
                        Usage::add(&usage.allocated_bytes, prepared.payload_bytes as i64);
                        let extent = prepared.extent(address);
                        change::write(shard, id, extent, version, self.unit, &mut dead);
                    }
                }
                Effect::Unmap { first, end, .. } => {
                    change::unmap(shard, id, (*first, *end), version, self.unit, &mut dead);
                }
                _ => self.change_node(log, effect, planned, shard, id, version, prepared, appended),
            }
            let more = before.to(&Footprint::of(shard.get(id)), usage);
            self.table.add_bytes(id.family, more);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the rest of change_nodes")]
    pub(super) fn change_node(
        &self,
        log: &Log,
        effect: &Effect<'_>,
        planned: &Work<'_>,
        shard: &mut Shard,
        id: ObjectId,
        version: Seqno,
        prepared: &[Prepared<'_>],
        appended: &[Appended],
    ) {
        let Some((node, _)) = shard.get_mut(id) else {
            unreachable!("the object was planned")
        };
        node.version = version;
        let usage = &planned.space.usage;
        let mut gone_bytes = 0;
        let mut gone = |old: OmapLocation| {
            let bytes = log.record_bytes(old.length());
            log.record_died(old.address(), bytes);
            gone_bytes += bytes;
            Usage::add(&usage.omap_bytes, -(bytes as i64));
        };
        match effect {
            Effect::Rename { name, .. } => node.renamed(name),
            Effect::Resize { bytes, .. } => node.bytes = *bytes,
            Effect::Hint { bits, .. } => node.set_hint(*bits),
            Effect::Attributes { clear, changes, .. } => {
                if *clear {
                    node.attributes = Attributes::default();
                }
                let changes = changes.iter();
                node.attributes
                    .change(changes.map(|(name, value)| (&**name, value.as_deref())));
            }
            Effect::Omap { change, .. } => match change {
                OmapChange::Clear => {
                    if let Some(omap) = node.omap.take() {
                        self.bury(log, &planned.space, *omap);
                    }
                }
                OmapChange::Header(header) => {
                    change::omap_of(node).header = Some((&**header).into());
                }
                OmapChange::Remove(keys) => {
                    change::omap_remove(node, keys.iter().map(|key| &**key), &mut gone);
                }
                OmapChange::RemoveRange(first, last) => {
                    let mut removed_bytes = 0;
                    if let Some(omap) = &mut node.omap {
                        let mut removed = omap.remove_range(first, last);
                        removed.visit_locations(&mut |location| {
                            removed_bytes += log.record_bytes(location.length());
                        });
                        removed.record_bytes = removed_bytes;
                        omap.record_bytes -= removed_bytes;
                        self.bury(log, &planned.space, removed);
                    }
                    change::trim_omap(node);
                }
                OmapChange::Set(_) => {
                    let omap = change::omap_of(node);
                    for (prepared, appended) in prepared.iter().zip(appended) {
                        let Ok(record) = OmapRecord::decode(&prepared.key) else {
                            unreachable!("it was just encoded")
                        };
                        let location = OmapLocation::new(appended.address, prepared.length);
                        let bytes = log.record_bytes(prepared.length);
                        Usage::add(&usage.omap_bytes, bytes as i64);
                        omap.record_bytes += bytes;
                        omap.set(&record, location, &mut gone);
                    }
                }
            },
            _ => {}
        }
        if let Some(omap) = &mut node.omap {
            omap.record_bytes -= gone_bytes;
        }
    }
}

impl Effect<'_> {
    /// The work it is about; none for collections.
    pub(super) fn work(&self) -> Option<usize> {
        match self {
            Self::Create { work }
            | Self::Clone { work, .. }
            | Self::Remove { work }
            | Self::Rename { work, .. }
            | Self::Resize { work, .. }
            | Self::Write { work, .. }
            | Self::Unmap { work, .. }
            | Self::Attributes { work, .. }
            | Self::Omap { work, .. }
            | Self::Hint { work, .. } => Some(*work),
            Self::Collection { .. } => None,
        }
    }
}
