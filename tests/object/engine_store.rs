//! The engine behind the interface, on a device in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use esker::device::SimulatedDevice;
use esker::{CollectionName, Error, Extent, ObjectName, ObjectStore, Options, Result, Transaction};

use crate::interface::{Bytes, Entries, ObjectInterface, OmapIterator, Stat, Statfs};

/// A store of its own on a device of its own.
pub struct EngineStore {
    device: Arc<SimulatedDevice>,
    options: Options,
    store: Option<ObjectStore>,
}

impl EngineStore {
    pub fn new() -> Self {
        Self::on(512, 512 << 20)
    }

    /// With blocks of 4096 bytes.
    pub fn with_large_blocks() -> Self {
        Self::on(4096, 512 << 20)
    }

    fn on(block_bytes: u32, capacity: u64) -> Self {
        let device = Arc::new(SimulatedDevice::new(capacity, block_bytes));
        let options = Options::default();
        let store = ObjectStore::create_on(device.clone(), &options).expect("a new store");
        Self {
            device,
            options,
            store: Some(store),
        }
    }

    /// A new store on a device.
    pub fn create(device: &Arc<SimulatedDevice>, options: &Options) -> Result<Self> {
        let store = ObjectStore::create_on(device.clone(), options)?;
        Ok(Self::holding(device, options, store))
    }

    /// The store that is on a device.
    pub fn open(device: &Arc<SimulatedDevice>, options: &Options) -> Result<Self> {
        let store = ObjectStore::open_on(device.clone(), options)?;
        Ok(Self::holding(device, options, store))
    }

    fn holding(device: &Arc<SimulatedDevice>, options: &Options, store: ObjectStore) -> Self {
        Self {
            device: device.clone(),
            options: options.clone(),
            store: Some(store),
        }
    }

    /// The engine itself.
    pub fn store(&self) -> &ObjectStore {
        self.store.as_ref().expect("an open store")
    }

    /// Closes the store.
    pub fn close(mut self) -> Result<()> {
        self.store.take().expect("an open store").close()
    }

    /// Ends the store as a kill would: nothing more reaches the device.
    pub fn abandon(self) {
        self.device.set_op_limit(0);
        drop(self);
    }

    fn handle(&self, collection: CollectionName) -> Result<esker::Collection> {
        let found = self.store().open_collection(&collection);
        found.ok_or(Error::NoEntry("collection"))
    }
}

impl ObjectInterface for EngineStore {
    fn create_new_collection(&mut self, collection: CollectionName) {
        let _ = self.store().create_new_collection(collection);
    }

    fn open_collection(&mut self, collection: CollectionName) -> bool {
        self.store().open_collection(&collection).is_some()
    }

    fn queue_transactions(
        &mut self,
        collection: CollectionName,
        transactions: Vec<Transaction<'_>>,
    ) -> Result<()> {
        let handle = self.store().create_new_collection(collection);
        self.store().apply_transactions(&handle, &transactions)
    }

    fn queue_many(
        &mut self,
        collection: CollectionName,
        units: Vec<Vec<Transaction<'_>>>,
    ) -> Vec<Result<()>> {
        let handle = self.store().create_new_collection(collection);
        let (sender, receiver) = mpsc::channel();
        let mut results = Vec::new();
        let mut queued = 0_usize;
        for unit in units {
            let (sender, number) = (sender.clone(), queued);
            let on_commit = Box::new(move |result: Result<()>| {
                sender.send((number, result)).expect("the test waits");
            });
            let result = self
                .store()
                .queue_transactions(&handle, &unit, None, Some(on_commit));
            queued += usize::from(result.is_ok());
            results.push(result);
        }
        for expected in 0..queued {
            let (number, result) = receiver.recv().expect("a commit");
            assert_eq!(number, expected, "commits in the order of submission");
            result.expect("a commit");
        }
        results
    }

    fn remount(&mut self) {
        self.store
            .take()
            .expect("an open store")
            .close()
            .expect("a clean close");
        let store = ObjectStore::open_on(self.device.clone(), &self.options);
        self.store = Some(store.expect("an open"));
    }

    fn check(&mut self) -> u64 {
        let report = self.store().check(true);
        for line in report.lines() {
            println!("{line}");
        }
        report.errors
    }

    fn list_collections(&self) -> Vec<CollectionName> {
        self.store().list_collections()
    }

    fn collection_exists(&self, collection: CollectionName) -> bool {
        self.store().collection_exists(&collection)
    }

    fn collection_bits(&self, collection: CollectionName) -> Result<u32> {
        self.store().collection_bits(&self.handle(collection)?)
    }

    fn collection_empty(&self, collection: CollectionName) -> Result<bool> {
        self.store().collection_empty(&self.handle(collection)?)
    }

