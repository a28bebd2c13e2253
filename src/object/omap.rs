//! The omap of a node: its keys in DRAM, and where their values are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::index::OrderedMap;

use super::OmapLocation;
use super::records::OmapRecord;

/// Where the further parts of values are that one record does not hold.
type Parts = BTreeMap<Vec<u8>, Vec<OmapLocation>>;

/// An omap.
#[derive(Default)]
pub(crate) struct Omap {
    /// Where the value of each key is, or the first part of it.
    pub(crate) keys: OrderedMap,
    /// Of large values only.
    pub(crate) parts: Option<Box<Parts>>,
    /// Bytes of the records of all values.
    pub(crate) record_bytes: u64,
    pub(crate) header: Option<Box<[u8]>>,
}

impl Omap {
    /// Whether it says nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.keys.is_empty() && self.header.is_none()
    }

    /// Where the value of a key is: its first part, and the others.
    pub(crate) fn get(&self, key: &[u8]) -> Option<(OmapLocation, &[OmapLocation])> {
        let first = self.keys.get(key)?;
        Some((OmapLocation::from_bits(first), self.parts_of(key)))
    }

    /// The further parts of a value.
    pub(crate) fn parts_of(&self, key: &[u8]) -> &[OmapLocation] {
        let parts = self.parts.as_ref().and_then(|parts| parts.get(key));
        parts.map_or(&[], Vec::as_slice)
    }

    /// Sets where a value, or a part of it, is; `gone` hears where what it replaces was. The
    /// first part says how many there are, and comes before the others.
    pub(crate) fn set(
        &mut self,
        record: &OmapRecord<'_>,
        location: OmapLocation,
        gone: &mut dyn FnMut(OmapLocation),
    ) {
        if record.part == 0
            && let Some(old) = self.keys.insert(record.key, location.bits())
        {
            gone(OmapLocation::from_bits(old));
        }
        let further = usize::from(record.parts) - 1;
        if further == 0 {
            self.drop_parts(record.key, gone);
            return;
        }
        let all = self.parts.get_or_insert_default();
        let parts = all.entry(record.key.to_vec()).or_default();
        for old in parts
            .drain(further.min(parts.len())..)
            .filter(|old| old.is_some())
        {
            gone(old);
        }
        parts.resize(further, OmapLocation::NONE);
        if let Some(number) = usize::from(record.part).checked_sub(1) {
            let old = std::mem::replace(&mut parts[number], location);
            if old.is_some() {
                gone(old);
            }
        }
    }

    fn drop_parts(&mut self, key: &[u8], gone: &mut dyn FnMut(OmapLocation)) {
        let Some(all) = &mut self.parts else {
            return;
        };
        for old in all.remove(key).unwrap_or_default() {
            if old.is_some() {
                gone(old);
            }
        }
        if all.is_empty() {
            self.parts = None;
        }
    }

    /// Removes a key; `gone` hears where its value was.
    pub(crate) fn remove(&mut self, key: &[u8], gone: &mut dyn FnMut(OmapLocation)) {
        if let Some(old) = self.keys.remove(key) {
            gone(OmapLocation::from_bits(old));
        }
        self.drop_parts(key, gone);
    }

    /// Removes the keys from the first to before the last, and returns them.
    pub(crate) fn remove_range(&mut self, first: &[u8], last: &[u8]) -> Self {
        let mut removed = Self {
            keys: self.keys.remove_range(Included(first), Excluded(last)),
            ..Self::default()
        };
        if let Some(mut all) = self.parts.take() {
            let mut out = all.split_off(first);
            let mut behind = out.split_off(last);
            all.append(&mut behind);
            self.parts = (!all.is_empty()).then_some(all);
            removed.parts = (!out.is_empty()).then(|| Box::new(out));
        }
        removed
    }

    /// Every place that has a value or a part of one.
    pub(crate) fn visit_locations(&self, visitor: &mut dyn FnMut(OmapLocation)) {
        self.keys.visit((Unbounded, Unbounded), &mut |_, bits| {
            visitor(OmapLocation::from_bits(bits));
            true
        });
        for parts in self.parts.iter().flat_map(|all| all.values()) {
            for location in parts.iter().filter(|location| location.is_some()) {
                visitor(*location);
            }
        }
    }

    /// The same omap in the hands of the cleaner: a record has moved. False when the omap has
    /// another in its place.
    pub(crate) fn redirect(
        &mut self,
        record: &OmapRecord<'_>,
        old: OmapLocation,
        new: OmapLocation,
    ) -> bool {
        let Some(number) = usize::from(record.part).checked_sub(1) else {
            return self.keys.update(record.key, old.bits(), new.bits());
        };
        let parts = self.parts.as_mut().and_then(|all| all.get_mut(record.key));
        match parts.and_then(|parts| parts.get_mut(number)) {
            Some(location) if *location == old => {
                *location = new;
                true
            }
            _ => false,
        }
    }

    /// Whether a record is where the omap says.
    pub(crate) fn has(&self, record: &OmapRecord<'_>, location: OmapLocation) -> bool {
        match usize::from(record.part).checked_sub(1) {
            None => self.keys.get(record.key) == Some(location.bits()),
            Some(number) => self.parts_of(record.key).get(number) == Some(&location),
        }
    }

    /// Bytes of DRAM.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let header = self.header.as_ref().map_or(0, |header| header.len());
        let part = |(key, parts): (&Vec<u8>, &Vec<OmapLocation>)| key.len() + 8 * parts.len() + 80;
        let parts: usize = self.parts.iter().flat_map(|all| all.iter()).map(part).sum();
        (size_of::<Self>() + self.keys.memory_bytes() + header + parts) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectId;

    fn place(number: u64) -> OmapLocation {
        OmapLocation::from_bits((number + 1) << 11 | 5)
    }

    #[test]
    fn every_place_is_told_once_when_it_goes() {
        let id = ObjectId {
            family: 1,
            member: 0,
        };
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let mut omap = Omap::default();
            let mut live = std::collections::BTreeSet::new();
            let mut next = 0;
            for _ in 0..200 {
                let key = [random.u8(0..12)];
                let mut gone = Vec::new();
                match random.u8(0..8) {
                    0 => omap.remove(&key, &mut |old| gone.push(old)),
                    1 => {
                        let last = [key[0] + random.u8(0..4)];
                        let removed = omap.remove_range(&key, &last);
                        removed.visit_locations(&mut |old| gone.push(old));
                    }
                    _ => {
                        let parts = random.u16(1..5);
                        for part in 0..parts {
                            let record = OmapRecord {
                                id,
                                part,
                                parts,
                                key: &key,
                            };
                            omap.set(&record, place(next), &mut |old| gone.push(old));
                            live.insert(place(next).bits());
                            next += 1;
                        }
                    }
                }
                for old in gone {
                    assert!(live.remove(&old.bits()), "told twice, or never there");
                }
                let mut now = std::collections::BTreeSet::new();
                omap.visit_locations(&mut |location| {
                    now.insert(location.bits());
                });
                assert_eq!(now, live);
            }
        }
    }
}
