//! `esker info`: superblock, geometry, identity; works on a damaged store.

use clap::Args;
use esker::inspect;

use crate::failure::{Failure, Outcome};
use crate::opening::{StoreArgument, explain};
use crate::output::{print_fields, print_json};

const EXAMPLES: &str = "\
Reads only superblocks and segment headers, so it works on a store that is damaged, or in use;
it changes nothing. Without any superblock, the geometry is told from the segment headers.
For what is in the store see `esker stats`.

Examples:
  esker info my.esker
  esker info my.esker --json | jq .uuid";

/// Shows superblocks, identity, size, geometry and segments by class.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `esker info`.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.store.path;
    if !path.exists() {
        return Err(Failure::failed(format!(
            "there is no store at {}; check the path",
            path.display()
        )));
    }
    let info = inspect::info(path).map_err(|error| explain(path, &error))?;
    if arguments.json {
        print_json(&info)
    } else {
        print_fields(&info)
    }
}
