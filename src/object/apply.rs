//! Applying: records and changed nodes from a plan.
//!
//! Records are made outside of every lock. Then the shards of all objects are locked, then
//! the appender: every record gets its seqno and place in one step, the nodes follow before
//! the shards go, so that the order of nodes is the order of replay.

use std::collections::BTreeMap;

use crate::format::{
    COMMIT_STREAM, Kind, LengthCode, RecordFields, Seqno, content_hash, extent_key, extent_value,
    payload_checksum, record_length,
};
use crate::log::{self, Appended, Claim, Log, NewRecord, Purpose, Room, max_payload};
use crate::sync::SharedArc;
use crate::{Error, Result};

use super::attributes::pack_attribute;
use super::change;
use super::extents::{Extent, SECTOR_BYTES};
use super::omap_changes::OmapChange;
use super::pieces::{Piece, Source, cut};
use super::plan::{Effect, Plan};
use super::records::{OmapRecord, Operation, pack_key};
use super::table::{LockedShards, Usage};
use super::{BLOCK_BYTES, ObjectId, Objects, OmapLocation};

/// Operations longer than this are several.
const OPERATION_BYTES: usize = 32 << 10;
/// With as many writers in the last groups or more, payload goes to heads of its own.
const BUSY_WRITERS: u64 = 3;
/// What pads payload to whole blocks.
const ZEROS: [u8; 4096] = [0; 4096];

/// A record to be appended, with what its effect needs of it.
struct Prepared<'p> {
    kind: Kind,
    key: Vec<u8>,
    value: std::borrow::Cow<'p, [u8]>,
    content: u64,
    length: LengthCode,
    head: u8,
    payload: Vec<&'p [u8]>,
    payload_bytes: u64,
    /// Of an extent.
    first: u32,
    checksums: Vec<u32>,
    exponent: u8,
}

