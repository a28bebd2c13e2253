//! Which keys of a rebuilt index cannot be proven to be what was last written.
//!
//! The highest seqno of a key's records on media is the truth, unless a later record of
//! the key is missing. Later records go missing in two ways only:
//!
//! - The cleaner left out a tombstone, which it does below the horizon of the older images
//!   (everything else it drops has been replaced by something later). So a key whose
//!   winner is at or above that horizon is proven; where the newest root is lost, the
//!   horizon is not known.
//! - It was in a place that is damaged: then its seqno is below the next seqno in that
//!   segment.
//!
//! A missing record has a missing seqno. From [`Order::complete_from`] on none is missing,
//! which proves every winner there; and if no segment was ever freed, nothing was left out.
//! A partition whose image could be used is proven up to the image's horizon.

use crate::format::{Root, Seqno};
use crate::log::Found;

use super::media::Media;
use super::order::Order;
use super::restore::Restored;

/// Bounds below which a winner is in doubt.
pub(super) struct Doubt {
    /// A tombstone may have been left out.
    left_out: Seqno,
    /// A record may have been lost to damage.
    damage: Seqno,
    weak: Vec<(Seqno, Seqno)>,
    loaded: Vec<Option<Loaded>>,
}

/// The image of a partition that was used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loaded {
    /// The image has every write below it.
    pub(super) horizon: Seqno,
    /// Tombstones below it may have been left out of the log.
    pub(super) left_out: Seqno,
}

impl Doubt {
    pub(super) fn new(
        media: &Media,
        order: &Order,
        restored: &Restored,
        newest_root: Option<&Root>,
        loaded: Vec<Option<Loaded>>,
    ) -> Self {
        let freed = media
            .headers
            .iter()
            .any(|found| matches!(found, Found::Header(header) if header.generation > 1));
        let guessed = !restored.given_up.is_empty() || !restored.headers.is_empty();
        let horizon = newest_root.map_or(Seqno::MAX, |root| root.older_horizon);
        let lossy = order.gaps.iter().filter(|(_, gap)| gap.loses);
        let mut damage = lossy.map(|(_, gap)| gap.before).max().unwrap_or(0);
        damage = damage.max(order.missing_before);
        if !restored.given_up.is_empty() {
            damage = Seqno::MAX;
        }
        let clean = media.superblock.as_ref().and_then(|found| found.clean);
        if let Some(clean) = clean {
            damage = damage.min(clean.next_seqno);
        }
        Self {
            left_out: if freed || guessed {
                horizon.min(order.complete_from)
            } else {
                0
            },
            damage,
            weak: order.weak.clone(),
            loaded,
        }
    }

    /// Whether a winner with this seqno in this partition may not be the last word.
    pub(super) fn doubts(&self, partition: u32, seqno: Seqno, exact: bool) -> bool {
        let image = self.loaded.get(partition as usize).copied().flatten();
        let (damage, left_out) = match image {
            Some(image) if self.damage <= image.horizon => (0, image.left_out),
            Some(image) => (self.damage, image.left_out),
            None => (self.damage, self.left_out),
        };
        !exact || self.is_weak(seqno) || seqno < damage.max(left_out)
    }

    /// The horizon of the image that was used of a partition.
    pub(super) fn horizon(&self, partition: u32) -> Option<Seqno> {
        let image = self.loaded.get(partition as usize).copied().flatten();
        image.map(|image| image.horizon)
    }

    /// Whether it is not known if the group of this seqno counts.
    pub(super) fn is_weak(&self, seqno: Seqno) -> bool {
        let mut weak = self.weak.iter();
        weak.any(|(first, last)| (*first..=*last).contains(&seqno))
    }

    /// Whether a record with this seqno may have been lost to damage.
    pub(super) fn may_be_damaged(&self, seqno: Seqno) -> bool {
        seqno < self.damage
    }
}
