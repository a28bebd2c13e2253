//! `esker rm`: removes one key.

use clap::Args;

use crate::failure::Outcome;
use crate::get::missing;
use crate::opening::{KeyArgument, StoreArgument, explain, open_writable};

const EXAMPLES: &str = "\
When the command returns, the removal survives power loss. A missing key is an error (exit code
1) unless --force is given.

Examples:
  esker rm my.esker greeting
  esker rm my.esker --force perhaps-there";

/// Removes a key and its value.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    #[command(flatten)]
    key: KeyArgument,

    /// Does not mind a missing key.
    #[arg(short, long)]
    force: bool,
}

/// Runs `esker rm`.
pub fn run(arguments: &Arguments) -> Outcome {
    let key = arguments.key.bytes()?;
    let path = &arguments.store.path;
    let store = open_writable(path)?;
    let found = store.delete(&key).map_err(|error| explain(path, &error))?;
    store.close().map_err(|error| explain(path, &error))?;
    if found || arguments.force {
        Ok(())
    } else {
        Err(missing(&key))
    }
}
