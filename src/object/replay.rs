//! Replay: nodes from records, in the order of their seqnos.
//!
//! A record that is not newer than its node, or older than the images of its partition, has
//! done its work. One whose node is not there concerns an object that was removed. Counts
//! of shared payload, live bytes, names and statistics are derived when all is replayed.

use crate::format::{COMMIT_STREAM, ExtentRecord, Invalid, Kind, Record, Seqno};
use crate::log::{self, Lane, Log, Position};
use crate::{Error, Result};

use super::attributes::{Attributes, Packed};
use super::change;
use super::extents::{Dropped, Extent, References};
use super::families::FamilyMut;
use super::records::{OmapRecord, Operation, PackedKeys, decode_operation};
use super::table::{Footprint, Node, SHARDS, Shard, Table, Usage};
use super::{
    CollectionName, ObjectId, Objects, OmapLocation, SpaceId, split_stored_name, tail_sectors,
};

/// What replay drops is not counted: live bytes are derived afterwards.
fn ignore(_: Dropped) {}

impl Objects {
    pub(super) fn replay_record(
        &self,
        log: &Log,
        record: &Record<'_>,
        position: Position,
        lane: Lane,
    ) -> Result<()> {
        let corrupt = |why| Error::Corrupt {
            offset: log.geometry().device_offset(position.address),
            why,
        };
        match record.kind {
            Kind::Extent => {
                let extent = ExtentRecord::decode(record.key, record.value).map_err(corrupt)?;
                self.table.saw_family(extent.family);
                if self.concerns(extent.family, position.seqno, lane) {
                    self.replay_extent(&extent, position).map_err(corrupt)?;
                }
            }
            Kind::OmapValue => {
                let value = OmapRecord::decode(record.key).map_err(corrupt)?;
                self.table.saw_family(value.id.family);
                if self.concerns(value.id.family, position.seqno, lane) {
                    let location = OmapLocation::new(position.address, record.length);
                    let mut shard = self.table.write(value.id.family);
                    if let Some(node) = newer(&mut shard, value.id, position.seqno) {
                        change::omap_of(node).set(&value, location, &mut |_| {});
                    }
                }
            }
            Kind::Object => {
                let (id, operation) =
                    decode_operation(record.key, record.value).map_err(corrupt)?;
                if operation.is_of_collection() {
                    if lane.has(0) {
                        self.replay_collection(operation, position.seqno)
                            .map_err(corrupt)?;
                    }
                } else {
                    self.table.saw_family(id.family);
                    if self.concerns(id.family, position.seqno, lane) {
                        self.replay_operation(id, operation, position.seqno)
                            .map_err(corrupt)?;
                    }
                }
            }
            _ => return Err(corrupt(Invalid::Field("record kind"))),
        }
        Ok(())
    }

    /// Whether a record is for this lane, and not older than the images of its partition.
    fn concerns(&self, family: u64, seqno: Seqno, lane: Lane) -> bool {
        let shard = Table::shard_of(family);
        lane.has(shard) && seqno >= self.loading.horizon_of_shard(shard)
    }

    fn replay_extent(
        &self,
        extent: &ExtentRecord<'_>,
        position: Position,
    ) -> std::result::Result<(), Invalid> {
        let address = position.payload.ok_or(Invalid::Missing("payload"))?;
        let checksums: Vec<u32> = extent.checksums.iter().collect();
        let exponent = if position.head < COMMIT_STREAM {
            position.head
        } else {
            log::first_exponent()
        };
        let mut shard = self.table.write(extent.family);
        let mut references = References::new(self.unit);
        for member in std::iter::once(extent.member).chain(extent.extra_members.iter()) {
            let id = ObjectId {
                family: extent.family,
                member,
            };
            if let Some(node) = newer(&mut shard, id, position.seqno) {
                let extent = Extent {
                    first: extent.first_block,
                    address,
                    tail_sectors: tail_sectors(u64::from(extent.payload_bytes)),
                    exponent,
                    checksums: &checksums,
                };
                node.extents.replace(extent, &mut references, &mut ignore);
            }
        }
        Ok(())
    }

