//! Where the structures of a store are on media, and ways to damage them.

use esker::device::{Device, SimulatedDevice};
use esker::format::{Geometry, ImageRef, Piece, PieceHeader, Root, SegmentHeader, Superblock};

pub struct Layout {
    pub superblock: Superblock,
    pub root: Root,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Flip,
    Zero,
    Truncate,
}

pub const DAMAGES: [Damage; 3] = [Damage::Flip, Damage::Zero, Damage::Truncate];

impl Layout {
    /// Of a store with at least one root.
    pub fn read(device: &SimulatedDevice) -> Self {
        let superblock = superblock(device);
        let root = superblock
            .roots
            .iter()
            .flat_map(|root| &root.copies)
            .find_map(|copy| read_piece(device, &superblock.geometry, copy))
            .expect("a root");
        Self { superblock, root }
    }

    pub fn has_root(device: &SimulatedDevice) -> bool {
        !superblock(device).roots.is_empty()
    }

    pub fn root_copies(&self) -> Vec<Piece> {
        let roots = self.superblock.roots.iter();
        roots.flat_map(|root| root.copies.clone()).collect()
    }

    pub fn newest_root(&self) -> Vec<Piece> {
        self.superblock.roots[0].copies.clone()
    }

    /// Pieces of the newest image of each partition.
    pub fn newest(&self) -> Vec<Vec<Piece>> {
        let images = self.root.partitions.iter().map(|images| &images.newest);
        images.map(pieces).collect()
    }

    /// Pieces of the older image of each partition.
    pub fn older(&self) -> Vec<Vec<Piece>> {
        let images = self.root.partitions.iter().map(|images| &images.older);
        images.map(pieces).collect()
    }

    pub fn damage<'a>(
        &self,
        device: &SimulatedDevice,
        pieces: impl IntoIterator<Item = &'a Piece>,
        how: Damage,
    ) {
        for piece in pieces {
            let at =
                self.superblock.geometry.segment_offset(piece.segment) + u64::from(piece.offset);
            let len = piece.bytes as usize;
            match how {
                Damage::Flip => device.flip_bit(at, u64::from(piece.bytes) * 8 * 2 / 3),
                Damage::Zero => device.erase(at, len),
                Damage::Truncate => device.erase(at + len as u64 / 2, len - len / 2),
            }
        }
    }
}

/// The newest superblock of a store.
pub fn superblock(device: &SimulatedDevice) -> Superblock {
    Geometry::superblock_offsets(device.capacity())
        .iter()
        .filter_map(|offset| Superblock::decode(&device.read_raw(*offset, 4096)).ok())
        .max_by_key(|superblock| superblock.sequence)
        .expect("a superblock")
}

fn pieces(image: &Option<ImageRef>) -> Vec<Piece> {
    image
        .iter()
        .flat_map(|image| image.pieces.clone())
        .collect()
}

fn read_piece(device: &SimulatedDevice, geometry: &Geometry, piece: &Piece) -> Option<Root> {
    let start = geometry.segment_offset(piece.segment);
    let header = SegmentHeader::decode(&device.read_raw(start, 512)).ok()?;
    let bytes = device.read_raw(start + u64::from(piece.offset), piece.bytes as usize);
    let (_, body) = PieceHeader::decode(&bytes, header.seed(), u64::from(piece.offset)).ok()?;
    Root::decode(body).ok()
}
