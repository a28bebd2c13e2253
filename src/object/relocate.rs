//! The cleaner's questions: is this still needed, and if so, move it.
//!
//! Answered under the shard's lock, so that a record moved is the current one at its place in
//! the order of seqnos.

use crate::format::{
    Address, ExtentRecord, Kind, Record, RecordFields, content_hash, extent_key, extent_value,
    record_length,
};
use crate::log::{self, Log, NewRecord, NoRoom, Position, Purpose, Relocation};

use super::extents::{ExtentMap, Move, References, relocate};
use super::families::{Family, FamilyMut};
use super::records::OmapRecord;
use super::table::{Footprint, Members, Shard};
use super::{BLOCK_BYTES, Objects, OmapLocation};

/// Survivors of omaps go to the head of records that live long.
const OMAP_SURVIVOR_EXPONENT: u8 = 6;

/// Blocks of an extent that are still needed, one after another.
struct Survivors {
    /// Offset in the extent's blocks.
    from: u32,
    count: u32,
    exponent: u8,
    members: Vec<u32>,
}

impl Objects {
    pub(super) fn relocate_record(
        &self,
        log: &Log,
        record: &Record<'_>,
        payload: &[u8],
        position: Position,
        victim_clock: u64,
    ) -> Result<Relocation, NoRoom> {
        match record.kind {
            Kind::Extent => {
                let extent = ExtentRecord::decode(record.key, record.value);
                let (Ok(extent), Some(address)) = (extent, position.payload) else {
                    return Ok(Relocation::Dead);
                };
                self.relocate_extent(log, &extent, address, payload, victim_clock)
            }
            Kind::OmapValue => self.relocate_omap_value(log, record, position, victim_clock),
            // A segment with an operation that is needed is no victim.
            _ => Ok(Relocation::Dead),
        }
    }

    fn relocate_omap_value(
        &self,
        log: &Log,
        record: &Record<'_>,
        position: Position,
        victim_clock: u64,
    ) -> Result<Relocation, NoRoom> {
        let Ok(value) = OmapRecord::decode(record.key) else {
            return Ok(Relocation::Dead);
        };
        let id = value.id;
        let old = OmapLocation::new(position.address, record.length);
        let mut shard = self.table.write(id.family);
        let Some((node, _)) = shard.get_mut(id) else {
            return Ok(Relocation::Dead);
        };
        let Some(omap) = &mut node.omap else {
            return Ok(Relocation::Dead);
        };
        if !omap.has(&value, old) {
            return Ok(Relocation::Dead);
        }
        let new = NewRecord {
            fields: RecordFields {
                kind: Kind::OmapValue,
                relocated: true,
                key: record.key,
                value: record.value,
                content: content_hash(record.key, record.value),
            },
            length: record.length,
            head: OMAP_SURVIVOR_EXPONENT,
            purpose: Purpose::Survivor,
            clock: Some(victim_clock),
            payload: None,
        };
        let appended = log.appender().append(&new)?;
        let location = OmapLocation::new(appended.address, record.length);
        let updated = omap.redirect(&value, old, location);
        assert!(updated, "the shard is locked");
        node.version = appended.seqno;
        let bytes = log.record_bytes(record.length);
        log.record_died(position.address, bytes);
        log::Counters::add(&log.counters.cleaning_bytes, bytes);
        Ok(Relocation::Moved)
    }

