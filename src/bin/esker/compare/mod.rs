//! `esker compare`: the same workload on Esker and on RocksDB, in one run.
//!
//! Built without the feature `compare` the command only says how to get it, so that nothing
//! ordinary links RocksDB.

#[cfg(feature = "compare")]
mod bars;
#[cfg(feature = "compare")]
pub mod child;
#[cfg(feature = "compare")]
mod contest;
#[cfg(feature = "compare")]
mod rocksdb;
#[cfg(feature = "compare")]
mod table;

use std::path::PathBuf;

use clap::Args;

use crate::bench::arguments::RunArguments;
use crate::failure::Outcome;

const EXAMPLES: &str = "\
Runs one after the other, each in a process of its own: Esker at --utilization, RocksDB leveled,
universal and BlobDB, then Esker once more at the peak space each of them used. Amplification at
equal space is the figure to look at: a log, like any tree, trades space for writes.

RocksDB runs with direct I/O for reads, flush and compaction, Bloom filters of 10 bits, a block
cache of --cache-bytes, four write buffers of 64 MiB (less when the data is under 1 GiB), bounded
compaction debt, no compression (the values are incompressible) and its WAL, whose bytes count.
Before the counters are read, at the start and at the end of the measured part, it is flushed and
its compactions have ended. The options and the version are in the report.

Examples:
  esker compare
  esker compare --keys 2^18 --seconds 30 --json compare.json --plot compare.svg
  esker compare --durability committed --threads 16 --distribution zipf:0.99
  esker compare --keys 20000 --seconds 3                       a smoke run";

/// Runs the same workload on Esker and on RocksDB (leveled, universal, BlobDB).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A directory to work in; what is made there is removed. The working directory when not
    /// given.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,

    /// Leaves out the runs of Esker at the rivals' space.
    #[arg(long)]
    no_equal_space: bool,

    #[command(flatten)]
    run: RunArguments,

    /// Writes all results as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draws throughput, WA, space and latencies side by side.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Runs `esker compare`.
#[cfg(feature = "compare")]
pub fn run(arguments: &Arguments) -> Outcome {
    contest::run(arguments)
}

/// Says how to get it.
#[cfg(not(feature = "compare"))]
pub fn run(arguments: &Arguments) -> Outcome {
    use crate::failure::Failure;
    arguments.run.check()?;
    let Arguments {
        path: _,
        no_equal_space: _,
        run: _,
        json: _,
        plot: _,
    } = arguments;
    Err(Failure::failed(
        "this build has no RocksDB to compare with; run `apt-get install librocksdb-dev`, then \
         `cargo run --release --features compare -- compare`",
    ))
}
