//! `esker check`: verifies a store against itself; the exit code says clean or not.

use clap::Args;
use esker::inspect::{self, CheckOptions, CheckReport};

use crate::failure::{Failure, Outcome};
use crate::opening::StoreArgument;
use crate::output::{OutputArgument, print_fields, print_line};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Reads the store and changes nothing unless --repair is given. The store must not be open
elsewhere. Exit code: 0 clean, 1 not clean or not checkable.

Examples:
  esker check my.esker             every record on media against index and objects
  esker check my.esker --deep      reads and verifies all data of objects and large values
  esker check my.esker --repair    rebuilds a lost index from the records; lists what may be
                                   back from the dead because its deletion was lost";

/// Verifies every record on media against the index and the objects.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Reads and verifies the data of objects too, and large values as a caller would.
    #[arg(long)]
    deep: bool,

    /// Repairs what can be repaired.
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    output: OutputArgument,
}

/// Runs `esker check`.
pub fn run(arguments: &Arguments) -> Outcome {
    let options = CheckOptions::default()
        .repair(arguments.repair)
        .deep(arguments.deep);
    let mut bar = Progress::of_bytes("checking", 0);
    let report = arguments.store.inspect(|path| {
        inspect::check(path, &options, &mut |progress| {
            bar.set(progress.done_bytes, progress.total_bytes);
        })
    });
    bar.finish();
    let report = report?;
    arguments.output.print(&report, show)?;
    if report.is_clean() {
        return if arguments.output.json {
            Ok(())
        } else {
            print_line("clean")
        };
    }
    let advice = if arguments.repair {
        "some damage could not be repaired; restore what is listed from elsewhere"
    } else {
        "run `esker check --repair` after copying the store"
    };
    Err(Failure::failed(format!(
        "{} is not clean; {advice}",
        arguments.store.path.display()
    )))
}

/// Prints the counts, then what was found, one line each.
fn show(report: &CheckReport) -> Outcome {
    let mut counts = report.clone();
    counts.findings.clear();
    counts.repairs.clear();
    counts.lost.clear();
    counts.unconfirmed.clear();
    counts.lost_objects.clear();
    counts.unconfirmed_objects.clear();
    print_fields(&counts)?;
    for line in report.lines() {
        print_line(&line)?;
    }
    Ok(())
}
