//! Applying replayed groups: two threads, each for half of the owner's shards.
//!
//! Applying a record is mostly waiting for the memory of the index. Both lanes see every
//! group in order and apply what concerns their own shards, so every shard sees its writes
//! in the order of seqnos, while the reading thread is already at the next group.

use crate::format::{Kind, Seqno};
use crate::sync::{SharedArc, mpsc};
use crate::{Error, Result};

use super::{Log, Owner, Position, ScannedFrame};

/// Which shards an applying thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    number: usize,
    count: usize,
}

impl Lane {
    /// The lane of every shard.
    pub(crate) const ALL: Self = Self {
        number: 0,
        count: 1,
    };

    /// Whether a shard belongs to the lane.
    pub(crate) fn has(self, shard: usize) -> bool {
        shard % self.count == self.number
    }
}

const LANES: usize = 2;
/// Groups read ahead of the slower lane: bounds memory to this many groups.
const GROUPS_AHEAD: usize = 3;

type Group = SharedArc<Vec<ScannedFrame>>;

/// The lanes of one replay.
pub(super) struct Appliers<'scope> {
    senders: Vec<mpsc::SyncSender<Group>>,
    threads: Vec<std::thread::ScopedJoinHandle<'scope, Result<()>>>,
}

impl<'scope> Appliers<'scope> {
    /// Starts the lanes.
    pub(super) fn start<'env>(
        scope: &'scope std::thread::Scope<'scope, 'env>,
        log: &'env Log,
        owner: &'env dyn Owner,
    ) -> Self {
        let mut appliers = Self {
            senders: Vec::new(),
            threads: Vec::new(),
        };
        for number in 0..LANES {
            let (sender, receiver) = mpsc::sync_channel::<Group>(GROUPS_AHEAD);
            let lane = Lane {
                number,
                count: LANES,
            };
            appliers.senders.push(sender);
            appliers.threads.push(scope.spawn(move || {
                for group in receiver {
                    apply(log, owner, &group, lane)?;
                }
                Ok(())
            }));
        }
        appliers
    }

    /// Hands a group to all lanes. False when a lane failed: `finish` says why.
    pub(super) fn send(&self, frames: Vec<ScannedFrame>) -> bool {
        let group = SharedArc::new(frames);
        self.senders
            .iter()
            .all(|sender| sender.send(group.clone()).is_ok())
    }

    /// Waits until everything is applied.
    pub(super) fn finish(self) -> Result<()> {
        drop(self.senders);
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(error) => outcome = error,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    }
}

fn apply(log: &Log, owner: &dyn Owner, frames: &[ScannedFrame], lane: Lane) -> Result<()> {
    let geometry = log.geometry();
    let mut records = Vec::new();
    for frame in frames {
        let head = log.table().segment(frame.segment).head();
        frame.visit(geometry, &mut |found| {
            let position = Position {
                address: geometry.address(frame.segment, found.offset),
                seqno: found.seqno,
                head,
                payload: found
                    .payload
                    .and_then(|payload| Some(geometry.address(frame.segment, payload.offset?))),
            };
            if found.record.kind == Kind::Object && lane.number == 0 {
                log.table().segment(frame.segment).add_pinned(found.seqno);
            }
            if found.record.kind.is_tombstone() && lane.number == 0 {
                let bytes = log.record_bytes(found.record.length) as u32;
                log.table()
                    .segment(frame.segment)
                    .add_tombstone(found.seqno, bytes);
            }
            records.push((position, found.record));
            Ok::<_, Error>(())
        })?;
    }
    let mut order: Vec<(Seqno, u32)> = (0..)
        .zip(&records)
        .map(|(index, (position, _))| (position.seqno, index))
        .collect();
    // Each frame is in order already: a stable sort merges them, it does not start anew.
    order.sort();
    for (_, index) in order {
        if let Some((position, record)) = records.get(index as usize) {
            owner.replay(log, record, *position, lane)?;
        }
    }
    Ok(())
}
