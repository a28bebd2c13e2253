//! `esker bench --layer object`: the transactions of a Ceph OSD, at sizes from 4 KiB to 4 MiB.

mod arguments;
mod crew;
mod image;
mod picture;
mod report;
mod run;
mod window;

use std::path::{Path, PathBuf};

use clap::Args;

use super::{check_output, check_space, interrupt, plot, prepare_path};
use crate::bench::report::write_json;
use crate::failure::{Failure, Outcome};
use crate::output::print_line;
use arguments::{DeviceName, RunArguments};
use report::Report;
use run::Subject;

const EXAMPLES: &str = "\
An image of 4 MiB objects, spread over placement groups, is written once; then each size has a
warm-up, a measured part, and a verification of what was written. Transactions are queued, so
many at a time as --depth says, and their latency counts to the commit callback.

Each carries what a Ceph OSD writes with the data: the attributes `_` (293 B) and `snapset` (35 B)
of the object, and two omap keys of its placement group's log object (an entry of 234 B,
`_fastinfo` of 186 B); every 100th of a group removes its 100 oldest log keys.

WA is device bytes / data bytes. `WA before` is what the engine wrote for the transactions
themselves: data, records, frames, padding; `WA` also has cleaning, checkpoints, and the zeros
that a file's new segments are written with once.

Examples:
  esker bench --layer object
      4 KiB random overwrites at depth 32, about half a minute
  esker bench --layer object --sizes 4K..1M --depth 32 --plot sweep.svg --json sweep.json
      the classic sweep: a table, and a picture of it
  esker bench --layer object --device null --seconds 5
      CPU per transaction, with everything but the device
  esker bench --layer object --warmup 4 --distribution zipf:0.99 --plot zipf.svg
      with the cleaner at work; one size is drawn over time";

/// Measures the object layer with the transactions of a Ceph OSD.
///
/// With no more arguments it makes a temporary store of 1 GiB in the working directory and
/// removes it afterwards.
#[derive(Args, Debug)]
#[command(
    name = "esker bench --layer object",
    override_usage = "esker bench --layer object [OPTIONS]",
    after_help = EXAMPLES
)]
pub struct Arguments {
    /// Where to make the store: a file that does not exist, or a block device. It is kept
    /// afterwards. Without it, a temporary file in the working directory.
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,

    /// Overwrites what is at --path.
    #[arg(long, requires = "path")]
    force: bool,

    #[command(flatten)]
    run: RunArguments,

    /// Writes the results and the series over time as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draws the results: of several sizes the curves over size, of one size over time.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Runs `esker bench --layer object`.
pub fn run(arguments: &Arguments) -> Outcome {
    let is_file = arguments.run.device == DeviceName::File;
    arguments.run.check()?;
    if !is_file && arguments.path.is_some() {
        return Err(Failure::usage("--path is of --device file alone"));
    }
    check_output(arguments.json.as_deref())?;
    check_output(arguments.plot.as_deref())?;
    let interrupted = interrupt::install()?;
    let mut temporary = None;
    let path = match &arguments.path {
        Some(path) => {
            prepare_path(path, arguments.force)?;
            Some(path.clone())
        }
        None if is_file => {
            let made = interrupt::TemporaryDirectory::new(Path::new("."), "esker-bench-")?;
            let path = made.path().join("store.esker");
            temporary = Some(made);
            Some(path)
        }
        None => None,
    };
    if let Some(path) = &path {
        check_space(path, arguments.run.capacity)?;
    }
    let subject = Subject::create(&arguments.run, path)?;
    let report = run::run(&subject, &arguments.run, interrupted)?;
    subject.store.close()?;
    drop(temporary);
    print_line(report.summary().trim_end())?;
    save(arguments, &report)
}

fn save(arguments: &Arguments, report: &Report) -> Outcome {
    if let Some(path) = &arguments.json {
        write_json(path, report)?;
    }
    let Some(path) = &arguments.plot else {
        return Ok(());
    };
    match report.sizes.as_slice() {
        [only] => plot::draw_over_time(path, report.heading(), report.details(), &only.intervals),
        _ => picture::draw(path, report),
    }
}