/// Takes prepared records off the list, one effect after another.
struct Cursor<'p> {
    prepared: Vec<Prepared<'p>>,
    /// How many records each effect has.
    counts: Vec<usize>,
}

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
                            shard
                                .new_member(family, self.unit)
                                .ok_or(Error::NoSpace { what: "clones of an object" })?
                        }
                    };
                    ObjectId { family, member }
                }
            };
            ids.push(id);
        }
        Ok(ids)
    }

    fn prepare<'p>(
        &self,
        log: &Log,
        plan: &'p Plan<'_>,
        ids: &[ObjectId],
        is_busy: bool,
    ) -> Result<Cursor<'p>> {
        let mut cursor = Cursor {
            prepared: Vec::with_capacity(plan.effects.len() + 2),
            counts: Vec::with_capacity(plan.effects.len()),
        };
        let unit_bytes = log.geometry().unit_bytes;
        // A record leaves the rest of a segment unused where it does not fit.
        let part_bytes = (log.geometry().segment_bytes / 8) as usize;
        for effect in &plan.effects {
            let before = cursor.prepared.len();
            let mut operation = |id, operation: Operation<'_>| {
                let encoded = operation.encode(id);
                cursor.push(Kind::Object, encoded.key.to_vec(), encoded.value.into(), unit_bytes)
            };
            match effect {
                Effect::Create { work } => {
                    let name = self.stored_name(plan, *work);
                    operation(ids[*work], Operation::Create { name: &name })?;
                }
                Effect::Clone { work, source } => {
                    let name = self.stored_name(plan, *work);
                    let source = ids[*source].member;
                    operation(ids[*work], Operation::Clone { source, name: &name })?;
                }
                Effect::Remove { work } => operation(ids[*work], Operation::Remove)?,
                Effect::Rename { work, name } => {
                    let name = super::stored_name(plan.works[*work].space.id, name);
                    operation(ids[*work], Operation::Rename { name: &name })?;
                }
                Effect::Resize { work, bytes } => {
                    operation(ids[*work], Operation::Resize { bytes: *bytes })?;
                }
                Effect::Unmap { work, first, end } => {
                    let unmap = Operation::Unmap { first: *first, end: *end };
                    operation(ids[*work], unmap)?;
                }
                Effect::Hint { work, bits } => {
                    operation(ids[*work], Operation::Hint { bits: *bits })?;
                }
                Effect::Attributes { work, clear, changes } => {
                    if *clear {
                        operation(ids[*work], Operation::ClearAttributes)?;
                    }
                    let (mut set, mut removed) = (Vec::new(), Vec::new());
                    for (name, value) in changes {
                        let Some(value) = value else {
                            pack_attribute(name, &[], &mut removed);
                            continue;
                        };
                        let (first, rest) = value.split_at(value.len().min(OPERATION_BYTES));
                        pack_attribute(name, first, &mut set);
                        if !rest.is_empty() {
                            // What one record has comes first.
                            let packed = std::mem::take(&mut set);
                            let first = Operation::SetAttributes { packed: &packed };
                            operation(ids[*work], first)?;
                        }
                        for more in rest.chunks(OPERATION_BYTES) {
                            let mut packed = Vec::new();
                            pack_attribute(name, more, &mut packed);
                            let more = Operation::ExtendAttribute { packed: &packed };
                            operation(ids[*work], more)?;
                        }
                        if set.len() >= OPERATION_BYTES {
                            let packed = std::mem::take(&mut set);
                            let set = Operation::SetAttributes { packed: &packed };
                            operation(ids[*work], set)?;
                        }
                    }
                    if !set.is_empty() {
                        operation(ids[*work], Operation::SetAttributes { packed: &set })?;
                    }
                    if !removed.is_empty() {
                        let removed = Operation::RemoveAttributes { packed: &removed };
                        operation(ids[*work], removed)?;
                    }
                }
                Effect::Omap { work, change } => match change {
                    OmapChange::Clear => operation(ids[*work], Operation::OmapClear)?,
                    OmapChange::Header(header) => {
                        let (first, rest) = header.split_at(header.len().min(OPERATION_BYTES));
                        operation(ids[*work], Operation::OmapHeader { header: first })?;
                        for header in rest.chunks(OPERATION_BYTES) {
                            operation(ids[*work], Operation::ExtendOmapHeader { header })?;
                        }
                    }
                    OmapChange::RemoveRange(first, last) => {
                        if first < last {
                            let range = Operation::OmapRemoveRange { first, last };
                            operation(ids[*work], range)?;
                        }
                    }
                    OmapChange::Remove(keys) => {
                        let mut packed = Vec::new();
                        for key in keys {
                            pack_key(key, &mut packed);
                            if packed.len() >= OPERATION_BYTES {
                                let some = std::mem::take(&mut packed);
                                operation(ids[*work], Operation::OmapRemove { packed: &some })?;
                            }
                        }
                        if !packed.is_empty() {
                            operation(ids[*work], Operation::OmapRemove { packed: &packed })?;
                        }
                    }
                    OmapChange::Set(entries) => {
                        for (key, value) in entries {
                            cursor.push_value(ids[*work], key, value, part_bytes, unit_bytes)?;
                        }
                    }
                },
                Effect::Write { work, first, parts, stored_bytes } => {
                    let exponent = self.exponent_of(log, ids[*work], *first);
                    let head = if is_busy {
                        super::payload_head(exponent)
                    } else {
                        COMMIT_STREAM
                    };
                    let extents = Extents {
                        plan,
                        id: ids[*work],
                        parts,
                        stored_bytes: log.geometry().round_to_block(*stored_bytes),
                        largest: u64::from(max_payload(log.geometry())) / BLOCK_BYTES * BLOCK_BYTES,
                    };
                    for mut prepared in extents.split(*first, unit_bytes)? {
                        prepared.head = head;
                        prepared.exponent = exponent;
                        cursor.prepared.push(prepared);
                    }
                }
                Effect::Collection { slot, exists, bits } => {
                    let name = slot.name.to_string();
                    let name = name.as_bytes();
                    let change = if *exists {
                        Operation::CollectionSet { bits: *bits, name }
                    } else {
                        Operation::CollectionRemove { name }
                    };
                    operation(ObjectId { family: 0, member: 0 }, change)?;
                }
            }
            cursor.counts.push(cursor.prepared.len() - before);
        }
        let most = log.geometry().segment_bytes / 2;
        let too_long = cursor.prepared.iter().find(|prepared| log.record_bytes(prepared.length) > most);
        if let Some(prepared) = too_long {
            return Err(Error::TooLarge {
                what: "attribute or omap value",
                len: prepared.value.len() as u64,
                max: most,
            });
        }
        Ok(cursor)
    }

    fn stored_name(&self, plan: &Plan<'_>, work: usize) -> Vec<u8> {
        let work = &plan.works[work];
        super::stored_name(work.space.id, &work.name)
    }

    /// The rewrite-interval exponent of a block that is overwritten.
    fn exponent_of(&self, log: &Log, id: ObjectId, block: u32) -> u8 {
        let old = self.table.read(id.family).get(id).and_then(|node| node.extents.get(block));
        let Some(old) = old else {
            return log::first_exponent();
        };
        let Some((_, segment, _)) = log.table().locate(old.address) else {
            return old.exponent;
        };
        let interval = log.clock().saturating_sub(segment.mean_clock());
        log::next_exponent(old.exponent, interval, log.table().live_total(), old.checksum)
    }

    /// Refuses a transaction that would leave too little for the cleaner.
    fn admit(&self, log: &Log, plan: &Plan<'_>, ids: &[ObjectId], cursor: &Cursor<'_>) -> Result<()> {
        let new_bytes: u64 = cursor.live_bytes(log);
        if new_bytes == 0 {
            return Ok(());
        }
        if self.memory_limit_is_reached() {
            return Err(Error::NoSpace { what: "memory limit" });
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
                Effect::Write { work, first, parts, .. } => {
                    (*work, *first, parts.last().map_or(0, Piece::end))
                }
                Effect::Unmap { work, first, end } => (*work, *first, *end),
                Effect::Remove { work } => (*work, 0, super::extents::BLOCKS_MAX),
                _ => continue,
            };
            let shard = self.table.read(ids[work].family);
            if let Some(node) = shard.get(ids[work]) {
                freed += node.extents.range(first, end).map(|extent| extent.bytes()).sum::<u64>();
            }
        }
        freed
    }

    fn change_nodes(
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
            let mut dead = |dropped: super::extents::Dropped| {
                log.record_died(dropped.address, dropped.bytes);
                Usage::add(&usage.allocated_bytes, -(dropped.bytes as i64));
            };
            let before = Footprint::of(shard.get(id));
            match effect {
                Effect::Create { .. } => {
                    let (space, name) = (planned.space.clone(), planned.name.clone());
                    change::create(shard, id, space, name, version, self.unit);
                }
                Effect::Clone { source, .. } => {
                    let source = ids[*source].member;
                    let (space, name) = (planned.space.clone(), planned.name.clone());
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
            before.to(Footprint::of(shard.get(id)), usage);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the rest of change_nodes")]
    fn change_node(
        &self,
        log: &Log,
        effect: &Effect<'_>,
        planned: &super::plan::Work<'_>,
        shard: &mut super::table::Shard,
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
            Effect::Rename { name, .. } => node.name = name.clone(),
            Effect::Resize { bytes, .. } => node.bytes = *bytes,
            Effect::Hint { bits, .. } => node.hint = *bits,
            Effect::Attributes { clear, changes, .. } => {
                if *clear {
                    node.attributes = super::attributes::Attributes::default();
                }
                let changes = changes.iter();
                node.attributes.change(changes.map(|(name, value)| (&**name, value.as_deref())));
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

    /// Brings the names of spaces in line with what the plan made of them.
    fn change_names(&self, plan: &Plan<'_>, ids: &[ObjectId]) {
        let changed = |work: &super::plan::Work<'_>| {
            work.is_removed || work.old_name.as_ref() != Some(&work.name)
        };
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

/// What a node adds to the statistics.
#[derive(Default)]
struct Footprint {
    stored_bytes: i64,
    memory_bytes: i64,
}

impl Footprint {
    fn of(node: Option<&super::table::Node>) -> Self {
        node.map_or_else(Self::default, |node| Self {
            stored_bytes: node.stored_bytes as i64,
            memory_bytes: node.memory_bytes() as i64,
        })
    }

    fn to(&self, after: Self, usage: &Usage) {
        Usage::add(&usage.stored_bytes, after.stored_bytes - self.stored_bytes);
        Usage::add(&usage.memory_bytes, after.memory_bytes - self.memory_bytes);
    }
}

impl Effect<'_> {
    /// The work it is about; none for collections.
    fn work(&self) -> Option<usize> {
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

impl<'p> Prepared<'p> {
    fn record(&self) -> NewRecord<'_> {
        NewRecord {
            fields: RecordFields {
                kind: self.kind,
                relocated: false,
                key: &self.key,
                value: &self.value,
                content: self.content,
            },
            length: self.length,
            head: self.head,
            // Room was counted; the floor must not stop the transaction in its middle.
            purpose: Purpose::Counted,
            clock: None,
            payload: (self.payload_bytes > 0).then_some(self.payload.as_slice()),
        }
    }

    fn extent(&self, address: crate::format::Address) -> Extent<'_> {
        Extent {
            first: self.first,
            address,
            tail_sectors: super::tail_sectors(self.payload_bytes),
            exponent: self.exponent,
            checksums: &self.checksums,
        }
    }
}

impl<'p> Cursor<'p> {
    fn push(
        &mut self,
        kind: Kind,
        key: Vec<u8>,
        value: std::borrow::Cow<'p, [u8]>,
        unit_bytes: u32,
    ) -> Result<()> {
        self.prepared.push(prepared(kind, key, value, unit_bytes)?);
        Ok(())
    }

    /// Pushes an omap value, in parts if it is long.
    fn push_value(
        &mut self,
        id: ObjectId,
        key: &[u8],
        value: &'p [u8],
        part_bytes: usize,
        unit_bytes: u32,
    ) -> Result<()> {
        if value.len() <= part_bytes {
            let key = OmapRecord::whole(id, key).encode();
            return self.push(Kind::OmapValue, key, value.into(), unit_bytes);
        }
        let parts = value.len().div_ceil(part_bytes) as u16;
        for (part, bytes) in (0..).zip(value.chunks(part_bytes)) {
            let record = OmapRecord {
                id,
                part,
                parts,
                key,
            };
            self.push(Kind::OmapValue, record.encode(), bytes.into(), unit_bytes)?;
        }
        Ok(())
    }

    fn rooms(&self, log: &Log) -> Vec<Room> {
        let mut rooms: Vec<Room> = Vec::new();
        let is_growing = self.live_bytes(log) > 0;
        let purpose = if is_growing { Purpose::User } else { Purpose::Delete };
        for prepared in &self.prepared {
            let bytes = log.record_bytes(prepared.length);
            let room = match rooms.iter_mut().find(|room| room.head == prepared.head) {
                Some(room) => room,
                None => {
                    rooms.push(Room::new(prepared.head, purpose));
                    let Some(room) = rooms.last_mut() else {
                        unreachable!("one was just pushed")
                    };
                    room
                }
            };
            room.add(bytes, prepared.payload_bytes);
        }
        rooms
    }

    fn record_bytes(&self, log: &Log) -> u64 {
        self.prepared.iter().map(|prepared| log.record_bytes(prepared.length)).sum()
    }

    fn payload_bytes(&self) -> u64 {
        self.prepared.iter().map(|prepared| prepared.payload_bytes).sum()
    }

    /// Bytes that stay: payload and omap values.
    fn live_bytes(&self, log: &Log) -> u64 {
        let values = self.prepared.iter().filter(|prepared| prepared.kind == Kind::OmapValue);
        values.map(|value| log.record_bytes(value.length)).sum::<u64>() + self.payload_bytes()
    }
}

fn prepared<'p>(
    kind: Kind,
    key: Vec<u8>,
    value: std::borrow::Cow<'p, [u8]>,
    unit_bytes: u32,
) -> Result<Prepared<'p>> {
    let length = record_length(kind, key.len(), value.len(), unit_bytes)
        .ok_or(Error::InvalidArgument("record length"))?;
    Ok(Prepared {
        kind,
        content: content_hash(&key, &value),
        key,
        value,
        length,
        head: COMMIT_STREAM,
        payload: Vec::new(),
        payload_bytes: 0,
        first: 0,
        checksums: Vec::new(),
        exponent: 0,
    })
}

/// One effect's data, to be cut into extents.
struct Extents<'a, 'p, 't> {
    plan: &'p Plan<'t>,
    id: ObjectId,
    parts: &'a [Piece<'t>],
    /// Bytes to store of all parts, whole blocks of the device.
    stored_bytes: u64,
    /// Most payload of one extent, whole logical blocks.
    largest: u64,
}

