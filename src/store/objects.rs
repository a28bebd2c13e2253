//! The object store: Ceph's `ObjectStore` calls on a store.

mod commit;
mod omap_iterator;
mod statfs;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use crate::device::Device;
use crate::object::{CollectionName, ObjectId, ObjectName, Page, Seen, Slot, Transaction, listing};
use crate::sync::{Arc, Mutex, SharedArc};
use crate::{Error, Options, Result};

use super::Store;

use commit::CommitState;

pub use super::completions::Callback;
pub use commit::Commit;
pub use omap_iterator::OmapIterator;
pub use statfs::Statfs;

/// Names or keys, and values, in order.
pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes accepted and not yet written beyond which a call waits.
const UNWRITTEN_BYTES_MAX: u64 = 64 << 20;
/// A collection of an [`ObjectStore`], existing or about to be created.
#[derive(Clone)]
pub struct Collection {
    slot: SharedArc<Slot>,
}

impl Collection {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> CollectionName {
        self.slot.name
    }
}

/// Size of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    /// Length in bytes.
    pub size: u64,
    /// Bytes that are mapped, shared ones too.
    pub stored_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// A range of an object that has data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Ceph's `ObjectStore` on a [`Store`]: objects with data, attributes and omap, in
/// collections, changed by transactions. Key-value entries may live beside them.
pub struct ObjectStore {
    store: Store,
}

