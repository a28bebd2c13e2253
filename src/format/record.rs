//! Records: one key-value change each, self-contained and checksummed.
//!
//! ```text
//! 0   checksum  u64   xxh3 of (packed, content hash), seeded with place and life
//! 8   packed    u64   key length 17 | value length 26 | kind 3 | relocated 1 | delta 17
//! 16  key, value, zeros up to the length the length code gives
//! ```

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::bytes::u64_at;
use super::{Invalid, LengthCode, Seed};

/// Bytes before the key.
pub const RECORD_HEADER_BYTES: usize = 16;
/// Longest key of a caller in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 26;
const KIND_BITS: u32 = 3;
/// Bits of a seqno's distance from the record before it in its frame.
pub const DELTA_BITS: u32 = 17;
const _: () = assert!(KEY_BITS + VALUE_BITS + KIND_BITS + 1 + DELTA_BITS == 64);
const _: () = assert!(KEY_BYTES_MAX < 1 << KEY_BITS);

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Data of an object lies beside the record as payload: [`super::ExtentRecord`].
    Extent = 0,
    /// The key has the value.
    Put = 1,
    /// The key has no value: a tombstone. Its value is empty, or the number of chunks (u32)
    /// the value had.
    Delete = 2,
    /// The key has a value of several chunks; the record's value describes them.
    Head = 3,
    /// One chunk: the key is the chunk key, the value starts with the head's stamp.
    Chunk = 4,
    /// Chunks of a key are gone: the key is the owner's chunk key stem, the value the range.
    TrimChunks = 5,
    /// An operation of the object layer.
    Object = 6,
    /// A value of an object's omap.
    OmapValue = 7,
}

impl Kind {
    pub(crate) fn decode(bits: u64) -> Result<Self, Invalid> {
        match bits {
            0 => Ok(Self::Extent),
            1 => Ok(Self::Put),
            2 => Ok(Self::Delete),
            3 => Ok(Self::Head),
            4 => Ok(Self::Chunk),
            5 => Ok(Self::TrimChunks),
            6 => Ok(Self::Object),
            7 => Ok(Self::OmapValue),
            _ => Err(Invalid::Field("record kind")),
        }
    }

    /// Whether the record only says that something is gone.
    #[must_use]
    pub fn is_tombstone(self) -> bool {
        matches!(self, Self::Delete | Self::TrimChunks)
    }

    /// Whether the record is the object layer's.
    #[must_use]
    pub fn is_of_objects(self) -> bool {
        matches!(self, Self::Extent | Self::Object | Self::OmapValue)
    }
}

/// Hash of a record's key and value, independent of where it is stored: computed once,
/// outside every lock.
#[must_use]
pub fn content_hash(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64(key))
}

/// The length code of a record; `None` when it is too long for one.
#[must_use]
pub fn record_length(
    kind: Kind,
    key_bytes: usize,
    value_bytes: usize,
    unit_bytes: u32,
) -> Option<LengthCode> {
    if key_bytes >= 1 << KEY_BITS || value_bytes >= 1 << VALUE_BITS {
        return None;
    }
    let bytes = (RECORD_HEADER_BYTES + key_bytes + value_bytes) as u64;
    let units = bytes.div_ceil(u64::from(unit_bytes));
    if kind == Kind::Head {
        LengthCode::covering_head(units)
    } else {
        LengthCode::covering(units)
    }
}

/// A record to be written.
#[derive(Debug, Clone, Copy)]
pub struct RecordFields<'a> {
    /// What it says.
    pub kind: Kind,
    /// Whether the cleaner wrote it.
    pub relocated: bool,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// [`content_hash`] of key and value.
    pub content: u64,
}

impl RecordFields<'_> {
    /// Writes the record over `into`, whose length is the record's padded length.
    ///
    /// # Panics
    /// If `delta` has more than [`DELTA_BITS`] bits or `into` is too short.
    pub fn encode(&self, seed: Seed, offset: u64, delta: u64, into: &mut [u8]) {
        assert!(delta < 1 << DELTA_BITS, "seqno delta out of range");
        let packed = self.key.len() as u64
            | (self.value.len() as u64) << KEY_BITS
            | u64::from(self.kind as u8) << (KEY_BITS + VALUE_BITS)
            | u64::from(self.relocated) << (KEY_BITS + VALUE_BITS + KIND_BITS)
            | delta << (64 - DELTA_BITS);
        let checksum = record_checksum(seed, offset, packed, self.content);
        into[..8].copy_from_slice(&checksum.to_le_bytes());
        into[8..16].copy_from_slice(&packed.to_le_bytes());
        let value_at = RECORD_HEADER_BYTES + self.key.len();
        let end = value_at + self.value.len();
        into[RECORD_HEADER_BYTES..value_at].copy_from_slice(self.key);
        into[value_at..end].copy_from_slice(self.value);
        into[end..].fill(0);
    }
}

