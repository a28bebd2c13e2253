//! Reading ahead for the space thread: the next victim's first bytes, while the present
//! one's records are moved.
//!
//! What is read is the content of a sealed and written segment. It cannot change in that
//! life of the segment (D2), and only the space thread ends the life, so bytes asked for
//! under a seed are right for as long as the segment has that seed.

use crate::device::{AlignedBuf, Device};
use crate::format::{Geometry, Seed, SegmentId};
use crate::sync::mpsc;

use super::scanner::{WINDOW_BYTES, read_retrying};

/// A read to do, and its memory.
struct Wanted {
    segment: SegmentId,
    bytes: AlignedBuf,
}

/// The bytes, and whether they could be read.
struct Read {
    bytes: AlignedBuf,
    is_good: bool,
}

/// The space thread's end.
pub(crate) struct ReadAhead {
    ask: mpsc::SyncSender<Wanted>,
    answers: mpsc::Receiver<Read>,
    asked: Option<(SegmentId, Seed)>,
    spare: AlignedBuf,
}

/// The reading thread's end.
pub(crate) struct Reader {
    asked: mpsc::Receiver<Wanted>,
    answer: mpsc::SyncSender<Read>,
}

/// Both ends.
pub(crate) fn read_ahead() -> (ReadAhead, Reader) {
    let (ask, asked) = mpsc::sync_channel(1);
    let (answer, answers) = mpsc::sync_channel(1);
    let ahead = ReadAhead {
        ask,
        answers,
        asked: None,
        spare: AlignedBuf::new(),
    };
    (ahead, Reader { asked, answer })
}

impl ReadAhead {
    /// Asks for the first bytes of a segment, unless a read is under way.
    pub(crate) fn ask(&mut self, segment: SegmentId, seed: Seed) {
        if self.asked.is_some() {
            return;
        }
        let bytes = std::mem::take(&mut self.spare);
        if self.ask.send(Wanted { segment, bytes }).is_ok() {
            self.asked = Some((segment, seed));
        }
    }

    /// The first bytes of a segment in this life, when they were asked for; waits for the
    /// read. `memory` is used for the next one.
    pub(crate) fn take(
        &mut self,
        segment: SegmentId,
        seed: Seed,
        memory: &mut AlignedBuf,
    ) -> Option<AlignedBuf> {
        let asked = self.asked.take()?;
        let read = self.answers.recv().ok()?;
        if asked == (segment, seed) && read.is_good {
            self.spare = std::mem::take(memory);
            Some(read.bytes)
        } else {
            self.spare = read.bytes;
            None
        }
    }
}

impl Reader {
    /// Reads what is asked for until the other end is gone.
    pub(crate) fn run(self, device: &dyn Device, geometry: &Geometry) {
        while let Ok(Wanted { segment, mut bytes }) = self.asked.recv() {
            let is_good = read_first(device, geometry, segment, &mut bytes);
            if self.answer.send(Read { bytes, is_good }).is_err() {
                return;
            }
        }
    }
}

/// Reads the first bytes of a segment, header included; says whether it could.
pub(crate) fn read_first(
    device: &dyn Device,
    geometry: &Geometry,
    segment: SegmentId,
    bytes: &mut AlignedBuf,
) -> bool {
    bytes.resize_for_overwrite(WINDOW_BYTES.min(geometry.segment_bytes) as usize);
    read_retrying(device, geometry.segment_offset(segment), bytes).is_ok()
}
