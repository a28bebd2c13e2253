//! Payload frames: where things go, that counted room is enough, and damage.

use super::*;
use crate::device::{AlignedBuf, Device, SimulatedDevice, WriteOp};
use crate::format::{
    FrameHeader, Kind, RecordFields, SegmentHeader, SegmentId, content_hash, extent_key,
    extent_value, payload_checksums, record_length,
};
use crate::log::{
    Appended, Log, LogOptions, NewRecord, NoRoom, ScannedFrame, SegmentScanner, create_superblocks,
};
use crate::sync::SharedArc;

/// A new log of this many segments of 128 KiB.
fn new_log(segments: u64, block_bytes: u32) -> (Log, SharedArc<SimulatedDevice>) {
    let capacity = (72 << 10) + segments * (128 << 10);
    let device = SharedArc::new(SimulatedDevice::new(capacity, block_bytes));
    let geometry = Geometry::plan(capacity, Some(128 << 10), block_bytes, [1; 16], [2; 16]);
    let superblocks = create_superblocks(&*device, geometry.unwrap(), 1).unwrap();
    let options = LogOptions {
        read_only: false,
        checkpoint_interval_bytes: None,
        discard_bytes_per_second: 0,
        first_number: 1,
    };
    (Log::create(device.clone(), superblocks, options), device)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn bytes_of(tag: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(tag | 1) >> 5) as u8)
        .collect()
}

fn append(
    appender: &mut Appender,
    kind: Kind,
    key: &[u8],
    value: &[u8],
    payload: Option<Payload<'_>>,
    head: u8,
) -> Result<Appended, NoRoom> {
    let length = record_length(kind, key.len(), value.len(), 8).unwrap();
    appender.append(&NewRecord {
        fields: RecordFields {
            kind,
            relocated: false,
            key,
            value,
            content: content_hash(key, value),
        },
        payload,
        length,
        head,
        purpose: Purpose::Counted,
        clock: None,
    })
}

fn extent_bytes(payload: usize) -> u64 {
    let value = crate::format::extent_value_bytes(payload as u32, 0);
    record_length(Kind::Extent, 12, value, 8).unwrap().units() * 8
}

fn record_bytes(kind: Kind, key: usize, value: usize) -> u64 {
    record_length(kind, key, value, 8).unwrap().units() * 8
}

fn append_extent(
    appender: &mut Appender,
    family: u64,
    payload: &[u8],
    head: u8,
) -> Result<Appended, NoRoom> {
    let checksums = payload_checksums(payload);
    let value = extent_value(payload.len() as u32, 0, &[], &checksums);
    let (front, back) = payload.split_at(payload.len() / 2);
    let key = extent_key(family, 0);
    append(
        appender,
        Kind::Extent,
        &key,
        &value,
        Some(&[front, back]),
        head,
    )
}

/// The frames of a segment as they are on the device.
fn frames(log: &Log, segment: SegmentId) -> Vec<ScannedFrame> {
    let mut block = AlignedBuf::zeroed(log.geometry().header_bytes() as usize);
    let offset = log.geometry().segment_offset(segment);
    log.read_device(offset, &mut block).unwrap();
    let header = SegmentHeader::decode(&block).unwrap();
    let mut scanner = SegmentScanner::new(header, u64::MAX);
    let mut frames = Vec::new();
    while let Some(frame) = scanner.take(&**log.device()).unwrap() {
        assert!(frame.is_verified());
        frames.push(frame);
    }
    frames
}

