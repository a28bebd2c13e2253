//! Finding, making and updating superblocks.
//!
//! There are four slots: two at the front of the device and two at its end. Sequence `n`
//! goes to slot `n % 2` of both places, and when it is durable there to the other slot of
//! both: copies of `n - 1` stay intact until `n` is durable (D1), and nothing is done on the
//! strength of `n` before all four slots have it. Any one valid copy opens the store; the
//! highest sequence wins.
//!
//! A slot may hold a superblock of another store, valid and of a higher sequence (a block
//! written to the wrong device, a store made over an old one of another size). Then those
//! count that are of the store the segments are of.

use crate::device::{AlignedBuf, Device, WriteOp};
use crate::format::{
    FRONT_BYTES, Geometry, Invalid, SEGMENT_BYTES_MIN, SUPERBLOCK_BYTES, SegmentHeader, Superblock,
    VERSION,
};
use crate::{Error, Result};

use super::scanner::read_retrying;

/// Segment headers that must agree before the geometry they tell is believed without
/// looking further.
const VOTES: u32 = 8;
/// Places looked at for segment headers when there is no superblock: 128 GiB of the
/// smallest segments.
const PROBES_MAX: u64 = 1 << 20;
/// The newest superblock and the state of its slots.
pub(crate) struct Superblocks {
    pub(crate) current: Superblock,
    /// Whether each pair of slots has a copy of it.
    has_copy: [bool; 2],
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

    /// The newest valid superblock of the store.
    fn newest(&self, device: &dyn Device) -> Option<&Superblock> {
        choose(device, self.slots.iter().flatten())
    }
}

/// The newest superblock; where slots are of several stores, of the one that the segments
/// are of, else of the one with most slots.
pub(crate) fn choose<'a>(
    device: &dyn Device,
    valid: impl Iterator<Item = &'a Superblock> + Clone,
) -> Option<&'a Superblock> {
    let newest = valid.clone().max_by_key(|slot| slot.sequence)?;
    if valid.clone().all(|other| other.geometry == newest.geometry) {
        return Some(newest);
    }
    let newest_of = |geometry| {
        let of_store = valid.clone().filter(|slot| slot.geometry == geometry);
        of_store.max_by_key(|slot| slot.sequence)
    };
    if let Some(own) = probe_geometry(device).and_then(newest_of) {
        return Some(own);
    }
    let slots_of = |geometry| {
        valid
            .clone()
            .filter(|slot| slot.geometry == geometry)
            .count()
    };
    valid
        .clone()
        .max_by_key(|slot| (slots_of(slot.geometry), slot.sequence))
}

/// The geometry that segment headers tell: each carries all of it, and where it belongs.
pub(crate) fn probe_geometry(device: &dyn Device) -> Option<Geometry> {
    let mut block = AlignedBuf::zeroed(4096);
    let mut votes: Vec<(Geometry, u32)> = Vec::new();
    for number in 0..PROBES_MAX {
        let offset = FRONT_BYTES + number * SEGMENT_BYTES_MIN;
        if offset + 4096 > device.capacity() {
            break;
        }
        if device.read(offset, &mut block).is_err() {
            continue;
        }
        let Ok(header) = SegmentHeader::decode(&block) else {
            continue;
        };
        if header.geometry.segment_offset(header.segment) != offset {
            continue;
        }
        match votes.iter_mut().find(|(seen, _)| *seen == header.geometry) {
            Some((geometry, count)) => {
                *count += 1;
                if *count == VOTES {
                    return Some(*geometry);
                }
            }
            None => votes.push((header.geometry, 1)),
        }
    }
    let most = votes.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(geometry, _)| geometry)
}

/// The newest superblock of a device.
pub(crate) fn find_superblock(device: &dyn Device) -> Result<Superblocks> {
    let slots = Slots::read(device)?;
    if let Some(newest) = slots.newest(device) {
        if newest.geometry.capacity > device.capacity() {
            return Err(Error::Corrupt {
                offset: 0,
                why: Invalid::Field("capacity over the device's size"),
            });
        }
        let contents: Vec<_> = slots.slots.iter().map(|slot| slot.as_ref()).collect();
        return Ok(Superblocks::new(newest.clone(), &contents));
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
    let mut superblocks = Superblocks::new(first, &[]);
    superblocks.write(device)?;
    Ok(superblocks)
}

impl Superblocks {
    /// `slots`: what the four slots hold, in their order.
    pub(crate) fn new(
        current: Superblock,
        slots: &[std::result::Result<&Superblock, &Invalid>],
    ) -> Self {
        let has_copy = [0, 1].map(|pair| {
            let mut of_pair = slots.iter().skip(pair).step_by(2).flatten();
            of_pair.any(|slot| {
                // A repair gives it a sequence of its own.
                let sequence = current.sequence;
                Superblock {
                    sequence,
                    ..(*slot).clone()
                } == current
            })
        });
        Self { current, has_copy }
    }

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
        // A pair that holds the only copies of the one before is written last (D1).
        let second_first = match self.has_copy {
            [true, false] => true,
            [false, true] => false,
            _ => self.current.sequence % 2 == 1,
        };
        if second_first {
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
        self.has_copy = [true; 2];
        Ok(())
    }
}
