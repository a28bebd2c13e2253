//! What a store says of itself: space, segments, write amplification by cause, memory.

use serde::Serialize;

use crate::device::DeviceInfo;

/// A reading of a store's counters. Byte counters count since the store was opened.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The device under the store.
    pub device: DeviceInfo,
    /// Identity of the store, 32 hexadecimal digits.
    pub uuid: String,
    /// Size of the store in bytes.
    pub capacity_bytes: u64,
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
    /// Bytes of records the store accepts before it says `NoSpace`.
    pub usable_bytes: u64,
    /// Bytes of live records, headers and padding included.
    pub live_bytes: u64,
    /// `live_bytes / usable_bytes`.
    pub utilization: f64,
    /// Entries, chunks of large values counted one each.
    pub entries: u64,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// Data segments by class: 0 to 7 are rewrite-interval classes (0 the hottest), 8 the
    /// commit stream.
    pub classes: Vec<ClassStats>,
    /// Bytes written to the device, by cause.
    pub written: Written,
    /// Bytes of DRAM of the index.
    pub index_bytes: u64,
    /// Bytes the record cache holds.
    pub cache_bytes: u64,
    /// Gets answered from the cache.
    pub cache_hits: u64,
    /// Gets that went to the device.
    pub cache_misses: u64,
    /// Group commits.
    pub groups: u64,
    /// Device flushes.
    pub flushes: u64,
    /// Segments cleaned.
    pub victims_cleaned: u64,
    /// Times a caller, or a checkpoint, waited for room that cleaning had not made yet.
    pub waits_for_room: u64,
    /// Times every partition had been checkpointed once more.
    pub checkpoints_taken: u64,
    /// Bytes of log a crash now would replay, at most.
    pub replay_bytes: u64,
    /// Reads repeated after a failed check.
    pub read_retries: u64,
    /// Reads that failed after all retries.
    pub read_errors: u64,
    /// Bytes given back to the device.
    pub discarded_bytes: u64,
    /// The object layer.
    pub objects: ObjectLayerStats,
}

/// What the object layer holds and takes.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ObjectLayerStats {
    /// Collections.
    pub collections: u64,
    /// Objects in them.
    pub objects: u64,
    /// Payload on flash, shared payload once.
    pub allocated_bytes: u64,
    /// Data of objects, shared payload for each.
    pub stored_bytes: u64,
    /// Records of omap values on flash.
    pub omap_bytes: u64,
    /// Bytes of DRAM of the nodes: names, attributes, extents, omap keys.
    pub node_bytes: u64,
    /// Those of names, and what finds them and lists them, among `node_bytes`.
    pub name_node_bytes: u64,
    /// Those of extents.
    pub extent_node_bytes: u64,
    /// Those of omaps.
    pub omap_node_bytes: u64,
    /// Omap keys.
    pub omap_keys: u64,
    /// `node_bytes / objects`.
    pub node_bytes_per_object: f64,
    /// `node_bytes` without extents and omaps, for each object.
    pub node_bytes_per_bare_object: f64,
    /// `extent_node_bytes` for each 4 KiB of `stored_bytes`.
    pub extent_bytes_per_block: f64,
    /// `omap_node_bytes / omap_keys`.
    pub omap_bytes_per_key: f64,
}

/// Segments by state.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct SegmentCounts {
    /// All of them.
    pub total: u64,
    /// Ready for use.
    pub free: u64,
    /// Being appended to.
    pub open: u64,
    /// Full of records.
    pub sealed: u64,
    /// Being emptied, or emptied and not yet free.
    pub cleaning: u64,
    /// Holding checkpoint images and roots.
    pub checkpoint: u64,
}

/// One class of data segments.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct ClassStats {
    /// The class.
    pub class: u8,
    /// Segments of the class, open ones included.
    pub segments: u64,
    /// Live bytes in them.
    pub live_bytes: u64,
}

/// Bytes written to the device, by cause.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[non_exhaustive]
pub struct Written {
    /// Bytes of keys and values accepted from callers: the divisor of write amplification.
    pub user_bytes: u64,
    /// Records of callers: headers, keys, values and their rounding.
    pub record_bytes: u64,
    /// Records moved by the cleaner.
    pub cleaning_bytes: u64,
    /// Checkpoint images and roots.
    pub checkpoint_bytes: u64,
    /// Frame headers, segment headers, superblocks and padding to whole blocks.
    pub padding_bytes: u64,
    /// Zeros written once into segments never used before.
    pub prewrite_bytes: u64,
}

impl Written {
    /// All bytes written to the device.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.record_bytes
            + self.cleaning_bytes
            + self.checkpoint_bytes
            + self.padding_bytes
            + self.prewrite_bytes
    }

    /// Bytes written to the device for each byte of key and value, as the store counts.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 {
            0.0
        } else {
            self.device_bytes() as f64 / self.user_bytes as f64
        }
    }
}