#[test]
fn records_and_payload_have_their_places() {
    for block_bytes in [512, 4096] {
        let (log, _) = new_log(64, block_bytes);
        let geometry = *log.geometry();
        let block = block_bytes as usize;
        let mut appender = log.appender();
        let payloads: Vec<Vec<u8>> = [block, 3 * block, 8192]
            .iter()
            .zip(1..)
            .map(|(len, tag)| bytes_of(tag, *len))
            .collect();
        // A plain frame, then a payload frame into whose area an operation goes, then another
        // payload frame since the area is full, then a plain one.
        append(&mut appender, Kind::Put, b"plain", b"v", None, 0).unwrap();
        let fill = block - 136 - extent_bytes(block) as usize - 32;
        let big = vec![5; 2 * block];
        let mut appended = vec![append_extent(&mut appender, 1, &payloads[0], 0).unwrap()];
        let op = append(&mut appender, Kind::Object, b"op", &vec![1; fill], None, 0).unwrap();
        for number in [1, 2] {
            let one = append_extent(&mut appender, 1, &payloads[number], 0).unwrap();
            appended.push(one);
        }
        let omap = append(&mut appender, Kind::OmapValue, b"key", &big, None, 0).unwrap();

        let (segment, _, _) = log.table().locate(omap.address).unwrap();
        let entry = log.table().segment(segment);
        let in_payload = payloads.iter().map(Vec::len).sum::<usize>() as u64;
        let live = in_payload
            + record_bytes(Kind::Put, 5, 1)
            + record_bytes(Kind::OmapValue, 3, big.len());
        let extents: u64 = payloads.iter().map(|one| extent_bytes(one.len())).sum();
        let all = live + record_bytes(Kind::Object, 2, fill) + extents;
        assert_eq!(appender.pending_bytes(), all);
        assert_eq!(appender.appended_bytes(), all);
        assert_eq!(appender.clock(), all);
        assert_eq!(entry.live_bytes(), live as i64);
        assert!(entry.is_pinned(op.seqno) && !entry.is_pinned(op.seqno + 1));
        // Before it is written, then from the device.
        for (one, payload) in appended.iter().zip(&payloads) {
            let (_, _, offset) = log.table().locate(one.payload.unwrap()).unwrap();
            let mut found = vec![0; payload.len()];
            assert!(appender.copy_pending(segment, offset as u32, &mut found));
            assert_eq!(found, *payload);
            assert!(offset.is_multiple_of(u64::from(block_bytes)));
        }
        drop(appender);
        log.commit_now().unwrap();
        let mut end = geometry.header_bytes();
        let (mut seen, mut found_payloads) = (Vec::new(), 0);
        for frame in frames(&log, segment) {
            assert_eq!(frame.offset, end);
            end += u64::from(frame.header.frame_bytes);
            let mut kinds = Vec::new();
            let visited = frame.visit(&geometry, &mut |found| {
                kinds.push(found.record.kind);
                if let Some(payload) = found.payload {
                    let (one, expected) = (appended[found_payloads], &payloads[found_payloads]);
                    let at = geometry.address(segment, payload.offset.unwrap());
                    assert_eq!((one.seqno, one.payload), (found.seqno, Some(at)));
                    assert_eq!(payload.bytes, expected);
                    found_payloads += 1;
                }
                Ok(())
            });
            visited.unwrap();
            seen.push((frame.header.payload, kinds));
        }
        let e = Kind::Extent;
        if block_bytes == 512 {
            let expected = [
                (false, vec![Kind::Put]),
                (true, vec![e, Kind::Object]),
                (true, vec![e, e]),
                (false, vec![Kind::OmapValue]),
            ];
            assert_eq!(seen, expected);
        }
        assert_eq!(found_payloads, 3);
        assert_eq!(u64::from(entry.written()), end);
        assert_eq!(log.appender().overhead_bytes(), end - all);
        assert_eq!(log.appender().unwritten_bytes(), 0);
    }
}

/// With its area reserved, a transaction is one frame; what is left of an area that was
/// reserved and not used does not matter.
#[test]
fn a_reserved_area_takes_a_whole_transaction() {
    let (log, _) = new_log(64, 512);
    let values: Vec<Vec<u8>> = (1..30).map(|number| bytes_of(number, 40)).collect();
    let extents = [bytes_of(1, 4096), bytes_of(2, 9 * 512)];
    let records: u64 = values
        .iter()
        .map(|value| record_bytes(Kind::Object, 2, value.len()))
        .sum();
    let in_extents: u64 = extents.iter().map(|one| extent_bytes(one.len())).sum();
    for surplus in [0, 5000] {
        let mut appender = log.appender();
        appender.reserve_area(8, records + in_extents + surplus);
        for payload in &extents {
            append_extent(&mut appender, 3, payload, 8).unwrap();
        }
        for value in &values {
            append(&mut appender, Kind::Object, b"op", value, None, 8).unwrap();
        }
        drop(appender);
        log.commit_now().unwrap();
    }
    // Of a reservation that is taken back, or that a closed group leaves, nothing remains.
    log.appender().reserve_area(8, 5000);
    log.commit_now().unwrap();
    append_extent(&mut log.appender(), 3, &extents[0], 8).unwrap();
    log.commit_now().unwrap();
    let frames = frames(&log, 0);
    let counts: Vec<_> = frames
        .iter()
        .map(|frame| frame.header.record_count)
        .collect();
    assert_eq!(counts, [31, 31, 1]);
    assert!(frames.iter().all(|frame| frame.header.payload));
    assert_eq!(frames[2].header.frame_bytes, 512 + 4096);
}

