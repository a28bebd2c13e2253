//! Extent records: what is said of object data that lies beside them as payload.
//!
//! ```text
//! key    family u64, member u32
//! value  0   payload bytes  u32   whole blocks of the device
//!        4   first block    u32   logical block of the object
//!        8   extra members  u16
//!        10  zero           u16
//!        12  extra members, u32 each
//!            checksums, u32 each: one for each 4096 bytes of payload, the last may be shorter
//! ```

use xxhash_rust::xxh3::xxh3_64;

use super::Invalid;
use super::bytes::{FieldWriter, u16_at, u32_at, u64_at};

/// Bytes of a logical block of an object, each of which has a checksum.
pub const LOGICAL_BLOCK_BYTES: usize = 4096;
/// Bytes of an extent record's key.
pub const EXTENT_KEY_BYTES: usize = 12;
/// Bytes of an extent record's value before the members.
pub const EXTENT_FIXED_BYTES: usize = 12;
/// No device has smaller blocks.
const BLOCK_BYTES_MIN: u32 = 512;

/// Checksum of one logical block's payload as it is stored.
#[must_use]
pub fn payload_checksum(piece: &[u8]) -> u32 {
    xxh3_64(piece) as u32
}

/// Checksums of a payload, a logical block each.
#[must_use]
pub fn payload_checksums(payload: &[u8]) -> Vec<u32> {
    payload
        .chunks(LOGICAL_BLOCK_BYTES)
        .map(payload_checksum)
        .collect()
}

/// Little-endian numbers in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len() / 4
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The numbers in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        let (numbers, _) = self.0.as_chunks::<4>();
        numbers.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// An extent record as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRecord<'a> {
    /// Family of the object.
    pub family: u64,
    /// The member that wrote it.
    pub member: u32,
    /// Bytes of payload: whole blocks of the device, and not 0.
    pub payload_bytes: u32,
    /// Logical block of the object where the payload begins.
    pub first_block: u32,
    /// Other members of the family that refer to the payload.
    pub extra_members: Numbers<'a>,
    /// A checksum for each logical block of payload.
    pub checksums: Numbers<'a>,
}

impl<'a> ExtentRecord<'a> {
    /// Reads the key and value of an extent record.
    ///
    /// # Errors
    /// What does not fit.
    pub fn decode(key: &[u8], value: &'a [u8]) -> Result<Self, Invalid> {
        if key.len() != EXTENT_KEY_BYTES {
            return Err(Invalid::Field("extent key"));
        }
        let payload_bytes = u32_at(value, 0)?;
        let first_block = u32_at(value, 4)?;
        let extra = usize::from(u16_at(value, 8)?);
        if u16_at(value, 10)? != 0 {
            return Err(Invalid::Field("reserved bytes of an extent"));
        }
        if payload_bytes == 0 || !payload_bytes.is_multiple_of(BLOCK_BYTES_MIN) {
            return Err(Invalid::Field("payload bytes"));
        }
        let blocks = payload_bytes.div_ceil(LOGICAL_BLOCK_BYTES as u32);
        if first_block.checked_add(blocks).is_none() {
            return Err(Invalid::Field("blocks of an extent"));
        }
        let rest = value.get(EXTENT_FIXED_BYTES..).ok_or(Invalid::Truncated)?;
        let members = rest.get(..4 * extra).ok_or(Invalid::Truncated)?;
        let checksums = rest.get(4 * extra..).unwrap_or_default();
        if checksums.len() as u64 != 4 * u64::from(blocks) {
            return Err(Invalid::Field("checksums of an extent"));
        }
        Ok(Self {
            family: u64_at(key, 0)?,
            member: u32_at(key, 8)?,
            payload_bytes,
            first_block,
            extra_members: Numbers(members),
            checksums: Numbers(checksums),
        })
    }

    /// Checks the payload as read against the checksums.
    ///
    /// # Errors
    /// `Truncated` for another length, `Checksum`.
    pub fn verify_payload(&self, payload: &[u8]) -> Result<(), Invalid> {
        if payload.len() as u64 != u64::from(self.payload_bytes) {
            return Err(Invalid::Truncated);
        }
        let pieces = payload.chunks(LOGICAL_BLOCK_BYTES);
        if pieces.map(payload_checksum).eq(self.checksums.iter()) {
            Ok(())
        } else {
            Err(Invalid::Checksum)
        }
    }
}

/// The key of an extent record.
#[must_use]
pub fn extent_key(family: u64, member: u32) -> [u8; EXTENT_KEY_BYTES] {
    let mut key = [0; EXTENT_KEY_BYTES];
    FieldWriter::new(&mut key).u64(family).u32(member);
    key
}

/// Bytes of the value of an extent record.
#[must_use]
pub fn extent_value_bytes(payload_bytes: u32, extra_members: usize) -> usize {
    let blocks = (payload_bytes as usize).div_ceil(LOGICAL_BLOCK_BYTES);
    EXTENT_FIXED_BYTES + 4 * extra_members + 4 * blocks
}

