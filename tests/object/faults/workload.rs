//! Transactions for a store that is to fail: every operation, on few objects, so that they
//! meet one another; over several collections, now and then over two at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::object::NO_SNAP;
use esker::{CollectionName, ObjectName, Transaction};

use crate::common::Random;
use crate::interface::ObjectInterface;
use crate::model::ModelStore;

/// Its placement group is split and merged.
pub const LOW: CollectionName = CollectionName::Pg {
    pool: 5,
    shard: -1,
    seed: 0,
    temp: false,
};
pub const HIGH: CollectionName = CollectionName::Pg {
    pool: 5,
    shard: -1,
    seed: 1,
    temp: false,
};
/// Another pool.
pub const OTHER: CollectionName = CollectionName::Pg {
    pool: 7,
    shard: -1,
    seed: 0,
    temp: false,
};
/// Comes and goes.
pub const BRIEF: CollectionName = CollectionName::Pg {
    pool: 9,
    shard: -1,
    seed: 0,
    temp: false,
};
pub const META: CollectionName = CollectionName::Meta;

/// Objects have at most so many bytes.
const OBJECT_BYTES: u64 = 64 << 10;

#[derive(Clone)]
pub struct Workload {
    pub random: Random,
    /// Heads of each collection.
    pub heads: u64,
    /// Whether collections come, go, split and merge.
    pub moves_collections: bool,
}

/// The transactions that make the collections.
pub fn creation() -> Vec<(CollectionName, Transaction<'static>)> {
    let made = [META, LOW, OTHER].map(|name| {
        let mut tx = Transaction::new();
        tx.create_collection(name, 0);
        (name, tx)
    });
    made.into()
}

