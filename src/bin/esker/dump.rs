//! `esker dump`: segments and records as they are on media, for people debugging.

use std::io::{BufWriter, ErrorKind, Write};

use clap::Args;
use esker::Error;
use esker::inspect::{self, DumpOptions};

use crate::failure::{Failure, Outcome};
use crate::opening::{StoreArgument, explain};

const EXAMPLES: &str = "\
Reads media directly and changes nothing. One line a segment; with --records one line a frame
and a record as well: offset, seqno, kind, lengths, live or dead, key. Works on a damaged
store. Offsets and lengths are in bytes; +N is an offset in the segment.

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
    segment: Option<u32>,

    /// Records too.
    #[arg(long)]
    records: bool,
}

/// Runs `esker dump`.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = arguments.store.existing()?;
    let options = DumpOptions::default()
        .segment(arguments.segment)
        .records(arguments.records);
    let mut target = BufWriter::new(std::io::stdout().lock());
    match inspect::dump(path, &options, &mut target) {
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
