//! Tests of extent maps against a model that knows every block of every member.

mod bounds;
mod image;
mod model;
mod random;
mod single;

use super::{Extent, Unit};
use crate::format::Address;

/// The unit of tests that do not vary it.
fn unit() -> Unit {
    Unit::new(8)
}

/// Whole blocks that are stored from sector `sector` of the device on.
fn whole(first: u32, sector: u64, checksums: &[u32]) -> Extent<'_> {
    Extent {
        first,
        address: Address::new(sector * unit().units(super::SECTOR_BYTES)),
        tail_sectors: super::SECTORS_MAX,
        exponent: 3,
        checksums,
    }
}
