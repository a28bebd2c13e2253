//! Why a command did not succeed: one line for people, one exit code for scripts.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// What a command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// One line that says what happened and what to do; empty when all has been said.
    pub message: String,
    /// The process's exit code.
    pub code: u8,
}

impl Failure {
    /// Exit code of a command that failed.
    pub const FAILED: u8 = 1;
    /// Exit code of a wrong command line.
    pub const USAGE: u8 = 2;

    /// The command was understood and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: Self::FAILED,
        }
    }

    /// The command line is wrong; nothing was done.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: Self::USAGE,
        }
    }

    /// A call of the operating system on `path` failed.
    pub fn io(what: &str, path: &Path, error: impl Display) -> Self {
        Self::failed(format!("cannot {what} {}: {error}", path.display()))
    }
}

impl From<esker::Error> for Failure {
    fn from(error: esker::Error) -> Self {
        Self::failed(error.to_string())
    }
}

/// Output that nobody reads any more ends a command quietly, as other tools do.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::failed("");
        }
        Self::failed(format!("input or output failed: {error}"))
    }
}
