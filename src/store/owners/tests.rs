//! An owner of object records for tests, and what must hold of a log with payload: over power
//! cuts at every device operation, cleaning, checkpoints, a full store.
//!
//! The owner is as simple as one can be: families of extents and omap values, and operations
//! that remove a family. It has two partitions, each imaged as a whole.

mod crashes;
mod full;

use std::collections::BTreeMap;

use crate::device::{AlignedBuf, Device, SimulatedDevice};
use crate::format::{
    Address, COMMIT_STREAM, ExtentRecord, Geometry, Invalid, Kind, Record, RecordFields, Seqno,
    bytes::{FieldWriter, u32_at, u64_at},
    content_hash, extent_key, extent_value, payload_checksums, record_length,
};
use crate::kv::KeyValue;
use crate::log::{
    Effort, Lane, Log, LogOptions, NewRecord, NoRoom, Owner, Position, Purpose, Relocation, Room,
    create_superblocks, find_superblock, open_log,
};
use crate::sync::{AtomicU64, Mutex, Ordering, SharedArc};
use crate::{Durability, Error, Result};

use super::Owners;

const PARTITIONS: u32 = 2;

/// An extent or omap value: where it is, and its bytes.
#[derive(Debug, Clone, Copy)]
struct Place {
    address: Address,
    bytes: u32,
}

/// Extents have a block number as key, omap values their key's first byte and 1 << 32.
type Family = BTreeMap<u64, Place>;

#[derive(Default)]
struct Shard {
    horizon: Seqno,
    families: BTreeMap<u64, Family>,
}

pub(super) struct TestObjects {
    shards: [Mutex<Shard>; PARTITIONS as usize],
    relocated: AtomicU64,
}

fn omap_key(key: &[u8]) -> u64 {
    1 << 32 | u64::from(key.last().copied().unwrap_or(0))
}

impl TestObjects {
    fn shard(&self, family: u64) -> &Mutex<Shard> {
        &self.shards[(family % u64::from(PARTITIONS)) as usize]
    }

    fn set(log: &Log, family: &mut Family, key: u64, place: Place, count: bool) {
        if count {
            log.table().add_live(place.address, place.bytes.into());
        }
        if let Some(old) = family.insert(key, place) {
            log.record_died(old.address, old.bytes.into());
        }
    }

    fn remove(log: &Log, shard: &mut Shard, family: u64) {
        for old in shard.families.remove(&family).unwrap_or_default().values() {
            log.record_died(old.address, old.bytes.into());
        }
    }
}

/// What a record says: its family, its key there, its place.
fn told(log: &Log, record: &Record<'_>, position: Position) -> (u64, Option<(u64, Place)>) {
    match record.kind {
        Kind::Extent => {
            let extent = ExtentRecord::decode(record.key, record.value).unwrap();
            let place = Place {
                address: position.payload.expect("payload is known"),
                bytes: extent.payload_bytes,
            };
            (extent.family, Some((extent.first_block.into(), place)))
        }
        Kind::OmapValue => {
            let place = Place {
                address: position.address,
                bytes: log.record_bytes(record.length) as u32,
            };
            let family = u64_at(record.key, 0).unwrap();
            (family, Some((omap_key(record.key), place)))
        }
        _ => (u64_at(record.key, 0).unwrap(), None),
    }
}

impl Owner for TestObjects {
    fn replay(&self, log: &Log, record: &Record<'_>, position: Position, lane: Lane) -> Result<()> {
        assert!(record.kind.is_of_objects());
        let (family, said) = told(log, record, position);
        if !lane.has((family % u64::from(PARTITIONS)) as usize) {
            return Ok(());
        }
        let mut shard = self.shard(family).lock();
        if position.seqno < shard.horizon {
            return Ok(());
        }
        match said {
            Some((key, place)) => {
                let family = shard.families.entry(family).or_default();
                Self::set(log, family, key, place, true);
            }
            None => Self::remove(log, &mut shard, family),
        }
        Ok(())
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
        let (family, said) = told(log, record, position);
        let Some((key, place)) = said else {
            assert!(position.seqno < horizon, "a pinned operation in a victim");
            return Ok(Relocation::Dead);
        };
        let mut shard = self.shard(family).lock();
        let live = shard.families.get_mut(&family);
        let Some(family) = live.filter(|family| {
            family
                .get(&key)
                .is_some_and(|live| live.address == place.address)
        }) else {
            return Ok(Relocation::Dead);
        };
        let slices = [payload];
        let appended = log.appender().append(&NewRecord {
            fields: RecordFields {
                kind: record.kind,
                relocated: true,
                key: record.key,
                value: record.value,
                content: content_hash(record.key, record.value),
            },
            payload: (record.kind == Kind::Extent).then_some(slices.as_slice()),
            length: record.length,
            head: (place.bytes % 8) as u8,
            purpose: Purpose::Survivor,
            clock: Some(victim_clock),
        })?;
        let address = appended.payload.unwrap_or(appended.address);
        Self::set(log, family, key, Place { address, ..place }, false);
        self.relocated.fetch_add(1, Ordering::Relaxed);
        Ok(Relocation::Moved)
    }

