//! `info`, `check`, `check --repair` and `dump` on whole and on damaged stores.

#[path = "../common/mod.rs"]
mod common;

mod clean;
