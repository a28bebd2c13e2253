//! What a check asks of the object layer: whether what is kept beside the nodes agrees with
//! them, and how a record on media stands to them.
//!
//! Nobody changes nodes meanwhile: that is the caller's care.

use std::collections::HashMap;
use std::ops::Bound::Unbounded;

use crate::format::{Address, ExtentRecord, Invalid, Kind, Record, Seqno};
use crate::log::Log;
use crate::sync::{AtomicI64, Ordering, SharedArc};

use super::extents::{BLOCK_BYTES, Extent, References};
use super::families::Family;
use super::name::reversed_hash_of;
use super::omap::Omap;
use super::records::{OmapRecord, Operation, decode_operation};
use super::replay::collection_name;
use super::table::{Footprint, Node, SHARDS, Space, Table, Usage};
use super::{ObjectId, ObjectName, Objects, OmapLocation, SpaceId};

/// What of the object layer is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A name leads to another object than the one that has it, or to none.
    Name,
    /// Shared payload has another number of references than is written down.
    References,
    /// A counter of a space.
    Statistics,
    /// A place outside the store, or data behind an object's end.
    Place,
}

/// What a record on media is to the nodes.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Bytes of it, or of its payload, that nodes refer to.
    pub(crate) live_bytes: u64,
    /// Objects that refer to it and say something else of it.
    pub(crate) disagree: Vec<ObjectId>,
    /// Objects that are there and do not know of it, though it is newer than they are.
    pub(crate) unknown_to: Vec<ObjectId>,
    /// Objects it concerns that are not there.
    pub(crate) absent: Vec<ObjectId>,
    /// An object that it removes.
    pub(crate) removes: Option<ObjectId>,
}