    fn has_operations(&self) -> bool {
        true
    }

    fn partition_count(&self) -> u32 {
        PARTITIONS
    }

    fn image(
        &self,
        partition: u32,
        horizon: &dyn Fn() -> Seqno,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Seqno> {
        let mut units = Vec::new();
        let horizon = {
            let shard = self.shards[partition as usize].lock();
            let horizon = horizon();
            let mut unit = |family: u64, key: u64, address: u64, bytes: u32| {
                let mut unit = vec![0; 36];
                FieldWriter::new(&mut unit)
                    .u64(horizon)
                    .u64(family)
                    .u64(key)
                    .u64(address)
                    .u32(bytes);
                units.push(unit);
            };
            unit(0, 0, 0, 0);
            for (number, family) in &shard.families {
                for (key, place) in family {
                    unit(*number, *key, place.address.units(), place.bytes);
                }
            }
            horizon
        };
        units.iter().try_for_each(|unit| sink(unit))?;
        Ok(horizon)
    }

    fn load_image(
        &self,
        log: &Log,
        partition: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), Invalid> {
        let mut shard = self.shards[partition as usize].lock();
        for unit in bytes.chunks(36) {
            shard.horizon = u64_at(unit, 0)?;
            let bytes = u32_at(unit, 32)?;
            if bytes > 0 {
                let place = Place {
                    address: Address::new(u64_at(unit, 24)?),
                    bytes,
                };
                let family = shard.families.entry(u64_at(unit, 8)?).or_default();
                Self::set(log, family, u64_at(unit, 16)?, place, true);
            }
        }
        Ok(())
    }

    fn clear_partition(&self, log: &Log, partition: u32) {
        let mut shard = self.shards[partition as usize].lock();
        let families: Vec<u64> = shard.families.keys().copied().collect();
        for family in families {
            Self::remove(log, &mut shard, family);
        }
        shard.horizon = 0;
    }

    fn partition_is_whole(&self, _: u32) -> bool {
        true
    }

    fn image_bytes(&self) -> u64 {
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.families.values().map(BTreeMap::len).sum::<usize>() as u64
        };
        self.shards
            .iter()
            .map(|shard| 36 * (1 + count(shard)))
            .sum()
    }
}

/// One change of a transaction. Data is told by a tag.
#[derive(Debug, Clone, Copy)]
enum Change {
    Write {
        family: u64,
        block: u32,
        bytes: u32,
        tag: u64,
    },
    Omap {
        family: u64,
        key: u8,
        bytes: u32,
        tag: u64,
    },
    Remove {
        family: u64,
    },
}

/// Family and key to bytes and tag.
type Model = BTreeMap<(u64, u64), (u32, u64)>;

fn apply(model: &mut Model, transaction: &[Change]) {
    for change in transaction {
        match *change {
            Change::Write {
                family,
                block,
                bytes,
                tag,
            } => drop(model.insert((family, block.into()), (bytes, tag))),
            Change::Omap {
                family,
                key,
                bytes,
                tag,
            } => drop(model.insert((family, omap_key(&[key])), (bytes, tag))),
            Change::Remove { family } => model.retain(|(other, _), _| *other != family),
        }
    }
}

fn data(tag: u64, bytes: u32) -> Vec<u8> {
    let step = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..u64::from(bytes))
        .map(|at| (at.wrapping_mul(step) >> 23) as u8)
        .collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// A transaction of writes, values and removals; of many families when `families` is large.
fn transaction(random: &mut Random, families: u64, large: u64) -> Vec<Change> {
    (0..1 + random.below(5))
        .map(|_| {
            let family = random.below(families);
            let tag = random.below(1 << 30);
            match random.below(10) {
                0 => Change::Remove { family },
                1..=3 => Change::Omap {
                    family,
                    key: random.below(4) as u8,
                    bytes: random.below(900) as u32,
                    tag,
                },
                _ => Change::Write {
                    family,
                    block: random.below(3) as u32,
                    bytes: 512 * (1 + random.below(large)) as u32,
                    tag,
                },
            }
        })
        .collect()
}

