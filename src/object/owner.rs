//! What the log asks of the object layer.

use crate::Result;
use crate::format::{Invalid, Record, Seqno};
use crate::log::{Lane, Log, NoRoom, Owner, Position, Relocation};

use super::Objects;
use super::image::ALL_PARTITIONS;

impl Owner for Objects {
    fn replay(&self, log: &Log, record: &Record<'_>, position: Position, lane: Lane) -> Result<()> {
        self.replay_record(log, record, position, lane)
    }

    fn relocate(
        &self,
        log: &Log,
        record: &Record<'_>,
        payload: &[u8],
        position: Position,
        victim_clock: u64,
        _horizon: Seqno,
    ) -> std::result::Result<Relocation, NoRoom> {
        self.relocate_record(log, record, payload, position, victim_clock)
    }

    fn replayed(&self, log: &Log) -> Result<()> {
        self.finish_replay(log)
    }

    fn tidy(&self, log: &Log) {
        self.dig(log);
    }

    fn has_operations(&self) -> bool {
        self.is_in_use()
    }

    fn partition_count(&self) -> u32 {
        if self.is_in_use() { ALL_PARTITIONS } else { 0 }
    }

    fn image(
        &self,
        partition: u32,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno> {
        self.image_partition(partition, horizon, sink)
    }

    fn load_image(
        &self,
        _log: &Log,
        partition: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), Invalid> {
        self.load_partition_image(partition, bytes)
    }

    fn clear_partition(&self, _log: &Log, partition: u32) {
        self.clear_partition_nodes(partition);
    }

    fn partition_is_whole(&self, partition: u32) -> bool {
        self.is_partition_whole(partition)
    }

    fn image_bytes(&self) -> u64 {
        self.own_images().all
    }

    fn pinning_image_bytes(&self, partition: u32) -> u64 {
        self.partition_image_bytes(partition)
    }
}
