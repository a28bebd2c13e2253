//! The interface of an object store as Ceph knows it, in its blocking form.

use std::collections::{BTreeMap, BTreeSet};

use esker::{CollectionName, ObjectName, Result, Transaction};

pub type Bytes = Vec<u8>;
pub type Entries = BTreeMap<Bytes, Bytes>;

/// What `stat` says of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub size: u64,
    pub block_bytes: u64,
    /// Blocks of `block_bytes` that the size takes, holes included.
    pub blocks: u64,
}

/// What `statfs` and `pool_statfs` say, in bytes; a pool has no total, available or metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statfs {
    pub total: u64,
    pub available: u64,
    /// Bytes on media that object data takes.
    pub allocated: u64,
    /// Bytes of object data that are there to be read, without holes, clones counted.
    pub data_stored: u64,
    /// Bytes of omap keys and values.
    pub omap_allocated: u64,
    pub internal_metadata: u64,
}

/// A store under test.
///
/// Reads of an absent collection or object are `NoEntry`. A transaction that is refused
/// changes nothing.
pub trait ObjectInterface {
    /// Makes the handle of a collection that a transaction is about to create.
    fn create_new_collection(&mut self, collection: CollectionName);

    /// Opens the handle of a collection; false if there is none.
    fn open_collection(&mut self, collection: CollectionName) -> bool;

    /// Applies all transactions as one atomic unit and waits for the commit.
    fn queue_transactions(
        &mut self,
        collection: CollectionName,
        transactions: Vec<Transaction<'_>>,
    ) -> Result<()>;

    /// Queues several units without waiting in between, then waits for all.
    fn queue_many(
        &mut self,
        collection: CollectionName,
        units: Vec<Vec<Transaction<'_>>>,
    ) -> Vec<Result<()>> {
        units
            .into_iter()
            .map(|unit| self.queue_transactions(collection, unit))
            .collect()
    }

    /// Unmounts and mounts again; handles are opened anew.
    fn remount(&mut self);

    /// Runs the deep check and returns the number of errors.
    fn check(&mut self) -> u64;

    /// All collections, in any order.
    fn list_collections(&self) -> Vec<CollectionName>;

    fn collection_exists(&self, collection: CollectionName) -> bool;

    fn collection_bits(&self, collection: CollectionName) -> Result<u32>;

    fn collection_empty(&self, collection: CollectionName) -> Result<bool>;

    /// At most `max` objects from `start` to before `end`, sorted, and where to go on: the
    /// first that is left, or `end` if none is.
    fn collection_list(
        &self,
        collection: CollectionName,
        start: &ObjectName,
        end: &ObjectName,
        max: usize,
    ) -> Result<(Vec<ObjectName>, ObjectName)>;

    fn exists(&self, collection: CollectionName, object: &ObjectName) -> bool;

    fn stat(&self, collection: CollectionName, object: &ObjectName) -> Result<Stat>;

    /// Reads up to the end of the object; offset 0 and length 0 is the whole object.
    fn read(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Bytes>;

    /// Reads sorted, disjoint ranges of (offset, length), one behind the other.
    fn readv(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        ranges: &[(u64, u64)],
    ) -> Result<Bytes>;

    /// Extents (offset, length), sorted, that cover all data within the range that may be
    /// other than zero; none begins before the range.
    fn fiemap(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        offset: u64,
        len: u64,
    ) -> Result<Vec<(u64, u64)>>;

    /// `NoAttribute` if the object has none of this name.
    fn getattr(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        attr: &[u8],
    ) -> Result<Bytes>;

    fn getattrs(&self, collection: CollectionName, object: &ObjectName) -> Result<Entries>;

    /// The header, empty if there is none, and all entries.
    fn omap_get(&self, collection: CollectionName, object: &ObjectName)
    -> Result<(Bytes, Entries)>;

    fn omap_get_header(&self, collection: CollectionName, object: &ObjectName) -> Result<Bytes>;

    fn omap_get_keys(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Result<BTreeSet<Bytes>>;

    /// The entries of those of the keys that are there.
    fn omap_get_values(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        keys: &[&[u8]],
    ) -> Result<Entries>;

    /// Those of the keys that are there.
    fn omap_check_keys(
        &self,
        collection: CollectionName,
        object: &ObjectName,
        keys: &[&[u8]],
    ) -> Result<BTreeSet<Bytes>>;

    /// An iterator that is not valid before its first seek; none if the object is absent.
    fn omap_iterator(
        &self,
        collection: CollectionName,
        object: &ObjectName,
    ) -> Option<Box<dyn OmapIterator + '_>>;

    fn statfs(&self) -> Statfs;

    fn pool_statfs(&self, pool: i64) -> Statfs;
}

/// A cursor over the omap of one object, in the order of the keys' bytes.
pub trait OmapIterator {
    fn seek_to_first(&mut self) -> Result<()>;

    /// To the first key that is not below this one.
    fn lower_bound(&mut self, key: &[u8]) -> Result<()>;

    /// To the first key above this one.
    fn upper_bound(&mut self, key: &[u8]) -> Result<()>;

    /// To the next key; only while it is valid.
    fn next(&mut self) -> Result<()>;

    /// Whether it is at an entry.
    fn valid(&self) -> bool;

    fn key(&self) -> Bytes;

    fn value(&self) -> Bytes;
}
