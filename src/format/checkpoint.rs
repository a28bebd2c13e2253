//! Checkpoint pieces (images of index partitions, and roots) and the root's content.
//!
//! ```text
//! 0   checksum   u64   xxh3 of bytes 8 to 48, seeded with place and life
//! 8   magic      u32
//! 12  kind       u32   1 image, 2 root
//! 16  partition  u32
//! 20  index      u32   this piece among those of its image
//! 24  sequence   u64   of the image or root
//! 32  body bytes u64
//! 40  body hash  u64   xxh3 of the body
//! 48  body
//! ```

use rkyv::{Archive, Deserialize, Serialize, rancor};
use xxhash_rust::xxh3::xxh3_64;

use super::bytes::{FieldWriter, u32_at, u64_at};
use super::{
    Class, Extent, Generation, Geometry, HEAD_COUNT, Invalid, Seed, SegmentHeader, SegmentId, Seqno,
};

const MAGIC: u32 = u32::from_le_bytes(*b"esck");

/// Bytes before the body of a piece.
pub const PIECE_HEADER_BYTES: usize = 48;

/// What a piece is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PieceKind {
    /// Image of a partition of the index.
    Image = 1,
    /// A root.
    Root = 2,
}

/// The head of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceHeader {
    /// What it is part of.
    pub kind: PieceKind,
    /// The partition of an image; 0 for a root.
    pub partition: u32,
    /// Its number among the pieces of its image, from 0.
    pub index: u32,
    /// Sequence of the image or root.
    pub sequence: u64,
}

impl PieceHeader {
    /// Writes the header before `body_bytes` of body that are already in `into`.
    pub fn encode(&self, seed: Seed, offset: u64, into: &mut [u8], body_bytes: usize) {
        let body_hash = xxh3_64(&into[PIECE_HEADER_BYTES..PIECE_HEADER_BYTES + body_bytes]);
        FieldWriter::new(into)
            .u64(0)
            .u32(MAGIC)
            .u32(self.kind as u32)
            .u32(self.partition)
            .u32(self.index)
            .u64(self.sequence)
            .u64(body_bytes as u64)
            .u64(body_hash);
        let checksum = seed.checksum(offset, &into[8..PIECE_HEADER_BYTES]);
        into[..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads and verifies a piece stored at `offset` in its segment; returns its body.
    ///
    /// # Errors
    /// What does not check.
    pub fn decode(bytes: &[u8], seed: Seed, offset: u64) -> Result<(Self, &[u8]), Invalid> {
        let covered = bytes.get(8..PIECE_HEADER_BYTES).ok_or(Invalid::Truncated)?;
        if u32_at(bytes, 8)? != MAGIC {
            return Err(Invalid::Magic);
        }
        if u64_at(bytes, 0)? != seed.checksum(offset, covered) {
            return Err(Invalid::Checksum);
        }
        let kind = match u32_at(bytes, 12)? {
            1 => PieceKind::Image,
            2 => PieceKind::Root,
            _ => return Err(Invalid::Field("piece kind")),
        };
        let body_bytes =
            usize::try_from(u64_at(bytes, 32)?).map_err(|_| Invalid::Field("piece length"))?;
        let body = bytes
            .get(PIECE_HEADER_BYTES..)
            .and_then(|tail| tail.get(..body_bytes))
            .ok_or(Invalid::Truncated)?;
        if u64_at(bytes, 40)? != xxh3_64(body) {
            return Err(Invalid::Checksum);
        }
        let header = Self {
            kind,
            partition: u32_at(bytes, 16)?,
            index: u32_at(bytes, 20)?,
            sequence: u64_at(bytes, 24)?,
        };
        Ok((header, body))
    }
}

/// Where a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Piece {
    /// The segment.
    pub segment: SegmentId,
    /// Byte offset in it.
    pub offset: u32,
    /// Length in bytes, header and body.
    pub bytes: u32,
}

/// Where a root is: each copy is one piece.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct RootRef {
    /// Sequence of the root.
    pub sequence: u64,
    /// Its copies, in different segments.
    pub copies: Vec<Piece>,
}

/// Image of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ImageRef {
    /// Sequence of the image.
    pub sequence: u64,
    /// The lowest horizon of its units: every older write is in the image.
    pub horizon: Seqno,
    /// Bytes of units in all pieces.
    pub bytes: u64,
    /// Its pieces in order.
    pub pieces: Vec<Piece>,
}

