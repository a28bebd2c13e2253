//! Whether everything acknowledged is there: ends of segments, holes, gaps.

use crate::format::{Class, Extent, HEAD_COUNT, Invalid};
use crate::{Error, Result};

use super::super::SegmentScanner;
use super::{Found, Replay, header_of};

/// How far behind the end of a segment recovery looks for a frame that shows damage: more
/// than a frame of most groups, and a few milliseconds for all open heads.
const GAP_BYTES_MAX: u64 = 4 << 20;

impl Replay<'_> {
    /// Frames of a segment are in the order of their groups, and one group is in the air at a
    /// time: a frame behind one that does not verify says that there is damage, not the end
    /// of the log. Unless both are of the last group, which then is incomplete: no later group
    /// was met, here or elsewhere, and the frame says how far the segment was durable before
    /// its group, and that much was read.
    pub(super) fn check_gap(&self, scanner: &mut SegmentScanner) -> Result<()> {
        if scanner.is_sealed() {
            return Ok(());
        }
        let end = scanner.end();
        let device = &*self.log.device;
        let Some((mut at, frame)) = scanner.find_frame(device, GAP_BYTES_MAX)? else {
            return Ok(());
        };
        let (mut last, mut frame_bytes) = (frame.group, frame.frame_bytes);
        while let Some((found, later)) =
            scanner.find_frame_from(device, at + u64::from(frame_bytes), GAP_BYTES_MAX)?
        {
            (at, last, frame_bytes) = (found, later.group, later.frame_bytes);
            if last != frame.group {
                break;
            }
        }
        let header = &scanner.header;
        let is_of_last_group = Some(header.epoch) == self.unsettled
            && frame.frame_count > 1
            && frame.group > self.flushed_group
            && frame.group >= self.seen_group
            && last == frame.group;
        let before = frame
            .extents
            .iter()
            .find(|extent| extent.end > 0 && extent.segment == header.segment);
        if is_of_last_group && before.is_none_or(|extent| u64::from(extent.end) <= end) {
            return Ok(());
        }
        let offset = self.log.geometry.segment_offset(header.segment) + end;
        Err(Error::Corrupt {
            offset,
            why: Invalid::Missing("an acknowledged frame"),
        })
    }

    /// Segments are first used in the order of their numbers, each header durable before a
    /// later one is in use: a hole below an accepted header is damage (D8).
    pub(super) fn check_holes(&self) -> Result<()> {
        let newest_group = self
            .headers
            .iter()
            .filter_map(header_of)
            .map(|header| header.group)
            .max();
        let in_use = |found: &Found| {
            header_of(found).is_some_and(|header| {
                matches!(header.class, Class::Data(_) | Class::Checkpoint)
                    && (Some(header.epoch) != self.unsettled || Some(header.group) < newest_group)
                    && header.group <= self.last_group_of(header.epoch)
            })
        };
        let end = self.headers.iter().rposition(in_use);
        for (segment, found) in (0..).zip(self.headers) {
            let why = match found {
                Found::Header(_) => continue,
                Found::Blank if end.is_none_or(|end| segment as usize > end) => continue,
                Found::Blank => Invalid::Missing("a segment header"),
                Found::Damaged(why) => *why,
            };
            return Err(Error::Corrupt {
                offset: self.log.geometry.segment_offset(segment),
                why,
            });
        }
        Ok(())
    }

    /// Notes how far the heads' segments had been filled before a group: all of it was flushed.
    pub(super) fn note_extents(&mut self, group: u64, extents: &[Extent; HEAD_COUNT]) {
        if group >= self.extents_group {
            self.extents_group = group;
            self.extents = *extents;
        }
    }

    /// Every scanned segment must have ended where it should.
    pub(super) fn check_ends(&self) -> Result<()> {
        let superblock = self.log.superblocks.lock().current.clone();
        for (header, end) in &self.unsealed {
            let (last_group, extents) = if Some(header.epoch) == self.unsettled {
                let last = if *end == header.geometry.header_bytes() {
                    // Its first frame was written with the header, so that group was flushed
                    // too, whatever frames of it are seen.
                    self.flushed_group
                } else {
                    0
                };
                (
                    last.max(self.extents_group.saturating_sub(1)),
                    &self.extents,
                )
            } else {
                match superblock.cuts.iter().find(|cut| cut.epoch == header.epoch) {
                    Some(cut) => (cut.group, &cut.extents),
                    None => (u64::MAX, &[Extent::default(); HEAD_COUNT]),
                }
            };
            let known = extents
                .iter()
                .find(|extent| extent.end > 0 && extent.segment == header.segment);
            let whole = match known {
                Some(extent) => u64::from(extent.end) <= *end,
                None => header.group > last_group,
            };
            if !whole {
                let offset = self.log.geometry.segment_offset(header.segment) + end;
                return Err(Error::Corrupt {
                    offset,
                    why: Invalid::Missing("an acknowledged frame"),
                });
            }
        }
        Ok(())
    }
}
