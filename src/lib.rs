//! Esker: a storage engine for flash in which the log is the data.
//!
//! Every change is one record, appended once to a segment of flash. Everything needed to
//! find it again lives in DRAM and is rebuilt from a checkpoint plus a short replay. A
//! cleaner reclaims segments by age and rewrite rate. No LSM, no journal, no compaction.
//!
//! Start at [`Store`].

mod capi;
pub mod device;
mod error;
pub mod format;
mod index;
pub mod inspect;
mod kv;
mod log;
pub mod object;
mod store;
mod sync;

pub use error::{Error, Result};
pub use kv::{Batch, Cursor, Scan, Value};
pub use object::{CollectionName, ObjectName, Op, Page, Transaction};
pub use store::{
    Callback, ClassStats, Collection, Commit, Durability, Entries, Extent, ObjectStat, ObjectStore,
    OmapIterator, Options, SegmentCounts, Statfs, Stats, Store, Written,
};

/// The example of README.md, compiled and run with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
