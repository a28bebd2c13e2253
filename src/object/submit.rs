//! One way in for transactions: their collections are locked, then they are planned and
//! applied.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Result;
use crate::format::Seqno;
use crate::log::Log;
use crate::sync::{MODEL, Mutex, SharedArc};

use super::plan::plan;
use super::{CollectionName, ObjectName, Objects, Op, Slot, Transaction};

/// Locks that stand for the names of objects: so many that one which a transaction on 64
/// objects holds is seldom another's too (128 KiB).
const STRIPES: usize = if MODEL { 2 } else { 16384 };

/// The locks of names.
pub(super) fn new_stripes() -> Box<[Mutex<()>]> {
    (0..STRIPES).map(|_| Mutex::new(())).collect()
}

fn stripe_of(name: &ObjectName) -> usize {
    let seed = name.pool().cast_unsigned() << 32 ^ u64::from(name.hash());
    (xxh3_64_with_seed(name.name(), seed) % STRIPES as u64) as usize
}

impl Objects {
    /// Applies transactions as one; returns the seqno whose commit makes them durable.
    /// `applied` is called with it in the order of submission of every collection.
    pub(crate) fn submit(
        &self,
        log: &Log,
        collection: &SharedArc<Slot>,
        transactions: &[Transaction<'_>],
        applied: impl FnOnce(Seqno),
    ) -> Result<Seqno> {
        for transaction in transactions {
            transaction.check()?;
        }
        let mut slots: BTreeMap<CollectionName, SharedArc<Slot>> = BTreeMap::new();
        slots.insert(collection.name, collection.clone());
        let mut creates = false;
        for op in transactions.iter().flat_map(Transaction::ops) {
            creates |= matches!(op, Op::CreateCollection { .. });
            for name in op.collections().into_iter().flatten() {
                slots
                    .entry(name)
                    .or_insert_with(|| self.registry.slot(&self.table, name));
            }
        }
        if creates && !self.is_in_use() {
            self.set_in_use(true);
        }
        // In the order of names: two transactions over the same collections never wait for
        // each other.
        let _order: Vec<_> = slots.values().map(|slot| slot.order.lock()).collect();
        let stripes: BTreeSet<usize> = transactions
            .iter()
            .flat_map(Transaction::ops)
            .flat_map(Op::objects)
            .flatten()
            .map(stripe_of)
            .collect();
        // Collections may overlap: two of them may name one object.
        let _names: Vec<_> = stripes
            .iter()
            .map(|stripe| self.stripes[*stripe].lock())
            .collect();
        let mut plan = plan(self, log, &slots, transactions)?;
        let seqno = self.apply(log, &mut plan)?;
        applied(seqno);
        Ok(seqno)
    }
}
