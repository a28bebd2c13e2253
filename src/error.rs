//! The one error type of the crate.
//!
//! Every variant carries what a caller needs to act; nothing is to be matched by text.
//! Bytes from media that do not parse become [`Error::Corrupt`], never a panic.

use std::io;

use crate::format::Invalid;

/// What can go wrong in a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed a call.
    #[error("device {op} at byte {offset} failed: {source}")]
    Io {
        /// The call that failed: `read`, `write`, `flush`, `discard`, `open` or the like.
        op: &'static str,
        /// Byte offset on the device; 0 where the call has none.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// Bytes on media failed a check.
    #[error("damaged at byte {offset}: {why}; run `esker check` to see what is affected")]
    Corrupt {
        /// Byte offset on the device of the structure that failed.
        offset: u64,
        /// Which check failed.
        why: Invalid,
    },
    /// The store has no room for the write; nothing was changed. Deletes still work.
    #[error("no space: {what} is full; delete entries or make the store larger")]
    NoSpace {
        /// What ran out: `capacity` or `memory limit`.
        what: &'static str,
    },
    /// A key, value, batch or object is over its bound; nothing was changed.
    #[error("{what} of {len} bytes is over the limit of {max} bytes")]
    TooLarge {
        /// `key`, `value`, `batch`, `object` or the like.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The bound in bytes.
        max: u64,
    },
    /// There is no store at the path, or nothing that looks like one.
    #[error("{what} not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// A store is there already.
    #[error("{what} exists already")]
    Exists {
        /// What exists.
        what: String,
    },
    /// There is no such object or collection; nothing was changed.
    #[error("no such {0}")]
    NoEntry(&'static str),
    /// The object has no attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// The collection still has objects; nothing was changed.
    #[error("the collection {what} is not empty")]
    NotEmpty {
        /// Which collection.
        what: String,
    },
    /// An argument or option is out of its range; nothing was changed.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// Another process, or another handle of this one, has the store open.
    #[error("the store is in use by another process")]
    InUse,
    /// The store was opened read-only.
    #[error("the store is open read-only")]
    ReadOnly,
    /// The store was written by a format this version does not know.
    #[error("format version {found} is not supported (this build reads version {supported})")]
    Version {
        /// The version on media.
        found: u32,
        /// The version this build reads and writes.
        supported: u32,
    },
    /// A write or flush failed earlier: the store takes no more writes until it is reopened.
    #[error("the store stopped after a failed write or flush; reopen it")]
    Poisoned,
}

/// A result with the crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The closest negative `errno`, for C callers.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Self::Io { source, .. } => {
                return -source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
            Self::Corrupt { .. } | Self::Poisoned => Errno::IO,
            Self::NoSpace { .. } => Errno::NOSPC,
            Self::TooLarge { .. } => Errno::TOOBIG,
            Self::NotFound { .. } | Self::NoEntry(_) => Errno::NOENT,
            Self::NoAttribute => Errno::NODATA,
            Self::NotEmpty { .. } => Errno::NOTEMPTY,
            Self::Exists { .. } => Errno::EXIST,
            Self::InvalidArgument(_) | Self::Version { .. } => Errno::INVAL,
            Self::InUse => Errno::BUSY,
            Self::ReadOnly => Errno::ROFS,
        };
        -errno.raw_os_error()
    }
}