    fn relocate_extent(
        &self,
        log: &Log,
        extent: &ExtentRecord<'_>,
        address: Address,
        payload: &[u8],
        victim_clock: u64,
    ) -> Result<Relocation, NoRoom> {
        let mut shard = self.table.write(extent.family);
        let Some(family) = shard.families.get(extent.family) else {
            return Ok(Relocation::Dead);
        };
        let blocks = extent.checksums.len() as u32;
        let checksums: Vec<u32> = extent.checksums.iter().collect();
        let survivors = self.survivors(&family, extent.first_block, blocks, address);
        let mut outcome = Relocation::Dead;
        let age = log.clock().saturating_sub(victim_clock);
        for run in survivors {
            let exponent = log::survivor_exponent(run.exponent, age, log.table().live_total());
            let from = run.from as usize * BLOCK_BYTES as usize;
            let to = (from + run.count as usize * BLOCK_BYTES as usize).min(payload.len());
            let Some((part, sums)) = payload
                .get(from..to)
                .zip(checksums.get(run.from as usize..(run.from + run.count) as usize))
            else {
                continue;
            };
            let Some((member, extra)) = run.members.split_first() else {
                continue;
            };
            let first = extent.first_block + run.from;
            let key = extent_key(extent.family, *member);
            let value = extent_value(part.len() as u32, first, extra, sums);
            let length = record_length(
                Kind::Extent,
                key.len(),
                value.len(),
                log.geometry().unit_bytes,
            )
            .ok_or(NoRoom)?;
            let slices = [part];
            let new = NewRecord {
                fields: RecordFields {
                    kind: Kind::Extent,
                    relocated: true,
                    key: &key,
                    value: &value,
                    content: content_hash(&key, &value),
                },
                length,
                head: exponent,
                purpose: Purpose::Survivor,
                clock: Some(victim_clock),
                payload: Some(&slices),
            };
            let appended = log.appender().append(&new)?;
            let Some(moved_to) = appended.payload else {
                unreachable!("an extent has payload")
            };
            let old =
                Address::new(address.units() + from as u64 / u64::from(log.geometry().unit_bytes));
            let change = Move {
                first,
                count: run.count,
                old,
                new: moved_to,
                exponent,
            };
            let moved = move_family(
                &mut shard,
                extent.family,
                &run.members,
                change,
                appended.seqno,
                self,
            );
            debug_assert_eq!(moved, part.len() as u64);
            log.record_died(old, part.len() as u64);
            let bytes = log.record_bytes(length) + part.len() as u64;
            log::Counters::add(&log.counters.cleaning_bytes, bytes);
            outcome = Relocation::Moved;
        }
        Ok(outcome)
    }

    /// Which blocks of a payload some member still has there. Blocks next to one another
    /// with the same members are moved together.
    fn survivors(
        &self,
        family: &Family<'_>,
        first: u32,
        blocks: u32,
        address: Address,
    ) -> Vec<Survivors> {
        let mut members_of: Vec<(Vec<u32>, u8)> = vec![(Vec::new(), 0); blocks as usize];
        let block_units = self.unit.units(BLOCK_BYTES);
        for (member, node) in family.members() {
            let end = u64::from(first) + u64::from(blocks);
            for extent in node.extents.range(first, end) {
                let at = extent.first - first;
                let expected = address.units() + u64::from(at) * block_units;
                if extent.address.units() != expected {
                    continue;
                }
                for block in at..at + extent.count() {
                    if let Some((members, exponent)) = members_of.get_mut(block as usize) {
                        members.push(member);
                        *exponent = (*exponent).max(extent.exponent);
                    }
                }
            }
        }
        let mut runs: Vec<Survivors> = Vec::new();
        for (block, (members, exponent)) in (0..).zip(members_of) {
            if members.is_empty() {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.from + run.count == block && run.members == members => {
                    run.count += 1;
                    run.exponent = run.exponent.max(exponent);
                }
                _ => runs.push(Survivors {
                    from: block,
                    count: 1,
                    exponent,
                    members,
                }),
            }
        }
        runs
    }
}

fn move_family(
    shard: &mut Shard,
    family: u64,
    members: &[u32],
    change: Move,
    seqno: u64,
    objects: &Objects,
) -> u64 {
    match shard.families.get_mut(family) {
        None => 0,
        Some(FamilyMut::One(node)) => {
            node.version = seqno;
            let mut references = References::new(objects.unit);
            let before = Footprint::of([&*node]);
            let moved = relocate(&mut [&mut node.extents], change, &mut references);
            let more = before.to(&Footprint::of([&*node]), &node.space.usage);
            objects.table.add_bytes(family, more);
            moved
        }
        Some(FamilyMut::Many(all)) => {
            let nodes = |all: &Members| Footprint::of(all.nodes.values().map(|node| &**node));
            let before = nodes(all);
            let mut maps: Vec<&mut ExtentMap> = Vec::with_capacity(members.len());
            for (member, node) in &mut all.nodes {
                if members.contains(member) {
                    node.version = seqno;
                    maps.push(&mut node.extents);
                }
            }
            let moved = relocate(&mut maps, change, &mut all.references);
            if let Some(node) = all.nodes.values().next() {
                let more = before.to(&nodes(all), &node.space.usage);
                objects.table.add_bytes(family, more);
            }
            moved
        }
    }
}
