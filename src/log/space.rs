//! Room for callers: how much the store takes, and waiting for the cleaner to make some.

use std::time::Duration;

use crate::format::HEAD_COUNT;
use crate::sync::{MODEL, Ordering};
use crate::{Error, Result};

use super::image_room::image_segments;
use super::{Appender, Counters, Log, Room};

impl Log {
    /// Bytes of records the store accepts: what remains when the reserve, two generations
    /// of images with one partition of a third, and the last few percent, without which cleaning
    /// finds nothing to gain, are set aside.
    pub(crate) fn usable_bytes(&self, images: ImageBytes) -> u64 {
        let payload = self.geometry.segment_bytes - self.geometry.header_bytes();
        let bytes = 2 * images.all + images.largest;
        let images = image_segments(bytes, self.geometry.segment_bytes) + IMAGE_SEGMENTS;
        let held = RESERVED_SEGMENTS + images;
        let segments = u64::from(self.geometry.segment_count).saturating_sub(held);
        segments * payload / 100 * USABLE_PERCENT
    }

    /// Most bytes of records that live and new ones may be together while a batch is
    /// written: beyond, no cleaning makes room for what it does not replace yet.
    pub(crate) fn most_bytes(&self, images: ImageBytes) -> u64 {
        self.usable_bytes(images) / USABLE_PERCENT * 100
    }

    /// Images of these bytes of records, and those of operations as the last checkpoint or
    /// open found them.
    pub(crate) fn images_with(&self, record_image_bytes: u64) -> ImageBytes {
        // Relaxed: estimates.
        let [all, largest] = self
            .pinning_images
            .each_ref()
            .map(|bytes| bytes.load(Ordering::Relaxed));
        ImageBytes {
            all: record_image_bytes + all,
            largest,
        }
    }

    /// Waits until there is room; `NoSpace` if none can be made. A caller that passes a
    /// `claim` may get one: then the room is kept for it until it lets the claim go.
    pub(crate) fn wait_for_room<'a>(
        &'a self,
        rooms: &[Room],
        mut claim: Option<&mut Option<Claim<'a>>>,
    ) -> Result<()> {
        self.wait_for_space(&mut |appender| {
            let mut claimed = false;
            if let Some(claim) = claim.as_deref_mut() {
                if claim.is_none() && appender.claim(rooms) {
                    *claim = Some(Claim(self));
                }
                claimed = claim.is_some();
            }
            if appender.has_room(rooms, claimed) {
                Wait::Over
            } else if !claimed && appender.is_held_back(rooms) {
                // Another's claim is in the way, not a lack of room.
                Wait::Excused
            } else {
                Wait::On
            }
        })
    }

    /// Waits as `step` says, which is asked whenever there may be more room; `NoSpace` when
    /// it says so, or the cleaner found nothing to gain for a few times since.
    pub(super) fn wait_for_space(&self, step: &mut dyn FnMut(&mut Appender) -> Wait) -> Result<()> {
        self.starving.fetch_add(1, Ordering::Relaxed);
        let mut appender = self.appender.lock();
        let mut last = self.stuck.load(Ordering::Relaxed) + PATIENCE;
        let mut has_waited = false;
        let result = loop {
            if self.is_poisoned() {
                break Err(Error::Poisoned);
            }
            match step(&mut appender) {
                Wait::Over => break Ok(()),
                // The space thread is gone.
                _ if self.stopping.load(Ordering::Acquire) => {
                    break Err(Error::NoSpace { what: "capacity" });
                }
                Wait::Vain => break Err(Error::NoSpace { what: "capacity" }),
                Wait::Excused => last = self.stuck.load(Ordering::Relaxed) + PATIENCE,
                Wait::On if self.stuck.load(Ordering::Relaxed) >= last => {
                    break Err(Error::NoSpace { what: "capacity" });
                }
                Wait::On => {}
            }
            if !std::mem::replace(&mut has_waited, true) {
                Counters::add(&self.counters.waits_for_room, 1);
            }
            self.work.notify_all();
            appender = self.space.wait_for(appender, Duration::from_millis(100));
        };
        drop(appender);
        self.starving.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Tells those who wait for room that there is none to be made: a checkpoint first, whose
    /// images, those there was room for, may make some.
    pub(super) fn give_up(&self) {
        let mut appender = self.appender.lock();
        let is_told = self.checkpoint_waits.swap(false, Ordering::Relaxed);
        if !is_told && !appender.drop_slack() {
            self.stuck.fetch_add(1, Ordering::Relaxed);
        }
        self.space.notify_all();
    }
}

/// Bytes of one generation of images, at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageBytes {
    pub(crate) all: u64,
    /// Of the largest partition that is not imaged in parts.
    pub(crate) largest: u64,
}

/// What one who waits for room makes of what there is.
pub(super) enum Wait {
    /// It is enough.
    Over,
    /// It is not.
    On,
    /// It is not, and what the cleaner gains says nothing about that.
    Excused,
    /// It is not, and will not be.
    Vain,
}

/// Room kept for one large batch: without it smaller writes would take every segment the
/// cleaner makes free, and the batch would wait for ever.
pub(crate) struct Claim<'a>(&'a Log);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.appender.lock().drop_claim();
        self.0.space.notify_all();
    }
}

/// Times the cleaner must have found nothing to gain before a writer is told that there is
/// no space. The first may have been decided before the writer came.
const PATIENCE: u64 = 3;

/// Segments the store keeps for itself: open heads, the checkpoint's three, the reserve with what
/// is kept for images at least, and a few for the cleaner to work with.
const RESERVED_SEGMENTS: u64 = if MODEL {
    0
} else {
    HEAD_COUNT as u64 + 3 + KEPT_SEGMENTS as u64 + 4
};
/// Segments of images that are not full: those being filled, and one of the older roots.
const IMAGE_SEGMENTS: u64 = if MODEL { 0 } else { 3 };
/// Beyond this share of the rest, cleaning gains too little to go on.
const USABLE_PERCENT: u64 = 97;
/// Free segments kept from puts where there are operations, beside what their images take.
const KEPT_SEGMENTS: usize = 8;
