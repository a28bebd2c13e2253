//! Loom models of what the key-value layer and the log do together: the order of writes,
//! cleaning and checkpoints against callers. Which mutation of the code each catches:
//! `design/concurrency.md`.

mod loom_checkpoint;
mod loom_cleaning;
mod loom_freeing;
mod loom_order;

use super::*;
use crate::format::{Kind, record_length};
use crate::index::Index;
use crate::log::tests::{Tiny, model, tiny, witness};
use crate::log::{Effort, Lane, State};
use crate::sync::{Arc, thread};

/// A key-value layer on a tiny log.
#[derive(Clone)]
struct Tested {
    kv: Arc<KeyValue>,
    tiny: Tiny,
}

/// An empty one, of this many segments with this many blocks after the header. Writes are
/// buffered, so that a model says itself when they are committed.
fn tested(segment_count: u32, blocks: u64) -> Tested {
    let tiny = tiny(segment_count, blocks, 0);
    let kv = Arc::new(KeyValue::new(
        tiny.geometry(),
        0,
        None,
        Durability::Buffered,
    ));
    Tested { kv, tiny }
}

impl Tested {
    fn log(&self) -> &Log {
        &self.tiny.log
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        let done = self.kv.put(self.log(), key, value);
        assert!(done.is_ok(), "{done:?}");
    }

    fn delete(&self, key: &[u8]) {
        let done = self.kv.delete(self.log(), key);
        assert!(done.is_ok(), "{done:?}");
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.kv.get(self.log(), key) {
            Ok(value) => value.map(|value| value.to_vec()),
            Err(error) => panic!("{error}"),
        }
    }

    fn commit(&self) {
        let done = self.log().commit_now();
        assert!(done.is_ok(), "{done:?}");
    }

    fn entry(&self, key: &[u8]) -> Option<Entry> {
        self.kv.index.get(self.kv.user_hash(key))
    }

    fn state_of(&self, key: &[u8]) -> Option<State> {
        let (_, segment, _) = self.log().table().locate(self.entry(key)?.address)?;
        Some(segment.state())
    }

    /// A key of this shard, one of several.
    fn key_in(&self, shard: usize, number: usize) -> Vec<u8> {
        let in_shard = |key: &[u8; 1]| Index::shard_of(self.kv.user_hash(key)) == shard;
        let mut keys = (0..=u8::MAX).map(|byte| [byte]).filter(in_shard);
        match keys.nth(number) {
            Some(key) => key.to_vec(),
            None => panic!("half of all keys are in the shard"),
        }
    }

    /// What the cleaner does with a record.
    fn relocate(&self, kind: Kind, key: &[u8], value: &[u8], position: Position) -> Relocation {
        let Some(length) = record_length(kind, key.len(), value.len(), 8) else {
            panic!("a short record")
        };
        let record = Record {
            kind,
            relocated: false,
            key,
            value,
            delta: 0,
            length,
        };
        match self.kv.relocate(self.log(), &record, &[], position, 0, 0) {
            Ok(relocation) => relocation,
            Err(NoRoom) => panic!("there is room"),
        }
    }

    /// A space thread that has tried nothing yet.
    fn effort(&self) -> Effort {
        let geometry = self.tiny.geometry();
        Effort::new(geometry.segment_count, geometry.segment_bytes)
    }

    /// One step of the space thread; whether there was something to do.
    fn make_space(&self) -> bool {
        match self.log().make_space(&*self.kv, &mut self.effort()) {
            Ok(done) => done,
            Err(error) => panic!("{error}"),
        }
    }

    /// Commits, and checks that a recovery from `image` and the records on the device ends in
    /// the index there is, with the same live bytes in every segment.
    fn assert_recovers(&self, image: &[u8], keys: &[&[u8]]) {
        self.commit();
        let geometry = self.tiny.geometry();
        let blocks = geometry.segment_bytes / u64::from(geometry.block_bytes) - 1;
        let other = tested(geometry.segment_count, blocks);
        assert!(other.kv.load_image(other.log(), 0, image).is_ok());
        let frames = self.tiny.frames();
        let mut records = Vec::new();
        for frame in &frames {
            let visited = frame.visit(geometry, &mut |found| {
                let address = geometry.address(frame.segment, found.offset);
                records.push((found.seqno, address, found.record));
                Ok(())
            });
            assert!(visited.is_ok(), "records verify");
        }
        records.sort_by_key(|(seqno, ..)| *seqno);
        for (seqno, address, record) in records {
            let position = Position {
                address,
                seqno,
                head: 0,
                payload: None,
            };
            assert!(
                other
                    .kv
                    .replay(other.log(), &record, position, Lane::ALL)
                    .is_ok()
            );
        }
        let place = |entry: Entry| (entry.address, entry.length);
        for key in keys {
            assert_eq!(other.entry(key).map(place), self.entry(key).map(place));
        }
        assert_eq!(other.kv.index.len(), self.kv.index.len());
        let recovered = other.log().table().iter();
        for ((id, segment), (_, recovered)) in self.log().table().iter().zip(recovered) {
            let (live, recovered) = (segment.live_bytes(), recovered.live_bytes());
            assert_eq!(live, recovered, "live bytes of segment {id}");
        }
        let totals = [self, &other].map(|tested| tested.log().table().live_total());
        assert_eq!(totals[0], totals[1], "live bytes");
    }
}
