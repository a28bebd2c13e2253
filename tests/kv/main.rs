//! The key-value calls: contracts, edge cases, random operations against a model.

#[path = "../common/mod.rs"]
mod common;

mod api;
mod empty;
mod model;