/// A store with object records, whose threads are the test's.
struct Tested {
    log: Log,
    owners: Owners<TestObjects>,
    effort: Mutex<Effort>,
}

fn owners(geometry: &Geometry) -> Owners<TestObjects> {
    Owners {
        kv: KeyValue::new(geometry, 0, None, Durability::Committed),
        objects: TestObjects {
            shards: std::array::from_fn(|_| Mutex::new(Shard::default())),
            relocated: AtomicU64::new(0),
        },
    }
}

fn options() -> LogOptions {
    LogOptions {
        read_only: false,
        checkpoint_interval_bytes: Some(1 << 20),
        discard_bytes_per_second: 0,
        first_number: 1,
    }
}

impl Tested {
    fn of(log: Log, owners: Owners<TestObjects>) -> Self {
        let geometry = log.geometry();
        let effort = Effort::new(geometry.segment_count, geometry.segment_bytes);
        Self {
            log,
            owners,
            effort: Mutex::new(effort),
        }
    }

    fn create(device: &SharedArc<SimulatedDevice>) -> Result<Self> {
        let capacity = device.capacity();
        let block = device.block_bytes();
        let geometry = Geometry::plan(capacity, Some(128 << 10), block, [1; 16], [2; 16]).unwrap();
        let superblocks = create_superblocks(&**device, geometry, 1)?;
        let log = Log::create(device.clone(), superblocks, options());
        Ok(Self::of(log, owners(&geometry)))
    }

    fn open(device: &SharedArc<SimulatedDevice>) -> Result<Self> {
        let superblocks = find_superblock(&**device)?;
        let owners = owners(&superblocks.current.geometry);
        let log = open_log(device.clone(), superblocks, options(), &owners)?;
        Ok(Self::of(log, owners))
    }

    /// Appends a transaction; its payload goes to another head than the rest by `scattered`.
    /// `wait` makes room and may fail.
    fn append(
        &self,
        transaction: &[Change],
        scattered: bool,
        wait: &mut dyn FnMut(&[Room]) -> Result<()>,
    ) -> Result<Seqno> {
        let log = &self.log;
        let block_bytes = log.geometry().block_bytes;
        let unit = log.geometry().unit_bytes;
        let mut records = Vec::new();
        let mut rooms = Vec::new();
        let mut in_stream = 0;
        let only_removes = transaction
            .iter()
            .all(|change| matches!(change, Change::Remove { .. }));
        let purpose = if only_removes {
            Purpose::Delete
        } else {
            Purpose::User
        };
        for change in transaction {
            let (kind, key, value, payload) = match *change {
                Change::Write {
                    family,
                    block,
                    bytes,
                    tag,
                } => {
                    let payload = data(tag, bytes.next_multiple_of(block_bytes));
                    let checksums = payload_checksums(&payload);
                    let value = extent_value(payload.len() as u32, block, &[], &checksums);
                    let key = extent_key(family, 0).to_vec();
                    (Kind::Extent, key, value, Some(payload))
                }
                Change::Omap {
                    family,
                    key,
                    bytes,
                    tag,
                } => {
                    let mut full = extent_key(family, 0).to_vec();
                    full.push(key);
                    (Kind::OmapValue, full, data(tag, bytes), None)
                }
                Change::Remove { family } => {
                    (Kind::Object, family.to_le_bytes().to_vec(), vec![9], None)
                }
            };
            let length = record_length(kind, key.len(), value.len(), unit).unwrap();
            let bytes = log.record_bytes(length);
            let to_class = scattered && payload.is_some();
            let head = if to_class { 3 } else { COMMIT_STREAM };
            let mut room = Room::new(head, purpose);
            room.add(bytes, payload.as_ref().map_or(0, |it| it.len() as u64));
            in_stream += if to_class { 0 } else { bytes };
            rooms.push(room);
            records.push((kind, key, value, payload, length, head));
        }
        let families = transaction.iter().map(|change| match change {
            Change::Write { family, .. }
            | Change::Omap { family, .. }
            | Change::Remove { family } => *family % u64::from(PARTITIONS),
        });
        let wanted: std::collections::BTreeSet<u64> = families.collect();
        loop {
            let mut shards: BTreeMap<u64, _> = wanted
                .iter()
                .map(|shard| (*shard, self.owners.objects.shard(*shard).lock()))
                .collect();
            let mut appender = log.appender();
            if !appender.has_room(&rooms, false) {
                drop((appender, shards));
                wait(&rooms)?;
                continue;
            }
            if !scattered {
                appender.reserve_area(COMMIT_STREAM, in_stream);
            }
            let mut last = 0;
            for (kind, key, value, payload, length, head) in &records {
                let slices = payload.as_deref().map(|payload| [payload]);
                let appended = appender.append(&NewRecord {
                    fields: RecordFields {
                        kind: *kind,
                        relocated: false,
                        key,
                        value,
                        content: content_hash(key, value),
                    },
                    payload: slices.as_ref().map(|slices| slices.as_slice()),
                    length: *length,
                    head: *head,
                    purpose: Purpose::Counted,
                    clock: None,
                });
                let appended = appended.expect("room was counted");
                last = appended.seqno;
                let family = u64_at(key, 0).unwrap();
                let shard = shards.get_mut(&(family % u64::from(PARTITIONS))).unwrap();
                let place = |address, bytes| Place { address, bytes };
                let (key, place) = match kind {
                    Kind::Object => {
                        TestObjects::remove(log, shard, family);
                        continue;
                    }
                    Kind::Extent => {
                        let bytes = payload.as_ref().unwrap().len() as u32;
                        let block = u32_at(value, 4).unwrap();
                        (block.into(), place(appended.payload.unwrap(), bytes))
                    }
                    _ => {
                        let bytes = log.record_bytes(*length) as u32;
                        (omap_key(key), place(appended.address, bytes))
                    }
                };
                let family = shard.families.entry(family).or_default();
                TestObjects::set(log, family, key, place, false);
            }
            log.publish_clock(&appender);
            return Ok(last);
        }
    }

