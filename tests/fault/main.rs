//! A device that fails, media that lie, a store that is full.

#[allow(
    dead_code,
    reason = "each test binary uses a part of what they have in common"
)]
#[path = "../common/mod.rs"]
mod common;

mod corruption;
mod full;
mod io_error;
mod media;
mod planted;
mod reads;
mod space_back;
