//! Finding, making and updating superblocks.
//!
//! There are four slots: two at the front of the device and two at its end. Sequence `n`
//! goes to slot `n % 2` of both places, and when it is durable there to the other slot of
//! both: copies of `n - 1` stay intact until `n` is durable (D1), and nothing is done on the
//! strength of `n` before all four slots have it. Any one valid copy opens the store; the
//! highest sequence wins.

use crate::device::{AlignedBuf, Device, WriteOp};
use crate::format::{Geometry, Invalid, SUPERBLOCK_BYTES, Superblock, VERSION};
use crate::{Error, Result};

use super::scanner::read_retrying;

/// The newest superblock and the state of its slots.
pub(crate) struct Superblocks {
    pub(crate) current: Superblock,
}

/// What the four slots hold.
pub(crate) struct Slots {
    pub(crate) slots: [std::result::Result<Superblock, Invalid>; 4],
    versions: [Option<u32>; 4],
}

impl Slots {
    /// Reads all slots of a device.
    pub(crate) fn read(device: &dyn Device) -> Result<Self> {
        let capacity = device.capacity();
        if capacity < Geometry::SMALLEST {
            return Err(Error::NotFound {
                what: "a store (the file is too small to be one)".into(),
            });
        }
        let offsets = Geometry::superblock_offsets(capacity);
        let mut slot = AlignedBuf::zeroed(SUPERBLOCK_BYTES as usize);
        let mut versions = [None; 4];
        let mut failed = None;
        let mut slots = [const { Err(Invalid::Truncated) }; 4];
        for ((offset, found), version) in offsets.iter().zip(&mut slots).zip(&mut versions) {
            match read_retrying(device, *offset, &mut slot) {
                Ok(()) => {
                    *found = Superblock::decode(&slot);
                    *version = Superblock::version(&slot);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if slots.iter().all(std::result::Result::is_err) => Err(error),
            _ => Ok(Self { slots, versions }),
        }
    }

    /// The newest valid superblock.
    pub(crate) fn newest(&self) -> Option<&Superblock> {
        self.slots
            .iter()
            .filter_map(|slot| slot.as_ref().ok())
            .max_by_key(|slot| slot.sequence)
    }
}

/// The newest superblock of a device.
pub(crate) fn find_superblock(device: &dyn Device) -> Result<Superblocks> {
    let slots = Slots::read(device)?;
    if let Some(newest) = slots.newest() {
        if newest.geometry.capacity > device.capacity() {
            return Err(Error::Corrupt {
                offset: 0,
                why: Invalid::Field("capacity over the device's size"),
            });
        }
        return Ok(Superblocks {
            current: newest.clone(),
        });
    }
    if let Some(found) = slots
        .versions
        .iter()
        .flatten()
        .find(|version| **version != VERSION)
    {
        return Err(Error::Version {
            found: *found,
            supported: VERSION,
        });
    }
    let damaged = slots
        .slots
        .iter()
        .any(|slot| !matches!(slot, Err(Invalid::Magic | Invalid::Truncated)));
    if damaged {
        return Err(Error::Corrupt {
            offset: 0,
            why: Invalid::Missing("every superblock"),
        });
    }
    Err(Error::NotFound {
        what: "a superblock".into(),
    })
}

/// Makes the first superblock of a store and writes it to all four slots.
pub(crate) fn create_superblocks(
    device: &dyn Device,
    geometry: Geometry,
    first_number: u64,
) -> Result<Superblocks> {
    let first = Superblock {
        sequence: first_number,
        geometry,
        epoch: first_number,
        cuts: Vec::new(),
        clean: None,
        roots: Vec::new(),
    };
    let mut superblocks = Superblocks { current: first };
    superblocks.write(device)?;
    Ok(superblocks)
}

impl Superblocks {
    /// Changes the superblock and makes the change durable.
    pub(crate) fn update(
        &mut self,
        device: &dyn Device,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<u64> {
        let mut next = self.current.clone();
        next.sequence += 1;
        change(&mut next);
        let before = std::mem::replace(&mut self.current, next);
        self.write(device).inspect_err(|_| self.current = before)?;
        Ok(4 * SUPERBLOCK_BYTES)
    }

    fn write(&mut self, device: &dyn Device) -> Result<()> {
        let slot = AlignedBuf::from(self.current.encode().as_slice());
        let [front, front_too, back, back_too] =
            Geometry::superblock_offsets(self.current.geometry.capacity);
        let mut pairs = [[front, back], [front_too, back_too]];
        if self.current.sequence % 2 == 1 {
            pairs.reverse();
        }
        for [front, back] in pairs {
            let ops = [front, back].map(|offset| WriteOp {
                offset,
                data: &slot,
            });
            device.write_and_flush(&ops).map_err(|source| Error::Io {
                op: "write and flush",
                offset: front,
                source,
            })?;
        }
        Ok(())
    }
}
