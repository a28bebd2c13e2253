//! Bytes on media: encoding, decoding and checking. No I/O, nothing of the engine.
//!
//! `design/format.md` is the one description of the layout; this module cites its sections
//! and asserts sizes at compile time. Every parse function takes untrusted bytes and
//! returns [`Invalid`] instead of panicking; the layer that knows where the bytes came
//! from adds the offset.

mod address;
pub(crate) mod bytes;
mod checkpoint;
mod extent;
mod frame;
mod geometry;
mod hash;
mod record;
mod segment;
mod superblock;

pub use address::{
    ADDRESS_BITS, Address, Generation, LENGTH_BITS, LengthCode, SegmentId, Seqno, UNIT_BYTES_MIN,
};
pub use hash::{KEY_KINDS, KeyHash, KeyHasher};

pub use checkpoint::{
    CheckpointSegment, ImageRef, PIECE_HEADER_BYTES, PartitionImages, Piece, PieceHeader,
    PieceKind, Root, RootRef,
};
pub use extent::{
    EXTENT_FIXED_BYTES, EXTENT_KEY_BYTES, ExtentRecord, LOGICAL_BLOCK_BYTES, Numbers, extent_key,
    extent_value, extent_value_bytes, payload_checksum, payload_checksums,
};
pub use frame::{Extent, FRAME_HEADER_BYTES, FrameHeader, first_record_offset};
pub use geometry::{
    BACK_BYTES, CAPACITY_MAX, FRONT_BYTES, Geometry, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SEGMENTS_MIN, SUPERBLOCK_BYTES,
};
pub use record::{
    DELTA_BITS, KEY_BYTES_MAX, Kind, RECORD_HEADER_BYTES, Record, RecordFields, content_hash,
    parse_record, read_verified_record, record_length,
};
pub use segment::{COMMIT_STREAM, Class, HEAD_COUNT, SEGMENT_HEADER_BYTES, Seed, SegmentHeader};
pub use superblock::{CUTS_MAX, Clean, Cut, Superblock};

/// Version of the format this build reads and writes.
pub const VERSION: u32 = 3;

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
