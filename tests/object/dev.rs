#![allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
mod contents;
mod engine_store;
mod faults;
mod full;
mod in_flight;
mod interface;
mod model;
mod readers;