impl Workload {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            heads: 14,
            moves_collections: true,
        }
    }

    /// A transaction for a store in this state. Most can be applied.
    pub fn next(&mut self, state: &ModelStore) -> (CollectionName, Transaction<'static>) {
        let mut tx = Transaction::new();
        if self.moves_collections {
            match self.random.below(60) {
                0 => {
                    split_or_merge(state, &mut tx);
                    return (LOW, tx);
                }
                1 | 2 => {
                    self.come_or_go(state, &mut tx);
                    return (BRIEF, tx);
                }
                _ => {}
            }
        }
        let first = self.collection(state);
        let count = match self.random.below(3) {
            0 => 2 + self.random.below(6),
            _ => 1,
        };
        let mut second = first;
        if self.random.below(5) == 0 {
            second = self.collection(state);
        }
        for at in 0..count {
            let collection = if at % 2 == 0 { first } else { second };
            self.add(state, collection, &mut tx);
        }
        if second != first && count == 1 {
            self.add(state, second, &mut tx);
        }
        (first, tx)
    }

    fn collection(&mut self, state: &ModelStore) -> CollectionName {
        match self.random.below(10) {
            0..6 if state.collection_exists(HIGH) => match self.random.below(2) {
                0 => LOW,
                _ => HIGH,
            },
            0..6 => LOW,
            6..9 => OTHER,
            _ => META,
        }
    }

    fn come_or_go(&mut self, state: &ModelStore, tx: &mut Transaction<'static>) {
        if !state.collection_exists(BRIEF) {
            tx.create_collection(BRIEF, 0);
            for number in 0..2 {
                let object = Arc::new(ObjectName::new(9, number, format!("brief {number}")));
                let bytes = self.random.bytes(9000);
                tx.write(BRIEF, &object, 0, [bytes]);
            }
            return;
        }
        for object in listed(state, BRIEF) {
            tx.remove(BRIEF, &Arc::new(object));
        }
        tx.remove_collection(BRIEF);
    }

    /// Any name: a head or one of its clones.
    fn any(&mut self, state: &ModelStore, collection: CollectionName) -> Arc<ObjectName> {
        let number = self.random.below(self.heads);
        let object = match collection {
            CollectionName::Meta => ObjectName::new(-1, number as u32, format!("meta {number}")),
            CollectionName::Pg { pool, seed, .. } => {
                let mut hash = (number as u32 % 5).wrapping_mul(0x9e37_79b8);
                if collection == HIGH || state.collection_exists(HIGH) && collection == LOW {
                    hash = hash & !1 | seed;
                } else if collection == LOW {
                    hash = hash & !1 | number as u32 & 1;
                }
                // Every other one in the low half, so that a split finds both.
                let name = if number.is_multiple_of(3) {
                    format!("{number:0300}")
                } else {
                    format!("{number:05}")
                };
                ObjectName::new(pool, hash, name)
            }
        };
        Arc::new(match self.random.below(10) {
            0..6 => object,
            _ => object.with_snap(self.random.below(3)),
        })
    }

    /// A name that exists, if a few tries find one.
    fn existing(&mut self, state: &ModelStore, collection: CollectionName) -> Arc<ObjectName> {
        for _ in 0..8 {
            let object = self.any(state, collection);
            if state.exists(collection, &object) {
                return object;
            }
        }
        self.any(state, collection)
    }

    /// Another name of the same head.
    fn sibling(&mut self, of: &ObjectName) -> Arc<ObjectName> {
        let head = of.clone().with_snap(NO_SNAP);
        Arc::new(match self.random.below(4) {
            0 => head,
            _ => head.with_snap(self.random.below(3)),
        })
    }

    fn range(&mut self) -> (u64, u64) {
        let len = match self.random.below(4) {
            0 => self.random.below(600),
            1 => 4096 * (1 + self.random.below(4)),
            _ => self.random.below(20_000),
        };
        let align = match self.random.below(3) {
            0 => 1,
            1 => 512,
            _ => 4096,
        };
        (
            self.random.below((OBJECT_BYTES - len) / align + 1) * align,
            len,
        )
    }

    fn value(&mut self) -> Vec<u8> {
        if self.random.below(60) == 0 {
            // In several records.
            let len = 60_000 + self.random.below(90_000);
            return self.random.bytes(len as usize);
        }
        let max = match self.random.below(12) {
            0 => 1,
            1 => 12_000,
            2..5 => 3000,
            _ => 300,
        };
        let len = self.random.below(max);
        self.random.bytes(len as usize)
    }

    fn omap_key(&mut self) -> Vec<u8> {
        let number = self.random.below(60);
        match self.random.below(5) {
            0 => vec![number as u8 * 4],
            _ => format!("key {number:03}").into_bytes(),
        }
    }

    fn add(
        &mut self,
        state: &ModelStore,
        collection: CollectionName,
        tx: &mut Transaction<'static>,
    ) {
        let object = self.existing(state, collection);
        match self.random.below(100) {
            0..34 => {
                let (offset, len) = self.range();
                let bytes = self.random.bytes(len as usize);
                tx.write(collection, &object, offset, [bytes]);
            }
            34..42 => {
                // Removed, or stashed under another name.
                let target = self.sibling(&object);
                if target == object {
                    return;
                }
                tx.touch(collection, &object).remove(collection, &target);
                if self.random.below(2) == 0 {
                    tx.try_rename(collection, &object, &target);
                } else {
                    tx.collection_move_rename(collection, &object, collection, &target);
                }
                if self.random.below(2) == 0 {
                    let bytes = self.random.bytes(5000);
                    tx.write(collection, &object, 100, [bytes]);
                }
            }
            42..47 => {
                let (size, _) = self.range();
                tx.truncate(collection, &object, size);
            }
            47..52 => {
                let (offset, len) = self.range();
                tx.zero(collection, &object, offset, len);
            }
            52..62 => {
                let target = self.sibling(&object);
                if target != object {
                    tx.touch(collection, &object)
                        .clone_object(collection, &object, &target);
                }
            }
            62..66 => {
                let target = self.existing(state, collection);
                let size = state.stat(collection, &object).map_or(0, |stat| stat.size);
                let (offset, len) = self.range();
                let (to, _) = self.range();
                let offset = offset.min(size);
                if target != object && state.exists(collection, &object) {
                    let len = len.min(size - offset);
                    tx.clone_range(collection, &object, &target, offset, len, to);
                }
            }
            66..73 => {
                tx.remove(collection, &object);
            }
            73..80 => self.add_attributes(collection, &object, tx),
            80..98 => self.add_omap(collection, &object, tx),
            _ => {
                // Refused where there is none.
                tx.setattr(collection, &object, "perhaps", "");
            }
        }
    }

    fn add_attributes(
        &mut self,
        collection: CollectionName,
        object: &Arc<ObjectName>,
        tx: &mut Transaction<'static>,
    ) {
        tx.touch(collection, object);
        let name = format!("attribute {}", self.random.below(5)).into_bytes();
        match self.random.below(8) {
            0 => tx.rmattr(collection, object, name),
            1 => tx.rmattrs(collection, object),
            2 => {
                let large = self.random.bytes(20_000);
                let more = self.random.bytes(21_000);
                tx.setattrs(collection, object, [(name, large), (b"_".to_vec(), more)])
            }
            3 => tx.set_alloc_hint(collection, object, 1 << 22, 4096, 0),
            _ => {
                let value = self.value();
                tx.setattr(collection, object, name, value)
            }
        };
    }

    fn add_omap(
        &mut self,
        collection: CollectionName,
        object: &Arc<ObjectName>,
        tx: &mut Transaction<'static>,
    ) {
        tx.touch(collection, object);
        match self.random.below(20) {
            0 => {
                // So many that they are buried.
                let entries = (0..300).map(|n| (format!("many {n:03}"), vec![n as u8; 40]));
                tx.omap_setkeys(collection, object, entries.collect::<Vec<_>>());
            }
            1 => {
                tx.omap_clear(collection, object);
            }
            2..5 => {
                let keys = [self.omap_key(), self.omap_key()];
                tx.omap_rmkeys(collection, object, keys);
            }
            5..8 => {
                let (one, other) = (self.omap_key(), self.omap_key());
                let (first, last) = (one.clone().min(other.clone()), one.max(other));
                tx.omap_rmkeyrange(collection, object, first, last);
            }
            8 => {
                let header = self.value();
                tx.omap_setheader(collection, object, header);
            }
            _ => {
                let entries: BTreeMap<_, _> = (0..self.random.below(8))
                    .map(|_| (self.omap_key(), self.value()))
                    .collect();
                tx.omap_setkeys(collection, object, entries);
            }
        }
    }
}

fn split_or_merge(state: &ModelStore, tx: &mut Transaction<'static>) {
    if state.collection_exists(HIGH) {
        tx.merge_collection(HIGH, LOW, 0);
    } else {
        tx.create_collection(HIGH, 1)
            .split_collection(LOW, 1, 1, HIGH);
    }
}

fn listed(state: &ModelStore, collection: CollectionName) -> Vec<ObjectName> {
    let (min, max) = (ObjectName::min(), ObjectName::max());
    let listed = state.collection_list(collection, &min, &max, usize::MAX);
    listed.map(|(objects, _)| objects).unwrap_or_default()
}
