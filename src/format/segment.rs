//! Segment headers and the seed that binds everything in a segment to its place and life.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::bytes::{FieldWriter, array, u16_at, u32_at, u64_at};
use super::{Extent, Generation, Geometry, Invalid, SegmentId, Seqno};

const MAGIC: u64 = u64::from_le_bytes(*b"esker.sg");

/// Bytes of a segment header's content; the rest of its block is zero.
pub const SEGMENT_HEADER_BYTES: usize = 128 + 8 * HEAD_COUNT;

/// What a segment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Nothing: ready for use.
    Free = 1,
    /// Nothing, and its blocks were given back to the device.
    Discarded = 2,
    /// Records of head 0 to 8: rewrite-interval classes 0 to 7, then the commit stream.
    Data(u8) = 3,
    /// Checkpoint images and roots.
    Checkpoint = 4,
}

/// Heads that records are appended to: eight classes and the commit stream.
pub const HEAD_COUNT: usize = 9;
/// The head of the commit stream.
pub const COMMIT_STREAM: u8 = 8;

impl Class {
    fn encode(self) -> [u8; 2] {
        match self {
            Self::Free => [1, 0],
            Self::Discarded => [2, 0],
            Self::Data(head) => [3, head],
            Self::Checkpoint => [4, 0],
        }
    }

    fn decode(bytes: u16) -> Result<Self, Invalid> {
        match bytes.to_le_bytes() {
            [1, 0] => Ok(Self::Free),
            [2, 0] => Ok(Self::Discarded),
            [3, head] if usize::from(head) < HEAD_COUNT => Ok(Self::Data(head)),
            [4, 0] => Ok(Self::Checkpoint),
            _ => Err(Invalid::Field("segment class")),
        }
    }
}

/// The first block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Identity and sizes of the store, so that a lost superblock can be rebuilt.
    pub geometry: Geometry,
    /// The segment's own number.
    pub segment: SegmentId,
    /// What it holds.
    pub class: Class,
    /// How often it has been reused.
    pub generation: Generation,
    /// The open-epoch it was taken into use in.
    pub epoch: u64,
    /// The next seqno when it was taken into use: no record in it is older.
    pub opened_seqno: Seqno,
    /// The group commit that wrote this header.
    pub group: u64,
    /// Clock (bytes of user records) when it was taken into use.
    pub opened_clock: u64,
    /// How far each head's open segment was durable when the group before that one was;
    /// `None` when that is not known.
    pub extents: Option<[Extent; HEAD_COUNT]>,
}

impl SegmentHeader {
    /// Writes the header into a zeroed block.
    pub fn encode(&self, block: &mut [u8]) {
        let geometry = &self.geometry;
        let mut writer = FieldWriter::new(block);
        writer
            .u64(MAGIC)
            .u32(super::VERSION)
            .u32(self.segment)
            .put(&geometry.uuid)
            .put(&geometry.salt)
            .u64(geometry.capacity)
            .u64(geometry.segment_bytes)
            .u32(geometry.segment_count)
            .u32(geometry.block_bytes)
            .u32(geometry.unit_bytes)
            .put(&self.class.encode())
            .u16(u16::from(self.extents.is_some()))
            .u64(self.generation)
            .u64(self.epoch)
            .u64(self.opened_seqno)
            .u64(self.group)
            .u64(self.opened_clock);
        Extent::encode_all(&self.extents.unwrap_or_default(), &mut writer);
        let end = writer.written();
        assert_eq!(end + 8, SEGMENT_HEADER_BYTES);
        let checksum = xxh3_64(&block[..end]);
        block[end..end + 8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a header of any store; the caller compares uuid and number.
    ///
    /// # Errors
    /// What does not check.
    pub fn decode(block: &[u8]) -> Result<Self, Invalid> {
        let content = block
            .get(..SEGMENT_HEADER_BYTES - 8)
            .ok_or(Invalid::Truncated)?;
        if u64_at(content, 0)? != MAGIC {
            return Err(Invalid::Magic);
        }
        if u64_at(block, SEGMENT_HEADER_BYTES - 8)? != xxh3_64(content) {
            return Err(Invalid::Checksum);
        }
        if u32_at(content, 8)? != super::VERSION {
            return Err(Invalid::Field("version"));
        }
        let geometry = Geometry {
            uuid: array(content, 16)?,
            salt: array(content, 32)?,
            capacity: u64_at(content, 48)?,
            segment_bytes: u64_at(content, 56)?,
            segment_count: u32_at(content, 64)?,
            block_bytes: u32_at(content, 68)?,
            unit_bytes: u32_at(content, 72)?,
        };
        geometry.validate()?;
        let header = Self {
            geometry,
            segment: u32_at(content, 12)?,
            class: Class::decode(u16_at(content, 76)?)?,
            generation: u64_at(content, 80)?,
            epoch: u64_at(content, 88)?,
            opened_seqno: u64_at(content, 96)?,
            group: u64_at(content, 104)?,
            opened_clock: u64_at(content, 112)?,
            extents: match u16_at(content, 78)? {
                0 => None,
                1 => Some(Extent::decode_all(content, 120)?),
                _ => return Err(Invalid::Field("segment header flags")),
            },
        };
        if header.segment >= geometry.segment_count {
            return Err(Invalid::Field("segment number"));
        }
        Ok(header)
    }

    /// The seed of this life of the segment.
    #[must_use]
    pub fn seed(&self) -> Seed {
        Seed::new(
            &self.geometry.uuid,
            self.epoch,
            self.segment,
            self.generation,
        )
    }
}

/// Seed of every checksum in one life of a segment. A record of another store, epoch,
/// segment, generation or offset never verifies under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The seed of (store, open-epoch, segment, generation).
    #[must_use]
    pub fn new(uuid: &[u8; 16], epoch: u64, segment: SegmentId, generation: Generation) -> Self {
        let mut bytes = [0; 36];
        FieldWriter::new(&mut bytes)
            .put(uuid)
            .u64(epoch)
            .u32(segment)
            .u64(generation);
        Self(xxh3_64(&bytes))
    }

    /// The seed as a number, for keeping it in an atomic.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The seed from a number.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Checksum of `bytes` at `offset` in the segment.
    #[must_use]
    pub fn checksum(self, offset: u64, bytes: &[u8]) -> u64 {
        // An odd constant spreads neighbouring offsets over the seed space.
        xxh3_64_with_seed(bytes, self.0 ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_and_every_flip_is_refused() {
        let geometry = Geometry::plan(64 << 20, None, 512, [7; 16], [9; 16]).unwrap();
        let header = SegmentHeader {
            geometry,
            segment: 5,
            class: Class::Data(3),
            generation: 1 << 40,
            epoch: 3,
            opened_seqno: 77,
            group: 12,
            opened_clock: 99,
            extents: Some([Extent { segment: 3, end: 8 }; HEAD_COUNT]),
        };
        let mut block = [0; 512];
        header.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block), Ok(header));
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut bad = block;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err());
        }
        for len in 0..SEGMENT_HEADER_BYTES {
            assert!(SegmentHeader::decode(&block[..len]).is_err());
        }
    }
}
