//! A log whose owner is made anew from the records, for `esker check --repair`.
//!
//! The order makes an interruption harmless (the repair is run again): first a new epoch,
//! with the old roots still named, or one that no open can read where there are none, so
//! that an ordinary open refuses as it did before; then images of all partitions and one
//! root that names them all; then a second generation; then the clean mark. Segments of
//! the old images are freed early only if there is no other room.

use crate::device::Device;
use crate::format::{Class, Cut, RootRef, SegmentId, Seqno};
use crate::sync::{Arc, SharedArc};
use crate::{Error, Result};

use super::appender::Start;
use super::checkpoint::Scarcity;
use super::cleaner::Effort;
use super::recovery::{Found, fill_table};
use super::{Log, LogOptions, Owner, SegmentTable, Superblocks};

/// Where a rebuild ended.
pub(crate) struct Rebuilt {
    pub(crate) next_seqno: Seqno,
    pub(crate) next_group: u64,
    pub(crate) clock: u64,
    /// The cut of the last epoch.
    pub(crate) cut: Option<Cut>,
    /// The highest sequences of roots and images seen.
    pub(crate) root_sequence: u64,
    pub(crate) image_sequence: u64,
    /// Segments whose header is damaged and that hold nothing that is needed.
    pub(crate) given_up: Vec<SegmentId>,
}

/// A log with nothing replayed; appends and checkpoints wait for [`Log::finish_rebuild`].
pub(crate) fn log_to_rebuild(
    device: SharedArc<dyn Device>,
    superblocks: Superblocks,
    options: LogOptions,
    headers: &[Found],
) -> Log {
    let table = Arc::new(SegmentTable::new(superblocks.current.geometry));
    fill_table(&table, headers, device.wants_prewrite());
    Log::new(device, options, table, superblocks)
}

impl Log {
    /// Makes what the owner now has the state of the store, and ends in order.
    pub(crate) fn finish_rebuild(
        &self,
        owner: &dyn Owner,
        rebuilt: &Rebuilt,
        headers: &[Found],
    ) -> Result<()> {
        let epoch = {
            let mut superblocks = self.superblocks.lock();
            let mut cuts = superblocks.current.cuts.clone();
            cuts.extend(rebuilt.cut);
            self.retire_surplus(&mut cuts, headers)?;
            self.flush_device()?;
            superblocks.update(&*self.device, |next| {
                next.cuts = cuts;
                next.epoch += 1;
                next.clean = None;
                if next.roots.is_empty() {
                    // It has no copy: an open before the first new root must not take the
                    // whole log for the truth without being told what is unconfirmed.
                    next.roots.push(RootRef {
                        sequence: 0,
                        copies: Vec::new(),
                    });
                }
            })?;
            superblocks.current.epoch
        };
        let start = Start {
            epoch,
            next_seqno: rebuilt.next_seqno,
            next_group: rebuilt.next_group,
            clock: rebuilt.clock,
        };
        self.begin_rebuilt(start, rebuilt.root_sequence, rebuilt.image_sequence);
        for segment in &rebuilt.given_up {
            self.write_free_header(*segment, Class::Free)?;
        }
        self.flush_device()?;
        for _ in 0..2 {
            self.image_all_at_once(owner)?;
        }
        self.close(owner)
    }

    /// Images of all partitions, or none; there is no space thread, so waiting for room would be
    /// for ever.
    fn checkpoint_unwaiting(&self, owner: &dyn Owner, count: u32) -> Result<()> {
        self.checkpoint_locked(self.checkpoint.lock(), owner, count, Scarcity::Fail)
            .map(drop)
    }

    /// One root with fresh images of every partition.
    fn image_all_at_once(&self, owner: &dyn Owner) -> Result<()> {
        let needed = 8 + 2 * owner.image_bytes().div_ceil(self.geometry.segment_bytes) as usize;
        while self.appender.lock().free_count() < needed
            && self.appender.lock().unwritten_count() > 0
        {
            self.prepare_some()?;
        }
        let count = owner.partition_count();
        match self.checkpoint_unwaiting(owner, count) {
            Err(Error::NoSpace { .. }) => {}
            other => return other,
        }
        self.free_old_images();
        self.commit_now()?;
        match self.checkpoint_unwaiting(owner, count) {
            Err(Error::NoSpace { .. }) => {}
            other => return other,
        }
        let mut effort = Effort::new(self.geometry.segment_count, self.geometry.segment_bytes);
        for _ in 0..self.geometry.segment_count {
            if self.appender.lock().free_count() >= needed
                || !self.make_space(owner, &mut effort)?
            {
                break;
            }
        }
        self.free_old_images();
        self.commit_now()?;
        self.checkpoint_unwaiting(owner, count)
    }
}
