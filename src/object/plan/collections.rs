//! Planning what concerns collections.

use crate::sync::SharedArc;
use crate::{Error, Result};

use super::super::registry::Slot;
use super::super::table::Space;
use super::super::{CollectionName, listing, low_bits};
use super::{Effect, Planner};

impl Planner<'_, '_> {
    pub(super) fn slot(&self, name: &CollectionName) -> &SharedArc<Slot> {
        match self.slots.get(name) {
            Some(slot) => slot,
            None => unreachable!("every collection of a transaction is locked"),
        }
    }

    /// Whether a collection exists at this point, and its bits.
    pub(super) fn collection_state(&self, name: &CollectionName) -> (bool, u32) {
        let slot = self.slot(name);
        let planned = self.plan.collections.get(name).copied();
        planned.unwrap_or_else(|| (slot.exists(), slot.bits()))
    }

    pub(super) fn collection(&self, name: &CollectionName) -> Result<SharedArc<Space>> {
        if self.collection_state(name).0 {
            Ok(self.slot(name).space.clone())
        } else {
            Err(Error::NoEntry("collection"))
        }
    }

    pub(super) fn set_collection(&mut self, name: &CollectionName, exists: bool, bits: u32) {
        self.plan.collections.insert(*name, (exists, bits));
        let slot = self.slot(name).clone();
        self.plan
            .effects
            .push(Effect::Collection { slot, exists, bits });
    }

    pub(super) fn same_space(&self, one: &CollectionName, other: &CollectionName) -> Result<()> {
        let mine = |name| self.slot(name).space.id;
        if one == other || mine(one) != mine(other) || *one == CollectionName::Meta {
            return Err(Error::InvalidArgument(
                "two placement groups of one pool and shard",
            ));
        }
        Ok(())
    }

    pub(super) fn split(
        &mut self,
        name: &CollectionName,
        bits: u32,
        rem: u32,
        target: &CollectionName,
    ) -> Result<()> {
        self.collection(name)?;
        self.collection(target)?;
        self.same_space(name, target)?;
        let CollectionName::Pg { seed, .. } = *target else {
            return Err(Error::InvalidArgument("meta is not split"));
        };
        let mask = low_bits(bits);
        if self.collection_state(target).1 != bits || bits > 32 || seed & mask != rem & mask {
            return Err(Error::InvalidArgument("bits and remainder of a split"));
        }
        self.set_collection(name, true, bits);
        Ok(())
    }

    /// Whether a collection has no objects at this point.
    pub(super) fn is_empty(&self, name: &CollectionName) -> bool {
        let (_, bits) = self.collection_state(name);
        let space = &self.slot(name).space;
        let ranges = listing::ranges(name, bits, space);
        let in_range = |key: &[u8]| {
            ranges
                .iter()
                .any(|(start, end)| start.as_slice() <= key && key < end.as_slice())
        };
        let made = self
            .plan
            .names
            .iter()
            .any(|((id, key), work)| *id == space.id && work.is_some() && in_range(key));
        if made {
            return false;
        }
        // What the transaction removed or renamed does not count.
        let mut is_empty = true;
        for (start, end) in &ranges {
            space.names.read().visit(start, end, &mut |key, _| {
                let planned = self.plan.names.get(&(space.id, SharedArc::from(key)));
                is_empty = matches!(planned, Some(None));
                is_empty
            });
            if !is_empty {
                return false;
            }
        }
        true
    }
}
