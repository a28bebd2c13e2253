//! Entries and how a slot packs one: 104 bits and three flags, as plain values.
//!
//! ```text
//! word    u64   address 37 | length code 11 | exponent 3 | tag bits 12..=0
//! high    u32   tag bits 52..=21
//! middle  u8    tag bits 20..=13
//! ```
//!
//! A word of 0 is an empty slot, since 0 is no address. The tag is the part of the hash
//! that follows the bucket's bits. Because hashes are not stored, a tag loses its top bit
//! at every split (the bucket number gains it) and cannot gain one at the bottom: it ages.
//! The tag of an aged slot is its known bits, then a 1 as marker, then zeros. Whether a
//! slot is aged is a flag beside it, so that a fresh tag has all 53 bits.

use crate::format::{ADDRESS_BITS, Address, LENGTH_BITS, LengthCode};

/// Bits of the rewrite-interval exponent.
const EXPONENT_BITS: u32 = 3;
/// Bits of the tag in the slot's word, its middle byte and its high part.
const LOW_BITS: u32 = 13;
const MIDDLE_BITS: u32 = 8;
const HIGH_BITS: u32 = 32;
/// Bits of a fresh tag.
pub(super) const TAG_BITS: u32 = LOW_BITS + MIDDLE_BITS + HIGH_BITS;

const LENGTH_SHIFT: u32 = ADDRESS_BITS;
const EXPONENT_SHIFT: u32 = LENGTH_SHIFT + LENGTH_BITS;
const LOW_SHIFT: u32 = EXPONENT_SHIFT + EXPONENT_BITS;
const _: () = assert!(LOW_SHIFT + LOW_BITS == u64::BITS);
const _: () = assert!(TAG_BITS == 53);

/// Where the newest record of a key is, and what the cleaner needs to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The record's position in the log.
    pub(crate) address: Address,
    /// The record's length.
    pub(crate) length: LengthCode,
    /// The rewrite-interval exponent, 0 to 7.
    pub(crate) exponent: u8,
}

/// The content of an occupied slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) word: u64,
    pub(super) high: u32,
    pub(super) middle: u8,
    pub(super) aged: bool,
}

impl Slot {
    /// The slot of `entry` under a fresh tag.
    pub(super) fn new(entry: Entry, tag: u64) -> Self {
        debug_assert!(tag >> TAG_BITS == 0);
        assert!(
            entry.exponent >> EXPONENT_BITS == 0,
            "exponent out of range"
        );
        let mut slot = Self {
            word: entry.address.units()
                | u64::from(entry.length.bits()) << LENGTH_SHIFT
                | u64::from(entry.exponent) << EXPONENT_SHIFT,
            high: 0,
            middle: 0,
            aged: false,
        };
        slot.set_tag(tag);
        slot
    }

    fn set_tag(&mut self, tag: u64) {
        self.word = self.word << LOW_BITS >> LOW_BITS | tag << LOW_SHIFT;
        self.middle = (tag >> LOW_BITS) as u8;
        self.high = (tag >> (LOW_BITS + MIDDLE_BITS)) as u32;
    }

    fn tag(&self) -> u64 {
        self.word >> LOW_SHIFT
            | u64::from(self.middle) << LOW_BITS
            | u64::from(self.high) << (LOW_BITS + MIDDLE_BITS)
    }

    /// Whether the known bits of the slot's tag are those of a fresh `tag`.
    pub(super) fn matches(&self, tag: u64) -> bool {
        let difference = self.tag() ^ tag;
        if !self.aged {
            return difference == 0;
        }
        let marker = self.tag() & self.tag().wrapping_neg();
        difference & !(marker | (marker - 1)) == 0
    }

    /// The slot after a split, and the tag bit that went to the bucket number.
    pub(super) fn split(mut self) -> (Self, usize) {
        let tag = self.tag();
        let taken = tag >> (TAG_BITS - 1);
        let marker = u64::from(!self.aged);
        self.set_tag((tag << 1) & ((1 << TAG_BITS) - 1) | marker);
        self.aged = true;
        (self, taken as usize)
    }

    /// Known bits of the tag; `None` when an aged tag has no marker.
    pub(super) fn known_bits(&self) -> Option<u32> {
        if !self.aged {
            return Some(TAG_BITS);
        }
        let tag = self.tag();
        (tag != 0).then(|| TAG_BITS - 1 - tag.trailing_zeros())
    }

    /// The entry of a slot's word; `None` when the slot is empty or the word is damaged.
    pub(super) fn entry(word: u64) -> Option<Entry> {
        let units = word & ((1 << ADDRESS_BITS) - 1);
        if units == 0 {
            return None;
        }
        let length = (word >> LENGTH_SHIFT) & ((1 << LENGTH_BITS) - 1);
        Some(Entry {
            address: Address::new(units),
            length: LengthCode::from_bits(length as u16).ok()?,
            exponent: (word >> EXPONENT_SHIFT) as u8 & ((1 << EXPONENT_BITS) - 1),
        })
    }
}

/// The part of a fresh tag that is compared first: all of a slot's high part is known
/// bits, see [`super::DEPTH_MAX`].
pub(super) fn high(tag: u64) -> u32 {
    (tag >> (LOW_BITS + MIDDLE_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            address: Address::new((1 << ADDRESS_BITS) - 1),
            length: LengthCode::from_bits(0x5a5).unwrap(),
            exponent: 5,
        }
    }

    #[test]
    fn packs_and_unpacks() {
        let tag = 0x1b_cdef_0123_4567;
        let slot = Slot::new(entry(), tag);
        assert_eq!(slot.tag(), tag);
        assert!(slot.matches(tag));
        assert_eq!(Slot::entry(slot.word), Some(entry()));
        assert_eq!(Slot::entry(0), None);
        for bit in 0..TAG_BITS {
            assert!(!slot.matches(tag ^ (1 << bit)));
        }
    }

    #[test]
    fn a_split_takes_the_top_bit_and_keeps_the_rest_known() {
        let bits = 0xfedc_ba98_7654_3210_0123_4567_89ab_cdef_u128;
        let tag = |skip: u32| (bits << skip >> (128 - TAG_BITS)) as u64;
        let mut slot = Slot::new(entry(), tag(0));
        for splits in 1..=20 {
            let (next, taken) = slot.split();
            assert_eq!(taken as u128, bits << (splits - 1) >> 127);
            assert!(next.matches(tag(splits)), "after {splits}");
            assert_eq!(next.known_bits(), Some(TAG_BITS - splits));
            assert_eq!(Slot::entry(next.word), Some(entry()));
            // The unknown bits do not count, the known ones do.
            let unknown = (1 << splits) - 1;
            assert!(next.matches(tag(splits) ^ unknown));
            for bit in splits..TAG_BITS {
                assert!(!next.matches(tag(splits) ^ (1 << bit)));
            }
            slot = next;
        }
    }
}