    fn replay_operation(
        &self,
        id: ObjectId,
        operation: Operation<'_>,
        seqno: Seqno,
    ) -> std::result::Result<(), Invalid> {
        fn split(name: &[u8]) -> std::result::Result<(SpaceId, &[u8]), Invalid> {
            split_stored_name(name).ok_or(Invalid::Field("name of an object"))
        }
        let mut shard = self.table.write(id.family);
        match operation {
            Operation::Create { name } => {
                let (space, name) = split(name)?;
                if shard.get(id).is_none() {
                    let space = self.table.space(space);
                    space.names.write().claim(name, id);
                    change::create(&mut shard, id, space, name, seqno, self.unit);
                }
                return Ok(());
            }
            Operation::Clone { source, name } => {
                let (space, name) = split(name)?;
                let space = self.table.space(space);
                let made = shard.get(id).is_none()
                    && change::clone(
                        &mut shard,
                        source,
                        id,
                        space.clone(),
                        name,
                        seqno,
                        self.unit,
                    );
                if made {
                    space.names.write().claim(name, id);
                }
                return Ok(());
            }
            Operation::Remove => {
                if let Some(node) = newer(&mut shard, id, seqno) {
                    node.space.names.write().disclaim(node.hash, id);
                    shard.remove(id);
                }
                return Ok(());
            }
            _ => {}
        }
        let Some(node) = newer(&mut shard, id, seqno) else {
            return Ok(());
        };
        match operation {
            Operation::Rename { name } => {
                let (space, name) = split(name)?;
                node.space.names.write().disclaim(node.hash, id);
                node.space = self.table.space(space);
                node.space.names.write().claim(name, id);
                node.renamed(name);
            }
            Operation::Resize { bytes } => node.bytes = bytes,
            Operation::Unmap { first, end } => {
                let mut references = References::new(self.unit);
                node.extents.unmap(first, end, &mut references, &mut ignore);
            }
            Operation::SetAttributes { packed } => {
                let changes = Packed::new(packed).map(|(name, value)| (name, Some(value)));
                node.attributes.change(changes);
            }
            Operation::ExtendAttribute { packed } => node.attributes.extend(packed),
            Operation::ExtendOmapHeader { header } => {
                let omap = change::omap_of(node);
                let mut whole = omap.header.take().unwrap_or_default().into_vec();
                whole.extend_from_slice(header);
                omap.header = Some(whole.into());
            }
            Operation::RemoveAttributes { packed } => {
                node.attributes
                    .change(Packed::new(packed).map(|(name, _)| (name, None)));
            }
            Operation::ClearAttributes => node.attributes = Attributes::default(),
            Operation::OmapRemove { packed } => {
                change::omap_remove(node, PackedKeys(packed), &mut |_| {});
            }
            Operation::OmapRemoveRange { first, last } => {
                if let Some(omap) = &mut node.omap {
                    omap.remove_range(first, last);
                }
                change::trim_omap(node);
            }
            Operation::OmapClear => node.omap = None,
            Operation::OmapHeader { header } => {
                change::omap_of(node).header = Some(header.into());
            }
            Operation::Hint { bits } => node.set_hint(bits),
            Operation::Create { .. }
            | Operation::Clone { .. }
            | Operation::Remove
            | Operation::CollectionSet { .. }
            | Operation::CollectionRemove { .. } => {}
        }
        Ok(())
    }

    fn replay_collection(
        &self,
        operation: Operation<'_>,
        seqno: Seqno,
    ) -> std::result::Result<(), Invalid> {
        let (name, exists, bits) = match operation {
            Operation::CollectionSet { bits, name } => (name, true, bits),
            Operation::CollectionRemove { name } => (name, false, 0),
            _ => return Ok(()),
        };
        if seqno < self.loading.horizon_of_collections() {
            return Ok(());
        }
        let name = collection_name(name)?;
        let slot = self.registry.slot(&self.table, name);
        if seqno > slot.version() {
            slot.set(exists, bits, seqno);
        }
        Ok(())
    }

