//! One way in for transactions: their collections are locked, then they are planned and
//! applied.

use std::collections::BTreeMap;

use crate::Result;
use crate::format::Seqno;
use crate::log::Log;
use crate::sync::SharedArc;

use super::plan::plan;
use super::{CollectionName, Objects, Op, Slot, Transaction};

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
        let mut plan = plan(self, log, &slots, transactions)?;
        let seqno = self.apply(log, &mut plan)?;
        applied(seqno);
        Ok(seqno)
    }
}