impl ObjectStore {
    /// Makes a new store; see [`Store::create`].
    ///
    /// # Errors
    /// As for [`Store::create`].
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Store::create(path, options).map(Self::on)
    }

    /// Opens a store; see [`Store::open`].
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Store::open(path, options).map(Self::on)
    }

    /// Makes a new store on a device of the caller's.
    ///
    /// # Errors
    /// As for [`Store::create`].
    pub fn create_on(device: SharedArc<dyn Device>, options: &Options) -> Result<Self> {
        Store::create_on(device, options).map(Self::on)
    }

    /// Opens the store on a device of the caller's.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_on(device: SharedArc<dyn Device>, options: &Options) -> Result<Self> {
        Store::open_on(device, options).map(Self::on)
    }

    /// The objects of an open store.
    #[must_use]
    pub fn on(store: Store) -> Self {
        Self { store }
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Stops in order; see [`Store::close`].
    ///
    /// # Errors
    /// As for [`Store::close`].
    pub fn close(self) -> Result<()> {
        self.store.close()
    }

    fn inner(&self) -> &super::Inner {
        &self.store.inner
    }

    fn objects(&self) -> &crate::object::Objects {
        &self.inner().owners.objects
    }

    // Collections.

    /// A handle of a collection that a transaction will create.
    #[must_use]
    pub fn create_new_collection(&self, name: CollectionName) -> Collection {
        let objects = self.objects();
        let slot = objects.registry.slot(&objects.table, name);
        Collection { slot }
    }

    /// A handle of a collection; `None` when there is none.
    #[must_use]
    pub fn open_collection(&self, name: &CollectionName) -> Option<Collection> {
        let slot = self.objects().registry.find(name)?;
        Some(Collection { slot })
    }

    /// All collections, in order.
    #[must_use]
    pub fn list_collections(&self) -> Vec<CollectionName> {
        let existing = self.objects().registry.existing();
        existing.iter().map(|slot| slot.name).collect()
    }

    /// Whether there is a collection.
    #[must_use]
    pub fn collection_exists(&self, name: &CollectionName) -> bool {
        self.objects().registry.find(name).is_some()
    }

    /// Whether a collection has no objects.
    ///
    /// # Errors
    /// `NoEntry` without the collection.
    pub fn collection_empty(&self, collection: &Collection) -> Result<bool> {
        Ok(self
            .collection_list(collection, &ObjectName::min(), &ObjectName::max(), 1)?
            .objects
            .is_empty())
    }

    /// Low bits of the hash that the objects of a collection share.
    ///
    /// # Errors
    /// `NoEntry` without the collection.
    pub fn collection_bits(&self, collection: &Collection) -> Result<u32> {
        existing(collection)?;
        Ok(collection.slot.bits())
    }

    /// At most `max` objects from `start` to before `end`, in order.
    ///
    /// # Errors
    /// `NoEntry` without the collection.
    pub fn collection_list(
        &self,
        collection: &Collection,
        start: &ObjectName,
        end: &ObjectName,
        max: usize,
    ) -> Result<Page> {
        existing(collection)?;
        Ok(listing::list(&collection.slot, start, end, max))
    }

    // Transactions.

    /// Applies transactions as one. Their effects can be read when it returns; `on_applied`
    /// and `on_commit` are called by a thread of the store's, in the order of submission of
    /// each collection, when the effects can be read and when they survive power loss.
    /// `collection` orders; the operations may concern others too.
    ///
    /// # Errors
    /// What is wrong with the transactions, before any effect: then nothing is called.
    pub fn queue_transactions(
        &self,
        collection: &Collection,
        transactions: &[Transaction<'_>],
        on_applied: Option<Callback>,
        on_commit: Option<Callback>,
    ) -> Result<()> {
        self.submit(collection, transactions, on_applied, on_commit)?;
        // It has been applied, so a device that failed meanwhile is told by the callback.
        let _ = self.inner().log.throttle(UNWRITTEN_BYTES_MAX);
        Ok(())
    }

    /// Applies transactions as one and returns when they survive power loss.
    ///
    /// # Errors
    /// As for [`ObjectStore::queue_transactions`]; `Io`, `Poisoned`.
    pub fn apply_transactions(
        &self,
        collection: &Collection,
        transactions: &[Transaction<'_>],
    ) -> Result<()> {
        let seqno = self.submit(collection, transactions, None, None)?;
        self.inner().log.commit_through(seqno)
    }

    /// Applies transactions as one; the future is ready when they survive power loss.
    ///
    /// # Errors
    /// As for [`ObjectStore::queue_transactions`].
    pub fn commit(
        &self,
        collection: &Collection,
        transactions: &[Transaction<'_>],
    ) -> Result<Commit> {
        let state = Arc::new(Mutex::new(CommitState::default()));
        let shared = state.clone();
        let on_commit: Callback = Box::new(move |result| {
            let waker = {
                let mut state = shared.lock();
                state.result = Some(result);
                state.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        self.queue_transactions(collection, transactions, None, Some(on_commit))?;
        Ok(Commit { state })
    }

    fn submit(
        &self,
        collection: &Collection,
        transactions: &[Transaction<'_>],
        on_applied: Option<Callback>,
        on_commit: Option<Callback>,
    ) -> Result<u64> {
        let inner = self.inner();
        inner.log.check_writable()?;
        let objects = self.objects();
        objects.set_other_image_bytes(crate::log::Owner::image_bytes(&inner.owners.kv));
        objects.submit(&inner.log, &collection.slot, transactions, |seqno| {
            inner.completions.add(seqno, on_applied, on_commit);
        })
    }

    /// Returns when everything queued on the collection can be read, and its callbacks of
    /// that have been called.
    pub fn flush(&self, _collection: &Collection) {
        self.inner().completions.drain();
    }

    /// True when everything queued on the collection is committed: then `callback` is not
    /// called. Else it is called when that is so.
    pub fn flush_commit(&self, _collection: &Collection, callback: Callback) -> bool {
        let inner = self.inner();
        let last = inner.log.appender().next_seqno() - 1;
        if inner.log.durable() >= last && inner.completions.is_idle() {
            return true;
        }
        inner.completions.add(last, None, Some(callback));
        false
    }

    // Objects.

    fn id(collection: &Collection, object: &ObjectName) -> Result<ObjectId> {
        existing(collection)?;
        let found = collection.slot.space.find(&object.sort_key());
        found.ok_or(Error::NoEntry("object"))
    }

    /// Calls with an object's id and node.
    fn with_node<T>(
        &self,
        collection: &Collection,
        object: &ObjectName,
        call: impl Fn(ObjectId, &crate::object::Node) -> T,
    ) -> Result<T> {
        let name = object.sort_key();
        loop {
            existing(collection)?;
            let space = &collection.slot.space;
            let (id, renames) = space.find_at(&name).ok_or(Error::NoEntry("object"))?;
            let shard = self.objects().table.read(id.family);
            if let Some(node) = shard.get(id)
                && space.still_leads(&name, id, renames)
            {
                return Ok(call(id, node));
            }
            // It was removed or renamed since; its name is gone or leads elsewhere now.
        }
    }

    /// Calls with an object's id until it is the same before and after: what the call found
    /// is not of an object that went meanwhile.
    fn with_id<T>(
        &self,
        collection: &Collection,
        object: &ObjectName,
        mut call: impl FnMut(ObjectId) -> Result<T>,
    ) -> Result<T> {
        let mut id = self.with_node(collection, object, |id, _| id)?;
        loop {
            let found = call(id)?;
            let now = self.with_node(collection, object, |id, _| id)?;
            if id == now {
                return Ok(found);
            }
            id = now;
        }
    }

    /// Whether there is an object.
    ///
    /// # Errors
    /// `NoEntry` without the collection.
    pub fn exists(&self, collection: &Collection, object: &ObjectName) -> Result<bool> {
        match Self::id(collection, object) {
            Ok(_) => Ok(true),
            Err(Error::NoEntry("object")) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// The size of an object.
    ///
    /// # Errors
    /// `NoEntry`.
    pub fn stat(&self, collection: &Collection, object: &ObjectName) -> Result<ObjectStat> {
        self.with_node(collection, object, |_, node| ObjectStat {
            size: node.bytes,
            stored_bytes: node.stored_bytes,
            block_bytes: 4096,
        })
    }

    /// Bytes from `offset` on, as far as the object goes; all of it for offset 0 and length
    /// 0. What was never written is zero.
    ///
    /// # Errors
    /// `NoEntry`, `Io`, `Corrupt` when a block is damaged.
    pub fn read(
        &self,
        collection: &Collection,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        loop {
            let whole = offset == 0 && len == 0;
            let end = if whole {
                u64::MAX
            } else {
                offset.saturating_add(len)
            };
            let seen = self.with_node(collection, object, |id, node| {
                Seen::of(id, node, offset, end)
            })?;
            data.resize(end.min(seen.bytes).saturating_sub(offset) as usize, 0);
            if self
                .objects()
                .read_seen(&self.inner().log, seen, offset, &mut data)?
            {
                return Ok(data);
            }
        }
    }

    /// As [`ObjectStore::read`], into a buffer of the caller's; returns how many bytes.
    ///
    /// # Errors
    /// As for [`ObjectStore::read`].
    pub fn read_into(
        &self,
        collection: &Collection,
        object: &ObjectName,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        loop {
            let end = offset.saturating_add(into.len() as u64);
            let seen = self.with_node(collection, object, |id, node| {
                Seen::of(id, node, offset, end)
            })?;
            let len = end.min(seen.bytes).saturating_sub(offset) as usize;
            if self
                .objects()
                .read_seen(&self.inner().log, seen, offset, &mut into[..len])?
            {
                return Ok(len);
            }
        }
    }

    /// The bytes of ranges, one behind the other, each as [`ObjectStore::read`] clips it.
    ///
    /// # Errors
    /// As for [`ObjectStore::read`].
    pub fn readv(
        &self,
        collection: &Collection,
        object: &ObjectName,
        ranges: &[Extent],
    ) -> Result<Vec<u8>> {
        loop {
            if let Some(all) = self.try_readv(collection, object, ranges)? {
                return Ok(all);
            }
        }
    }

    /// As [`ObjectStore::readv`]; `None` when the object's size changed meanwhile.
    fn try_readv(
        &self,
        collection: &Collection,
        object: &ObjectName,
        ranges: &[Extent],
    ) -> Result<Option<Vec<u8>>> {
        let bytes = self.with_node(collection, object, |_, node| node.bytes)?;
        let mut all = Vec::new();
        // Ranges near one another are read at once: they may be many and short.
        let mut at = 0;
        while let Some(first) = ranges.get(at) {
            let start = first.offset.min(bytes);
            let mut end = first.offset.saturating_add(first.len).min(bytes).max(start);
            let mut count = 1;
            while let Some(next) = ranges.get(at + count) {
                let next_end = next.offset.saturating_add(next.len).min(bytes);
                let is_near = next.offset >= end && next.offset - end <= 4096;
                if !is_near || next_end.saturating_sub(start) > (4 << 20) {
                    break;
                }
                end = end.max(next_end);
                count += 1;
            }
            let mut data = vec![0; (end - start) as usize];
            let seen = self.with_node(collection, object, |id, node| {
                Seen::of(id, node, start, end)
            })?;
            let is_same = seen.bytes == bytes;
            if !is_same
                || !self
                    .objects()
                    .read_seen(&self.inner().log, seen, start, &mut data)?
            {
                return Ok(None);
            }
            for range in &ranges[at..at + count] {
                let from = range.offset.clamp(start, end) - start;
                let to = range.offset.saturating_add(range.len).clamp(start, end) - start;
                all.extend_from_slice(&data[from as usize..to as usize]);
            }
            at += count;
        }
        Ok(Some(all))
    }

    /// The ranges of an object, within a window, that have data. Never misses data; may call
    /// zeros that were written data.
    ///
    /// # Errors
    /// `NoEntry`.
    pub fn fiemap(
        &self,
        collection: &Collection,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Extent>> {
        self.with_node(collection, object, |_, node| {
            let end = offset.saturating_add(len).min(node.bytes);
            let mut found: Vec<Extent> = Vec::new();
            if offset >= end {
                return found;
            }
            let first = (offset / 4096) as u32;
            for extent in node.extents.range(first, end.div_ceil(4096)) {
                let from = (u64::from(extent.first) * 4096).max(offset);
                let to = (extent.end() * 4096).min(end);
                match found.last_mut() {
                    Some(last) if last.offset + last.len == from => last.len += to - from,
                    _ => found.push(Extent {
                        offset: from,
                        len: to - from,
                    }),
                }
            }
            found
        })
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `NoEntry` without the object, `NoAttribute`.
    pub fn getattr(
        &self,
        collection: &Collection,
        object: &ObjectName,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        self.with_node(collection, object, |_, node| {
            node.attributes.get(name).map(<[u8]>::to_vec)
        })?
        .ok_or(Error::NoAttribute)
    }

    /// All attributes, in order.
    ///
    /// # Errors
    /// `NoEntry`.
    pub fn getattrs(&self, collection: &Collection, object: &ObjectName) -> Result<Entries> {
        self.with_node(collection, object, |_, node| {
            let pairs = node.attributes.iter();
            pairs
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect()
        })
    }

    // Omap.

    /// Header and all entries of an omap.
    ///
    /// # Errors
    /// `NoEntry`, `Io`, `Corrupt`.
    pub fn omap_get(
        &self,
        collection: &Collection,
        object: &ObjectName,
    ) -> Result<(Vec<u8>, Entries)> {
        self.with_id(collection, object, |id| {
            let header = self.omap_get_header(collection, object)?;
            let entries = self.objects().read_omap(&self.inner().log, id)?;
            Ok((header, entries.into_iter().collect()))
        })
    }

    /// The header of an omap, empty when there is none.
    ///
    /// # Errors
    /// `NoEntry`.
    pub fn omap_get_header(&self, collection: &Collection, object: &ObjectName) -> Result<Vec<u8>> {
        self.with_node(collection, object, |_, node| {
            let header = node.omap.as_ref().and_then(|omap| omap.header.as_deref());
            header.unwrap_or_default().to_vec()
        })
    }

    /// All keys of an omap, in order. Reads no flash.
    ///
    /// # Errors
    /// `NoEntry`.
    pub fn omap_get_keys(
        &self,
        collection: &Collection,
        object: &ObjectName,
    ) -> Result<Vec<Vec<u8>>> {
        self.with_node(collection, object, |_, node| {
            let mut keys = Vec::new();
            if let Some(omap) = &node.omap {
                keys.reserve(omap.keys.len());
                omap.keys
                    .visit((Bound::Unbounded, Bound::Unbounded), &mut |key, _| {
                        keys.push(key.to_vec());
                        true
                    });
            }
            keys
        })
    }

    /// The values of those keys that are there.
    ///
    /// # Errors
    /// `NoEntry`, `Io`, `Corrupt`.
    pub fn omap_get_values<'k>(
        &self,
        collection: &Collection,
        object: &ObjectName,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Entries> {
        let keys: Vec<&[u8]> = keys.into_iter().collect();
        self.with_id(collection, object, |id| {
            let keys = keys.iter().copied();
            let found = self.objects().read_omap_keys(&self.inner().log, id, keys)?;
            Ok(found.into_iter().collect())
        })
    }

    /// Those keys that are there. Reads no flash.
    ///
    /// # Errors
    /// `NoEntry`.
    pub fn omap_check_keys<'k>(
        &self,
        collection: &Collection,
        object: &ObjectName,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Vec<Vec<u8>>> {
        let keys: Vec<&[u8]> = keys.into_iter().collect();
        self.with_node(collection, object, |_, node| {
            let has = |key: &&&[u8]| {
                node.omap
                    .as_ref()
                    .is_some_and(|omap| omap.keys.get(key).is_some())
            };
            keys.iter().filter(has).map(|key| key.to_vec()).collect()
        })
    }

    /// An iterator over the entries of an omap; it is at none before it is told where to go.
    ///
    /// # Errors
    /// `NoEntry`.
    pub fn omap_iterator(
        &self,
        collection: &Collection,
        object: &ObjectName,
    ) -> Result<OmapIterator<'_>> {
        let id = self.with_node(collection, object, |id, _| id)?;
        Ok(OmapIterator::new(self, id))
    }
}

fn existing(collection: &Collection) -> Result<()> {
    if collection.slot.exists() {
        Ok(())
    } else {
        Err(Error::NoEntry("collection"))
    }
}
