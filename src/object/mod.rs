//! The object layer: Ceph's `ObjectStore` semantics on the log (`design/objects.md`).
//!
//! The vocabulary comes first: names of objects and collections, and transactions. They do
//! no I/O and know nothing of the log.

mod bytes;
mod collection;
mod name;
mod op;
mod transaction;

pub use bytes::IntoBytes;
pub use collection::CollectionName;
pub use name::{NO_GENERATION, NO_SHARD, NO_SNAP, ObjectName, SNAPDIR};
pub use op::{
    ATTR_NAME_BYTES_MAX, ATTR_VALUE_BYTES_MAX, NAME_BYTES_MAX, OBJECT_BYTES_MAX,
    OMAP_KEY_BYTES_MAX, OMAP_VALUE_BYTES_MAX, Op,
};
pub use transaction::Transaction;
