//! Bytes on media: encoding, decoding and checking. No I/O, nothing of the engine.
//!
//! `design/format.md` is the one description of the layout; this module cites its sections
//! and asserts sizes at compile time. Every parse function takes untrusted bytes and
//! returns [`Invalid`] instead of panicking; the layer that knows where the bytes came
//! from adds the offset.

mod address;
mod hash;

pub use address::{
    ADDRESS_BITS, Address, Generation, LENGTH_BITS, LengthCode, SegmentId, Seqno, UNIT_BYTES_MIN,
};
pub use hash::{KEY_KINDS, KeyHash, KeyHasher};

/// Why bytes from media were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The bytes end before the structure does.
    #[error("truncated")]
    Truncated,
    /// The magic number is another.
    #[error("wrong magic number")]
    Magic,
    /// The checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
    /// A field is out of its range.
    #[error("field out of range: {0}")]
    Field(&'static str),
    /// Acknowledged data that should be there is not.
    #[error("missing: {0}")]
    Missing(&'static str),
}
