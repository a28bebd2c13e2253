//! The model: each member of a family as a list of blocks, and the device as sectors that
//! are live or not.

use fastrand::Rng;

use crate::format::Address;
use crate::object::extents::{
    BLOCKS_MAX, BlockRef, Dropped, Extent, ExtentMap, Move, References, SECTOR_BYTES, SECTORS_MAX,
    Unit, relocate,
};

/// One block of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// First sector on the device.
    pub(super) sector: u64,
    pub(super) sectors: u8,
    pub(super) checksum: u32,
    pub(super) exponent: u8,
}

/// A member: the map under test and what it should be.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) map: ExtentMap,
    pub(super) cells: Vec<Option<Cell>>,
}

/// A family under test, and its device.
pub(super) struct Family {
    pub(super) unit: Unit,
    pub(super) references: References,
    pub(super) members: Vec<Member>,
    /// Whether each sector is live, by what the maps reported.
    live: Vec<bool>,
    /// What was written: first block, blocks, first sector. The cleaner moves such pieces.
    written: Vec<(u32, u32, u64)>,
    blocks: u32,
}

/// Marks what died; it must have been live.
fn bury(live: &mut [bool], unit: Unit, piece: Dropped) {
    assert_ne!(piece.bytes, 0);
    let sector = unit.bytes(piece.address.units()) / SECTOR_BYTES;
    for sector in sector..sector + piece.bytes / SECTOR_BYTES {
        assert!(live[sector as usize], "sector {sector} died twice");
        live[sector as usize] = false;
    }
}

impl Family {
    /// A family of one empty object of at most `blocks` blocks.
    pub(super) fn new(unit_bytes: u32, blocks: u32) -> Self {
        let unit = Unit::new(unit_bytes);
        let member = Member {
            map: ExtentMap::new(),
            cells: vec![None; blocks as usize],
        };
        Self {
            unit,
            references: References::new(unit),
            members: vec![member],
            live: vec![false; 8],
            written: Vec::new(),
            blocks,
        }
    }

    fn address(&self, sector: u64) -> Address {
        Address::new(self.unit.units(sector * SECTOR_BYTES))
    }

    /// New sectors on the device, half the time right after the last ones.
    fn allocate(&mut self, rng: &mut Rng, sectors: u64) -> u64 {
        if rng.bool() {
            self.live.resize(self.live.len() + 8, false);
        }
        let sector = self.live.len() as u64;
        self.live.resize(self.live.len() + sectors as usize, false);
        sector
    }

    /// Writes `count` blocks of a member.
    pub(super) fn write(&mut self, rng: &mut Rng, member: usize, first: u32, count: u32) {
        let tail = if rng.u8(..4) == 0 {
            rng.u8(1..=SECTORS_MAX)
        } else {
            SECTORS_MAX
        };
        let checksums: Vec<u32> = (0..count).map(|_| rng.u32(..)).collect();
        let sectors = u64::from(count - 1) * 8 + u64::from(tail);
        let sector = self.allocate(rng, sectors);
        let extent = Extent {
            first,
            address: self.address(sector),
            tail_sectors: tail,
            exponent: rng.u8(3..5),
            checksums: &checksums,
        };
        let (unit, live) = (self.unit, &mut self.live);
        live[sector as usize..].fill(true);
        let Member { map, cells } = &mut self.members[member];
        map.replace(extent, &mut self.references, &mut |piece| {
            bury(live, unit, piece);
        });
        for index in 0..count {
            cells[(first + index) as usize] = Some(Cell {
                sector: sector + u64::from(index) * 8,
                sectors: if index + 1 == count {
                    tail
                } else {
                    SECTORS_MAX
                },
                checksum: checksums[index as usize],
                exponent: extent.exponent,
            });
        }
        self.written.push((first, count, sector));
    }

    fn unmap(&mut self, member: usize, first: u32, end: u64) {
        let (unit, live) = (self.unit, &mut self.live);
        let Member { map, cells } = &mut self.members[member];
        map.unmap(first, end, &mut self.references, &mut |piece| {
            bury(live, unit, piece);
        });
        let end = end.min(cells.len() as u64) as usize;
        cells[(first as usize).min(end)..end].fill(None);
    }

    fn remove(&mut self, member: usize) {
        let (unit, live) = (self.unit, &mut self.live);
        let member = self.members.swap_remove(member);
        member.map.release(&mut self.references, &mut |piece| {
            bury(live, unit, piece);
        });
    }