/// The value of an extent record.
///
/// # Panics
/// If there are not as many checksums as logical blocks, or over 65,535 extra members.
#[must_use]
pub fn extent_value(
    payload_bytes: u32,
    first_block: u32,
    extra_members: &[u32],
    checksums: &[u32],
) -> Vec<u8> {
    let mut value = vec![0; extent_value_bytes(payload_bytes, extra_members.len())];
    let blocks = (payload_bytes as usize).div_ceil(LOGICAL_BLOCK_BYTES);
    assert_eq!(checksums.len(), blocks, "a checksum for each logical block");
    assert!(
        extra_members.len() <= usize::from(u16::MAX),
        "too many members"
    );
    let mut writer = FieldWriter::new(&mut value);
    writer
        .u32(payload_bytes)
        .u32(first_block)
        .u16(extra_members.len() as u16)
        .u16(0);
    for number in extra_members.iter().chain(checksums) {
        writer.u32(*number);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Kind, RecordFields, Seed, content_hash, parse_record, record_length};

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 / 8) as u8).collect()
    }

    fn example() -> ([u8; EXTENT_KEY_BYTES], Vec<u8>, Vec<u8>) {
        let payload = payload(2 * 4096 + 512);
        let value = extent_value(
            payload.len() as u32,
            77,
            &[5, 1 << 31],
            &payload_checksums(&payload),
        );
        (extent_key(1 << 40, 3), value, payload)
    }

    #[test]
    fn round_trip() {
        let (key, value, payload) = example();
        assert_eq!(value.len(), extent_value_bytes(payload.len() as u32, 2));
        let extent = ExtentRecord::decode(&key, &value).unwrap();
        assert_eq!((extent.family, extent.member), (1 << 40, 3));
        assert_eq!((extent.payload_bytes, extent.first_block), (8704, 77));
        let members: Vec<u32> = extent.extra_members.iter().collect();
        assert_eq!(members, [5, 1 << 31]);
        assert_eq!(extent.checksums.len(), 3);
        assert_eq!(extent.verify_payload(&payload), Ok(()));
        for at in (0..payload.len()).step_by(7) {
            let mut bad = payload.clone();
            bad[at] ^= 1 << (at % 8);
            assert_eq!(extent.verify_payload(&bad), Err(Invalid::Checksum));
        }
        assert_eq!(
            extent.verify_payload(&payload[..8192]),
            Err(Invalid::Truncated)
        );
    }

    /// As a record, every flip and every truncation is refused; alone, none panics, and what
    /// decodes keeps to the rules.
    #[test]
    fn every_flip_and_truncation_is_refused() {
        let (key, value, _) = example();
        let seed = Seed::new(&[1; 16], 2, 3, 4);
        let length = record_length(Kind::Extent, key.len(), value.len(), 8).unwrap();
        let mut bytes = vec![0; length.units() as usize * 8];
        let fields = RecordFields {
            kind: Kind::Extent,
            relocated: false,
            key: &key,
            value: &value,
            content: content_hash(&key, &value),
        };
        fields.encode(seed, 512, 1, &mut bytes);
        assert_eq!(
            parse_record(&bytes, seed, 512, 8).unwrap().kind,
            Kind::Extent
        );
        let covered = 16 + key.len() + value.len();
        for bit in 0..covered * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse_record(&bad, seed, 512, 8).is_err(), "bit {bit}");
        }
        for bit in 0..value.len() * 8 {
            let mut bad = value.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(extent) = ExtentRecord::decode(&key, &bad) {
                let blocks = extent.payload_bytes.div_ceil(4096) as usize;
                assert_eq!(extent.checksums.len(), blocks);
                assert!(extent.payload_bytes > 0 && extent.payload_bytes % 512 == 0);
            }
        }
        for len in 0..value.len() {
            assert!(ExtentRecord::decode(&key, &value[..len]).is_err());
        }
        for len in 0..key.len() {
            assert!(ExtentRecord::decode(&key[..len], &value).is_err());
        }
    }

    #[test]
    fn fields_out_of_range_are_refused() {
        let key = extent_key(1, 2);
        let whole = extent_value(4096, 0, &[], &[1]);
        let with = |at: usize, bytes: &[u8]| {
            let mut value = whole.clone();
            value[at..at + bytes.len()].copy_from_slice(bytes);
            ExtentRecord::decode(&key, &value).is_err()
        };
        assert!(!with(0, &4096_u32.to_le_bytes()));
        assert!(with(0, &0_u32.to_le_bytes()));
        assert!(with(0, &4095_u32.to_le_bytes()));
        assert!(with(0, &4608_u32.to_le_bytes()), "a checksum is missing");
        assert!(with(4, &u32::MAX.to_le_bytes()));
        assert!(with(8, &1_u16.to_le_bytes()));
        assert!(with(8, &u16::MAX.to_le_bytes()));
        assert!(with(10, &1_u16.to_le_bytes()));
        let mut longer = whole.clone();
        longer.extend([0; 4]);
        assert!(ExtentRecord::decode(&key, &longer).is_err());
    }
}
