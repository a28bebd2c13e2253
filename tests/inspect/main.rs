//! `info`, `check`, `check --repair` and `dump` on whole and on damaged stores.

#[path = "../common/mod.rs"]
mod common;
mod history;

mod clean;
mod damage;
mod frames;
mod garbage;
mod interrupted;
mod lost;
mod object_loss;
mod objects;
