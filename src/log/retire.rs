//! Doing without a cut: the frames it denies are taken off the media.
//!
//! A superblock holds [`CUTS_MAX`] cuts, and cuts go when two generations of images cover
//! their epochs. A store that crashes again and again before it has taken those would run
//! out of them. Then the oldest is retired: every segment of its epoch that had not been
//! sealed gets an empty sealing frame where its accepted frames end, over frames that were
//! never acknowledged, and segments the dropped group opened are freed. Nothing acknowledged
//! is overwritten, and doing it twice, as a crash in between makes recovery do, is the same
//! as doing it once.
//!
//! [`CUTS_MAX`]: crate::format::CUTS_MAX

use crate::device::{AlignedBuf, WriteOp};
use crate::format::{
    CUTS_MAX, Class, Cut, Extent, FRAME_HEADER_BYTES, FrameHeader, HEAD_COUNT, SegmentHeader,
};
use crate::{Error, Result};

use super::recovery::{Found, header_of};
use super::{Log, State};

impl Log {
    /// Takes the oldest cuts away until the rest fits in a superblock, which may be written
    /// once the device is flushed. `headers`: all on media.
    pub(super) fn retire_surplus(&self, cuts: &mut Vec<Cut>, headers: &[Found]) -> Result<()> {
        let surplus = cuts.len().saturating_sub(CUTS_MAX);
        for cut in cuts.drain(..surplus) {
            self.retire_cut(&cut, headers.iter().filter_map(header_of))?;
        }
        Ok(())
    }

    fn retire_cut(&self, cut: &Cut, headers: impl Iterator<Item = SegmentHeader>) -> Result<()> {
        let of_epoch = headers
            .filter(|header| header.epoch == cut.epoch && matches!(header.class, Class::Data(_)));
        for header in of_epoch {
            if header.group > cut.group {
                self.write_free_header(header.segment, Class::Free)?;
                self.table.segment(header.segment).set_state(State::Free);
                continue;
            }
            let extent = cut
                .extents
                .iter()
                .find(|extent| extent.end > 0 && extent.segment == header.segment);
            if let Some(extent) = extent {
                self.seal_after_crash(cut, &header, *extent)?;
            }
        }
        Ok(())
    }

    fn seal_after_crash(&self, cut: &Cut, header: &SegmentHeader, extent: Extent) -> Result<()> {
        let end = u64::from(extent.end);
        if end >= self.geometry.segment_bytes {
            return Ok(());
        }
        let frame = FrameHeader {
            frame_bytes: self.geometry.block_bytes,
            data_bytes: FRAME_HEADER_BYTES as u32,
            record_count: 0,
            seals: true,
            payload: false,
            frame_index: 0,
            frame_count: 1,
            group: cut.group,
            base_seqno: cut.seqno,
            last_seqno: cut.seqno,
            clock: 0,
            extents: [Extent::default(); HEAD_COUNT],
        };
        let mut block = AlignedBuf::zeroed(self.geometry.block_bytes as usize);
        frame.encode(header.seed(), end, &mut block);
        let offset = self.geometry.segment_offset(header.segment) + end;
        let op = WriteOp {
            offset,
            data: &block,
        };
        self.device.write_many(&[op]).map_err(|source| Error::Io {
            op: "write",
            offset,
            source,
        })
    }
}
