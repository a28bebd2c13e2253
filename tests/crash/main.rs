//! What a crash leaves, and what an open makes of it.
//!
//! The fault model is [`esker::device::SimulatedDevice`]'s: a power cut may lose, keep or
//! tear (at 512 bytes) every write since the last flush, in any order; a process kill loses
//! nothing acknowledged by the drive, but leaves what was not flushed at risk of a later
//! power cut. Flushed data is never lost, except where a test damages media on purpose
//! (`checkpoints`). `kill` uses real processes and files: the page cache survives, so only
//! process death is tested there.
//!
//! What must hold after every open: all acknowledged writes are there (`Buffered`: all
//! before the last successful `sync`), unacknowledged transactions are there wholly or not
//! at all and in the order they were made, and nothing else is there.
//!
//! Random tests print their seed; `ESKER_SEED` repeats it. `ESKER_SOAK=k` makes the long
//! ones k times as long.

#[path = "../common/mod.rs"]
mod common;

mod checkpoints;
mod every_write;
mod history;
mod kill;
mod layout;
mod loops;
mod regressions;
mod restart;
