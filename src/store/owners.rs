//! The owners of one log: the key-value layer and the object layer.
//!
//! A record's kind says whose it is. Partitions of the key-value layer come first.

use crate::Result;
use crate::format::{Invalid, Record, Seqno};
use crate::kv::KeyValue;
use crate::log::{Lane, Log, NoRoom, Owner, Position, Relocation};

/// Both owners of a log.
pub(crate) struct Owners<O> {
    pub(crate) kv: KeyValue,
    pub(crate) objects: O,
}

impl<O: Owner> Owners<O> {
    fn of_record(&self, record: &Record<'_>) -> &dyn Owner {
        if record.kind.is_of_objects() {
            &self.objects
        } else {
            &self.kv
        }
    }

    /// The owner of a partition, and its number there.
    fn of_partition(&self, partition: u32) -> (&dyn Owner, u32) {
        let first = self.kv.partition_count();
        match partition.checked_sub(first) {
            Some(of_objects) => (&self.objects, of_objects),
            None => (&self.kv, partition),
        }
    }
}

impl<O: Owner> Owner for Owners<O> {
    fn replay(&self, log: &Log, record: &Record<'_>, position: Position, lane: Lane) -> Result<()> {
        self.of_record(record).replay(log, record, position, lane)
    }

    fn relocate(
        &self,
        log: &Log,
        record: &Record<'_>,
        payload: &[u8],
        position: Position,
        victim_clock: u64,
        horizon: Seqno,
    ) -> std::result::Result<Relocation, NoRoom> {
        let owner = self.of_record(record);
        owner.relocate(log, record, payload, position, victim_clock, horizon)
    }

    fn replayed(&self, log: &Log) -> Result<()> {
        self.kv.replayed(log)?;
        self.objects.replayed(log)
    }

    fn tidy(&self, log: &Log) {
        self.objects.tidy(log);
    }

    fn has_operations(&self) -> bool {
        self.kv.has_operations() || self.objects.has_operations()
    }

    fn partition_count(&self) -> u32 {
        self.kv.partition_count() + self.objects.partition_count()
    }

    fn image(
        &self,
        partition: u32,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno> {
        let (owner, partition) = self.of_partition(partition);
        owner.image(partition, horizon, sink)
    }

    fn load_image(
        &self,
        log: &Log,
        partition: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), Invalid> {
        let (owner, partition) = self.of_partition(partition);
        owner.load_image(log, partition, bytes)
    }

    fn clear_partition(&self, log: &Log, partition: u32) {
        let (owner, partition) = self.of_partition(partition);
        owner.clear_partition(log, partition);
    }

    fn partition_is_whole(&self, partition: u32) -> bool {
        let (owner, partition) = self.of_partition(partition);
        owner.partition_is_whole(partition)
    }

    fn image_bytes(&self) -> u64 {
        self.kv.image_bytes() + self.objects.image_bytes()
    }

    fn pinning_image_bytes(&self, partition: u32) -> u64 {
        let (owner, partition) = self.of_partition(partition);
        owner.pinning_image_bytes(partition)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