fn record_checksum(seed: Seed, offset: u64, packed: u64, content: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&packed.to_le_bytes());
    bytes[8..].copy_from_slice(&content.to_le_bytes());
    seed.checksum(offset, &bytes)
}

/// A record in a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// What it says.
    pub kind: Kind,
    /// Whether the cleaner wrote it.
    pub relocated: bool,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Distance of its seqno from the record before it in its frame (from the frame's base
    /// for the first).
    pub delta: u64,
    /// Its padded length.
    pub length: LengthCode,
}

/// Reads and verifies the record at the start of `bytes`, stored at `offset` in its segment.
///
/// # Errors
/// What does not check.
pub fn parse_record(
    bytes: &[u8],
    seed: Seed,
    offset: u64,
    unit_bytes: u32,
) -> Result<Record<'_>, Invalid> {
    let (record, packed) = split_record(bytes, unit_bytes)?;
    let content = content_hash(record.key, record.value);
    if record_checksum(seed, offset, packed, content) != u64_at(bytes, 0)? {
        return Err(Invalid::Checksum);
    }
    Ok(record)
}

/// Reads the record at the start of `bytes`, which were verified before: replay looks at
/// each record more than once, and hashing is most of the look.
///
/// # Errors
/// What does not fit.
pub fn read_verified_record(bytes: &[u8], unit_bytes: u32) -> Result<Record<'_>, Invalid> {
    split_record(bytes, unit_bytes).map(|(record, _)| record)
}

fn split_record(bytes: &[u8], unit_bytes: u32) -> Result<(Record<'_>, u64), Invalid> {
    let packed = u64_at(bytes, 8)?;
    let key_bytes = (packed & ((1 << KEY_BITS) - 1)) as usize;
    let value_bytes = (packed >> KEY_BITS & ((1 << VALUE_BITS) - 1)) as usize;
    let value_at = RECORD_HEADER_BYTES + key_bytes;
    let key = bytes
        .get(RECORD_HEADER_BYTES..value_at)
        .ok_or(Invalid::Truncated)?;
    let value = bytes
        .get(value_at..value_at + value_bytes)
        .ok_or(Invalid::Truncated)?;
    let kind = Kind::decode(packed >> (KEY_BITS + VALUE_BITS) & ((1 << KIND_BITS) - 1))?;
    let length = record_length(kind, key_bytes, value_bytes, unit_bytes)
        .ok_or(Invalid::Field("record length"))?;
    let record = Record {
        kind,
        relocated: packed >> (KEY_BITS + VALUE_BITS + KIND_BITS) & 1 == 1,
        key,
        value,
        delta: packed >> (64 - DELTA_BITS),
        length,
    };
    Ok((record, packed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_every_flip_is_refused() {
        let seed = Seed::new(&[1; 16], 2, 3, 4);
        let (key, value) = (b"key".as_slice(), [5_u8; 90]);
        let content = content_hash(key, &value);
        let fields = RecordFields {
            kind: Kind::Put,
            relocated: true,
            key,
            value: &value,
            content,
        };
        let length = record_length(Kind::Put, key.len(), value.len(), 8).unwrap();
        let mut bytes = vec![0xff; length.units() as usize * 8];
        fields.encode(seed, 640, 9, &mut bytes);
        let record = parse_record(&bytes, seed, 640, 8).unwrap();
        assert_eq!((record.key, record.value), (key, value.as_slice()));
        assert_eq!(
            (record.kind, record.relocated, record.delta),
            (Kind::Put, true, 9)
        );
        assert_eq!(record.length, length);
        let covered = RECORD_HEADER_BYTES + key.len() + value.len();
        for bit in 0..covered * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse_record(&bad, seed, 640, 8).is_err(), "bit {bit}");
        }
        for len in 0..covered {
            assert!(parse_record(&bytes[..len], seed, 640, 8).is_err());
        }
        assert!(
            parse_record(&bytes, seed, 648, 8).is_err(),
            "another offset"
        );
        assert!(
            parse_record(&bytes, Seed::new(&[1; 16], 2, 3, 5), 640, 8).is_err(),
            "another life"
        );
    }
}
