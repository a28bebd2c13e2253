//! Archives: collections of objects as one stream of checksummed frames
//! (`design/archive.md`).

mod frame;
mod read;
mod write;

pub use frame::Fault;
pub use read::{ImportError, import, verify};
pub use write::{ExportError, export};
