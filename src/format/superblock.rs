//! The superblock: identity, open-epoch, cuts of crashed epochs, where the roots are.
//!
//! ```text
//! 0   magic     u64
//! 8   checksum  u64   xxh3 of everything after it that is in use
//! 16  version   u32
//! 20  body      u32   length in bytes
//! 24  sequence  u64   the highest valid one wins
//! 32  body            rkyv archive
//! ```

use rkyv::{Archive, Deserialize, Serialize, rancor};
use xxhash_rust::xxh3::xxh3_64;

use super::bytes::{FieldWriter, u32_at, u64_at};
use super::{Extent, Geometry, HEAD_COUNT, Invalid, RootRef, SUPERBLOCK_BYTES, Seqno};

const MAGIC: u64 = u64::from_le_bytes(*b"esker.sb");
const HEADER_BYTES: usize = 32;

/// Most cuts a superblock holds; an open that would pass it checkpoints first.
pub const CUTS_MAX: usize = 24;

/// The last group of a crashed epoch that counts: later frames of that epoch do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Cut {
    /// The epoch.
    pub epoch: u64,
    /// Its last group that counts.
    pub group: u64,
    /// The last seqno that counts.
    pub seqno: Seqno,
    /// How far the segments that were open then are valid.
    pub extents: [Extent; HEAD_COUNT],
}

impl Cut {
    /// Whether replay may meet frames of the epoch that do not exist. Images taken before
    /// the crash have horizons up to the next seqno after the cut, images taken after it
    /// higher ones (recovery leaves one out): then every segment of the epoch is covered.
    #[must_use]
    pub fn is_needed(&self, older_horizon: Seqno) -> bool {
        self.seqno + 1 >= older_horizon
    }
}

/// Left by a complete orderly stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Clean {
    /// The next seqno.
    pub next_seqno: Seqno,
    /// The next group.
    pub next_group: u64,
    /// The clock (bytes of user records).
    pub clock: u64,
}

/// A superblock.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Superblock {
    /// Counts superblock writes; the highest valid copy wins.
    pub sequence: u64,
    /// Identity and sizes.
    pub geometry: Geometry,
    /// Counts read-write opens.
    pub epoch: u64,
    /// Cuts of epochs that ended in a crash, oldest first.
    pub cuts: Vec<Cut>,
    /// Set when the store was closed in order.
    pub clean: Option<Clean>,
    /// The newest two roots, newest first.
    pub roots: Vec<RootRef>,
}

impl Superblock {
    /// The bytes of a slot.
    ///
    /// # Panics
    /// If there are more cuts or roots than a slot holds.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.cuts.len() <= CUTS_MAX && self.roots.len() <= 2,
            "superblock over its bounds"
        );
        let body = rkyv::to_bytes::<rancor::Error>(self).unwrap_or_default();
        assert!(!body.is_empty() && HEADER_BYTES + body.len() <= SUPERBLOCK_BYTES as usize);
        let mut slot = vec![0; SUPERBLOCK_BYTES as usize];
        slot[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(&body);
        FieldWriter::new(&mut slot)
            .u64(MAGIC)
            .u64(0)
            .u32(super::VERSION)
            .u32(body.len() as u32)
            .u64(self.sequence);
        let checksum = xxh3_64(&slot[16..HEADER_BYTES + body.len()]);
        slot[8..16].copy_from_slice(&checksum.to_le_bytes());
        slot
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// What does not check; a version this build does not know is
    /// [`Invalid::Field`]`("version")` behind a valid checksum, see [`Self::version`].
    pub fn decode(slot: &[u8]) -> Result<Self, Invalid> {
        let body = checked_body(slot)?;
        if u32_at(slot, 16)? != super::VERSION {
            return Err(Invalid::Field("version"));
        }
        let superblock =
            rkyv::from_bytes::<Self, rancor::Error>(body).map_err(|_| Invalid::Field("archive"))?;
        superblock.geometry.validate()?;
        if superblock.sequence != u64_at(slot, 24)? {
            return Err(Invalid::Field("sequence"));
        }
        if superblock.cuts.len() > CUTS_MAX || superblock.roots.len() > 2 {
            return Err(Invalid::Field("superblock lists"));
        }
        Ok(superblock)
    }

    /// The version of a slot whose checksum is right.
    #[must_use]
    pub fn version(slot: &[u8]) -> Option<u32> {
        checked_body(slot).ok()?;
        u32_at(slot, 16).ok()
    }
}

fn checked_body(slot: &[u8]) -> Result<&[u8], Invalid> {
    if u64_at(slot, 0)? != MAGIC {
        return Err(Invalid::Magic);
    }
    let body_bytes = u32_at(slot, 20)? as usize;
    if body_bytes > SUPERBLOCK_BYTES as usize {
        return Err(Invalid::Field("body length"));
    }
    let covered = slot
        .get(16..HEADER_BYTES + body_bytes)
        .ok_or(Invalid::Truncated)?;
    if u64_at(slot, 8)? != xxh3_64(covered) {
        return Err(Invalid::Checksum);
    }
    slot.get(HEADER_BYTES..HEADER_BYTES + body_bytes)
        .ok_or(Invalid::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Piece;

    #[test]
    fn round_trip_when_full_and_every_flip_is_refused() {
        let geometry = Geometry::plan(64 << 20, None, 512, [7; 16], [9; 16]).unwrap();
        let piece = Piece {
            segment: 3,
            offset: 512,
            bytes: 700,
        };
        let root = RootRef {
            sequence: 4,
            copies: vec![piece, piece],
        };
        let superblock = Superblock {
            sequence: 99,
            geometry,
            epoch: 7,
            cuts: vec![
                Cut {
                    epoch: 1,
                    group: 2,
                    seqno: 3,
                    extents: [Extent::default(); HEAD_COUNT],
                };
                CUTS_MAX
            ],
            clean: Some(Clean {
                next_seqno: 1,
                next_group: 2,
                clock: 3,
            }),
            roots: vec![root.clone(), root],
        };
        let slot = superblock.encode();
        assert_eq!(Superblock::decode(&slot), Ok(superblock));
        let used = 32 + u32_at(&slot, 20).unwrap() as usize;
        for bit in 0..used * 8 {
            let mut bad = slot.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bad).is_err());
        }
        for len in 0..used {
            assert!(Superblock::decode(&slot[..len]).is_err());
        }
    }
}