    fn collection_list(
        &self,
        collection: CollectionName,
        start: &ObjectName,
        end: &ObjectName,
        max: usize,
    ) -> Result<(Vec<ObjectName>, ObjectName)> {
        let page = self
            .store()
            .collection_list(&self.handle(collection)?, start, end, max)?;
        Ok((page.objects, page.next))
    }

    fn exists(&self, collection: CollectionName, object: &ObjectName) -> bool {
        let handle = self.handle(collection);
        handle.is_ok_and(|handle| self.store().exists(&handle, object).unwrap_or(false))
    }

    fn stat(&self, collection: CollectionName, object: &ObjectName) -> Result<Stat> {
        let stat = self.store().stat(&self.handle(collection)?, object)?;
        Ok(Stat {
            size: stat.size,
            block_bytes: stat.block_bytes,
            blocks: stat.size.div_ceil(stat.block_bytes),
        })
    }

    fn read(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Bytes> {
        self.store()
            .read(&self.handle(collection)?, object, offset, len)
    }

    fn readv(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        ranges: &[(u64, u64)],
    ) -> Result<Bytes> {
        let ranges: Vec<Extent> = ranges
            .iter()
            .map(|&(offset, len)| Extent { offset, len })
            .collect();
        self.store()
            .readv(&self.handle(collection)?, object, &ranges)
    }

    fn fiemap(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Vec<(u64, u64)>> {
        let found = self
            .store()
            .fiemap(&self.handle(collection)?, object, offset, len)?;
        Ok(found
            .iter()
            .map(|extent| (extent.offset, extent.len))
            .collect())
    }

    fn getattr(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        attr: &[u8],
    ) -> Result<Bytes> {
        self.store()
            .getattr(&self.handle(collection)?, object, attr)
    }

    fn getattrs(&self, collection: CollectionName, object: &ObjectName) -> Result<Entries> {
        self.store().getattrs(&self.handle(collection)?, object)
    }

    fn omap_get(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Result<(Bytes, Entries)> {
        self.store().omap_get(&self.handle(collection)?, object)
    }

    fn omap_get_header(&self, collection: CollectionName, object: &ObjectName) -> Result<Bytes> {
        self.store()
            .omap_get_header(&self.handle(collection)?, object)
    }

    fn omap_get_keys(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Result<BTreeSet<Bytes>> {
        let keys = self
            .store()
            .omap_get_keys(&self.handle(collection)?, object)?;
        Ok(keys.into_iter().collect())
    }

    fn omap_get_values(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        keys: &[&[u8]],
    ) -> Result<Entries> {
        let keys = keys.iter().copied();
        self.store()
            .omap_get_values(&self.handle(collection)?, object, keys)
    }

    fn omap_check_keys(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        keys: &[&[u8]],
    ) -> Result<BTreeSet<Bytes>> {
        let keys = keys.iter().copied();
        let found = self
            .store()
            .omap_check_keys(&self.handle(collection)?, object, keys)?;
        Ok(found.into_iter().collect())
    }

    fn omap_iterator(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Option<Box<dyn OmapIterator + '_>> {
        let handle = self.handle(collection).ok()?;
        let iterator = self.store().omap_iterator(&handle, object).ok()?;
        Some(Box::new(iterator))
    }

    fn statfs(&self) -> Statfs {
        convert(self.store().statfs())
    }

    fn pool_statfs(&self, pool: i64) -> Statfs {
        Statfs {
            total: 0,
            available: 0,
            internal_metadata: 0,
            ..convert(self.store().pool_statfs(pool))
        }
    }
}

fn convert(statfs: esker::Statfs) -> Statfs {
    Statfs {
        total: statfs.total,
        available: statfs.available,
        allocated: statfs.allocated,
        data_stored: statfs.data_stored,
        omap_allocated: statfs.omap_allocated,
        internal_metadata: statfs.internal_metadata,
    }
}

impl OmapIterator for esker::OmapIterator<'_> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_to_first();
        status(self)
    }

    fn lower_bound(&mut self, key: &[u8]) -> Result<()> {
        self.lower_bound(key);
        status(self)
    }

    fn upper_bound(&mut self, key: &[u8]) -> Result<()> {
        self.upper_bound(key);
        status(self)
    }

    fn next(&mut self) -> Result<()> {
        self.next();
        status(self)
    }

    fn valid(&self) -> bool {
        self.valid()
    }

    fn key(&self) -> Bytes {
        self.key().to_vec()
    }

    fn value(&self) -> Bytes {
        self.value().to_vec()
    }
}

fn status(iterator: &esker::OmapIterator<'_>) -> Result<()> {
    assert!(iterator.status().is_ok(), "an omap that can be read");
    Ok(())
}