    /// Appends, making room without other threads.
    fn run(&self, transaction: &[Change], scattered: bool) -> Result<Seqno> {
        let mut rounds = 0;
        self.append(transaction, scattered, &mut |_| {
            rounds += 1;
            assert!(rounds < 2000, "no room is made");
            if !self.make_space()? {
                self.log.checkpoint_all(&self.owners)?;
            }
            Ok(())
        })
    }

    fn make_space(&self) -> Result<bool> {
        self.log.make_space(&self.owners, &mut self.effort.lock())
    }

    fn bytes_at(&self, place: Place) -> Vec<u8> {
        let (segment, entry, offset) = self.log.table().locate(place.address).unwrap();
        let mut found = vec![0; place.bytes as usize];
        if self
            .log
            .appender()
            .copy_pending(segment, offset as u32, &mut found)
        {
            return found;
        }
        assert!(u64::from(entry.written()) >= offset + u64::from(place.bytes));
        let geometry = self.log.geometry();
        let from = geometry.device_offset(place.address);
        let block = u64::from(geometry.block_bytes);
        let start = from / block * block;
        let end = (from + u64::from(place.bytes)).next_multiple_of(block);
        let mut buffer = AlignedBuf::zeroed((end - start) as usize);
        self.log.read_device(start, &mut buffer).unwrap();
        let at = (from - start) as usize;
        found.copy_from_slice(&buffer[at..at + place.bytes as usize]);
        found
    }

    /// The differences to a model, and to the count of live bytes.
    fn difference(&self, model: &Model) -> Option<String> {
        let mut left = model.clone();
        let mut live: BTreeMap<u32, i64> = BTreeMap::new();
        for shard in &self.owners.objects.shards {
            for (family, places) in &shard.lock().families {
                for (key, place) in places {
                    let Some((bytes, tag)) = left.remove(&(*family, *key)) else {
                        return Some(format!("{family} {key}: should not be"));
                    };
                    let (segment, _, _) = self.log.table().locate(place.address).unwrap();
                    *live.entry(segment).or_default() += i64::from(place.bytes);
                    let found = self.bytes_at(*place);
                    let block = self.log.geometry().block_bytes;
                    let same = if *key < 1 << 32 {
                        found == data(tag, bytes.next_multiple_of(block))
                    } else {
                        let value = data(tag, bytes);
                        let start = 16 + 13;
                        found.get(start..start + value.len()) == Some(&value[..])
                    };
                    if !same {
                        return Some(format!("{family} {key}: other bytes"));
                    }
                }
            }
        }
        for (segment, entry) in self.log.table().iter() {
            let counted = entry.live_bytes();
            assert_eq!(counted, live.get(&segment).copied().unwrap_or(0));
        }
        left.keys().next().map(|key| format!("{key:?}: missing"))
    }

    fn check(&self, model: &Model) {
        assert_eq!(self.difference(model), None);
    }
}
