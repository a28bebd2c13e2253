//! `esker get`: writes one value to stdout.

use std::io::{self, Write};

use clap::Args;

use crate::escape::escape;
use crate::failure::{Failure, Outcome};
use crate::opening::{KeyArgument, StoreArgument, explain, open_read_only};

const EXAMPLES: &str = "\
Writes the bytes of the value and nothing else. A missing key is an error (exit code 1), an
empty value is not.

Examples:
  esker get my.esker greeting
  esker get my.esker photo > cat.jpg";

/// Writes the value of a key to standard output.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    #[command(flatten)]
    key: KeyArgument,
}

/// Runs `esker get`.
pub fn run(arguments: &Arguments) -> Outcome {
    let key = arguments.key.bytes()?;
    let path = &arguments.store.path;
    let store = open_read_only(path)?;
    let value = store.get(&key).map_err(|error| explain(path, &error))?;
    let value = value.ok_or_else(|| missing(&key))?;
    let mut output = io::stdout().lock();
    output.write_all(&value)?;
    output.flush()?;
    Ok(())
}

/// The error of a key that is not there.
pub fn missing(key: &[u8]) -> Failure {
    Failure::failed(format!(
        "there is no key `{}`; `esker ls` lists those there are",
        escape(key)
    ))
}
