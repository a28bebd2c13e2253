//! Planning what concerns omaps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::Result;

use super::super::omap_changes::{OmapChange, OmapValues};
use super::super::{CollectionName, ObjectName};
use super::Planner;

impl<'t> Planner<'_, 't> {
    pub(super) fn omap(
        &mut self,
        collection: &CollectionName,
        object: &ObjectName,
        change: OmapChange<'t>,
    ) -> Result<()> {
        let work = self.find_existing(collection, object)?;
        self.plan.user_bytes += change.user_bytes();
        self.plan.works[work].omap.push(change);
        Ok(())
    }

    /// All keys and values of an object's omap at this point.
    pub(super) fn omap_values(&self, work: usize) -> Result<OmapValues<'t>> {
        let state = &self.plan.works[work];
        let mut values = BTreeMap::new();
        if let Some(base) = state.omap_base {
            for (key, value) in self.objects.read_omap(self.log, base)? {
                values.insert(Cow::Owned(key), Cow::Owned(value));
            }
        }
        for change in &state.omap {
            change.apply_to(&mut values);
        }
        Ok(values)
    }
}