#[test]
fn the_largest_payload_fits_in_an_empty_segment() {
    for block_bytes in [512, 4096] {
        let (log, _) = new_log(64, block_bytes);
        let most = max_payload(log.geometry());
        assert!(most > 100 << 10 && most.is_multiple_of(block_bytes));
        let payload = bytes_of(9, most as usize);
        let value = extent_value(most, 0, &[7; 256], &payload_checksums(&payload));
        for _ in 0..3 {
            let slices = [payload.as_slice()];
            let key = extent_key(1, 2);
            append(
                &mut log.appender(),
                Kind::Extent,
                &key,
                &value,
                Some(&slices),
                2,
            )
            .unwrap();
        }
        log.commit_now().unwrap();
        let found: Vec<usize> = (0..3).map(|segment| frames(&log, segment).len()).collect();
        assert_eq!(found, [1, 1, 1]);
        let beside = max_payload_beside(log.geometry(), 0);
        assert!(u64::from(beside) < log.geometry().segment_bytes);
    }
}

/// What was counted can be appended, whatever came before, in any order, with areas reserved
/// or not, and without one free segment more.
#[test]
fn counted_room_suffices() {
    let mut random = Random(77);
    let (mut tight, mut yes) = (0, 0);
    for case in 0..600 {
        let (log, _) = new_log(64, if case % 3 == 0 { 4096 } else { 512 });
        let block = log.geometry().block_bytes as usize;
        let most = max_payload(log.geometry()) as usize / block;
        let mut appender = log.appender();
        // Anything may be open; few segments are left.
        for _ in 0..random.below(12) {
            let head = random.below(3) as u8 * 4;
            if random.below(2) == 0 {
                let payload = bytes_of(case, block * (1 + random.below(40) as usize).min(most));
                append_extent(&mut appender, 5, &payload, head).unwrap();
            } else {
                let value = bytes_of(case, random.below(9000) as usize);
                append(&mut appender, Kind::OmapValue, b"k", &value, None, head).unwrap();
            }
        }
        let left = random.below(5) as usize;
        while appender.take_surplus(left).is_some() {}
        if random.below(4) == 0 {
            let _ = append(&mut appender, Kind::Object, b"k", b"", None, 8);
        }
        // A transaction: payload and values by head.
        let mut plan: Vec<(u8, Kind, usize)> = Vec::new();
        for _ in 0..1 + random.below(30) {
            let head = [0, 4, 8][random.below(3) as usize];
            let of_extents = random.below(2) == 0 && head != 4 || head == 0;
            let large = random.below(10) == 0;
            plan.push(if of_extents {
                let blocks = 1 + random.below(if large { most as u64 } else { 9 });
                (head, Kind::Extent, block * blocks as usize)
            } else {
                (
                    head,
                    Kind::Object,
                    random.below(if large { 60_000 } else { 300 }) as usize,
                )
            });
        }
        if case % 2 == 0 {
            plan.sort_by_key(|(_, kind, _)| *kind as u8);
        }
        let rooms: Vec<Room> = plan
            .iter()
            .map(|(head, kind, len)| {
                let mut room = Room::new(*head, Purpose::Counted);
                match kind {
                    Kind::Extent => room.add(extent_bytes(*len), *len as u64),
                    _ => room.add(record_bytes(*kind, 3, *len), 0),
                }
                room
            })
            .collect();
        if !appender.has_room(&rooms, false) {
            continue;
        }
        yes += 1;
        let before = appender.free_count();
        if random.below(2) == 0 {
            for head in [0, 8] {
                let of_head = by_head(&rooms).find(|room| room.head == head);
                if let Some(room) = of_head.filter(|room| room.payload > 0) {
                    appender.reserve_area(head, room.bytes);
                }
            }
        }
        for (head, kind, len) in &plan {
            let data = bytes_of(3, *len);
            let done = match kind {
                Kind::Extent => append_extent(&mut appender, 5, &data, *head),
                _ => append(&mut appender, *kind, b"key", &data, None, *head),
            };
            assert!(done.is_ok(), "case {case}");
        }
        tight += u64::from(before > 0 && appender.free_count() == 0);
        drop(appender);
        log.commit_now().unwrap();
        for segment in 0..log.geometry().segment_count {
            if log.table().segment(segment).written() > 0 {
                frames(&log, segment);
            }
        }
    }
    assert!(yes > 100 && tight > 5, "{yes} {tight}");
}

