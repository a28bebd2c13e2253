//! Random transactions over two stores side by side, which must agree in everything.
//!
//! The mix of operations is that of Ceph's synthetic workload, with attributes, omaps,
//! splits, remounts and wrong transactions added. The first store is the model: what exists
//! is asked of it. Every transaction's result is compared, every object it names, and from
//! time to time everything.

mod steps;

use std::sync::Arc;

use esker::object::NO_SNAP;
use esker::{CollectionName, ObjectName, Result, Transaction};

use crate::common::{Random, seed};
use crate::contents::{assert_same, contents, object_contents};
use crate::interface::ObjectInterface;
use crate::model::ModelStore;

const POOL: i64 = 5;
const SNAPS: u64 = 3;
const GENERATIONS: u64 = 2;

/// The shape of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many heads there are; each has names for clones and generations beside it.
    pub heads: u64,
    pub object_bytes_max: u64,
    pub write_bytes_max: u64,
    /// Offsets and lengths are multiples of this.
    pub align: u64,
    /// How many different hashes the heads share.
    pub hashes: u64,
}

/// Makes tests that drive the store against the model, one for each shape.
macro_rules! random_tests {
    ($module:ident, $store:expr) => {
        mod $module {
            #[allow(unused_imports, reason = "what makes a store may be anywhere")]
            use crate::*;

            #[test]
            fn few_small_objects() {
                $crate::random::run(&mut $store, &$crate::random::SMALL);
            }

            #[test]
            fn many_objects() {
                $crate::random::run(&mut $store, &$crate::random::MANY);
            }

            #[test]
            fn aligned_to_blocks() {
                $crate::random::run(&mut $store, &$crate::random::BLOCKS);
            }

            #[test]
            fn aligned_to_sectors() {
                $crate::random::run(&mut $store, &$crate::random::SECTORS);
            }
        }
    };
}

random_tests!(model_against_itself, model::ModelStore::new());
random_tests!(engine_against_the_model, engine_store::EngineStore::new());

pub const SMALL: Shape = Shape {
    heads: 8,
    object_bytes_max: 40_000,
    write_bytes_max: 9000,
    align: 1,
    hashes: 3,
};
pub const MANY: Shape = Shape {
    heads: 300,
    object_bytes_max: 400_000,
    write_bytes_max: 40_000,
    align: 1,
    hashes: 20,
};
pub const BLOCKS: Shape = Shape {
    heads: 40,
    object_bytes_max: 400 << 10,
    write_bytes_max: 40 << 10,
    align: 4096,
    hashes: 20,
};
pub const SECTORS: Shape = Shape {
    heads: 40,
    object_bytes_max: 100 << 10,
    write_bytes_max: 20 << 10,
    align: 512,
    hashes: 20,
};

/// Two stores, and what the generator knows of them.
struct Pair<'s> {
    model: ModelStore,
    store: &'s mut dyn ObjectInterface,
    shape: Shape,
    random: Random,
    /// Whether the placement group is split in two.
    split: bool,
    applied: u64,
    refused: u64,
}

/// Drives the store against a new model: `ESKER_OBJECT_OPS` steps, 1000 by default.
pub fn run(store: &mut dyn ObjectInterface, shape: &Shape) {
    let steps = std::env::var("ESKER_OBJECT_OPS").ok();
    let steps = steps.and_then(|text| text.parse().ok()).unwrap_or(1000);
    let mut pair = Pair {
        model: ModelStore::new(),
        store,
        shape: *shape,
        random: Random::new(seed()),
        split: false,
        applied: 0,
        refused: 0,
    };
    pair.create();
    let scan_every = (steps / 10).max(1);
    let (remount_every, check_every) = (steps / 4 + 1, steps / 2 + 1);
    for step in 1..=steps {
        pair.step();
        if step % scan_every == 0 {
            pair.compare(&format!("step {step}"));
        }
        if step % remount_every == 0 {
            pair.remount();
            pair.compare(&format!("step {step}, remounted"));
        }
        if step % check_every == 0 {
            assert_eq!(
                pair.store.check(),
                0,
                "step {step}: errors found by the check"
            );
        }
    }
    pair.remount();
    pair.compare("the end");
    let Pair {
        applied, refused, ..
    } = pair;
    println!("{applied} transactions applied, {refused} refused");
    assert!(
        applied > 2 * refused,
        "too much is refused to test anything"
    );
    assert_eq!(pair.store.check(), 0, "errors found by the check");
}

