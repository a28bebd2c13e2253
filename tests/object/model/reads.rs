//! The model's side of the interface.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use esker::{CollectionName, Error, ObjectName, Result, Transaction};

use super::data::BLOCK;
use super::{Collection, ModelStore, ops};
use crate::interface::{Bytes, Entries, ObjectInterface, OmapIterator, Stat, Statfs};

const TOTAL: u64 = 1 << 40;

impl ObjectInterface for ModelStore {
    fn create_new_collection(&mut self, _collection: CollectionName) {}

    fn open_collection(&mut self, collection: CollectionName) -> bool {
        self.collection_exists(collection)
    }

    fn queue_transactions(
        &mut self,
        _collection: CollectionName,
        transactions: Vec<Transaction<'_>>,
    ) -> Result<()> {
        let mut state = self.state.clone();
        ops::run(&mut state, &transactions)?;
        self.state = state;
        Ok(())
    }

    fn remount(&mut self) {}

    fn check(&mut self) -> u64 {
        0
    }

    fn list_collections(&self) -> Vec<CollectionName> {
        self.state.keys().copied().collect()
    }

    fn collection_exists(&self, collection: CollectionName) -> bool {
        self.state.contains_key(&collection)
    }

    fn collection_bits(&self, collection: CollectionName) -> Result<u32> {
        Ok(self.collection(collection)?.bits)
    }

    fn collection_empty(&self, collection: CollectionName) -> Result<bool> {
        Ok(self.collection(collection)?.objects.is_empty())
    }

    fn collection_list(
        &self,
        collection: CollectionName,
        start: &ObjectName,
        end: &ObjectName,
        max: usize,
    ) -> Result<(Vec<ObjectName>, ObjectName)> {
        let objects = &self.collection(collection)?.objects;
        let mut within = objects
            .keys()
            .map(AsRef::as_ref)
            .filter(|name: &&ObjectName| *name >= start && *name < end);
        let listed = within.by_ref().take(max).cloned().collect();
        Ok((listed, within.next().unwrap_or(end).clone()))
    }

    fn exists(&self, collection: CollectionName, object: &ObjectName) -> bool {
        self.object(collection, object).is_ok()
    }

    fn stat(&self, collection: CollectionName, object: &ObjectName) -> Result<Stat> {
        let size = self.object(collection, object)?.data.size;
        Ok(Stat {
            size,
            block_bytes: BLOCK,
            blocks: size.div_ceil(BLOCK),
        })
    }

    fn read(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Bytes> {
        let data = &self.object(collection, object)?.data;
        let whole = (offset, len) == (0, 0);
        Ok(data.read(offset, if whole { data.size } else { len }))
    }

    fn readv(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        ranges: &[(u64, u64)],
    ) -> Result<Bytes> {
        let data = &self.object(collection, object)?.data;
        let parts = ranges.iter().map(|&(offset, len)| data.read(offset, len));
        Ok(parts.collect::<Vec<_>>().concat())
    }

    fn fiemap(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Vec<(u64, u64)>> {
        Ok(self.object(collection, object)?.data.extents(offset, len))
    }

    fn getattr(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        attr: &[u8],
    ) -> Result<Bytes> {
        let attrs = &self.object(collection, object)?.attrs;
        attrs.get(attr).cloned().ok_or(Error::NoAttribute)
    }

    fn getattrs(&self, collection: CollectionName, object: &ObjectName) -> Result<Entries> {
        Ok(self.object(collection, object)?.attrs.clone())
    }

    fn omap_get(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Result<(Bytes, Entries)> {
        let object = self.object(collection, object)?;
        Ok((object.header.clone(), object.omap.clone()))
    }

    fn omap_get_header(&self, collection: CollectionName, object: &ObjectName) -> Result<Bytes> {
        Ok(self.object(collection, object)?.header.clone())
    }

    fn omap_get_keys(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Result<BTreeSet<Bytes>> {
        Ok(self
            .object(collection, object)?
            .omap
            .keys()
            .cloned()
            .collect())
    }

    fn omap_get_values(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        keys: &[&[u8]],
    ) -> Result<Entries> {
        let omap = &self.object(collection, object)?.omap;
        let found = keys.iter().filter_map(|&key| omap.get_key_value(key));
        Ok(found.map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn omap_check_keys(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        keys: &[&[u8]],
    ) -> Result<BTreeSet<Bytes>> {
        let found = self.omap_get_values(collection, object, keys)?;
        Ok(found.into_keys().collect())
    }

    fn omap_iterator(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Option<Box<dyn OmapIterator + '_>> {
        let object = self.object(collection, object).ok()?;
        Some(Box::new(Cursor {
            omap: &object.omap,
            at: None,
        }))
    }

    fn statfs(&self) -> Statfs {
        let of_all = statfs(self.state.values(), |_| true);
        Statfs {
            total: TOTAL,
            available: TOTAL - of_all.allocated - of_all.omap_allocated,
            ..of_all
        }
    }

    fn pool_statfs(&self, pool: i64) -> Statfs {
        statfs(self.state.values(), |name| {
            name.pool() == pool || Some(name.pool()) == (-2_i64).checked_sub(pool)
        })
    }
}

fn statfs<'s>(
    collections: impl Iterator<Item = &'s Arc<Collection>>,
    counts: impl Fn(&ObjectName) -> bool,
) -> Statfs {
    let objects = collections.flat_map(|collection| &collection.objects);
    let counted = objects.filter(|(name, _)| counts(name));
    let mut places = HashSet::new();
    let mut sum = Statfs::default();
    for (_, object) in counted {
        let entries = object.omap.iter();
        let omap: usize = entries.map(|(key, value)| key.len() + value.len()).sum();
        places.extend(object.data.places());
        sum.data_stored += object.data.stored();
        sum.omap_allocated += (omap + object.header.len()) as u64;
    }
    sum.allocated = places.len() as u64 * BLOCK;
    sum
}

struct Cursor<'s> {
    omap: &'s Entries,
    at: Option<(&'s Bytes, &'s Bytes)>,
}

impl OmapIterator for Cursor<'_> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = self.omap.iter().next();
        Ok(())
    }

    fn lower_bound(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.omap.range(key.to_vec()..).next();
        Ok(())
    }

    fn upper_bound(&mut self, key: &[u8]) -> Result<()> {
        let mut from = self.omap.range(key.to_vec()..);
        self.at = from.find(|(found, _)| found.as_slice() > key);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let at = self.key();
        self.upper_bound(&at)
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> Bytes {
        self.at.expect("no entry").0.clone()
    }

    fn value(&self) -> Bytes {
        self.at.expect("no entry").1.clone()
    }
}
