//! What a store, or a pool, takes and has left.

use crate::sync::Ordering;

use super::ObjectStore;

/// Share of the capacity that `statfs` gives out, in percent: beyond it cleaning costs ever
/// more, and an operator's "95% full" must not mean a write amplification of 10.
const OFFERED_PERCENT: u64 = 90;

/// What a store, or a pool, takes and has left; all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statfs {
    /// What is offered: 90% of the capacity.
    pub total: u64,
    /// What is left of it.
    pub available: u64,
    /// What the store keeps for itself.
    pub internally_reserved: u64,
    /// Payload on flash, shared payload once.
    pub allocated: u64,
    /// Data of objects, shared payload for each.
    pub data_stored: u64,
    /// Omap records on flash.
    pub omap_allocated: u64,
    /// Checkpoint images.
    pub internal_metadata: u64,
    /// Objects.
    pub objects: u64,
}

impl ObjectStore {
    /// What the store takes and has left. Takes time for the number of pools only.
    #[must_use]
    pub fn statfs(&self) -> Statfs {
        self.space(None)
    }

    /// What a pool takes; total and available are the store's.
    #[must_use]
    pub fn pool_statfs(&self, pool: i64) -> Statfs {
        self.space(Some(pool))
    }

    fn space(&self, pool: Option<i64>) -> Statfs {
        let log = &self.inner().log;
        let capacity = log.geometry().capacity;
        let total = capacity / 100 * OFFERED_PERCENT;
        let live = log.table().live_total();
        let live = live.saturating_sub(self.objects().buried_bytes());
        let mut statfs = Statfs {
            total,
            available: total.saturating_sub(live),
            internally_reserved: capacity - total,
            ..Statfs::default()
        };
        for space in self.objects().table.spaces() {
            if pool.is_some() && space.id.pool() != pool {
                continue;
            }
            let read =
                |counter: &crate::sync::AtomicI64| counter.load(Ordering::Relaxed).max(0) as u64;
            statfs.objects += read(&space.usage.objects);
            statfs.allocated += read(&space.usage.allocated_bytes);
            statfs.data_stored += read(&space.usage.stored_bytes);
            statfs.omap_allocated += read(&space.usage.omap_bytes);
        }
        if pool.is_none() {
            let images = log.table().count(crate::log::State::Checkpoint);
            statfs.internal_metadata = images * log.geometry().segment_bytes;
        }
        statfs
    }
}
