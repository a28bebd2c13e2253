//! Objects in a check: their records against their nodes, both ways, and what is kept beside
//! the nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::Result;
use crate::device::AlignedBuf;
use crate::format::{
    Address, ExtentRecord, Kind, LOGICAL_BLOCK_BYTES, Root, SegmentHeader, SegmentId, Seqno,
    payload_checksum,
};
use crate::object::{ObjectId, Objects, Referred, Wrong};

use super::check::Check;
use super::report::{Key, Severity, Structure};
use super::walk::{Item, Located, PayloadAt};

/// Bytes of a logical block.
const BLOCK: u64 = LOGICAL_BLOCK_BYTES as u64;

/// What is known of objects that are not there.
pub(super) struct ObjectCheck {
    /// Every operation from here on is on media.
    kept_from: Seqno,
    /// The last removal of each object.
    removed: HashMap<ObjectId, Seqno>,
    /// The last record of objects that are not there, and where it is on the device.
    orphans: HashMap<ObjectId, (Seqno, u64)>,
}

impl ObjectCheck {
    pub(super) fn new(root: Option<&Root>) -> Self {
        Self {
            kept_from: root.map_or(0, |root| root.older_horizon),
            removed: HashMap::new(),
            orphans: HashMap::new(),
        }
    }
}

/// What records on media say of some segments.
#[derive(Default)]
struct OnMedia {
    /// By the address of payload: how many units it has and its family.
    payload: BTreeMap<u64, (u64, u64)>,
    /// Omap values by address.
    values: BTreeMap<u64, Vec<u8>>,
}

impl OnMedia {
    fn has_block(&self, family: u64, at: u64) -> bool {
        let before = self.payload.range(..=at).next_back();
        before.is_some_and(|(from, (units, of))| at < from + units && *of == family)
    }
}