impl Pair<'_> {
    fn create(&mut self) {
        let low = CollectionName::pg(POOL, 0);
        let mut tx = Transaction::new();
        tx.create_collection(low, 0);
        self.store.create_new_collection(low);
        assert!(self.submit(low, tx, true).is_ok());
        for head in 0..self.shape.heads {
            if self.random.below(3) > 0 {
                let head = self.head(head);
                let mut tx = Transaction::new();
                tx.touch(low, &head);
                assert!(self.submit(low, tx, true).is_ok());
            }
        }
    }

    fn compare(&self, when: &str) {
        assert_same(&contents(self.store), &contents(&self.model), when);
    }

    fn remount(&mut self) {
        self.store.remount();
        for collection in self.model.list_collections() {
            assert!(self.store.open_collection(collection));
        }
    }

    /// Every third name is long.
    fn head(&self, n: u64) -> Arc<ObjectName> {
        let hash = (n % self.shape.hashes).wrapping_mul(0x9e37_79b9) as u32;
        let name = if n.is_multiple_of(3) {
            format!("{n:0300}")
        } else {
            format!("{n:07}")
        };
        Arc::new(ObjectName::new(POOL, hash, name))
    }

    fn group(&self, object: &ObjectName) -> CollectionName {
        let seed = if self.split { object.hash() & 1 } else { 0 };
        CollectionName::pg(POOL, seed)
    }

    /// Any name: a head, a clone or a generation.
    fn any(&mut self) -> Arc<ObjectName> {
        let head = self.random.below(self.shape.heads);
        let head = self.head(head);
        self.sibling(&head)
    }

    /// Any name of the same head.
    fn sibling(&mut self, of: &ObjectName) -> Arc<ObjectName> {
        let head = of.clone().with_snap(NO_SNAP);
        let head = head.with_generation(esker::object::NO_GENERATION);
        Arc::new(match self.random.below(10) {
            0..6 => head,
            6..8 => head.with_snap(self.random.below(SNAPS)),
            _ => head.with_generation(self.random.below(GENERATIONS)),
        })
    }

    /// A name that exists, if a few tries find one; else any.
    fn existing(&mut self) -> Arc<ObjectName> {
        for _ in 0..20 {
            let object = self.any();
            if self.model.exists(self.group(&object), &object) {
                return object;
            }
        }
        self.any()
    }

    /// An aligned range within the largest size of an object.
    fn range(&mut self) -> (u64, u64) {
        let Shape {
            align,
            object_bytes_max,
            write_bytes_max,
            ..
        } = self.shape;
        let len = self.random.below(write_bytes_max / align + 1) * align;
        let offset = self.random.below((object_bytes_max - len) / align + 1) * align;
        (offset, len)
    }

    /// Runs a transaction on both, and compares the outcome.
    fn submit(
        &mut self,
        collection: CollectionName,
        transaction: Transaction<'_>,
        one_error: bool,
    ) -> Result<()> {
        let unit = if transaction.ops().len() > 2 && self.random.below(2) == 0 {
            // The same as a list of transactions of one operation each.
            let each = transaction.ops().iter().map(|op| {
                let mut one = Transaction::new();
                one.push(op.clone());
                one
            });
            each.collect()
        } else {
            vec![transaction.clone()]
        };
        let expected = self
            .model
            .queue_transactions(collection, vec![transaction.clone()]);
        let found = self.store.queue_transactions(collection, unit);
        match &expected {
            Ok(()) => self.applied += 1,
            Err(_) => self.refused += 1,
        }
        match (&found, &expected) {
            (Ok(()), Ok(())) => {}
            (Err(found), Err(expected)) if one_error => {
                assert_eq!(found.errno(), expected.errno(), "{transaction:?}");
            }
            (Err(_), Err(_)) => {}
            _ => panic!("found {found:?}, expected {expected:?}: {transaction:?}"),
        }
        found
    }

    /// The object is the same in both.
    fn compare_object(&self, object: &ObjectName) {
        let group = self.group(object);
        let exists = self.model.exists(group, object);
        assert_eq!(self.store.exists(group, object), exists, "{object}");
        if exists {
            let found = object_contents(self.store, group, object);
            let expected = object_contents(&self.model, group, object);
            assert!(found == expected, "{object} differs");
        }
    }
}