    /// Moves a piece that was written once, or a part of it.
    fn relocate(&mut self, rng: &mut Rng) {
        if self.written.is_empty() {
            return;
        }
        let (first, count, sector) = self.written[rng.usize(..self.written.len())];
        let skipped = if rng.bool() { 0 } else { rng.u32(..count) };
        let (first, count) = (first + skipped, rng.u32(1..=count - skipped));
        let old = sector + u64::from(skipped) * 8;
        let new = self.allocate(rng, u64::from(count) * 8);
        let change = Move {
            first,
            count,
            old: self.address(old),
            new: self.address(new),
            exponent: rng.u8(3..5),
        };
        let mut moved = vec![0; count as usize];
        for cells in self.members.iter_mut().map(|member| &mut member.cells) {
            for index in 0..u64::from(count) {
                let cell = &mut cells[first as usize + index as usize];
                if let Some(cell) = cell
                    && cell.sector == old + index * 8
                {
                    cell.sector = new + index * 8;
                    cell.exponent = change.exponent;
                    moved[index as usize] = cell.sectors;
                }
            }
        }
        let mut bytes = 0;
        for (index, &sectors) in moved.iter().enumerate() {
            for sector in 0..usize::from(sectors) {
                let at = index * 8 + sector;
                assert!(self.live[old as usize + at]);
                self.live[old as usize + at] = false;
                self.live[new as usize + at] = true;
                bytes += SECTOR_BYTES;
            }
        }
        let mut maps: Vec<&mut ExtentMap> = self
            .members
            .iter_mut()
            .map(|member| &mut member.map)
            .collect();
        let result = relocate(&mut maps, change, &mut self.references);
        assert_eq!(result, bytes);
        if bytes > 0 {
            self.written.push((first, count, new));
        }
    }

    /// A random step; `large` is the most blocks of a write.
    pub(super) fn step(&mut self, rng: &mut Rng, members_max: usize, large: u32) {
        let member = rng.usize(..self.members.len());
        let first = rng.u32(..self.blocks);
        let count = rng.u32(1..=large.min(self.blocks - first));
        match rng.u32(..20) {
            0..=11 => self.write(rng, member, first, count),
            12..=13 => self.unmap(member, first, u64::from(first + count)),
            14 if rng.u32(..3) == 0 => self.unmap(member, first, BLOCKS_MAX),
            15..=16 if self.members.len() < members_max => {
                let copy = self.members[member].clone();
                self.members.push(copy);
            }
            17 if self.members.len() > 1 => self.remove(member),
            _ => self.relocate(rng),
        }
    }

    /// Compares everything with the model.
    pub(super) fn check(&self, rng: &mut Rng) {
        let mut live = vec![false; self.live.len()];
        for member in &self.members {
            self.check_member(member, rng);
            for cell in member.cells.iter().flatten() {
                let from = cell.sector as usize;
                live[from..from + usize::from(cell.sectors)].fill(true);
            }
        }
        assert!(live == self.live, "live sectors differ");
        let mut bytes = 0;
        let counted = References::count(
            self.unit,
            self.members.iter().map(|member| &member.map),
            &mut |piece| bytes += piece.bytes,
        );
        let expected = live.iter().filter(|live| **live).count() as u64 * SECTOR_BYTES;
        assert_eq!(bytes, expected);
        assert!(counted.pieces().eq(self.references.pieces()));
        if self.members.len() == 1 {
            assert!(self.references.is_empty());
        }
    }

    fn check_member(&self, member: &Member, rng: &mut Rng) {
        let Member { map, cells } = member;
        for (block, cell) in cells.iter().enumerate() {
            let expected = cell.map(|cell| BlockRef {
                address: self.address(cell.sector),
                bytes: u32::from(cell.sectors) * SECTOR_BYTES as u32,
                checksum: cell.checksum,
                exponent: cell.exponent,
            });
            assert_eq!(map.get(block as u32), expected, "block {block}");
        }
        assert_eq!(map.get(u32::MAX), None);
        let first = rng.usize(..cells.len());
        let end = rng.usize(first..=cells.len());
        for (first, end) in [(0, cells.len()), (first, end)] {
            let mut found = vec![None; cells.len()];
            for extent in map.range(first as u32, end as u64) {
                assert!(extent.first as usize >= first && extent.end() <= end as u64);
                let sector = self.unit.bytes(extent.address.units()) / SECTOR_BYTES;
                for (index, &checksum) in extent.checksums.iter().enumerate() {
                    let is_last = index + 1 == extent.checksums.len();
                    let sectors = if is_last {
                        extent.tail_sectors
                    } else {
                        SECTORS_MAX
                    };
                    found[extent.first as usize + index] = Some(Cell {
                        sector: sector + index as u64 * 8,
                        sectors,
                        checksum,
                        exponent: extent.exponent,
                    });
                }
            }
            assert!(found[first..end] == cells[first..end]);
        }
        let stored: u64 = cells
            .iter()
            .flatten()
            .map(|cell| u64::from(cell.sectors))
            .sum();
        assert_eq!(map.stored_bytes(), stored * SECTOR_BYTES);
        assert_eq!(map.len_blocks(), cells.iter().flatten().count() as u64);
        let end = cells
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |last| last + 1);
        assert_eq!(map.end_block(), end as u64);
    }
}