/// The two generations of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Archive, Serialize, Deserialize)]
pub struct PartitionImages {
    /// The newest image.
    pub newest: Option<ImageRef>,
    /// The one before it.
    pub older: Option<ImageRef>,
}

/// The life of a checkpoint segment: its header, should that be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Archive, Serialize, Deserialize)]
pub struct CheckpointSegment {
    /// The segment.
    pub segment: SegmentId,
    /// How often it has been reused.
    pub generation: Generation,
    /// The open-epoch it was taken into use in.
    pub epoch: u64,
    /// The next seqno when it was taken into use.
    pub opened_seqno: Seqno,
    /// The group commit that wrote its header.
    pub group: u64,
    /// Clock when it was taken into use.
    pub opened_clock: u64,
}

impl From<&SegmentHeader> for CheckpointSegment {
    fn from(header: &SegmentHeader) -> Self {
        Self {
            segment: header.segment,
            generation: header.generation,
            epoch: header.epoch,
            opened_seqno: header.opened_seqno,
            group: header.group,
            opened_clock: header.opened_clock,
        }
    }
}

impl CheckpointSegment {
    /// The segment's header.
    #[must_use]
    pub fn header(&self, geometry: Geometry) -> SegmentHeader {
        SegmentHeader {
            geometry,
            segment: self.segment,
            class: Class::Checkpoint,
            generation: self.generation,
            epoch: self.epoch,
            opened_seqno: self.opened_seqno,
            group: self.group,
            opened_clock: self.opened_clock,
            extents: None,
        }
    }
}

/// The checkpoint: where the images are and which segments they make superfluous.
#[derive(Debug, Clone, PartialEq, Eq, Default, Archive, Serialize, Deserialize)]
pub struct Root {
    /// Counts roots.
    pub sequence: u64,
    /// Images by partition.
    pub partitions: Vec<PartitionImages>,
    /// The lowest horizon of the newest images: replay starts here.
    pub newest_horizon: Seqno,
    /// The lowest horizon of the older images: replay starts here when a newest one is
    /// damaged, and tombstones are kept from here on.
    pub older_horizon: Seqno,
    /// Bitmap by segment: opened before this root and sealed with nothing at or after
    /// `newest_horizon`.
    pub covered_by_newest: Vec<u64>,
    /// The same for `older_horizon`.
    pub covered_by_older: Vec<u64>,
    /// The next seqno when the root was made.
    pub next_seqno: Seqno,
    /// The next group when the root was made: all before it were flushed before the root
    /// came into force.
    pub next_group: u64,
    /// How far each head's open segment was filled by the groups before that one.
    pub extents: [Extent; HEAD_COUNT],
    /// The clock when the root was made.
    pub clock: u64,
    /// The segments of all images and root copies in force.
    pub segments: Vec<CheckpointSegment>,
}

impl Root {
    /// The body of the root's pieces.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let bytes = rkyv::to_bytes::<rancor::Error>(self);
        // Serialising into memory has no way to fail but running out of it.
        bytes.map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    /// Reads the body of a root, after its checksum was verified.
    ///
    /// # Errors
    /// [`Invalid::Field`] when the archive is not sound or its lists disagree.
    pub fn decode(body: &[u8]) -> Result<Self, Invalid> {
        let root =
            rkyv::from_bytes::<Self, rancor::Error>(body).map_err(|_| Invalid::Field("archive"))?;
        if root.covered_by_newest.len() != root.covered_by_older.len() {
            return Err(Invalid::Field("root bitmaps"));
        }
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_round_trips_and_every_flip_is_refused() {
        let root = Root {
            sequence: 5,
            partitions: vec![PartitionImages::default(); 3],
            ..Root::default()
        };
        let body = root.encode();
        let mut bytes = vec![0; PIECE_HEADER_BYTES + body.len()];
        bytes[PIECE_HEADER_BYTES..].copy_from_slice(&body);
        let seed = Seed::new(&[1; 16], 2, 3, 4);
        let header = PieceHeader {
            kind: PieceKind::Root,
            partition: 0,
            index: 0,
            sequence: 5,
        };
        header.encode(seed, 1024, &mut bytes, body.len());
        let (found, found_body) = PieceHeader::decode(&bytes, seed, 1024).unwrap();
        assert_eq!(found, header);
        assert_eq!(Root::decode(found_body), Ok(root));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(PieceHeader::decode(&bad, seed, 1024).is_err());
        }
        for len in 0..bytes.len() {
            assert!(PieceHeader::decode(&bytes[..len], seed, 1024).is_err());
        }
    }
}