/// Bits and lengths of a payload frame's header and records: nothing panics, and no flip goes
/// unnoticed.
#[test]
fn every_flip_in_a_payload_frame_is_noticed() {
    let (log, device) = new_log(64, 512);
    let payload = bytes_of(4, 4096 + 512);
    append_extent(&mut log.appender(), 1, &payload, 8).unwrap();
    append(&mut log.appender(), Kind::Object, b"op", b"value", None, 8).unwrap();
    append(
        &mut log.appender(),
        Kind::OmapValue,
        b"key",
        b"value",
        None,
        8,
    )
    .unwrap();
    log.commit_now().unwrap();
    let geometry = *log.geometry();
    let whole = frames(&log, 0);
    let (header, at) = (
        whole[0].header,
        geometry.segment_offset(0) + whole[0].offset,
    );
    let segment_header = {
        let block = device.read_raw(geometry.segment_offset(0), 512);
        SegmentHeader::decode(&block).unwrap()
    };
    let is_sound = |device: &SimulatedDevice| {
        let mut scanner = SegmentScanner::new(segment_header, u64::MAX);
        let frame = scanner.take(device).unwrap();
        let mut bare = SegmentScanner::new(segment_header, u64::MAX).records_only();
        let records = bare.take(device).unwrap();
        let on_device = records
            .as_ref()
            .is_some_and(|frame| frame.verify_on_device(device, &geometry).is_ok());
        let verified = frame.is_some_and(|frame| frame.is_verified());
        assert_eq!(on_device, verified);
        verified
    };
    assert!(is_sound(&device));
    let data = u64::from(header.data_bytes);
    let (first, second) = (at * 8..(at + data) * 8, at + 512..at + 512 + 4608);
    // Every bit of header and records but the padding of records, and some of the payload.
    let mut unnoticed = 0;
    for bit in first.chain(second.clone().step_by(61).map(|at| at * 8 + at % 8)) {
        device.flip_bit(bit / 8, bit % 8);
        unnoticed += u64::from(is_sound(&device));
        device.flip_bit(bit / 8, bit % 8);
    }
    let padding = data - 136 - 48 - (16 + 2 + 5) - (16 + 3 + 5);
    assert_eq!(unnoticed, padding * 8);
    assert!(is_sound(&device));
}

/// A frame whose header verifies and whose content makes no sense.
#[test]
fn crafted_frames_are_refused() {
    let (log, device) = new_log(64, 512);
    let payload = bytes_of(4, 1024);
    append_extent(&mut log.appender(), 1, &payload, 8).unwrap();
    log.commit_now().unwrap();
    let geometry = *log.geometry();
    let header = frames(&log, 0)[0].header;
    let seed = log.table().segment(0).seed();
    let offset = geometry.segment_offset(0);
    let with = |change: &dyn Fn(&mut FrameHeader)| {
        let mut changed = header;
        change(&mut changed);
        let mut block = AlignedBuf::zeroed(512);
        block.copy_from_slice(&device.read_raw(offset + 512, 512));
        changed.encode(seed, 512, &mut block);
        let data = &block;
        let op = WriteOp {
            offset: offset + 512,
            data,
        };
        device.write_many(&[op]).unwrap();
        let first = device.read_raw(offset, 512);
        let mut scanner = SegmentScanner::new(SegmentHeader::decode(&first).unwrap(), u64::MAX);
        let frame = scanner.take(&*device).unwrap();
        frame.is_some_and(|frame| frame.verify(&geometry).is_ok())
    };
    assert!(with(&|_| {}));
    assert!(!with(&|header| header.payload = false));
    assert!(!with(&|header| header.frame_bytes = 512));
    assert!(!with(&|header| header.frame_bytes = 1024));
    assert!(!with(&|header| header.frame_bytes += 512));
    assert!(!with(&|header| header.record_count = 0));
    assert!(!with(&|header| header.record_count = 2));
    assert!(!with(&|header| header.data_bytes = 600));
    assert!(!with(&|header| header.last_seqno += 1));
    assert!(with(&|header| header.seals = true));
}