/// Something that nodes refer to.
#[derive(Debug, Clone)]
pub(crate) enum Referred<'a> {
    /// Blocks of an object.
    Blocks(Extent<'a>),
    /// The value of an omap key, or a part of it; no address if it is not known.
    Value(OmapRecord<'a>, Option<Address>),
}

/// What the objects of a space take, recomputed.
#[derive(Default)]
struct Sums {
    objects: i64,
    stored_bytes: i64,
    allocated_bytes: i64,
    omap_bytes: i64,
    /// What their nodes take of DRAM, without names.
    memory: Usage,
}

impl Objects {
    /// Compares names, counts of references and statistics with the nodes. `live` hears of
    /// every stored byte that nodes refer to, once; `wrong` of what does not agree.
    pub(crate) fn check_nodes(
        &self,
        log: &Log,
        live: &mut dyn FnMut(Address, u64),
        wrong: &mut dyn FnMut(Wrong, String),
    ) {
        self.dig(log);
        let mut sums: HashMap<SpaceId, Sums> = HashMap::new();
        for number in 0..SHARDS {
            let shard = self.table.read_shard(number);
            for (family, found) in shard.families.iter() {
                self.check_family(log, family, &found, &mut sums, live, wrong);
            }
        }
        for space in self.table.spaces() {
            let sums = sums.remove(&space.id).unwrap_or_default();
            self.check_space(&space, &sums, wrong);
        }
    }

    fn check_family(
        &self,
        log: &Log,
        family: u64,
        found: &Family<'_>,
        sums: &mut HashMap<SpaceId, Sums>,
        live: &mut dyn FnMut(Address, u64),
        wrong: &mut dyn FnMut(Wrong, String),
    ) {
        let mut allocated = 0;
        let maps = found.members().map(|(_, node)| &node.extents);
        let counted = References::count(self.unit, maps, &mut |piece| {
            if log.table().locate(piece.address).is_none() {
                let detail = format!("family {family} has payload outside the store");
                wrong(Wrong::Place, detail);
            }
            live(piece.address, piece.bytes);
            allocated += piece.bytes as i64;
        });
        let agrees = match found {
            Family::One(..) => counted.is_empty(),
            Family::Many(members) => counted.agrees_with(&members.references),
        };
        if !agrees {
            let names: Vec<_> = found
                .members()
                .map(|(_, node)| name_of(node.id(family), node))
                .collect();
            let detail = format!("reference counts of shared payload of {}", names.join(", "));
            wrong(Wrong::References, detail);
        }
        if let Some((_, node)) = found.members().next() {
            let sums = sums.entry(node.space.id).or_default();
            Footprint::of_family(found).count(&sums.memory);
        }
        for (member, node) in found.members() {
            let id = ObjectId { family, member };
            if node.space.name_of(node.hash, id).is_none() {
                let detail = format!("no name leads to {}", name_of(id, node));
                wrong(Wrong::Name, detail);
            }
            if node.extents.end_block() > node.bytes.div_ceil(BLOCK_BYTES) {
                let detail = format!("{} has data behind its end", name_of(id, node));
                wrong(Wrong::Place, detail);
            }
            let stored_bytes = node.extents.stored_bytes();
            let mut omap_bytes = 0;
            if let Some(omap) = &node.omap {
                omap_bytes = self.check_omap(log, id, node, omap, live, wrong);
            }
            let kept = node.omap.as_ref().map_or(0, |omap| omap.record_bytes);
            if node.stored_bytes != stored_bytes || kept != omap_bytes {
                let detail = format!(
                    "bytes of {}: {} and {kept} are counted, {stored_bytes} and {omap_bytes} there",
                    name_of(id, node),
                    node.stored_bytes
                );
                wrong(Wrong::Statistics, detail);
            }
            let sums = sums.entry(node.space.id).or_default();
            sums.objects += 1;
            sums.stored_bytes += stored_bytes as i64;
            sums.omap_bytes += omap_bytes as i64;
            // The members of a family are in one space.
            sums.allocated_bytes += std::mem::take(&mut allocated);
        }
    }

    /// Returns the bytes of its records.
    fn check_omap(
        &self,
        log: &Log,
        id: ObjectId,
        node: &Node,
        omap: &Omap,
        live: &mut dyn FnMut(Address, u64),
        wrong: &mut dyn FnMut(Wrong, String),
    ) -> u64 {
        let mut total = 0;
        omap.visit_locations(&mut |location| {
            let bytes = log.record_bytes(location.length());
            if log.table().locate(location.address()).is_none() {
                let detail = format!("{} has an omap value outside the store", name_of(id, node));
                wrong(Wrong::Place, detail);
            }
            live(location.address(), bytes);
            total += bytes;
        });
        let all = omap.parts.iter().flat_map(|all| all.iter());
        for (key, parts) in all {
            let is_whole = parts.iter().all(|location| location.is_some());
            if !is_whole || omap.keys.get(key).is_none() {
                let key = key.escape_ascii();
                let detail = format!("{}: omap key \"{key}\" lacks a part", name_of(id, node));
                wrong(Wrong::Place, detail);
            }
        }
        total
    }

    fn check_space(
        &self,
        space: &SharedArc<Space>,
        sums: &Sums,
        wrong: &mut dyn FnMut(Wrong, String),
    ) {
        let mut names = Vec::new();
        space.names.read().each(&mut |name, id| {
            names.push((name.to_vec(), id));
        });
        for (name, id) in names {
            let shard = self.table.read(id.family);
            let leads = shard
                .get(id)
                .is_some_and(|node| SharedArc::ptr_eq(&node.space, space))
                && space.name_of(reversed_hash_of(&name), id) == Some(name.clone());
            if !leads {
                let detail = format!("the name {} leads to no object of it", shown(&name));
                wrong(Wrong::Name, detail);
            }
        }
        let usage = &space.usage;
        let read = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let memory = &sums.memory;
        let of_names = space.names.read().memory_bytes() as i64;
        let counters: [(&str, &AtomicI64, i64); 7] = [
            ("objects", &usage.objects, sums.objects),
            ("stored bytes", &usage.stored_bytes, sums.stored_bytes),
            (
                "allocated bytes",
                &usage.allocated_bytes,
                sums.allocated_bytes,
            ),
            ("omap bytes", &usage.omap_bytes, sums.omap_bytes),
            ("omap keys", &usage.omap_keys, read(&memory.omap_keys)),
            (
                "bytes of DRAM of extents",
                &usage.extent_memory_bytes,
                read(&memory.extent_memory_bytes),
            ),
            (
                "bytes of DRAM",
                &usage.memory_bytes,
                read(&memory.memory_bytes) + of_names,
            ),
        ];
        for (what, counter, sum) in counters {
            let counted = read(counter);
            if counted != sum {
                let detail = format!("{what} of {}: {counted} are counted, {sum} there", space.id);
                wrong(Wrong::Statistics, detail);
            }
        }
    }

    /// How a record stands to the nodes. `payload` is where an extent's is, if known; `seqno`
    /// is 0 when it is not known.
    ///
    /// # Errors
    /// A record that makes no sense.
    pub(crate) fn standing(
        &self,
        log: &Log,
        record: &Record<'_>,
        at: Address,
        payload: Option<Address>,
        seqno: Seqno,
    ) -> Result<Standing, Invalid> {
        let mut standing = Standing::default();
        match record.kind {
            Kind::Extent => {
                let extent = ExtentRecord::decode(record.key, record.value)?;
                let members = std::iter::once(extent.member).chain(extent.extra_members.iter());
                for member in members {
                    let family = extent.family;
                    self.compare_version(ObjectId { family, member }, seqno, &mut standing);
                }
                if let Some(payload) = payload {
                    self.live_blocks(&extent, payload, &mut standing);
                }
            }
            Kind::OmapValue => {
                let value = OmapRecord::decode(record.key)?;
                self.compare_version(value.id, seqno, &mut standing);
                let shard = self.table.read(value.id.family);
                let omap = shard.get(value.id).and_then(|node| node.omap.as_ref());
                let (first, further) = omap.and_then(|omap| omap.get(value.key)).unzip();
                let found = match usize::from(value.part).checked_sub(1) {
                    None => first,
                    Some(number) => further.and_then(|parts| parts.get(number).copied()),
                };
                let is_here = |found: &OmapLocation| found.is_some() && found.address() == at;
                if let Some(found) = found.filter(is_here) {
                    standing.live_bytes = log.record_bytes(found.length());
                    let count = further.map_or(0, <[OmapLocation]>::len) + 1;
                    if found.length() != record.length || count != usize::from(value.parts) {
                        standing.disagree.push(value.id);
                    }
                }
            }
            _ => {
                let (id, operation) = decode_operation(record.key, record.value)?;
                match operation {
                    Operation::CollectionSet { name, .. }
                    | Operation::CollectionRemove { name } => {
                        let name = collection_name(name)?;
                        let slot = self.registry.find(&name);
                        if slot.is_some_and(|slot| slot.version() < seqno) {
                            standing.unknown_to.push(id);
                        }
                    }
                    Operation::Remove => {
                        standing.removes = Some(id);
                        self.compare_version(id, seqno, &mut standing);
                        standing.absent.clear();
                    }
                    _ => self.compare_version(id, seqno, &mut standing),
                }
            }
        }
        Ok(standing)
    }

    fn compare_version(&self, id: ObjectId, seqno: Seqno, standing: &mut Standing) {
        match self.table.read(id.family).get(id) {
            Some(node) if node.version < seqno => standing.unknown_to.push(id),
            Some(_) => {}
            None => standing.absent.push(id),
        }
    }

    /// Bytes of a payload that some member of its family has there.
    fn live_blocks(&self, extent: &ExtentRecord<'_>, payload: Address, standing: &mut Standing) {
        let shard = self.table.read(extent.family);
        let Some(family) = shard.families.get(extent.family) else {
            return;
        };
        let blocks = extent.checksums.len();
        let checksums: Vec<u32> = extent.checksums.iter().collect();
        let mut live = vec![0_u64; blocks];
        let end = u64::from(extent.first_block) + blocks as u64;
        for (member, node) in family.members() {
            let mut agrees = true;
            for found in node.extents.range(extent.first_block, end) {
                let skipped = found.first - extent.first_block;
                let expected = payload.units() + self.unit.units(u64::from(skipped) * BLOCK_BYTES);
                if found.address.units() != expected {
                    continue;
                }
                let from = skipped as usize;
                let sums = checksums.get(from..from + found.checksums.len());
                agrees &= sums == Some(found.checksums);
                for (at, block) in (from..).zip(found.checksums).map(|(at, _)| at).zip(0..) {
                    let bytes = match block + 1 == found.count() {
                        true => found.bytes() - u64::from(block) * BLOCK_BYTES,
                        false => BLOCK_BYTES,
                    };
                    let stored = u64::from(extent.payload_bytes) - at as u64 * BLOCK_BYTES;
                    agrees &= bytes == stored.min(BLOCK_BYTES);
                    if let Some(live) = live.get_mut(at) {
                        *live = bytes.max(*live);
                    }
                }
            }
            if !agrees {
                standing.disagree.push(ObjectId {
                    family: extent.family,
                    member,
                });
            }
        }
        standing.live_bytes = live.iter().sum();
    }

    /// Calls for everything that nodes refer to.
    pub(crate) fn for_each_referred(&self, call: &mut dyn FnMut(ObjectId, &Referred<'_>)) {
        for number in 0..SHARDS {
            let shard = self.table.read_shard(number);
            for (family, found) in shard.families.iter() {
                for (member, node) in found.members() {
                    let id = ObjectId { family, member };
                    for extent in node.extents.iter() {
                        call(id, &Referred::Blocks(extent));
                    }
                    if let Some(omap) = &node.omap {
                        each_value(id, omap, &mut |value, location| {
                            let address = location.is_some().then(|| location.address());
                            call(id, &Referred::Value(value, address));
                        });
                    }
                }
            }
        }
    }

    /// Members of a family that have a block at an address.
    pub(crate) fn owners_of_block(&self, family: u64, block: u32, at: Address) -> Vec<ObjectId> {
        let shard = self.table.read(family);
        let Some(found) = shard.families.get(family) else {
            return Vec::new();
        };
        let has = |node: &Node| {
            node.extents
                .get(block)
                .is_some_and(|found| found.address == at)
        };
        let members = found.members().filter(|(_, node)| has(node));
        members
            .map(|(member, _)| ObjectId { family, member })
            .collect()
    }

    /// The name of an object for people.
    pub(crate) fn describe(&self, id: ObjectId) -> String {
        match self.table.read(id.family).get(id) {
            Some(node) => name_of(id, node),
            None => format!("object {}.{}", id.family, id.member),
        }
    }

    /// Number of objects.
    pub(crate) fn count(&self) -> u64 {
        let families = |number| {
            let shard = self.table.read_shard(number);
            shard
                .families
                .iter()
                .map(|(_, family)| family.members().count())
                .sum::<usize>() as u64
        };
        (0..SHARDS).map(families).sum()
    }

    /// Test hook: says that a shared piece of an object has one reference more.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn miscount(&self, id: ObjectId) {
        let mut shard = self.table.write(id.family);
        if let Some((node, Some(references))) = shard.get_mut(id) {
            references.miscount(&node.extents);
        }
    }

    /// The partition of an object's shard.
    pub(crate) fn partition_of(id: ObjectId) -> u32 {
        (Table::shard_of(id.family) / super::table::SHARDS_A_PARTITION) as u32
    }
}

/// Calls for every value and part of one.
pub(super) fn each_value(
    id: ObjectId,
    omap: &Omap,
    call: &mut dyn FnMut(OmapRecord<'_>, OmapLocation),
) {
    omap.keys.visit((Unbounded, Unbounded), &mut |key, bits| {
        let further = omap.parts_of(key);
        let first = [OmapLocation::from_bits(bits)];
        let parts = further.len() as u16 + 1;
        for (part, location) in (0..).zip(first.iter().chain(further)) {
            let value = OmapRecord {
                id,
                part,
                parts,
                key,
            };
            call(value, *location);
        }
        true
    });
}

/// The name of an object for people.
pub(super) fn name_of(id: ObjectId, node: &Node) -> String {
    match node.space.name_of(node.hash, id) {
        Some(name) => format!("{} in {}", shown(&name), node.space.id),
        None => format!("object {}.{} in {}", id.family, id.member, node.space.id),
    }
}

fn shown(sort_key: &[u8]) -> String {
    match ObjectName::from_sort_key(sort_key) {
        Ok(name) => name.to_string(),
        Err(_) => "an impossible name".into(),
    }
}