impl<'p> Extents<'_, 'p, '_> {
    fn split(&self, first: u32, unit_bytes: u32) -> Result<Vec<Prepared<'p>>> {
        let mut all = Vec::new();
        let mut at = 0;
        while at < self.stored_bytes {
            let bytes = (self.stored_bytes - at).min(self.largest);
            let payload = self.slices(at, bytes);
            let checksums = checksums(&payload);
            let first = first + (at / BLOCK_BYTES) as u32;
            let value = extent_value(bytes as u32, first, &[], &checksums);
            let key = extent_key(self.id.family, self.id.member).to_vec();
            let mut extent = prepared(Kind::Extent, key, value.into(), unit_bytes)?;
            extent.payload = payload;
            extent.payload_bytes = bytes;
            extent.first = first;
            extent.checksums = checksums;
            all.push(extent);
            at += bytes;
        }
        Ok(all)
    }

    /// The bytes from `at` on, zeros behind the end of the data.
    fn slices(&self, at: u64, bytes: u64) -> Vec<&'p [u8]> {
        let mut slices: Vec<&'p [u8]> = Vec::new();
        let (mut skip, mut left) = (at, bytes);
        for part in self.parts {
            let len = u64::from(part.count) * BLOCK_BYTES;
            if skip >= len {
                skip -= len;
                continue;
            }
            let take = (len - skip).min(left);
            match part.source {
                Source::Data { slices: data, offset } => {
                    slices.extend(cut(data, offset + skip, take));
                }
                Source::Buffer(buffer) => {
                    let buffer: &'p [u8] = &self.plan.buffers[buffer];
                    slices.push(&buffer[skip as usize..(skip + take) as usize]);
                }
                Source::Hole => unreachable!("holes are not stored"),
            }
            left -= take;
            skip = 0;
            if left == 0 {
                break;
            }
        }
        while left > 0 {
            let take = left.min(ZEROS.len() as u64);
            slices.push(&ZEROS[..take as usize]);
            left -= take;
        }
        slices
    }
}

/// A checksum for each logical block of slices.
fn checksums(slices: &[&[u8]]) -> Vec<u32> {
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut sums = Vec::with_capacity(bytes.div_ceil(BLOCK_BYTES as usize));
    let mut block: Vec<u8> = Vec::new();
    for slice in slices {
        let mut rest = *slice;
        while !rest.is_empty() {
            let wanted = BLOCK_BYTES as usize - block.len();
            let (part, behind) = rest.split_at(wanted.min(rest.len()));
            rest = behind;
            if block.is_empty() && part.len() == BLOCK_BYTES as usize {
                sums.push(payload_checksum(part));
                continue;
            }
            // A block over several slices.
            block.extend_from_slice(part);
            if block.len() == BLOCK_BYTES as usize {
                sums.push(payload_checksum(&block));
                block.clear();
            }
        }
    }
    if !block.is_empty() {
        sums.push(payload_checksum(&block));
    }
    sums
}

const _: () = assert!(SECTOR_BYTES == 512);
const _: fn(SharedArc<[u8]>) = |_| {};
