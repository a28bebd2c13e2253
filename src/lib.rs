//! Esker: a storage engine for flash in which the log is the data.

pub mod device;
mod error;
pub mod format;
mod index;
mod kv;
mod log;
mod store;
mod sync;

pub use error::{Error, Result};
pub use store::{
    Batch, ClassStats, Durability, Options, SegmentCounts, Stats, Store, Value, Written,
};
