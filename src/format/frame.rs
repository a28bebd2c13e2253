//! Frames: what one group commit wrote to one segment.
//!
//! A frame starts on a block, has a header of [`FRAME_HEADER_BYTES`], then records, then
//! zeros to the end of a block. A payload frame goes on with the payload of its extent records,
//! one after the other, which ends where the frame does.

use rkyv::{Archive, Deserialize, Serialize};

use super::bytes::{FieldWriter, u16_at, u32_at, u64_at};
use super::{HEAD_COUNT, Invalid, Seed, SegmentId, Seqno};

const MAGIC: u32 = u32::from_le_bytes(*b"esfr");

/// Nothing follows in this segment.
const SEALS: u32 = 1;
/// There is payload.
const PAYLOAD: u32 = 2;

/// Bytes before the first record of a frame, unless the address unit is larger.
pub const FRAME_HEADER_BYTES: usize = 64 + 8 * HEAD_COUNT;

/// How far the open segment of a head was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Archive, Serialize, Deserialize)]
pub struct Extent {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes of it that were durable; 0 when the head had no segment.
    pub end: u32,
}

impl Extent {
    /// Writes those of all heads.
    pub(super) fn encode_all(extents: &[Self; HEAD_COUNT], writer: &mut FieldWriter<'_>) {
        for extent in extents {
            writer.u32(extent.segment).u32(extent.end);
        }
    }

    /// Reads those of all heads.
    pub(super) fn decode_all(bytes: &[u8], at: usize) -> Result<[Self; HEAD_COUNT], Invalid> {
        let mut extents = [Self::default(); HEAD_COUNT];
        for (head, extent) in extents.iter_mut().enumerate() {
            let at = at + 8 * head;
            *extent = Self {
                segment: u32_at(bytes, at)?,
                end: u32_at(bytes, at + 4)?,
            };
        }
        Ok(extents)
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the frame in bytes, whole blocks.
    pub frame_bytes: u32,
    /// Bytes used by header and records.
    pub data_bytes: u32,
    /// Number of records; 0 only in a frame that seals its segment.
    pub record_count: u32,
    /// Nothing follows in this segment.
    pub seals: bool,
    /// Its extent records, of which there are some, have payload at its end.
    pub payload: bool,
    /// This frame's number among those of its group, from 0.
    pub frame_index: u16,
    /// Number of frames of the group.
    pub frame_count: u16,
    /// The group commit. Every earlier group was flushed before this one was written.
    pub group: u64,
    /// Seqnos are this plus the deltas of the records.
    pub base_seqno: Seqno,
    /// Seqno of the last record.
    pub last_seqno: Seqno,
    /// Clock (bytes of user records) at the end of the group.
    pub clock: u64,
    /// How far each head's open segment was durable when the group before this one was.
    pub extents: [Extent; HEAD_COUNT],
}

impl FrameHeader {
    /// Writes the header to the start of `into`.
    pub fn encode(&self, seed: Seed, offset: u64, into: &mut [u8]) {
        let mut writer = FieldWriter::new(&mut into[..FRAME_HEADER_BYTES]);
        writer
            .u64(0)
            .u32(MAGIC)
            .u32(self.frame_bytes)
            .u32(self.data_bytes)
            .u32(self.record_count)
            .u16(self.frame_index)
            .u16(self.frame_count)
            .u32(flag(self.seals, SEALS) | flag(self.payload, PAYLOAD))
            .u64(self.group)
            .u64(self.base_seqno)
            .u64(self.last_seqno)
            .u64(self.clock);
        Extent::encode_all(&self.extents, &mut writer);
        assert_eq!(writer.written(), FRAME_HEADER_BYTES);
        let checksum = seed.checksum(offset, &into[8..FRAME_HEADER_BYTES]);
        into[..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads the header of a frame stored at `offset` in a segment of `segment_bytes`.
    ///
    /// # Errors
    /// What does not check.
    pub fn decode(
        bytes: &[u8],
        seed: Seed,
        offset: u64,
        segment_bytes: u64,
    ) -> Result<Self, Invalid> {
        let content = bytes.get(8..FRAME_HEADER_BYTES).ok_or(Invalid::Truncated)?;
        if u32_at(bytes, 8)? != MAGIC {
            return Err(Invalid::Magic);
        }
        if u64_at(bytes, 0)? != seed.checksum(offset, content) {
            return Err(Invalid::Checksum);
        }
        let extents = Extent::decode_all(bytes, 64)?;
        let flags = u32_at(bytes, 28)?;
        if flags & !(SEALS | PAYLOAD) != 0 {
            return Err(Invalid::Field("frame flags"));
        }
        let header = Self {
            frame_bytes: u32_at(bytes, 12)?,
            data_bytes: u32_at(bytes, 16)?,
            record_count: u32_at(bytes, 20)?,
            frame_index: u16_at(bytes, 24)?,
            frame_count: u16_at(bytes, 26)?,
            seals: flags & SEALS != 0,
            payload: flags & PAYLOAD != 0,
            group: u64_at(bytes, 32)?,
            base_seqno: u64_at(bytes, 40)?,
            last_seqno: u64_at(bytes, 48)?,
            clock: u64_at(bytes, 56)?,
            extents,
        };
        let end = offset + u64::from(header.frame_bytes);
        if header.frame_bytes == 0 || end > segment_bytes || header.data_bytes > header.frame_bytes
        {
            return Err(Invalid::Field("frame length"));
        }
        if (header.data_bytes as usize) < FRAME_HEADER_BYTES
            || (header.record_count == 0 && (!header.seals || header.payload))
        {
            return Err(Invalid::Field("frame content"));
        }
        if header.frame_index >= header.frame_count || header.last_seqno < header.base_seqno {
            return Err(Invalid::Field("frame order"));
        }
        Ok(header)
    }
}

fn flag(is_set: bool, value: u32) -> u32 {
    if is_set { value } else { 0 }
}

/// Offset of the first record in a frame.
#[must_use]
pub fn first_record_offset(unit_bytes: u32) -> u64 {
    (FRAME_HEADER_BYTES as u64).next_multiple_of(u64::from(unit_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_every_flip_is_refused() {
        let header = FrameHeader {
            frame_bytes: 4096,
            data_bytes: 4000,
            record_count: 3,
            seals: true,
            payload: true,
            frame_index: 1,
            frame_count: 2,
            group: 9,
            base_seqno: 100,
            last_seqno: 110,
            clock: 5,
            extents: [Extent {
                segment: 2,
                end: 512,
            }; HEAD_COUNT],
        };
        let seed = Seed::new(&[1; 16], 2, 3, 4);
        let mut bytes = [0; FRAME_HEADER_BYTES];
        header.encode(seed, 512, &mut bytes);
        assert_eq!(FrameHeader::decode(&bytes, seed, 512, 1 << 17), Ok(header));
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&bad, seed, 512, 1 << 17).is_err());
        }
        for len in 0..FRAME_HEADER_BYTES {
            assert!(FrameHeader::decode(&bytes[..len], seed, 512, 1 << 17).is_err());
        }
        assert!(FrameHeader::decode(&bytes, seed, 1024, 1 << 17).is_err());
        assert!(FrameHeader::decode(&bytes, seed, 512, 2048).is_err());
    }
}
