//! What is kept from whom: the reserve, room for images, slack while commits are slow, and the
//! claim of one large batch.

use std::time::Duration;

use crate::sync::MODEL;

use super::image_room::ImageRoom;
use super::policy::slack_segments;
use super::{Appender, Purpose, Room};

/// Without slack for as much of the capacity, after there was nothing to gain.
const NO_SLACK_SHARE: u64 = 64;

/// Free segments that are kept from each purpose. The cleaner must always find room to
/// empty one more segment (D9), images must find room (D10a), and deletes must work on a
/// full store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserve {
    /// For the cleaner: kept from everyone else.
    pub(crate) cleaner: usize,
    /// For deletes: kept from puts, besides the rest.
    pub(crate) deletes: usize,
}

/// Free segments kept for the cleaner, and for deletes; a checkpoint leaves the former.
pub(super) const RESERVE: Reserve = if MODEL {
    Reserve {
        cleaner: 0,
        deletes: 0,
    }
} else {
    Reserve {
        cleaner: 2,
        deletes: 2,
    }
};

impl Appender {
    /// Free segments kept from a purpose, of a caller who makes images larger by `growth`
    /// bytes. Between what the cleaner and what callers get is the room for images.
    pub(super) fn floor(&self, purpose: Purpose, growth: u64) -> usize {
        let images = match self.reserve.cleaner {
            // Models have no reserve.
            0 => 0,
            _ => self
                .image_room
                .segments(growth, self.geometry.segment_bytes),
        };
        match purpose {
            Purpose::User => self.reserve.cleaner + images + self.reserve.deletes,
            Purpose::Delete => self.reserve.cleaner + images,
            Purpose::Counted | Purpose::Survivor => 0,
        }
    }

    /// What images take and what is kept for them, as a checkpoint or an open found it.
    pub(crate) fn set_image_room(&mut self, room: ImageRoom) {
        self.image_room.replace(room);
    }

    pub(crate) fn image_room(&self) -> ImageRoom {
        self.image_room
    }

    /// A caller's transaction, just appended, makes images larger by so many bytes.
    pub(crate) fn images_grow(&mut self, bytes: u64) {
        self.image_room.grow(bytes);
    }

    /// A commit took so long: the cleaner gets the segments it fills meanwhile.
    pub(crate) fn commit_took(&mut self, time: Duration) {
        self.commit_time = (self.commit_time * 7 + time) / 8;
        let spare = self
            .geometry
            .capacity
            .saturating_sub(self.table.live_total())
            / self.geometry.segment_bytes;
        // Models have no clock.
        let none = MODEL || self.clock < self.no_slack_before;
        self.slack = if none {
            0
        } else {
            slack_segments(self.commit_time, spare) as usize
        };
    }

    /// Segments kept from puts besides the reserve.
    pub(crate) fn slack(&self) -> usize {
        self.slack
    }

    /// Gives puts what was kept from them besides the reserve; false when it was nothing.
    pub(crate) fn drop_slack(&mut self) -> bool {
        let dropped = std::mem::take(&mut self.slack) > 0;
        if dropped {
            self.no_slack_before = self.clock + self.geometry.capacity / NO_SLACK_SHARE;
        }
        dropped
    }

    /// Free segments kept from a purpose by another's claim, and by slack.
    pub(super) fn held(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::User => self.claimed + self.slack(),
            Purpose::Delete | Purpose::Counted | Purpose::Survivor => 0,
        }
    }

    /// Whether another's claim stands between a caller and its room.
    pub(crate) fn is_held_back(&self, rooms: &[Room]) -> bool {
        self.claimed > 0 && rooms.iter().any(|room| room.purpose == Purpose::User)
    }

    /// Keeps room for a caller from all others, if it is large and nobody has a claim.
    pub(crate) fn claim(&mut self, rooms: &[Room]) -> bool {
        let segments = self.most_segments(rooms);
        let is_users = rooms.iter().any(|room| room.purpose == Purpose::User);
        let may = is_users && segments > 1 && self.claimed == 0;
        if may {
            self.claimed = segments;
        }
        may
    }

    pub(crate) fn drop_claim(&mut self) {
        self.claimed = 0;
    }
}
