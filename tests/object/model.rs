//! A reference model: the contract of the object layer over maps in memory.
//!
//! A transaction runs on a copy of the state, which replaces the state if nothing went
//! wrong. Copies share what they do not change.

mod data;
mod ops;
mod reads;

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{CollectionName, Error, ObjectName, Result};

use crate::interface::{Bytes, Entries};
use data::Data;

#[derive(Debug, Clone, Default)]
struct Object {
    data: Data,
    attrs: Entries,
    header: Bytes,
    omap: Entries,
}

#[derive(Debug, Clone, Default)]
struct Collection {
    bits: u32,
    objects: BTreeMap<Arc<ObjectName>, Arc<Object>>,
}

type State = BTreeMap<CollectionName, Arc<Collection>>;

/// The model as a store. A copy shares what neither changes.
#[derive(Debug, Clone, Default)]
pub struct ModelStore {
    state: State,
}

impl ModelStore {
    pub fn new() -> Self {
        Self::default()
    }

    fn collection(&self, name: CollectionName) -> Result<&Collection> {
        let found = self.state.get(&name).map(AsRef::as_ref);
        found.ok_or(Error::NoEntry("collection"))
    }

    fn object(&self, collection: CollectionName, object: &ObjectName) -> Result<&Object> {
        let found = self.collection(collection)?.objects.get(object);
        found.map(AsRef::as_ref).ok_or(Error::NoEntry("object"))
    }
}
