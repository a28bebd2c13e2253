//! The shape of a store: sizes and identity, fixed when it is made.

use rkyv::{Archive, Deserialize, Serialize};

use super::{ADDRESS_BITS, Address, Invalid, SegmentId, UNIT_BYTES_MIN};

/// Bytes before the first segment: two superblock slots and room to align segments.
pub const FRONT_BYTES: u64 = 64 << 10;
/// Bytes at the end of the device: two more superblock slots.
pub const BACK_BYTES: u64 = 8 << 10;
/// Bytes of a superblock slot.
pub const SUPERBLOCK_BYTES: u64 = 4096;
/// The smallest segment: one record with the largest key must fit with room to spare.
pub const SEGMENT_BYTES_MIN: u64 = 128 << 10;
/// The largest segment.
pub const SEGMENT_BYTES_MAX: u64 = 256 << 20;
/// Fewest segments of a store: the heads, the reserve and some to clean.
pub const SEGMENTS_MIN: u64 = 64;
/// The largest capacity, 16 TiB: 37 bits of 128-byte units.
pub const CAPACITY_MAX: u64 = 16 << 40;

/// Sizes and identity of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Geometry {
    /// Identity of the store.
    pub uuid: [u8; 16],
    /// Secret of the key hash.
    pub salt: [u8; 16],
    /// Size of the store in bytes.
    pub capacity: u64,
    /// Size of a segment in bytes, a power of two.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segment_count: u32,
    /// Block in bytes: every write to the device is a multiple.
    pub block_bytes: u32,
    /// Unit of addresses in bytes.
    pub unit_bytes: u32,
}

impl Geometry {
    /// Bytes of the smallest store.
    pub const SMALLEST: u64 = FRONT_BYTES + BACK_BYTES + SEGMENTS_MIN * SEGMENT_BYTES_MIN;

    /// The geometry of a new store of `capacity` bytes; `None` if no store fits or a size
    /// is out of its range.
    #[must_use]
    pub fn plan(
        capacity: u64,
        segment_bytes: Option<u64>,
        block_bytes: u32,
        uuid: [u8; 16],
        salt: [u8; 16],
    ) -> Option<Self> {
        if capacity > CAPACITY_MAX {
            return None;
        }
        let capacity = capacity - capacity % 4096;
        let room = capacity.checked_sub(FRONT_BYTES + BACK_BYTES)?;
        let segment_bytes = match segment_bytes {
            Some(bytes) => bytes,
            None => {
                // 4096 segments keep the share of the open heads small; never fewer than 512
                // unless the store is tiny.
                let wanted = (capacity / 4096).clamp(256 << 10, SEGMENT_BYTES_MAX);
                let most = (capacity / 512).max(SEGMENT_BYTES_MIN);
                1 << wanted.min(most).ilog2()
            }
        };
        let geometry = Self {
            uuid,
            salt,
            capacity,
            segment_bytes,
            segment_count: u32::try_from(room.checked_div(segment_bytes)?).ok()?,
            block_bytes,
            unit_bytes: u32::try_from(unit_bytes(capacity)).ok()?,
        };
        geometry.validate().ok()?;
        Some(geometry)
    }

    /// Checks that every field is in its range and they agree with one another.
    ///
    /// # Errors
    /// [`Invalid::Field`] with the name of the first field that is not.
    pub fn validate(&self) -> Result<(), Invalid> {
        let segment = self.segment_bytes;
        if !segment.is_power_of_two() || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment)
        {
            return Err(Invalid::Field("segment size"));
        }
        if !self.block_bytes.is_power_of_two() || !(512..=4096).contains(&self.block_bytes) {
            return Err(Invalid::Field("block size"));
        }
        if self.capacity > CAPACITY_MAX || !self.capacity.is_multiple_of(4096) {
            return Err(Invalid::Field("capacity"));
        }
        if u64::from(self.unit_bytes) != unit_bytes(self.capacity) {
            return Err(Invalid::Field("address unit"));
        }
        let count = u64::from(self.segment_count);
        if count < SEGMENTS_MIN || count * segment + FRONT_BYTES + BACK_BYTES > self.capacity {
            return Err(Invalid::Field("segment count"));
        }
        Ok(())
    }

    /// Byte offset of a segment on the device.
    #[must_use]
    pub fn segment_offset(&self, segment: SegmentId) -> u64 {
        FRONT_BYTES + u64::from(segment) * self.segment_bytes
    }

    /// Byte offset on the device of an address.
    #[must_use]
    pub fn device_offset(&self, address: Address) -> u64 {
        address.units() * u64::from(self.unit_bytes)
    }

    /// The address of a byte offset in a segment.
    #[must_use]
    pub fn address(&self, segment: SegmentId, offset: u64) -> Address {
        let device_offset = self.segment_offset(segment) + offset;
        assert!(offset < self.segment_bytes, "offset outside its segment");
        assert!(
            device_offset.is_multiple_of(u64::from(self.unit_bytes)),
            "unaligned address"
        );
        Address::new(device_offset / u64::from(self.unit_bytes))
    }

    /// The segment of an address and the byte offset in it; `None` when outside.
    #[must_use]
    pub fn locate(&self, address: Address) -> Option<(SegmentId, u64)> {
        let in_segments = self.device_offset(address).checked_sub(FRONT_BYTES)?;
        let segment = in_segments / self.segment_bytes;
        if segment >= u64::from(self.segment_count) {
            return None;
        }
        Some((segment as SegmentId, in_segments % self.segment_bytes))
    }

    /// Bytes of a segment that its header takes.
    #[must_use]
    pub fn header_bytes(&self) -> u64 {
        u64::from(self.block_bytes)
    }

    /// `bytes` rounded up to whole blocks.
    #[must_use]
    pub fn round_to_block(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(u64::from(self.block_bytes))
    }

    /// Device offsets of the four superblock slots: two in front, two at the end.
    #[must_use]
    pub fn superblock_offsets(capacity: u64) -> [u64; 4] {
        let end = capacity - capacity % 4096;
        [
            0,
            SUPERBLOCK_BYTES,
            end - 2 * SUPERBLOCK_BYTES,
            end - SUPERBLOCK_BYTES,
        ]
    }
}

fn unit_bytes(capacity: u64) -> u64 {
    let mut unit = UNIT_BYTES_MIN;
    while capacity.div_ceil(unit) > 1 << ADDRESS_BITS {
        unit *= 2;
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_segment_size_follows_capacity() {
        let plan = |capacity| Geometry::plan(capacity, None, 512, [1; 16], [2; 16]);
        assert!(plan(1 << 20).is_none());
        assert_eq!(plan(64 << 20).unwrap().segment_bytes, 128 << 10);
        assert_eq!(plan(1347 << 20).unwrap().segment_bytes, 256 << 10);
        assert_eq!(plan(8 << 30).unwrap().segment_bytes, 2 << 20);
        let largest = plan(16 << 40).unwrap();
        assert_eq!(largest.segment_bytes, 256 << 20);
        assert_eq!(largest.unit_bytes, 128);
        assert_eq!(plan(1 << 40).unwrap().unit_bytes, 8);
        assert!(plan((16 << 40) + 4096).is_none());
    }

    #[test]
    fn addresses_of_the_largest_store_round_trip() {
        let geometry = Geometry::plan(16 << 40, None, 4096, [1; 16], [2; 16]).unwrap();
        let last = geometry.segment_count - 1;
        for (segment, offset) in [(0, 128), (last, 128), (last, geometry.segment_bytes - 128)] {
            let address = geometry.address(segment, offset);
            assert_eq!(geometry.locate(address), Some((segment, offset)));
        }
    }
}
