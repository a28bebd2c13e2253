//! Objects in a rebuild: replaying what is left of their records, and saying what is not.
//!
//! An object is proven if its partition's image could be used, or if nothing of its life is
//! missing: then its creation is not older than the bounds of `doubt.rs`. All others are made
//! anew as far as records allow and listed.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::Result;
use crate::format::{Record, SegmentId, Seqno};
use crate::log::{Lane, Owner, Position};
use crate::object::{Concerned, ObjectId, Objects};

use super::rebuild::Rebuild;
use super::report::Structure;

/// What a rebuild knows of objects.
#[derive(Default)]
pub(super) struct Salvage {
    /// When objects that records began were begun.
    begun: HashMap<ObjectId, Seqno>,
    /// Objects of which something does not fit.
    tainted: HashSet<ObjectId>,
    /// Data and records of objects that are not there.
    absent: BTreeMap<ObjectId, (u64, u64)>,
}

impl Rebuild<'_> {
    /// Replays a record of the object layer. `exact`: its seqno is known.
    pub(super) fn replay_object(
        &mut self,
        record: &Record<'_>,
        position: Position,
        exact: bool,
    ) -> Result<()> {
        let objects = &self.owners.objects;
        let offset = self.media.geometry.device_offset(position.address);
        let concerned = match Concerned::of(record) {
            Ok(concerned) => concerned,
            Err(why) => {
                let detail = format!("a record of the object layer makes no sense: {why}");
                self.report.error(Structure::Record, offset, detail);
                return Ok(());
            }
        };
        let seqno = position.seqno;
        let first = concerned.ids.first().copied();
        let is_covered = first.is_some_and(|id| {
            let partition = self.partition_of(id);
            self.doubt
                .horizon(partition)
                .is_some_and(|horizon| seqno < horizon)
        });
        if is_covered {
            return Ok(());
        }
        if let (Some(id), Some(source)) = (first, concerned.begins) {
            self.salvage.absent.remove(&id);
            if !objects.has(id) {
                self.salvage.begun.insert(id, seqno);
                self.salvage.tainted.remove(&id);
            }
            if let Some(source) = source {
                if !objects.has(source) {
                    objects.salvage_clone(record, seqno);
                    self.salvage.tainted.insert(id);
                } else if self.is_doubtful(source) {
                    self.salvage.tainted.insert(id);
                }
            }
        }
        for id in &concerned.ids {
            if !objects.has(*id) && concerned.begins.is_none() && !concerned.removes {
                let (bytes, records) = self.salvage.absent.entry(*id).or_default();
                *bytes += concerned.data_bytes;
                *records += 1;
            }
            if !exact || self.doubt.is_weak(seqno) {
                self.salvage.tainted.insert(*id);
            }
        }
        if let Some(id) = first.filter(|_| concerned.removes) {
            self.salvage.absent.remove(&id);
        }
        match objects.replay(self.log, record, position, Lane::ALL) {
            Err(crate::Error::Corrupt { why, .. }) => {
                self.salvage.tainted.extend(concerned.ids);
                let detail = format!("a record of an object cannot be used: {why}");
                self.report.error(Structure::Record, offset, detail);
            }
            other => other?,
        }
        Ok(())
    }

    fn partition_of(&self, id: ObjectId) -> u32 {
        self.owners.kv.partition_count() + Objects::partition_of(id)
    }

    /// Whether an object may not be what it was.
    fn is_doubtful(&self, id: ObjectId) -> bool {
        let partition = self.partition_of(id);
        let begun = self.salvage.begun.get(&id).copied();
        let known_from = begun.or(self.doubt.horizon(partition)).unwrap_or(0);
        self.salvage.tainted.contains(&id) || self.doubt.doubts(partition, known_from, true)
    }

    /// Leaves out what does not fit and lists it, then derives what is not stored.
    pub(super) fn finish_objects(&mut self, given_up: &[SegmentId]) -> Result<()> {
        let objects = &self.owners.objects;
        for name in objects.salvage_names() {
            let line = format!("{name}: another object has the name, and is newer");
            self.report.lose_object(line);
        }
        let media = self.media;
        let lost = objects.salvage_places(&|address| {
            let segment = media.geometry.locate(address).map(|(segment, _)| segment);
            segment.is_none_or(|segment| {
                given_up.contains(&segment) || !super::rebuild::is_data(media, segment)
            })
        });
        for line in lost {
            self.report.lose_object(line);
        }
        for (id, (bytes, records)) in std::mem::take(&mut self.salvage.absent) {
            let (family, member) = (id.family, id.member);
            self.report.lose_object(format!(
                "object {family}.{member}: its creation is no longer in the log, and with it \
                 its name; {records} records with {bytes} bytes of data are left out. It may \
                 have been removed"
            ));
        }
        for name in objects.salvage_collections() {
            self.report.repairs.push(format!(
                "the collection {name} with 0 bits is made for objects whose collection is lost"
            ));
        }
        let mut doubtful = Vec::new();
        objects.each(&mut |id, _| {
            if self.is_doubtful(id) {
                doubtful.push(id);
            }
        });
        for id in doubtful {
            self.report.doubt_object(objects.describe(id));
        }
        self.owners.replayed(self.log)
    }
}
