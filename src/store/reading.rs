//! Taking a reading of a store's counters.

use crate::log::State;
use crate::sync::{AtomicI64, Ordering};

use super::{ClassStats, ObjectLayerStats, SegmentCounts, Stats, Store, Written};

impl Store {
    /// A reading of the counters. Costs a pass over the segment table.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (kv, log) = (&self.inner.owners.kv, &self.inner.log);
        let geometry = log.geometry();
        let table = log.table();
        let read = |counter: &crate::sync::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &log.counters;
        let (overhead_bytes, free) = {
            let appender = log.appender();
            (
                appender.overhead_bytes(),
                (appender.free_count() + appender.unwritten_count()) as u64,
            )
        };
        let usable_bytes = kv.usable_bytes(log);
        let live_bytes = table.live_total();
        let index_bytes = kv.index_bytes();
        let mut classes: Vec<ClassStats> = (0..crate::format::HEAD_COUNT as u8)
            .map(|class| ClassStats {
                class,
                ..Default::default()
            })
            .collect();
        for (_, segment) in table.iter() {
            if !matches!(
                segment.state(),
                State::Open | State::Sealed | State::Cleaning
            ) {
                continue;
            }
            if let Some(class) = classes.get_mut(usize::from(segment.head())) {
                class.segments += 1;
                class.live_bytes += segment.live_bytes().max(0) as u64;
            }
        }
        Stats {
            device: log.device().info(),
            uuid: geometry
                .uuid
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            capacity_bytes: geometry.capacity,
            segment_bytes: geometry.segment_bytes,
            usable_bytes,
            live_bytes,
            utilization: live_bytes as f64 / usable_bytes.max(1) as f64,
            entries: kv.entries(),
            segments: SegmentCounts {
                total: u64::from(geometry.segment_count),
                free,
                open: table.count(State::Open),
                sealed: table.count(State::Sealed),
                cleaning: table.count(State::Cleaning) + table.count(State::Emptied),
                checkpoint: table.count(State::Checkpoint),
            },
            classes,
            written: Written {
                user_bytes: read(&counters.user_bytes),
                record_bytes: read(&counters.record_bytes),
                cleaning_bytes: read(&counters.cleaning_bytes),
                checkpoint_bytes: read(&counters.checkpoint_bytes),
                padding_bytes: overhead_bytes + read(&counters.superblock_bytes),
                prewrite_bytes: read(&counters.prewrite_bytes),
            },
            index_bytes,
            cache_bytes: kv.cache().bytes(),
            cache_hits: kv.cache().hits(),
            cache_misses: kv.cache().misses(),
            groups: read(&counters.groups),
            flushes: read(&counters.flushes),
            victims_cleaned: read(&counters.victims_cleaned),
            waits_for_room: read(&counters.waits_for_room),
            checkpoints_taken: read(&counters.partitions_imaged) / 64,
            replay_bytes: log.replay_bytes(),
            read_retries: read(&counters.read_retries),
            read_errors: read(&counters.read_errors),
            discarded_bytes: read(&counters.discarded_bytes),
            objects: self.object_stats(),
        }
    }

    /// Takes time for the number of pools and collections only.
    fn object_stats(&self) -> ObjectLayerStats {
        let objects = &self.inner.owners.objects;
        let mut stats = ObjectLayerStats {
            collections: objects.registry.existing().len() as u64,
            node_bytes: objects.memory_bytes(),
            ..Default::default()
        };
        for space in objects.table.spaces() {
            let read = |counter: &AtomicI64| counter.load(Ordering::Relaxed).max(0) as u64;
            stats.objects += read(&space.usage.objects);
            stats.allocated_bytes += read(&space.usage.allocated_bytes);
            stats.stored_bytes += read(&space.usage.stored_bytes);
            stats.omap_bytes += read(&space.usage.omap_bytes);
            stats.name_node_bytes += space.names.read().memory_bytes();
            stats.extent_node_bytes += read(&space.usage.extent_memory_bytes);
            stats.omap_node_bytes += read(&space.usage.omap_memory_bytes);
            stats.omap_keys += read(&space.usage.omap_keys);
        }
        let per = |bytes: u64, count: u64| bytes as f64 / count.max(1) as f64;
        let parts = stats.extent_node_bytes + stats.omap_node_bytes;
        let bare = stats.node_bytes.saturating_sub(parts);
        stats.node_bytes_per_object = per(stats.node_bytes, stats.objects);
        stats.node_bytes_per_bare_object = per(bare, stats.objects);
        stats.extent_bytes_per_block = per(stats.extent_node_bytes, stats.stored_bytes / 4096);
        stats.omap_bytes_per_key = per(stats.omap_node_bytes, stats.omap_keys);
        stats
    }
}