impl Check<'_> {
    /// Compares a record with the nodes, and checks its payload.
    pub(super) fn object_record(&mut self, header: &SegmentHeader, located: &Located<'_>) {
        let geometry = &header.geometry;
        let offset = geometry.segment_offset(header.segment) + located.offset;
        let payload_at = |payload: PayloadAt| geometry.address(header.segment, payload.offset);
        let payload = located.payload.map(payload_at);
        let Some((log, owners)) = self.opened else {
            self.report.dead_records += 1;
            self.payload(header, located, None);
            return;
        };
        let objects = &owners.objects;
        let at = geometry.address(header.segment, located.offset);
        let seqno = if located.exact { located.seqno } else { 0 };
        let standing = match objects.standing(log, &located.record, at, payload, seqno) {
            Ok(standing) => standing,
            Err(why) => {
                let detail = format!("a record of the object layer makes no sense: {why}");
                self.report.error(Structure::Record, offset, detail);
                return;
            }
        };
        if standing.live_bytes == 0 {
            self.report.dead_records += 1;
        } else {
            self.report.live_records += 1;
            self.report.live_bytes += standing.live_bytes;
            if let Some(sum) = self.found_live.get_mut(header.segment as usize) {
                *sum += standing.live_bytes as i64;
            }
        }
        for id in &standing.disagree {
            let (structure, what) = match located.record.kind {
                Kind::OmapValue => (Structure::OmapValue, "the length of an omap value"),
                _ => (Structure::Extent, "checksums or length of data"),
            };
            let detail = format!("{what} of {}: its record has others", objects.describe(*id));
            self.report.error(structure, offset, detail);
        }
        // Of other epochs nobody knows where they ended: a record may be of a group that a
        // crash dropped and whose cut is forgotten.
        let is_known =
            header.epoch == log.epoch() || self.cuts.iter().any(|cut| cut.epoch == header.epoch);
        if is_known && seqno >= self.objects.kept_from && seqno > 0 {
            for id in &standing.unknown_to {
                let detail = format!("a record that {} does not know of", objects.describe(*id));
                self.report.error(Structure::Stray, offset, detail);
            }
            for id in &standing.absent {
                let last = self.objects.orphans.entry(*id).or_insert((seqno, offset));
                *last = (*last).max((seqno, offset));
            }
        }
        if let Some(id) = standing.removes {
            let last = self.objects.removed.entry(id).or_insert(seqno);
            *last = seqno.max(*last);
        }
        self.payload(header, located, Some(objects));
    }

    /// Says which blocks of a payload do not verify, and whose they are.
    fn payload(
        &mut self,
        header: &SegmentHeader,
        located: &Located<'_>,
        objects: Option<&Objects>,
    ) {
        let damaged = located.payload.filter(|payload| !payload.is_sound);
        if located.record.kind != Kind::Extent || (located.payload.is_some() && damaged.is_none()) {
            return;
        }
        let geometry = &header.geometry;
        let start = geometry.segment_offset(header.segment);
        let extent = ExtentRecord::decode(located.record.key, located.record.value);
        let (Some(payload), Ok(extent)) = (damaged, extent) else {
            // Where it is cannot be told: its blocks are looked for by their objects.
            self.report.damaged_places += 1;
            let detail = format!("payload in segment {} cannot be found", header.segment);
            let offset = start + located.offset;
            self.report
                .find(Severity::Warning, Structure::Payload, offset, detail);
            return;
        };
        let at = start + payload.offset;
        let bytes = self.media.read_around(at, u64::from(payload.bytes));
        let mut hurt: BTreeMap<ObjectId, Vec<(u32, u64)>> = BTreeMap::new();
        let mut is_needed = false;
        let mut bad = 0;
        for (number, sum) in (0..).zip(extent.checksums.iter()) {
            let from = number as usize * LOGICAL_BLOCK_BYTES;
            let block = bytes.as_deref().and_then(|bytes| bytes.get(from..));
            let block = block.map(|rest| rest.get(..LOGICAL_BLOCK_BYTES).unwrap_or(rest));
            if block.is_some_and(|block| payload_checksum(block) == sum) {
                continue;
            }
            bad += 1;
            let in_segment = payload.offset + from as u64;
            let address = geometry.address(header.segment, in_segment);
            let block = extent.first_block + number;
            let Some(objects) = objects else { continue };
            for id in objects.owners_of_block(extent.family, block, address) {
                is_needed = true;
                hurt.entry(id)
                    .or_default()
                    .push((block, start + in_segment));
            }
        }
        if bad == 0 {
            // It was read well this time.
            return;
        }
        self.report.damaged_places += 1;
        for (id, blocks) in hurt {
            let name = objects.map_or_else(String::new, |objects| objects.describe(id));
            for run in blocks.chunk_by(|one, next| one.0 + 1 == next.0) {
                let (Some((first, offset)), Some((last, _))) = (run.first(), run.last()) else {
                    continue;
                };
                let detail = format!("{} of {name} cannot be read", blocks_named(*first, *last));
                self.report.error(Structure::Payload, *offset, detail);
            }
        }
        if !is_needed {
            // Damage of what is dead hurts nobody.
            let severity = match objects {
                Some(_) => Severity::Warning,
                None => Severity::Error,
            };
            let detail = format!("payload in segment {} does not verify", header.segment);
            self.report.find(severity, Structure::Payload, at, detail);
        }
    }

    /// Compares what is kept beside the nodes with them. `live` hears of every byte that
    /// nodes refer to.
    pub(super) fn compare_nodes(&mut self, live: &mut dyn FnMut(Address, u64)) {
        let Some((log, owners)) = self.opened else {
            return;
        };
        let report = &mut self.report;
        report.objects = owners.objects.count();
        owners.objects.check_nodes(log, live, &mut |wrong, detail| {
            let structure = match wrong {
                Wrong::Name => Structure::Name,
                Wrong::References => Structure::References,
                Wrong::Statistics => Structure::Statistics,
                Wrong::Place => Structure::Object,
            };
            report.error(structure, 0, detail);
        });
    }

    /// Looks for what objects refer to in segments whose sums do not agree; returns where
    /// something is missing.
    pub(super) fn find_missing(
        &mut self,
        unequal: &BTreeSet<SegmentId>,
    ) -> Result<BTreeSet<(SegmentId, u64)>> {
        let mut hurt = BTreeSet::new();
        let Some((_, owners)) = self.opened else {
            return Ok(hurt);
        };
        if unequal.is_empty() || self.report.objects == 0 {
            return Ok(hurt);
        }
        let on_media = self.records_of(unequal)?;
        let geometry = &self.media.geometry;
        let place = |address: Address| {
            let (segment, offset) = geometry.locate(address)?;
            unequal.contains(&segment).then_some((segment, offset))
        };
        let objects = &owners.objects;
        let block_units = BLOCK / u64::from(geometry.unit_bytes);
        let mut lost = Vec::new();
        objects.for_each_referred(&mut |id, referred| match referred {
            Referred::Blocks(extent) => {
                let Some((segment, _)) = place(extent.address) else {
                    return;
                };
                let blocks: Vec<u32> = (0..extent.count())
                    .filter(|number| {
                        let at = extent.address.units() + u64::from(*number) * block_units;
                        !on_media.has_block(id.family, at)
                    })
                    .collect();
                for run in blocks.chunk_by(|one, next| one + 1 == *next) {
                    let (Some(first), Some(last)) = (run.first(), run.last()) else {
                        continue;
                    };
                    let units = extent.address.units() + u64::from(*first) * block_units;
                    let at = Address::new(units);
                    hurt.extend(geometry.locate(at));
                    let blocks = blocks_named(extent.first + first, extent.first + last);
                    let detail = format!("no record in segment {segment} has {blocks} of");
                    lost.push((Structure::Extent, at, detail, id));
                }
            }
            Referred::Value(value, address) => {
                // Parts of which no place is known are told by the nodes themselves.
                let Some(address) = *address else { return };
                if let Some(place) = place(address)
                    && on_media.values.get(&address.units()) != Some(&value.encode())
                {
                    hurt.insert(place);
                    let key = Key(value.key.to_vec());
                    let detail = format!("the value of key \"{key}\" is lost of");
                    lost.push((Structure::OmapValue, address, detail, id));
                }
            }
        });
        // The shards are free again.
        for (structure, address, detail, id) in lost {
            let detail = format!("{detail} {}", objects.describe(id));
            let offset = geometry.device_offset(address);
            self.report.error(structure, offset, detail);
        }
        Ok(hurt)
    }

    /// The extents and omap values on media in some segments.
    fn records_of(&self, segments: &BTreeSet<SegmentId>) -> Result<OnMedia> {
        let mut on_media = OnMedia::default();
        let mut buffer = AlignedBuf::new();
        let wanted = |header: &SegmentHeader| segments.contains(&header.segment);
        for header in self.media.data_segments().filter(wanted) {
            let geometry = header.geometry;
            self.life(header, &mut buffer).walk(&mut |item| {
                let Item::Record(found) = item else {
                    return Ok(());
                };
                match (found.record.kind, found.payload) {
                    (Kind::Extent, Some(payload)) => {
                        let at = geometry.address(header.segment, payload.offset).units();
                        let units = u64::from(payload.bytes / geometry.unit_bytes);
                        let family = ExtentRecord::decode(found.record.key, found.record.value);
                        if let Ok(extent) = family {
                            on_media.payload.insert(at, (units, extent.family));
                        }
                    }
                    (Kind::OmapValue, _) => {
                        let at = geometry.address(header.segment, found.offset).units();
                        on_media.values.insert(at, found.record.key.to_vec());
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(on_media)
    }

    /// Reports records of objects that are not there and were not removed either.
    pub(super) fn compare_strays(&mut self) {
        let orphans = std::mem::take(&mut self.objects.orphans);
        let mut strays: Vec<_> = orphans.into_iter().collect();
        strays.retain(|(id, (seqno, _))| {
            self.objects
                .removed
                .get(id)
                .is_none_or(|removed| removed < seqno)
        });
        strays.sort_unstable_by_key(|(_, (_, offset))| *offset);
        for (id, (_, offset)) in strays {
            let (family, member) = (id.family, id.member);
            let detail = format!("a record of object {family}.{member}, which is not there");
            self.report.error(Structure::Stray, offset, detail);
        }
    }
}

fn blocks_named(first: u32, last: u32) -> String {
    if first == last {
        format!("block {first}")
    } else {
        format!("blocks {first} to {last}")
    }
}
