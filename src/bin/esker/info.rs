//! `esker info`: superblock, geometry, identity; works on a damaged store.

use clap::Args;
use esker::inspect;

use crate::failure::Outcome;
use crate::opening::StoreArgument;
use crate::output::{OutputArgument, print_fields};

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

    #[command(flatten)]
    output: OutputArgument,
}

/// Runs `esker info`.
pub fn run(arguments: &Arguments) -> Outcome {
    let info = arguments.store.inspect(|path| inspect::info(path))?;
    arguments.output.print(&info, print_fields)
}
