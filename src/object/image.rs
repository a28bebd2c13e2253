//! Checkpoint images of nodes and collections.
//!
//! A partition's image is a row of units; a family has one or more of them, so that a large
//! one does not need a large unit.
//!
//! ```text
//! unit    family u64 | horizon u64 | last u8 | bytes u32 | bytes of the family's image
//! ```
//! The family [`END`] ends a partition. The last partition has the collections, as a family
//! of its own.

use std::collections::HashMap;

use crate::Result;
use crate::format::bytes::{u16_at, u32_at, u64_at};
use crate::format::{Invalid, Seqno};
use crate::log::ImageBytes;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::attributes::Attributes;
use super::extents::{LeafReader, LeafWriter};
use super::families::Family;
use super::omap::Omap;
use super::replay::collection_name;
use super::table::{Node, PARTITIONS, SHARDS_A_PARTITION, Table};
use super::{Objects, OmapLocation, split_stored_name, stored_name};

/// Partitions of the layer: those of the nodes, and one of the collections.
pub(super) const ALL_PARTITIONS: u32 = PARTITIONS + 1;
/// Marks the end of a partition.
const END: u64 = u64::MAX;
/// Stands for the collections.
const COLLECTIONS: u64 = u64::MAX - 1;

const UNIT_HEADER_BYTES: usize = 21;
/// Most bytes of a unit's content.
const UNIT_BYTES_MAX: usize = 16 << 10;
/// Families imaged under one hold of a shard's lock.
const FAMILIES_AT_ONCE: usize = 64;

/// What loading knows until it is over.
pub(crate) struct Loading {
    /// Of every partition, the lowest horizon of its units.
    horizons: Vec<AtomicU64>,
    whole: Vec<AtomicBool>,
    /// Families of which not all units have come.
    parts: Mutex<HashMap<u32, (u64, Vec<u8>)>>,
}

impl Default for Loading {
    fn default() -> Self {
        Self {
            horizons: (0..ALL_PARTITIONS)
                .map(|_| AtomicU64::new(u64::MAX))
                .collect(),
            whole: (0..ALL_PARTITIONS)
                .map(|_| AtomicBool::new(false))
                .collect(),
            parts: Mutex::new(HashMap::new()),
        }
    }
}

impl Loading {
    fn horizon(&self, partition: u32) -> Seqno {
        match self.horizons[partition as usize].load(Ordering::Relaxed) {
            u64::MAX => 0,
            horizon => horizon,
        }
    }

    pub(super) fn horizon_of_shard(&self, shard: usize) -> Seqno {
        self.horizon((shard / SHARDS_A_PARTITION) as u32)
    }

    pub(super) fn horizon_of_collections(&self) -> Seqno {
        self.horizon(PARTITIONS)
    }

    pub(super) fn loaded_any(&self) -> bool {
        self.whole.iter().any(|whole| whole.load(Ordering::Relaxed))
    }

    fn clear(&self, partition: u32) {
        self.horizons[partition as usize].store(u64::MAX, Ordering::Relaxed);
        self.whole[partition as usize].store(false, Ordering::Relaxed);
        self.parts.lock().remove(&partition);
    }

    /// Frees what is only needed while loading.
    pub(super) fn finish(&self) {
        *self.parts.lock() = HashMap::new();
    }
}

fn push_unit(
    family: u64,
    horizon: Seqno,
    content: &[u8],
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut chunks = content.chunks(UNIT_BYTES_MAX).peekable();
    let mut unit = Vec::new();
    loop {
        let chunk = chunks.next().unwrap_or_default();
        let is_last = chunks.peek().is_none();
        unit.clear();
        unit.extend_from_slice(&family.to_le_bytes());
        unit.extend_from_slice(&horizon.to_le_bytes());
        unit.push(u8::from(is_last));
        unit.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        unit.extend_from_slice(chunk);
        sink(&unit)?;
        if is_last {
            return Ok(());
        }
    }
}

fn push_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    into.extend_from_slice(bytes);
}

fn encode_family(number: u64, family: &Family<'_>, into: &mut Vec<u8>) {
    let count = family.members().count() as u32;
    into.extend_from_slice(&count.to_le_bytes());
    let mut written = LeafWriter::new();
    for (member, node) in family.members() {
        let Some(name) = node.space.name_of(node.hash, node.id(number)) else {
            unreachable!("a name leads to every object of a locked shard")
        };
        into.extend_from_slice(&member.to_le_bytes());
        for number in [node.version, node.bytes, node.hint()] {
            into.extend_from_slice(&number.to_le_bytes());
        }
        push_bytes(&stored_name(node.space.id, &name), into);
        push_bytes(node.attributes.as_bytes(), into);
        node.extents.encode_shared(&mut written, into);
        let Some(omap) = &node.omap else {
            into.push(0);
            continue;
        };
        into.push(if omap.header.is_some() { 2 } else { 1 });
        if let Some(header) = &omap.header {
            push_bytes(header, into);
        }
        let count_at = into.len();
        into.extend_from_slice(&[0; 4]);
        let mut leaves = 0_u32;
        omap.keys.encode_leaves(&mut |leaf| {
            into.extend_from_slice(leaf);
            leaves += 1;
        });
        into[count_at..count_at + 4].copy_from_slice(&leaves.to_le_bytes());
        let all = omap.parts.iter().flat_map(|all| all.iter());
        into.extend_from_slice(&(all.clone().count() as u32).to_le_bytes());
        for (key, parts) in all {
            push_bytes(key, into);
            into.extend_from_slice(&(parts.len() as u32).to_le_bytes());
            for location in parts {
                into.extend_from_slice(&location.bits().to_le_bytes());
            }
        }
    }
}

