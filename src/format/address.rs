//! Addresses, segment ids, generations and sequence numbers, and the 11-bit length code.
//!
//! An address is a byte offset on the device in units of 8 bytes times a power of two, so
//! that 37 bits reach 1 TiB at 8 bytes and 16 TiB at 128 (`design/format.md`, Addresses).

use super::Invalid;

/// Bits of an address in an index entry.
pub const ADDRESS_BITS: u32 = 37;

/// The smallest address unit in bytes; records start and end on multiples of the unit.
pub const UNIT_BYTES_MIN: u64 = 8;

/// A position in the log: device byte offset divided by the store's unit. 0 is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// The address of a number of units.
    ///
    /// # Panics
    /// If `units` does not fit in [`ADDRESS_BITS`] or is 0.
    #[must_use]
    pub fn new(units: u64) -> Self {
        assert!(units != 0, "address 0 is the superblock");
        assert!(units < 1 << ADDRESS_BITS, "address out of range");
        Self(units)
    }

    /// The address as a number of units.
    #[must_use]
    pub fn units(self) -> u64 {
        self.0
    }
}

/// Position of a write in the global order of writes. Starts at 1.
pub type Seqno = u64;

/// Number of a segment on the device, from 0.
pub type SegmentId = u32;

/// How often a segment has been reused.
pub type Generation = u64;

/// Bits of a length code.
pub const LENGTH_BITS: u32 = 11;

/// A record length in 11 bits: 4 bits of exponent, 7 of mantissa, in units.
///
/// Codes below 128 are exact; above, `(128 + m) << (e - 1)` units, so a record is padded
/// by less than 1/128 of its length. Codes with exponent 15 mark the head of a chunked
/// value, whose lengths are coarser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthCode(u16);

const MANTISSA_BITS: u32 = 7;
const MANTISSA: u64 = 1 << MANTISSA_BITS;
/// First code that marks a chunk head.
const HEAD_FIRST: u16 = 15 << MANTISSA_BITS;
/// Chunk heads: 64 codes in steps of 2 units, then 64 in steps of [`HEAD_STEP_UNITS`].
const HEAD_FINE: u64 = 64;
const HEAD_STEP_UNITS: u64 = 136;

impl LengthCode {
    /// The smallest code whose length is at least `units`; `None` when out of range.
    #[must_use]
    pub fn covering(units: u64) -> Option<Self> {
        if units < MANTISSA {
            return Some(Self(units as u16));
        }
        let shift = 63 - units.leading_zeros() - MANTISSA_BITS;
        let rounded = units.div_ceil(1 << shift);
        // Rounding up may carry into the next power of two.
        let (shift, rounded) = if rounded == 2 * MANTISSA {
            (shift + 1, MANTISSA)
        } else {
            (shift, rounded)
        };
        let exponent = u64::from(shift) + 1;
        if exponent >= 15 {
            return None;
        }
        Some(Self(
            ((exponent << MANTISSA_BITS) | (rounded - MANTISSA)) as u16,
        ))
    }

    /// The smallest code for a chunk head of at least `units`; `None` when out of range.
    #[must_use]
    pub fn covering_head(units: u64) -> Option<Self> {
        let step = if units < 2 * HEAD_FINE {
            units.div_ceil(2)
        } else {
            HEAD_FINE - 1 + (units.saturating_sub(2 * HEAD_FINE - 2)).div_ceil(HEAD_STEP_UNITS)
        };
        if step >= 128 {
            return None;
        }
        Some(Self(HEAD_FIRST + step as u16))
    }

    /// The length in units.
    #[must_use]
    pub fn units(self) -> u64 {
        let code = u64::from(self.0);
        if self.is_head() {
            let step = code - u64::from(HEAD_FIRST);
            if step < HEAD_FINE {
                return step * 2;
            }
            return 2 * HEAD_FINE - 2 + (step - (HEAD_FINE - 1)) * HEAD_STEP_UNITS;
        }
        let exponent = code >> MANTISSA_BITS;
        if exponent == 0 {
            code
        } else {
            (MANTISSA + (code & (MANTISSA - 1))) << (exponent - 1)
        }
    }

    /// Whether the entry is the head of a chunked value.
    #[must_use]
    pub fn is_head(self) -> bool {
        self.0 >= HEAD_FIRST
    }

    /// The code as stored.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The code from its stored form.
    ///
    /// # Errors
    /// [`Invalid::Field`] when it has more than [`LENGTH_BITS`] bits.
    pub fn from_bits(bits: u16) -> Result<Self, Invalid> {
        if bits >> LENGTH_BITS == 0 {
            Ok(Self(bits))
        } else {
            Err(Invalid::Field("length code"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_is_tight_and_pads_less_than_one_128th() {
        for units in (1..5000).chain([65_535, 65_536, 65_537, 1_000_003, 2_088_960]) {
            let code = LengthCode::covering(units).unwrap();
            assert!(code.units() >= units);
            assert!(!code.is_head());
            assert!(
                (code.units() - units) * 128 <= units,
                "{units} padded to {}",
                code.units()
            );
            assert_eq!(LengthCode::from_bits(code.bits()).unwrap(), code);
        }
        assert!(LengthCode::covering(1 << 40).is_none());
    }

    #[test]
    fn heads_cover_the_largest_key() {
        for units in 1..8300 {
            let code = LengthCode::covering_head(units).unwrap();
            assert!(code.is_head());
            assert!(code.units() >= units, "{units} {}", code.units());
            assert!(code.units() - units < HEAD_STEP_UNITS);
        }
    }
}
