//! `esker dump`: segments and records as they are on media, for people debugging.

use std::io::{BufWriter, ErrorKind, Write};

use clap::Args;
use esker::Error;

use crate::failure::{Failure, Outcome};
use crate::inspect::{self, DumpOptions};
use crate::opening::{StoreArgument, explain};

const EXAMPLES: &str = "\
Reads media directly and changes nothing. One line a segment; with --records one line a record
as well: address, seqno, length, key. Offsets and lengths are in bytes.

Examples:
  esker dump my.esker
  esker dump my.esker --segment 17 --records";

/// Shows segments and records as they are on media.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Only this segment.
    #[arg(long, value_name = "N")]
    segment: Option<u64>,

    /// Records too.
    #[arg(long)]
    records: bool,
}

/// Runs `esker dump`.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.store.path;
    if !path.exists() {
        return Err(Failure::failed(format!(
            "there is no store at {}; check the path",
            path.display()
        )));
    }
    let options = DumpOptions {
        segment: arguments.segment,
        records: arguments.records,
    };
    let mut target = BufWriter::new(std::io::stdout().lock());
    match inspect::dump(path, options, &mut target) {
        Ok(()) => Ok(target.flush()?),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => {
            Err(Failure::from(source))
        }
        Err(error) => {
            // What was found before the error is what people need.
            target.flush()?;
            Err(explain(path, &error))
        }
    }
}
