//! The object store's contract: a conformance suite that any implementation of
//! [`interface::ObjectInterface`] runs, a reference model in memory, and random transactions
//! that drive two stores side by side.
//!
//! `design/objects-conformance.md` lists which of Ceph's own store tests have their like
//! here. Random tests print their seed; `ESKER_SEED` repeats it, `ESKER_OBJECT_OPS` sets
//! their number of operations.

#[path = "../common/mod.rs"]
mod common;

#[macro_use]
mod conformance;
mod contents;
mod engine_store;
mod faults;
mod full;
mod in_flight;
mod interface;
mod model;
mod random;
mod readers;

conformance_tests!(model_store, model::ModelStore::new());
conformance_tests!(engine, engine_store::EngineStore::new());
conformance_tests!(
    engine_of_large_blocks,
    engine_store::EngineStore::with_large_blocks()
);
