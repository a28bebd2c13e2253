//! What a rebuild asks of the object layer, when images are lost and the log is all there is.
//!
//! Operations that both generations of images covered are not kept, so nodes may be missing,
//! be older than they were, or claim one name. Nothing here fails: what does not fit is left
//! out and said.

use std::collections::HashMap;

use crate::format::{Address, ExtentRecord, Invalid, Kind, Record, Seqno};

use super::change;
use super::extents::{BLOCK_BYTES, References};
use super::families::FamilyMut;
use super::records::{OmapRecord, Operation, decode_operation};
use super::table::SHARDS;
use super::{CollectionName, ObjectId, ObjectName, Objects, SpaceId, split_stored_name};

/// Whom a record of the object layer concerns.
#[derive(Debug, Default)]
pub(crate) struct Concerned {
    pub(crate) ids: Vec<ObjectId>,
    /// It begins the object: from nothing, or from this one.
    pub(crate) begins: Option<Option<ObjectId>>,
    pub(crate) removes: bool,
    /// Bytes of data that it has beside it.
    pub(crate) data_bytes: u64,
}

impl Concerned {
    /// # Errors
    /// A record that makes no sense.
    pub(crate) fn of(record: &Record<'_>) -> Result<Self, Invalid> {
        let mut concerned = Self::default();
        match record.kind {
            Kind::Extent => {
                let extent = ExtentRecord::decode(record.key, record.value)?;
                let members = std::iter::once(extent.member).chain(extent.extra_members.iter());
                let family = extent.family;
                concerned.ids = members.map(|member| ObjectId { family, member }).collect();
                concerned.data_bytes = extent.payload_bytes.into();
            }
            Kind::OmapValue => concerned.ids.push(OmapRecord::decode(record.key)?.id),
            _ => {
                let (id, operation) = decode_operation(record.key, record.value)?;
                if operation.is_of_collection() {
                    return Ok(concerned);
                }
                concerned.ids.push(id);
                concerned.removes = operation == Operation::Remove;
                concerned.begins = match operation {
                    Operation::Create { .. } => Some(None),
                    Operation::Clone { source, .. } => Some(Some(ObjectId {
                        family: id.family,
                        member: source,
                    })),
                    _ => None,
                };
            }
        }
        Ok(concerned)
    }
}

/// A name in its space.
type Named = (SpaceId, Vec<u8>);

impl Objects {
    /// Whether there is a node.
    pub(crate) fn has(&self, id: ObjectId) -> bool {
        self.table.read(id.family).get(id).is_some()
    }

    /// Makes the node of a clone whose source is lost, with its name alone.
    pub(crate) fn salvage_clone(&self, record: &Record<'_>, seqno: Seqno) {
        let Ok((id, Operation::Clone { name, .. })) = decode_operation(record.key, record.value)
        else {
            return;
        };
        let Some((space, name)) = split_stored_name(name) else {
            return;
        };
        let space = self.table.space(space);
        let mut shard = self.table.write(id.family);
        if shard.get(id).is_none() {
            space.names.write().claim(name, id);
            change::create(&mut shard, id, space, name, seqno, self.unit);
        }
    }

    /// Takes out nodes whose name another has that was changed later; returns their names.
    pub(crate) fn salvage_names(&self) -> Vec<String> {
        let mut owners: HashMap<Named, (Seqno, ObjectId)> = HashMap::new();
        let mut losers = Vec::new();
        self.each(&mut |id, node| {
            let own = (node.version, id);
            let Some(name) = node.space.name_of(node.hash, id) else {
                return;
            };
            let winner = owners.entry((node.space.id, name)).or_insert(own);
            if *winner != own {
                losers.push((own.min(*winner).1, super::check::name_of(id, node)));
                *winner = own.max(*winner);
            }
        });
        for (id, _) in &losers {
            let mut shard = self.table.write(id.family);
            if let Some(node) = shard.remove(*id) {
                node.space.names.write().disclaim(node.hash, *id);
            }
        }
        losers.into_iter().map(|(_, name)| name).collect()
    }

    /// Takes out what lies at places that are lost, and gives an object that ends before its
    /// data another end; returns what, for people.
    pub(crate) fn salvage_places(&self, is_lost: &dyn Fn(Address) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        for number in 0..SHARDS {
            let mut shard = self.table.write_shard(number);
            for number in shard.families.numbers() {
                let family = shard.families.get_mut(number);
                for node in family.into_iter().flat_map(FamilyMut::members) {
                    let id = node.id(number);
                    let name = super::check::name_of(id, node);
                    let extents = node.extents.iter();
                    let lost: Vec<(u32, u64)> = extents
                        .filter(|extent| is_lost(extent.address))
                        .map(|extent| (extent.first, extent.end()))
                        .collect();
                    for (first, end) in lost {
                        // Counts are made afresh when all is replayed.
                        let mut references = References::new(self.unit);
                        node.extents.unmap(first, end, &mut references, &mut |_| {});
                        let last = end - 1;
                        lines.push(format!(
                            "{name}: blocks {first} to {last}, which read as zeros"
                        ));
                    }
                    // Its size is lost, or its source was.
                    if node.extents.end_block() > node.bytes.div_ceil(BLOCK_BYTES) {
                        node.bytes = node.extents.end_block() * BLOCK_BYTES;
                        lines.push(format!("{name}: its size; it ends with its last block"));
                    }
                    let Some(omap) = &mut node.omap else { continue };
                    let mut keys = Vec::new();
                    super::check::each_value(id, omap, &mut |value, location| {
                        if !location.is_some() || is_lost(location.address()) {
                            keys.push(value.key.to_vec());
                        }
                    });
                    keys.dedup();
                    for key in keys {
                        omap.remove(&key, &mut |_| {});
                        let key = key.escape_ascii();
                        lines.push(format!("{name}: the omap key \"{key}\""));
                    }
                }
            }
        }
        lines
    }

    /// Makes a collection for objects of a space that none takes; returns their names.
    pub(crate) fn salvage_collections(&self) -> Vec<String> {
        let existing = self.registry.existing();
        let mut wanted: Vec<(CollectionName, Seqno)> = Vec::new();
        self.each(&mut |id, node| {
            let name = node.space.name_of(node.hash, id);
            let name = name.and_then(|name| ObjectName::from_sort_key(&name).ok());
            let Some(name) = name else { return };
            let space = node.space.id;
            let mut of_space = existing.iter().filter(|slot| slot.space.id == space);
            if of_space.any(|slot| slot.name.takes(slot.bits(), &name)) {
                return;
            }
            let collection = space.whole();
            match wanted.iter_mut().find(|(name, _)| *name == collection) {
                Some((_, version)) => *version = node.version.max(*version),
                None => wanted.push((collection, node.version)),
            }
        });
        let mut names = Vec::new();
        for (name, version) in wanted {
            self.registry.slot(&self.table, name).set(true, 0, version);
            names.push(name.to_string());
        }
        names
    }

    /// Calls for every object.
    pub(crate) fn each(&self, call: &mut dyn FnMut(ObjectId, &super::Node)) {
        for number in 0..SHARDS {
            let shard = self.table.read_shard(number);
            for (family, found) in shard.families.iter() {
                for (member, node) in found.members() {
                    call(ObjectId { family, member }, node);
                }
            }
        }
    }
}
