//! Loom models of the log, and the tiny log on a device in memory that they and the models
//! of the key-value layer run on. Which mutation of the code each catches:
//! `design/concurrency.md`.

mod loom_append;
mod loom_commit;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use super::{Log, LogOptions, State, Superblocks};
use crate::device::{AlignedBuf, Device, DeviceInfo, WriteOp};
use crate::format::{
    BACK_BYTES, Class, FRONT_BYTES, Geometry, Kind, LengthCode, RecordFields, SegmentHeader,
    SegmentId, Seqno, Superblock, content_hash, parse_record, record_length,
};
use crate::log::{NewRecord, Purpose, ScannedFrame, SegmentScanner};
use crate::sync::{Arc, Mutex, SharedArc};

/// Block of a model's device, and so bytes of a segment's header.
pub(crate) const BLOCK: u64 = 512;

/// How often each place was reached.
type Seen = BTreeMap<&'static str, u64>;

thread_local! {
    /// How many schedules of the model came to each named place.
    static WITNESSES: RefCell<Seen> = const { RefCell::new(Seen::new()) };
}

/// Says that this schedule came to a place, so that a model shows that it is not vacuous.
pub(crate) fn witness(place: &'static str) {
    WITNESSES.with_borrow_mut(|seen| *seen.entry(place).or_default() += 1);
}

/// Runs a model; every one of `places` must be reached by some schedule.
pub(crate) fn model(name: &str, places: &[&'static str], f: impl Fn() + Sync + Send + 'static) {
    WITNESSES.with_borrow_mut(BTreeMap::clear);
    let started = Instant::now();
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 50_000;
    builder.check(move || {
        witness("schedules");
        f();
    });
    WITNESSES.with_borrow(|seen| {
        println!(
            "{name}: {seen:?} in {:.1} s",
            started.elapsed().as_secs_f64()
        );
        for place in places {
            assert!(seen.contains_key(place), "no schedule came to: {place}");
        }
    });
}

/// What a model's device holds and has seen.
struct Media {
    /// What reads return.
    written: Vec<u8>,
    /// What a power cut would leave.
    durable: Vec<u8>,
    flushes: u64,
    /// The flush of this number fails, from 1.
    failing_flush: u64,
    /// Each header of a free segment that was written, with what was durable then.
    freed: Vec<(SegmentId, Vec<u8>)>,
}

/// A device in memory that tells what was durable when.
pub(crate) struct ModelDevice {
    geometry: Geometry,
    media: Mutex<Media>,
}

impl ModelDevice {
    fn new(geometry: Geometry, failing_flush: u64) -> Self {
        let bytes = (u64::from(geometry.segment_count) * geometry.segment_bytes) as usize;
        Self {
            geometry,
            media: Mutex::new(Media {
                written: vec![0; bytes],
                durable: vec![0; bytes],
                flushes: 0,
                failing_flush,
                freed: Vec::new(),
            }),
        }
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.media.lock().flushes
    }

    /// What a power cut now would leave of the segments.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.media.lock().durable.clone()
    }

    /// Which segments were freed on media, and what a power cut just before had left.
    pub(crate) fn freed(&self) -> Vec<(SegmentId, Vec<u8>)> {
        self.media.lock().freed.clone()
    }
}

impl Device for ModelDevice {
    fn capacity(&self) -> u64 {
        self.geometry.capacity
    }

    fn block_bytes(&self) -> u32 {
        self.geometry.block_bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = (offset - FRONT_BYTES) as usize;
        into.copy_from_slice(&self.media.lock().written[at..at + into.len()]);
        Ok(())
    }