    /// Derives what is not stored, when everything is replayed.
    pub(crate) fn finish_replay(&self, log: &Log) -> Result<()> {
        let mut any = self.loading.loaded_any();
        for number in 0..SHARDS {
            let mut shard = self.table.write_shard(number);
            any |= !shard.families.is_empty();
            for family in shard.families.numbers() {
                self.finish_family(log, &mut shard, family)?;
            }
        }
        for space in self.table.spaces() {
            let agree = space.settle_names(&mut |name, id| {
                self.table.add_name(id.family, name, 1);
            });
            if !agree {
                return Err(Error::Corrupt {
                    offset: 0,
                    why: Invalid::Field("two objects of one name"),
                });
            }
        }
        any |= !self.registry.existing().is_empty();
        self.registry.prune();
        self.set_in_use(any);
        self.loading.finish();
        Ok(())
    }

    fn finish_family(&self, log: &Log, shard: &mut Shard, family: u64) -> Result<()> {
        let outside = |why| Error::Corrupt {
            offset: 0,
            why: Invalid::Field(why),
        };
        let mut allocated = 0;
        let mut is_outside = false;
        {
            let mut live = |piece: Dropped| {
                is_outside |= log.table().locate(piece.address).is_none();
                log.table().add_live(piece.address, piece.bytes as i64);
                allocated += piece.bytes as i64;
            };
            match shard.families.get_mut(family) {
                None => return Ok(()),
                Some(FamilyMut::One(node)) => {
                    References::count(self.unit, [&node.extents], &mut live);
                }
                Some(FamilyMut::Many(members)) => {
                    let maps = members.nodes.values().map(|node| &node.extents);
                    members.references = References::count(self.unit, maps, &mut live);
                }
            }
        }
        if is_outside {
            return Err(outside("address of an extent"));
        }
        let mut is_first = true;
        let found = shard.families.get_mut(family);
        for node in found.into_iter().flat_map(FamilyMut::members) {
            let usage = &node.space.usage;
            if is_first {
                Usage::add(&usage.allocated_bytes, allocated);
                is_first = false;
            }
            self.finish_node(log, node)?;
        }
        shard.make_one(family);
        if let Some(found) = shard.families.get(family)
            && let Some((_, node)) = found.members().next()
        {
            let bytes = Footprint::of_family(&found).count(&node.space.usage);
            self.table.add_bytes(family, bytes);
        }
        Ok(())
    }

    fn finish_node(&self, log: &Log, node: &mut Node) -> Result<()> {
        let space = node.space.clone();
        let usage = &space.usage;
        Usage::add(&usage.objects, 1);
        node.stored_bytes = node.extents.stored_bytes();
        let mut is_outside = false;
        if let Some(omap) = &mut node.omap {
            let mut total = 0;
            omap.visit_locations(&mut |location| {
                is_outside |= log.table().locate(location.address()).is_none();
                let bytes = log.record_bytes(location.length()) as i64;
                log.table().add_live(location.address(), bytes);
                total += bytes;
            });
            Usage::add(&usage.omap_bytes, total);
            omap.record_bytes = total as u64;
        }
        if is_outside {
            return Err(Error::Corrupt {
                offset: 0,
                why: Invalid::Field("address of an omap value"),
            });
        }
        Ok(())
    }
}

/// The node of an id, if a record of this seqno is newer; it has that seqno then.
fn newer(shard: &mut Shard, id: ObjectId, seqno: Seqno) -> Option<&mut Node> {
    let (node, _) = shard.get_mut(id)?;
    if node.version >= seqno {
        return None;
    }
    node.version = seqno;
    Some(node)
}

pub(super) fn collection_name(name: &[u8]) -> std::result::Result<CollectionName, Invalid> {
    let text = std::str::from_utf8(name).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or(Invalid::Field("name of a collection"))
}
