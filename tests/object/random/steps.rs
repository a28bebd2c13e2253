//! The steps of the random workload.

use std::sync::Arc;

use esker::{CollectionName, ObjectName, Transaction};

use super::{POOL, Pair};
use crate::conformance::pattern;
use crate::interface::ObjectInterface;

/// What a step may add to a transaction, and how often in about a hundred.
const CHANGES: [(u64, Change); 13] = [
    (25, Change::Write),
    (15, Change::Stash),
    (10, Change::Truncate),
    (10, Change::Zero),
    (5, Change::Clone),
    (5, Change::CloneRange),
    (5, Change::Remove),
    (3, Change::Touch),
    (8, Change::Attrs),
    (8, Change::OmapKeys),
    (4, Change::OmapRanges),
    (2, Change::Hint),
    (1, Change::Anything),
];

#[derive(Clone, Copy)]
enum Change {
    Write,
    Stash,
    Truncate,
    Zero,
    Clone,
    CloneRange,
    Remove,
    Touch,
    Attrs,
    OmapKeys,
    OmapRanges,
    Hint,
    /// An operation on a name that may not exist: it is refused, then.
    Anything,
}

impl Pair<'_> {
    pub(super) fn step(&mut self) {
        match self.random.below(1000) {
            0..200 => self.read(),
            200..240 => self.look(),
            240..246 => self.split_or_merge(),
            _ => self.change(),
        }
    }

    /// A transaction of a few operations in one placement group.
    fn change(&mut self) {
        let first = self.existing();
        let group = self.group(&first);
        let more = match self.random.below(4) {
            0 => 1 + self.random.below(5),
            _ => 0,
        };
        let mut tx = Transaction::new();
        let mut touched = Vec::new();
        self.add(&mut tx, &first, &mut touched);
        for _ in 0..more {
            // Often the same object again: operations see those before them.
            let object = match self.random.below(2) {
                0 => first.clone(),
                _ => self.existing(),
            };
            if self.group(&object) == group {
                self.add(&mut tx, &object, &mut touched);
            }
        }
        let one = tx.ops().len() == 1;
        // A refusal shows in the comparisons to have had no effect.
        drop(self.submit(group, tx, one));
        for object in &touched {
            self.compare_object(object);
        }
    }

    fn add(
        &mut self,
        tx: &mut Transaction<'_>,
        object: &Arc<ObjectName>,
        touched: &mut Vec<Arc<ObjectName>>,
    ) {
        touched.push(object.clone());
        let group = self.group(object);
        let all: u64 = CHANGES.iter().map(|(weight, _)| weight).sum();
        let mut at = self.random.below(all);
        let change = CHANGES.iter().find(|(weight, _)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        match change.unwrap().1 {
            Change::Write => {
                let (offset, len) = self.range();
                let data = pattern(self.random.next(), len as usize);
                if self.random.below(4) == 0 {
                    let at = self.random.below(len + 1) as usize;
                    let (a, b) = data.split_at(at);
                    tx.write(group, object, offset, [a.to_vec(), b.to_vec()]);
                } else {
                    tx.write(group, object, offset, [data]);
                }
            }
            Change::Stash => {
                let target = self.sibling(object);
                touched.push(target.clone());
                if self.random.below(3) > 0 {
                    tx.remove(group, &target);
                }
                if target == *object {
                    return;
                }
                if self.random.below(2) == 0 {
                    tx.collection_move_rename(group, object, group, &target);
                } else {
                    tx.try_rename(group, object, &target);
                }
                tx.touch(group, object);
            }
            Change::Truncate => {
                let (size, _) = self.range();
                tx.truncate(group, object, size);
            }
            Change::Zero => {
                let (offset, len) = self.range();
                tx.zero(group, object, offset, len);
            }
            Change::Clone => {
                let target = self.sibling(object);
                if target != *object {
                    touched.push(target.clone());
                    tx.clone_object(group, object, &target);
                }
            }
            Change::CloneRange => self.add_clone_range(tx, object, touched),
            Change::Remove => {
                tx.remove(group, object);
            }
            Change::Touch => {
                let new = self.sibling(object);
                touched.push(new.clone());
                tx.touch(group, &new);
            }
            Change::Attrs => self.add_attrs(tx, object),
            Change::OmapKeys => {
                let entries: Vec<_> = (0..self.random.below(10))
                    .map(|_| (self.omap_key(), self.small_value()))
                    .collect();
                tx.omap_setkeys(group, object, entries);
                if self.random.below(8) == 0 {
                    tx.omap_setheader(group, object, self.small_value());
                }
            }
            Change::OmapRanges => match self.random.below(8) {
                0 => {
                    tx.omap_clear(group, object);
                }
                1..4 => {
                    let keys = [self.omap_key(), self.omap_key()];
                    tx.omap_rmkeys(group, object, keys);
                }
                _ => {
                    let (a, b) = (self.omap_key(), self.omap_key());
                    let (first, last) = (a.clone().min(b.clone()), a.max(b));
                    tx.omap_rmkeyrange(group, object, first, last);
                }
            },
            Change::Hint => {
                tx.set_alloc_hint(group, object, 1 << 22, 4096, 0);
            }
            Change::Anything => {
                let other = self.sibling(object);
                touched.push(other.clone());
                tx.setattr(group, &other, "perhaps", "");
            }
        }
    }

    fn add_clone_range(
        &mut self,
        tx: &mut Transaction<'_>,
        object: &Arc<ObjectName>,
        touched: &mut Vec<Arc<ObjectName>>,
    ) {
        let group = self.group(object);
        let target = match self.random.below(2) {
            0 => self.sibling(object),
            _ => self.existing(),
        };
        if target == *object || self.group(&target) != group {
            return;
        }
        touched.push(target.clone());
        let size = self.model.stat(group, object).map_or(0, |stat| stat.size);
        let (offset, len) = self.range();
        let (target_offset, _) = self.range();
        let offset = offset.min(size);
        // Now and then past the end: refused.
        let len = match self.random.below(10) {
            0 => len,
            _ => len.min(size - offset),
        };
        tx.clone_range(group, object, &target, offset, len, target_offset);
    }

    fn add_attrs(&mut self, tx: &mut Transaction<'_>, object: &Arc<ObjectName>) {
        let group = self.group(object);
        let attr = format!("attribute {}", self.random.below(6)).into_bytes();
        match self.random.below(6) {
            0 => tx.rmattr(group, object, attr),
            1 => tx.rmattrs(group, object),
            2 => {
                let value = self.small_value();
                tx.setattrs(
                    group,
                    object,
                    [(attr, value), (b"_".to_vec(), vec![7; 293])],
                )
            }
            _ => tx.setattr(group, object, attr, self.small_value()),
        };
    }

    fn omap_key(&mut self) -> Vec<u8> {
        let n = self.random.below(60);
        match self.random.below(5) {
            0 => vec![n as u8 * 4],
            _ => format!("key {n:03}").into_bytes(),
        }
    }

    fn small_value(&mut self) -> Vec<u8> {
        let max = match self.random.below(10) {
            0 => 1,
            1 => 10_000,
            _ => 300,
        };
        let len = self.random.below(max);
        pattern(self.random.next(), len as usize)
    }

    fn read(&mut self) {
        let object = self.existing();
        let group = self.group(&object);
        let (offset, len) = self.range();
        let found = self.store.read(group, &object, offset, len);
        let expected = self.model.read(group, &object, offset, len);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert!(found == expected, "{object} {offset} {len}"),
            (Err(found), Err(expected)) => assert_eq!(found.errno(), expected.errno()),
            (found, expected) => panic!("{object}: {} {}", found.is_ok(), expected.is_ok()),
        }
    }

    fn look(&mut self) {
        let object = self.any();
        let group = self.group(&object);
        let size = |store: &dyn ObjectInterface| {
            let stat = store.stat(group, &object);
            stat.map(|stat| stat.size).map_err(|error| error.errno())
        };
        assert_eq!(size(self.store), size(&self.model), "{object}");
        self.compare_object(&object);
    }

    fn split_or_merge(&mut self) {
        let (low, high) = (CollectionName::pg(POOL, 0), CollectionName::pg(POOL, 1));
        let mut tx = Transaction::new();
        if self.split {
            tx.merge_collection(high, low, 0);
        } else {
            self.store.create_new_collection(high);
            tx.create_collection(high, 1)
                .split_collection(low, 1, 1, high);
        }
        assert!(self.submit(low, tx, true).is_ok());
        self.split = !self.split;
        self.compare("a split or merge");
    }
}
