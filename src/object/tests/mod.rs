//! Loom models of the object layer: relocation of payload against readers and writers, and
//! transactions over two collections. They drive the production types on a tiny log on a
//! device in memory.

mod loom_extents;
mod loom_order;

use super::*;
use crate::format::{Kind, Record, Seqno, extent_key, extent_value, record_length};
use crate::log::tests::{Tiny, model, tiny, witness};
use crate::log::{Lane, Owner, Position, Relocation};
use crate::sync::{Arc, SharedArc, thread};

/// An object layer on a tiny log.
#[derive(Clone)]
struct Tested {
    objects: Arc<Objects>,
    tiny: Tiny,
}

const BYTES: usize = 512;

fn pg(number: i64) -> CollectionName {
    CollectionName::pg(number, 0)
}

fn name(collection: CollectionName) -> SharedArc<ObjectName> {
    let CollectionName::Pg { pool, .. } = collection else {
        panic!("a placement group")
    };
    SharedArc::new(ObjectName::new(pool, 1, "o"))
}

fn tested() -> Tested {
    let tiny = tiny(12, 32, 0);
    let objects = Arc::new(Objects::new(tiny.geometry(), None));
    Tested { objects, tiny }
}

/// One with collections, each with one object of one block.
fn with_objects(collections: &[CollectionName]) -> Tested {
    let tested = tested();
    for collection in collections {
        tested.apply(*collection, |tx| {
            tx.create_collection(*collection, 0);
            tx.write(*collection, &name(*collection), 0, [vec![1; BYTES]]);
        });
    }
    tested.commit();
    tested
}

impl Tested {
    fn log(&self) -> &Log {
        &self.tiny.log
    }

    fn commit(&self) {
        let done = self.log().commit_now();
        assert!(done.is_ok(), "{done:?}");
    }

    fn slot(&self, collection: CollectionName) -> SharedArc<Slot> {
        self.objects.registry.slot(&self.objects.table, collection)
    }

    fn apply(
        &self,
        collection: CollectionName,
        add: impl FnOnce(&mut Transaction<'static>),
    ) -> Seqno {
        let mut tx = Transaction::new();
        add(&mut tx);
        match self
            .objects
            .submit(self.log(), &self.slot(collection), &[tx], |_| ())
        {
            Ok(seqno) => seqno,
            Err(error) => panic!("{error}"),
        }
    }

    fn id(&self, collection: CollectionName) -> Option<ObjectId> {
        self.slot(collection)
            .space
            .find(&name(collection).sort_key())
    }

    /// The first byte of the object's data, of which all bytes are the same; `None` when the
    /// object is gone.
    fn read(&self, collection: CollectionName) -> Option<u8> {
        loop {
            let id = self.id(collection)?;
            let seen = {
                let shard = self.objects.table.read(id.family);
                shard.get(id).map(|node| Seen::of(id, node, 0, u64::MAX))
            };
            let Some(seen) = seen else {
                continue;
            };
            let mut data = vec![0; seen.bytes as usize];
            match self.objects.read_seen(self.log(), seen, 0, &mut data) {
                Ok(true) => {
                    assert!(data.windows(2).all(|two| two[0] == two[1]), "a mixture");
                    return Some(data[0]);
                }
                Ok(false) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The bytes and place of the record of an object's only extent.
    fn extent(&self, collection: CollectionName) -> (ObjectId, Address, Vec<u32>) {
        let Some(id) = self.id(collection) else {
            panic!("the object is there")
        };
        let shard = self.objects.table.read(id.family);
        let extent = shard.get(id).and_then(|node| node.extents.get(0));
        match extent {
            Some(extent) => (id, extent.address, vec![extent.checksum]),
            None => panic!("the object has data"),
        }
    }

    /// What the cleaner does with the extent that it found at an address.
    fn relocate(&self, extent: &(ObjectId, Address, Vec<u32>), payload: &[u8]) -> Relocation {
        let (id, address, checksums) = extent;
        let key = extent_key(id.family, id.member);
        let value = extent_value(payload.len() as u32, 0, &[], checksums);
        let Some(length) = record_length(Kind::Extent, key.len(), value.len(), 8) else {
            panic!("a short record")
        };
        let record = Record {
            kind: Kind::Extent,
            relocated: false,
            key: &key,
            value: &value,
            delta: 0,
            length,
        };
        let position = Position {
            address: *address,
            seqno: 1,
            head: 0,
            payload: Some(*address),
        };
        match Owner::relocate(&*self.objects, self.log(), &record, payload, position, 0, 0) {
            Ok(relocation) => relocation,
            Err(_) => panic!("there is room"),
        }
    }

    /// Commits, and checks that a replay of the records on the device ends in the same nodes,
    /// with the same live bytes in every segment.
    fn assert_recovers(&self, collections: &[CollectionName]) {
        self.commit();
        let geometry = self.tiny.geometry();
        let other = tested();
        let frames = self.tiny.frames();
        let mut records = Vec::new();
        for frame in &frames {
            let visited = frame.visit(geometry, &mut |found| {
                let position = Position {
                    address: geometry.address(frame.segment, found.offset),
                    seqno: found.seqno,
                    head: 0,
                    payload: found.payload.and_then(|payload| {
                        payload
                            .offset
                            .map(|offset| geometry.address(frame.segment, offset))
                    }),
                };
                records.push((position, found.record));
                Ok(())
            });
            assert!(visited.is_ok(), "records verify");
        }
        records.sort_by_key(|(position, _)| position.seqno);
        for (position, record) in records {
            let replayed = other
                .objects
                .replay(other.log(), &record, position, Lane::ALL);
            assert!(replayed.is_ok(), "{replayed:?}");
        }
        assert!(other.objects.replayed(other.log()).is_ok());
        for collection in collections {
            let places = [self, &other].map(|tested| {
                let id = tested.id(*collection)?;
                let shard = tested.objects.table.read(id.family);
                let node = shard.get(id)?;
                let extent = node.extents.get(0).map(|extent| extent.address);
                Some((
                    extent,
                    node.bytes,
                    node.attributes.get(b"v").map(<[u8]>::to_vec),
                ))
            });
            assert_eq!(places[0], places[1], "{collection}");
        }
        let recovered = other.log().table().iter();
        for ((id, segment), (_, recovered)) in self.log().table().iter().zip(recovered) {
            let (live, recovered) = (segment.live_bytes(), recovered.live_bytes());
            assert_eq!(live, recovered, "live bytes of segment {id}");
        }
    }
}
