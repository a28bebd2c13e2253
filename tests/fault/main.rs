//! A device that fails, media that lie, a store that is full.

#[path = "../common/mod.rs"]
mod common;

mod corruption;
mod full;
mod io_error;
mod media;
mod planted;
mod quota;
mod reads;
mod space_back;