/// Takes bytes off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> std::result::Result<&'a [u8], Invalid> {
        let taken = self.0.get(..bytes).ok_or(Invalid::Truncated)?;
        self.0 = &self.0[bytes..];
        Ok(taken)
    }

    fn u8(&mut self) -> std::result::Result<u8, Invalid> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> std::result::Result<u16, Invalid> {
        u16_at(self.take(2)?, 0)
    }

    fn u32(&mut self) -> std::result::Result<u32, Invalid> {
        u32_at(self.take(4)?, 0)
    }

    fn u64(&mut self) -> std::result::Result<u64, Invalid> {
        u64_at(self.take(8)?, 0)
    }

    fn bytes(&mut self) -> std::result::Result<&'a [u8], Invalid> {
        let len = self.u32()? as usize;
        self.take(len)
    }
}

impl Objects {
    pub(super) fn image_partition(
        &self,
        partition: u32,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno> {
        if partition == PARTITIONS {
            return self.image_collections(horizon, sink);
        }
        let mut lowest = Seqno::MAX;
        for number in Table::shards_of(partition) {
            // What is created behind the list has a higher seqno than the horizon here.
            let (families, seqno) = {
                let shard = self.table.read_shard(number);
                (shard.families.numbers(), horizon())
            };
            lowest = lowest.min(seqno);
            for some in families.chunks(FAMILIES_AT_ONCE) {
                let mut images = Vec::with_capacity(some.len());
                let seqno = {
                    let shard = self.table.read_shard(number);
                    for family in some {
                        if let Some(found) = shard.families.get(*family) {
                            let mut bytes = Vec::new();
                            encode_family(*family, &found, &mut bytes);
                            images.push((*family, bytes));
                        }
                    }
                    horizon()
                };
                for (family, bytes) in images {
                    push_unit(family, seqno, &bytes, sink)?;
                }
            }
        }
        push_unit(END, lowest, &[], sink)?;
        Ok(lowest)
    }

    fn image_collections(
        &self,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno> {
        let _changes = self.registry.changes.lock();
        let seqno = horizon();
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.table.next_family().to_le_bytes());
        for slot in self.registry.existing() {
            let name = slot.name.to_string();
            bytes.extend_from_slice(&slot.version().to_le_bytes());
            bytes.extend_from_slice(&slot.bits().to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        push_unit(COLLECTIONS, seqno, &bytes, sink)?;
        push_unit(END, seqno, &[], sink)?;
        Ok(seqno)
    }

    pub(super) fn load_partition_image(
        &self,
        partition: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), Invalid> {
        let horizons = self.loading.horizons.get(partition as usize);
        let horizons = horizons.ok_or(Invalid::Field("partition"))?;
        let mut reader = Reader(bytes);
        while !reader.0.is_empty() {
            let family = reader.u64()?;
            let horizon = reader.u64()?;
            let is_last = reader.u8()? != 0;
            let content = reader.bytes()?;
            horizons.fetch_min(horizon, Ordering::Relaxed);
            if family == END {
                self.loading.whole[partition as usize].store(true, Ordering::Relaxed);
                continue;
            }
            let whole = {
                let mut parts = self.loading.parts.lock();
                let part = parts.entry(partition).or_insert((family, Vec::new()));
                if part.0 != family {
                    return Err(Invalid::Missing("part of a family"));
                }
                part.1.extend_from_slice(content);
                if !is_last {
                    continue;
                }
                parts
                    .remove(&partition)
                    .map(|(_, bytes)| bytes)
                    .unwrap_or_default()
            };
            if family == COLLECTIONS {
                self.load_collections(&whole)?;
            } else if Table::shards_of(partition).contains(&Table::shard_of(family)) {
                self.load_family(family, &whole)?;
            } else {
                return Err(Invalid::Field("family of an image"));
            }
        }
        Ok(())
    }

    fn load_family(&self, family: u64, bytes: &[u8]) -> std::result::Result<(), Invalid> {
        let mut reader = Reader(bytes);
        let count = reader.u32()?;
        let mut leaves = LeafReader::new(self.unit);
        for _ in 0..count {
            let (node, name) = self.load_node(&mut reader, &mut leaves)?;
            let id = node.id(family);
            let mut shard = self.table.write(family);
            if shard.get(id).is_some() {
                return Err(Invalid::Field("member of a family"));
            }
            node.space.names.write().claim(name, id);
            shard.insert(id, node, self.unit);
        }
        self.table.saw_family(family);
        if reader.0.is_empty() {
            Ok(())
        } else {
            Err(Invalid::Field("end of a family"))
        }
    }

    /// A node, and its sort key.
    fn load_node<'a>(
        &self,
        reader: &mut Reader<'a>,
        leaves: &mut LeafReader,
    ) -> std::result::Result<(Node, &'a [u8]), Invalid> {
        let member = reader.u32()?;
        let (version, bytes, hint) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (space, name) =
            split_stored_name(reader.bytes()?).ok_or(Invalid::Field("name of an object"))?;
        let mut node = Node::new(self.table.space(space), name, version);
        (node.member, node.bytes) = (member, bytes);
        node.set_hint(hint);
        node.attributes = Attributes::decode(reader.bytes()?)?;
        let (extents, used) = super::extents::ExtentMap::decode_shared(reader.0, leaves)?;
        node.extents = extents;
        reader.take(used)?;
        let form = reader.u8()?;
        if form > 0 {
            let mut omap = Omap::default();
            if form == 2 {
                omap.header = Some(reader.bytes()?.into());
            } else if form != 1 {
                return Err(Invalid::Field("form of an omap"));
            }
            for _ in 0..reader.u32()? {
                let used = omap.keys.decode_leaf(reader.0)?;
                reader.take(used)?;
            }
            for _ in 0..reader.u32()? {
                let key = reader.bytes()?;
                let mut parts = Vec::new();
                for _ in 0..reader.u32()? {
                    parts.push(OmapLocation::from_bits(reader.u64()?));
                }
                if omap.keys.get(key).is_none() {
                    return Err(Invalid::Field("part of an omap value"));
                }
                omap.parts
                    .get_or_insert_default()
                    .insert(key.to_vec(), parts);
            }
            let mut checked = Ok(());
            omap.visit_locations(&mut |location| {
                checked = checked.and(location.checked_length().map(drop));
            });
            checked?;
            node.omap = Some(Box::new(omap));
        }
        Ok((node, name))
    }

    fn load_collections(&self, bytes: &[u8]) -> std::result::Result<(), Invalid> {
        let mut reader = Reader(bytes);
        self.table.saw_family(reader.u64()?.saturating_sub(1));
        while !reader.0.is_empty() {
            let (version, bits) = (reader.u64()?, reader.u32()?);
            let len = usize::from(reader.u16()?);
            let name = collection_name(reader.take(len)?)?;
            self.registry
                .slot(&self.table, name)
                .set(true, bits, version);
        }
        Ok(())
    }

    pub(super) fn clear_partition_nodes(&self, partition: u32) {
        self.loading.clear(partition);
        if partition == PARTITIONS {
            self.registry.clear();
            return;
        }
        for number in Table::shards_of(partition) {
            let mut shard = self.table.write_shard(number);
            for (family, found) in shard.families.iter() {
                for (_, node) in found.members() {
                    let mut names = node.space.names.write();
                    names.disclaim(node.hash, node.id(family));
                }
            }
            shard.families.clear();
        }
    }

    pub(super) fn is_partition_whole(&self, partition: u32) -> bool {
        let at = partition as usize;
        let loading = &self.loading;
        let (Some(whole), Some(horizon)) = (loading.whole.get(at), loading.horizons.get(at)) else {
            return false;
        };
        // Nothing is loaded of a partition that the root's writer did not know.
        let is_new = horizon.load(Ordering::Relaxed) == u64::MAX;
        (is_new || whole.load(Ordering::Relaxed)) && !loading.parts.lock().contains_key(&partition)
    }

    /// One generation of images.
    pub(super) fn own_images(&self) -> ImageBytes {
        let mut images = ImageBytes { all: 0, largest: 0 };
        if self.is_in_use() {
            for partition in 0..ALL_PARTITIONS {
                let bytes = self.partition_image_bytes(partition);
                images.all += bytes;
                images.largest = images.largest.max(bytes);
            }
        }
        images
    }

    /// Bytes of the image of a partition, at most: what a node takes in an image is less than in
    /// DRAM, but for its name, of which DRAM may have only what differs from its neighbours.
    /// Beside it are units and the end of the last block.
    pub(super) fn partition_image_bytes(&self, partition: u32) -> u64 {
        let nodes = self.table.partition_bytes.get(partition as usize);
        let bytes = nodes.map_or(0, |bytes| bytes.load(Ordering::Relaxed).max(0) as u64);
        bytes + UNIT_HEADER_BYTES as u64 + 512
    }
}
