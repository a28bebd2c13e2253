//! Models of appending: places and seqnos, and the hand-over from a full segment to a fresh
//! one, while groups are written.

use super::*;
use crate::format::COMMIT_STREAM;
use crate::log::appender::Appended;
use crate::sync::thread;

/// Of these two fit in the block after a segment's header.
const VALUE: [u8; 160] = [7; 160];

fn append(log: &Log, key: u8) -> Appended {
    let key = [key];
    match log.appender().append(&new_put(&key, &VALUE, COMMIT_STREAM)) {
        Ok(appended) => appended,
        Err(_) => panic!("there are free segments"),
    }
}

/// A published record is on the device or among what is pending, at any time.
fn assert_readable(tiny: &Tiny, key: u8, appended: Appended) {
    let table = tiny.log.table();
    let Some((id, segment, offset)) = table.locate(appended.address) else {
        panic!("an address in the store")
    };
    let mut bytes = vec![0; 184];
    let mut copied = tiny
        .log
        .appender()
        .copy_pending(id, offset as u32, &mut bytes);
    if copied {
        witness("read while pending");
    } else {
        // It was written, and who took the lock since knows.
        assert!(u64::from(segment.written()) >= offset + 184, "lost record");
        let mut blocks = AlignedBuf::zeroed(tiny.geometry().segment_bytes as usize);
        tiny.read(tiny.geometry().segment_offset(id), &mut blocks);
        bytes.copy_from_slice(&blocks[offset as usize..offset as usize + 184]);
        copied = true;
        witness("read from the device");
    }
    let parsed = parse_record(&bytes, segment.seed(), offset, 8);
    assert!(copied && parsed.is_ok_and(|record| record.key == [key]));
}

/// Two appenders fill a segment and roll to the next while groups are written: no two
/// records overlap or share a seqno, and a published record can always be read.
#[test]
fn loom_append_and_roll() {
    let places = ["read while pending", "read from the device"];
    model("append and roll", &places, || {
        let tiny = tiny(4, 1, 0);
        let published = Arc::new(Mutex::new(None));
        let other = {
            let (tiny, published) = (tiny.clone(), published.clone());
            thread::spawn(move || {
                let first = append(&tiny.log, 1);
                *published.lock() = Some(first);
                append(&tiny.log, 2);
                assert!(tiny.log.commit_now().is_ok());
            })
        };
        append(&tiny.log, 3);
        let seen = *published.lock();
        if let Some(appended) = seen {
            assert_readable(&tiny, 1, appended);
        }
        let last = append(&tiny.log, 4);
        assert_readable(&tiny, 4, last);
        assert!(other.join().is_ok());
        assert!(tiny.log.commit_now().is_ok());

        let records = tiny.records();
        let seqnos: Vec<_> = records.iter().map(|(seqno, ..)| *seqno).collect();
        assert_eq!(seqnos, [1, 2, 3, 4]);
        for (at, (_, segment, range)) in records.iter().enumerate() {
            for (_, other_segment, other) in &records[at + 1..] {
                let apart = range.end <= other.start || other.end <= range.start;
                assert!(segment != other_segment || apart, "records overlap");
            }
        }
        assert_eq!(tiny.log.durable(), 4);
        assert!(tiny.log.table().count(State::Sealed) >= 1);
        assert_eq!(tiny.log.appender().unwritten_bytes(), 0);
    });
}
