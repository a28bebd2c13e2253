//! Roots and images: reading and verifying every copy.

use crate::format::{ImageRef, Invalid, Piece, PieceHeader, PieceKind, Root, RootRef, SegmentId};
use crate::log::READ_RETRIES;

use super::media::Media;
use super::report::{CheckReport, Structure};

impl Media {
    /// Byte offset on the device of a piece.
    pub(super) fn piece_offset(&self, piece: &Piece) -> u64 {
        self.geometry.segment_offset(piece.segment) + u64::from(piece.offset)
    }

    /// The verified body of a piece.
    pub(super) fn read_piece(
        &self,
        piece: &Piece,
        expected: PieceHeader,
    ) -> std::result::Result<Vec<u8>, Invalid> {
        let header = self
            .header(piece.segment)
            .ok_or(Invalid::Missing("a checkpoint segment"))?;
        let end = u64::from(piece.offset) + u64::from(piece.bytes);
        if end > self.geometry.segment_bytes {
            return Err(Invalid::Field("piece"));
        }
        let mut why = Invalid::Truncated;
        for _ in 0..=READ_RETRIES {
            let bytes = self.read_around(self.piece_offset(piece), u64::from(piece.bytes));
            let Some(bytes) = bytes else { continue };
            match PieceHeader::decode(&bytes, header.seed(), u64::from(piece.offset)) {
                Ok((found, body)) if found == expected => return Ok(body.to_vec()),
                Ok(_) => return Err(Invalid::Field("piece")),
                Err(fault) => why = fault,
            }
        }
        Err(why)
    }

    /// The root in one of its copies.
    pub(super) fn read_root(
        &self,
        root: &RootRef,
        copy: &Piece,
    ) -> std::result::Result<Root, Invalid> {
        let expected = PieceHeader {
            kind: PieceKind::Root,
            partition: 0,
            index: 0,
            sequence: root.sequence,
        };
        Root::decode(&self.read_piece(copy, expected)?)
    }

    /// The newest root named by the superblock, if a copy of it can be read.
    pub(super) fn newest_root(&self, roots: &[RootRef]) -> Option<Root> {
        let newest = roots.first()?;
        newest
            .copies
            .iter()
            .find_map(|copy| self.read_root(newest, copy).ok())
    }

    /// Reads every piece of an image; the place of the first that does not verify.
    pub(super) fn verify_image(
        &self,
        partition: u32,
        image: &ImageRef,
        body: &mut dyn FnMut(&[u8]) -> std::result::Result<(), Invalid>,
    ) -> std::result::Result<(), (u64, Invalid)> {
        for (index, piece) in (0..).zip(&image.pieces) {
            let expected = PieceHeader {
                kind: PieceKind::Image,
                partition,
                index,
                sequence: image.sequence,
            };
            self.read_piece(piece, expected)
                .and_then(|bytes| body(&bytes))
                .map_err(|why| (self.piece_offset(piece), why))?;
        }
        Ok(())
    }
}

/// Reports every copy of a root and every image of both generations that does not verify.
pub(super) fn check(media: &Media, roots: &[RootRef], report: &mut CheckReport) {
    for root in roots {
        for copy in &root.copies {
            if let Err(why) = media.read_root(root, copy) {
                let offset = media.piece_offset(copy);
                let detail = format!("a copy of root {}: {why}", root.sequence);
                report.error(Structure::Root, offset, detail);
            }
        }
        if root.copies.is_empty() {
            let detail = "a repair was interrupted; run it again".to_owned();
            report.error(Structure::Root, 0, detail);
        }
    }
    let Some(root) = media.newest_root(roots) else {
        return;
    };
    for (partition, images) in (0..).zip(&root.partitions) {
        let generations = [("newest", &images.newest), ("older", &images.older)];
        for (name, image) in generations {
            let Some(image) = image else { continue };
            if let Err((offset, why)) = media.verify_image(partition, image, &mut |_| Ok(())) {
                let detail = format!("the {name} image of partition {partition}: {why}");
                report.error(Structure::Image, offset, detail);
            }
        }
    }
}

/// Whether a root's bitmap has a segment.
pub(super) fn has_segment(bitmap: &[u64], segment: SegmentId) -> bool {
    bitmap
        .get(segment as usize / 64)
        .is_some_and(|word| word >> (segment % 64) & 1 == 1)
}
