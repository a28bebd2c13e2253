//! `esker put`: stores one value.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::opening::{KeyArgument, StoreArgument, explain, open_writable};

/// One byte more than the largest value, so that a larger one is seen without reading it all.
const READ_BYTES_MAX: u64 = (64 << 20) + 1;

const EXAMPLES: &str = "\
The value is the argument, a file, or standard input; it is stored byte for byte, up to 64 MiB.
When the command returns, the value survives power loss.

Examples:
  esker put my.esker greeting hello
  esker put my.esker photo --file cat.jpg
  date | esker put my.esker now";

/// Stores a value under a key.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    #[command(flatten)]
    key: KeyArgument,

    /// The value: its bytes as given; standard input when neither this nor --file is given.
    #[arg(conflicts_with = "file", allow_hyphen_values = true)]
    value: Option<OsString>,

    /// Reads the value from this file.
    #[arg(short, long)]
    file: Option<PathBuf>,
}

/// Runs `esker put`.
pub fn run(arguments: &Arguments) -> Outcome {
    let key = arguments.key.bytes()?;
    let path = &arguments.store.path;
    let mut value = Vec::new();
    match (&arguments.value, &arguments.file) {
        (Some(text), _) => value = text.clone().into_vec(),
        (None, Some(file)) => {
            let opened = File::open(file);
            opened
                .and_then(|opened| opened.take(READ_BYTES_MAX).read_to_end(&mut value))
                .map_err(|error| Failure::io("read", file, error))?;
        }
        (None, None) => {
            let input = io::stdin().lock();
            if input.is_terminal() {
                eprintln!("esker: reading the value from the terminal; end with Ctrl-D");
            }
            input.take(READ_BYTES_MAX).read_to_end(&mut value)?;
        }
    }
    let store = open_writable(path)?;
    store
        .put(&key, &value)
        .map_err(|error| explain(path, &error))?;
    store.close().map_err(|error| explain(path, &error))
}