    fn write_many(&self, ops: &[WriteOp<'_>]) -> io::Result<()> {
        let mut media = self.media.lock();
        for op in ops {
            let at = (op.offset - FRONT_BYTES) as usize;
            match SegmentHeader::decode(op.data) {
                Ok(header) if header.class == Class::Free => {
                    let durable = media.durable.clone();
                    media.freed.push((header.segment, durable));
                }
                Ok(header) if header.generation > 1 => {
                    let before = SegmentHeader::decode(&media.durable[at..]);
                    let freed = |before: SegmentHeader| {
                        (before.class, before.generation) == (Class::Free, header.generation)
                    };
                    assert!(before.is_ok_and(freed), "used before it was free on media");
                }
                _ => {}
            }
            media.written[at..at + op.data.len()].copy_from_slice(op.data);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut media = self.media.lock();
        media.flushes += 1;
        if media.flushes == media.failing_flush {
            return Err(io::ErrorKind::Other.into());
        }
        media.durable = media.written.clone();
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: "model",
            io: "memory",
            direct: false,
            block_bytes: self.geometry.block_bytes,
            capacity_bytes: self.geometry.capacity,
            discard: false,
        }
    }
}

/// A log in a model, and its device.
#[derive(Clone)]
pub(crate) struct Tiny {
    pub(crate) log: Arc<Log>,
    pub(crate) device: SharedArc<ModelDevice>,
}

/// A new log of this many segments, each with this many blocks after its header.
pub(crate) fn tiny(segment_count: u32, blocks: u64, failing_flush: u64) -> Tiny {
    let segment_bytes = (1 + blocks) * BLOCK;
    let geometry = Geometry {
        uuid: [1; 16],
        salt: [2; 16],
        capacity: (FRONT_BYTES + u64::from(segment_count) * segment_bytes + BACK_BYTES)
            .next_multiple_of(4096),
        segment_bytes,
        segment_count,
        block_bytes: BLOCK as u32,
        unit_bytes: 8,
    };
    assert_eq!(geometry.validate(), Ok(()));
    let device = SharedArc::new(ModelDevice::new(geometry, failing_flush));
    let superblock = Superblock {
        sequence: 1,
        geometry,
        epoch: 1,
        cuts: Vec::new(),
        clean: None,
        roots: Vec::new(),
    };
    let options = LogOptions {
        read_only: false,
        checkpoint_interval_bytes: None,
        discard_bytes_per_second: 0,
        first_number: 1,
    };
    let superblocks = Superblocks::new(superblock, &[]);
    let log = Arc::new(Log::create(device.clone(), superblocks, options));
    Tiny { log, device }
}

/// A put to append: its key is one byte, its record this long with its header.
pub(crate) fn new_put<'a>(key: &'a [u8], value: &'a [u8], head: u8) -> NewRecord<'a> {
    NewRecord {
        fields: RecordFields {
            kind: Kind::Put,
            relocated: false,
            key,
            value,
            content: content_hash(key, value),
        },
        payload: None,
        length: length_of(key, value),
        head,
        purpose: Purpose::User,
        clock: None,
    }
}

fn length_of(key: &[u8], value: &[u8]) -> LengthCode {
    match record_length(Kind::Put, key.len(), value.len(), 8) {
        Some(length) => length,
        None => panic!("a short record"),
    }
}

impl Tiny {
    pub(crate) fn geometry(&self) -> &Geometry {
        self.log.geometry()
    }

    /// The key of the record at `address` in bytes of all segments, if one verifies there.
    pub(crate) fn key_at(&self, bytes: &[u8], address: crate::format::Address) -> Option<Vec<u8>> {
        let (_, segment, offset) = self.log.table().locate(address)?;
        let at = (self.geometry().device_offset(address) - FRONT_BYTES) as usize;
        let end = at - offset as usize + self.geometry().segment_bytes as usize;
        let record = parse_record(&bytes[at..end], segment.seed(), offset, 8).ok()?;
        Some(record.key.to_vec())
    }

    /// The frames of every segment with data, as the device has them.
    pub(crate) fn frames(&self) -> Vec<ScannedFrame> {
        let mut frames = Vec::new();
        for (id, segment) in self.log.table().iter() {
            let mut block = AlignedBuf::zeroed(BLOCK as usize);
            self.read(self.geometry().segment_offset(id), &mut block);
            let Ok(header) = SegmentHeader::decode(&block) else {
                continue;
            };
            if !matches!(header.class, Class::Data(_)) {
                continue;
            }
            let mut scanner = SegmentScanner::new(header, u64::MAX);
            while let Ok(Some(frame)) = scanner.take(&*self.device) {
                frames.push(frame);
            }
            if segment.state() == State::Sealed {
                assert_eq!(
                    u64::from(segment.end()),
                    scanner.end(),
                    "the end of segment {id}"
                );
                assert!(scanner.is_sealed(), "segment {id} says that it ended");
            }
            assert_eq!(u64::from(segment.written()), scanner.end());
        }
        frames.sort_by_key(|frame| (frame.header.group, frame.header.frame_index));
        frames
    }

    fn read(&self, offset: u64, into: &mut AlignedBuf) {
        assert!(self.log.read_device(offset, into).is_ok());
    }

    /// Seqnos of all records on the device, each checked to be in its group's range, with the
    /// segments and byte ranges they are in.
    pub(crate) fn records(&self) -> Vec<(Seqno, SegmentId, std::ops::Range<u64>)> {
        let mut found = Vec::new();
        for frame in self.frames() {
            let mut last = 0;
            let visited = frame.visit(self.geometry(), &mut |record| {
                assert!(record.seqno > last, "seqnos of a frame ascend");
                last = record.seqno;
                let end = record.offset + record.record.length.units() * 8;
                found.push((record.seqno, frame.segment, record.offset..end));
                Ok(())
            });
            assert!(visited.is_ok(), "records verify");
        }
        found.sort_by_key(|(seqno, ..)| *seqno);
        found
    }
}
