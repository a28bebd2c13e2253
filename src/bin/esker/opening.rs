//! Opening a store for a command, with errors that name the path and say what to do.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::Args;
use esker::{Error, Options, Store};

use crate::escape::unescape;
use crate::failure::{Failure, Outcome};

/// Opens the store at `path` for reading only.
pub fn open_read_only(path: &Path) -> Outcome<Store> {
    open(path, &Options::default().read_only(true))
}

/// Opens the store at `path` for reading and writing.
pub fn open_writable(path: &Path) -> Outcome<Store> {
    open(path, &Options::default())
}

/// Opens the store at `path`.
pub fn open(path: &Path, options: &Options) -> Outcome<Store> {
    if !path.exists() {
        return Err(Failure::failed(format!(
            "there is no store at {0}; make one with `esker mkfs {0} --capacity 1G`",
            path.display()
        )));
    }
    Store::open(path, options).map_err(|error| explain(path, &error))
}

/// Puts the path before an error, and what to do after it where the error does not say.
pub fn explain(path: &Path, error: &Error) -> Failure {
    let advice = match error {
        Error::NotFound { .. } => "; check the path, or make a store with `esker mkfs`",
        Error::InUse => "; wait for it to end, or end it",
        Error::Exists { .. } => "; give another path, or --force to overwrite it",
        _ => "",
    };
    Failure::failed(format!("{}: {error}{advice}", path.display()))
}

/// How a key is given on the command line.
#[derive(Args, Debug)]
pub struct KeyArgument {
    /// The key: its bytes as given.
    #[arg(allow_hyphen_values = true)]
    key: std::ffi::OsString,
    /// KEY is escaped as `esker ls` prints keys: `\xNN` for a byte, `\\` for a backslash.
    #[arg(short = 'e', long)]
    escaped: bool,
}

impl KeyArgument {
    /// The key's bytes.
    pub fn bytes(&self) -> Outcome<Vec<u8>> {
        if !self.escaped {
            return Ok(self.key.clone().into_vec());
        }
        let text = self
            .key
            .to_str()
            .ok_or("an escaped key must be text".to_owned());
        text.and_then(unescape)
            .map_err(|why| Failure::usage(format!("wrong key: {why}")))
    }
}

/// How the store is given on the command line.
#[derive(Args, Debug)]
pub struct StoreArgument {
    /// The store: a file or block device made by `esker mkfs`.
    #[arg(value_name = "STORE")]
    pub path: PathBuf,
}

impl StoreArgument {
    /// The path, of something that exists.
    pub fn existing(&self) -> Outcome<&Path> {
        if self.path.exists() {
            return Ok(&self.path);
        }
        Err(Failure::failed(format!(
            "there is no store at {}; check the path",
            self.path.display()
        )))
    }

    /// Looks into the store without opening it.
    pub fn inspect<T>(&self, look: impl FnOnce(&Path) -> esker::Result<T>) -> Outcome<T> {
        let path = self.existing()?;
        look(path).map_err(|error| explain(path, &error))
    }
}
