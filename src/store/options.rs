//! What a caller chooses when creating or opening a store.

/// When a write call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum Durability {
    /// When the write survives power loss.
    #[default]
    Committed,
    /// When the write is readable; it is on flash within [`Options::BUFFERED_MS`]
    /// milliseconds and before [`Options::BUFFERED_BYTES`] more bytes are written.
    Buffered,
}

/// Options of a store. The defaults suit a store that shares its machine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Size of a new store in bytes; a block device's own size when `None`.
    pub capacity: Option<u64>,
    /// Segment size in bytes, a power of two; chosen from the capacity when `None`.
    pub segment_bytes: Option<u64>,
    /// Bytes of DRAM for the record cache.
    pub cache_bytes: u64,
    /// Bound in bytes on index and cache together; writes that would pass it get
    /// `NoSpace`.
    pub memory_limit: Option<u64>,
    /// When write calls return.
    pub durability: Durability,
    /// Opens without writing a byte; write calls get `ReadOnly`.
    pub read_only: bool,
    /// Bytes per second of free segments given back to the device; 0 turns it off.
    pub discard_bytes_per_second: u64,
    /// Bytes of log between two checkpoints of the same partition; chosen from the index
    /// size when `None`.
    pub checkpoint_interval_bytes: Option<u64>,
    /// Uses `O_DIRECT` where the file system allows.
    pub direct_io: bool,
    /// Uses io_uring where the kernel allows.
    pub io_uring: bool,
    /// Where seqnos, groups, epochs, generations and the clock of a new store begin: at
    /// least 1. For tests of large numbers.
    #[doc(hidden)]
    pub first_number: u64,
}

impl Options {
    /// A buffered write is on flash after at most this many milliseconds of an idle device.
    pub const BUFFERED_MS: u64 = 200;
    /// A buffered write is on flash before this many further bytes are accepted.
    pub const BUFFERED_BYTES: u64 = 8 << 20;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity: None,
            segment_bytes: None,
            cache_bytes: 64 << 20,
            memory_limit: None,
            durability: Durability::Committed,
            read_only: false,
            discard_bytes_per_second: 256 << 20,
            checkpoint_interval_bytes: None,
            direct_io: true,
            io_uring: true,
            first_number: 1,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        impl Options { $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, value: $type) -> Self {
                self.$name = value.into();
                self
            }
        )* }
    };
}

setters! {
    /// Sets the size of a new store in bytes.
    capacity: u64,
    /// Sets the segment size in bytes.
    segment_bytes: u64,
    /// Sets the record cache's size in bytes.
    cache_bytes: u64,
    /// Sets the bound on index and cache in bytes.
    memory_limit: u64,
    /// Sets when write calls return.
    durability: Durability,
    /// Opens without writing.
    read_only: bool,
    /// Sets the discard rate in bytes per second; 0 turns discards off.
    discard_bytes_per_second: u64,
    /// Sets the bytes of log between checkpoints.
    checkpoint_interval_bytes: u64,
    /// Uses or avoids `O_DIRECT`.
    direct_io: bool,
    /// Uses or avoids io_uring.
    io_uring: bool,
}
