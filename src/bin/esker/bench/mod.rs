//! `esker bench`: speed, latency, write amplification, space, CPU and DRAM of a workload.

pub mod arguments;
pub mod distribution;
pub mod engine;
pub mod interrupt;
mod lanes;
pub mod measure;
pub mod object;
pub mod plot;
pub mod report;
pub mod run;
mod series;
mod workload;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome};
use crate::mkfs::clear_device;
use crate::output::print_line;
use crate::size::format_size;
use arguments::RunArguments;
use engine::EskerEngine;
use report::{Report, write_json};

const EXAMPLES: &str = "\
A run has four parts: load (every key is put once), warm-up (overwrites, so that the cleaner is
at work when counting starts), measured part, verification. Progress is shown on a terminal.

Write amplification is device bytes / user bytes of the measured part, where a user byte is one
of key or value, and everything written counts: headers, padding, cleaning, checkpoints. What
is read is verified: contents, and that no older version comes back.

Examples:
  esker bench
      a temporary store in the working directory, about a minute, removed afterwards
  esker bench --keys 2^18 --distribution zipf:0.99 --seconds 30 --plot zipf.svg
      skewed overwrites; zipf.svg shows throughput, latency, WA and cleaning over time
  esker bench --workload mixed:0.5 --durability committed --threads 16 --rate 20000
      half gets, half durable puts, 20000 operations offered each second; latency counts from
      when each should have started
  esker bench --layer object --sizes 4K..1M --depth 32 --plot sweep.svg
      Ceph's objects: see `esker bench --layer object --help` for its own options
  esker bench --path /dev/loop0 --force --device-stat /sys/block/loop0/stat --json out.json
      on a block device, device bytes counted by the device itself";

/// Measures a workload: throughput, latency, write amplification, space, CPU, DRAM.
///
/// With no arguments it makes a temporary store in the working directory, runs for about a
/// minute and removes it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What is measured: keys and values, or Ceph's objects, whose options are others.
    #[arg(long, value_enum, default_value = "kv")]
    layer: Layer,

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

    /// Draws the measured part over time: throughput, latency, WA, utilization, cleaning.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layer {
    /// Keys and values.
    Kv,
    /// Ceph's objects: `esker bench --layer object --help`.
    Object,
}

/// The layers take other options, so each is a command of its own: `bench --layer object` is
/// the hidden `bench-object`.
pub fn choose_layer(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "bench") {
        return arguments;
    }
    let option = arguments.iter().position(|word| word == "--layer=object");
    let words = arguments
        .windows(2)
        .position(|pair| pair[0] == "--layer" && pair[1] == "object");
    let range = match (option, words) {
        (Some(at), _) => at..at + 1,
        (None, Some(at)) => at..at + 2,
        (None, None) => return arguments,
    };
    arguments.drain(range);
    arguments[1] = "bench-object".into();
    arguments
}

/// Runs `esker bench`.
pub fn run(arguments: &Arguments) -> Outcome {
    debug_assert_eq!(arguments.layer, Layer::Kv, "the other was chosen before");
    let started = Instant::now();
    arguments.run.check()?;
    check_output(arguments.json.as_deref())?;
    check_output(arguments.plot.as_deref())?;
    let interrupted = interrupt::install()?;
    let temporary = match &arguments.path {
        Some(path) => {
            prepare_path(path, arguments.force)?;
            None
        }
        None => Some(interrupt::TemporaryDirectory::new(
            Path::new("."),
            "esker-bench-",
        )?),
    };
    let path = match (&arguments.path, &temporary) {
        (Some(path), _) => path.clone(),
        (None, Some(temporary)) => temporary.path().join("store.esker"),
        (None, None) => return Err(Failure::failed("no place for the store")),
    };
    let capacity = arguments.run.capacity();
    check_space(&path, capacity)?;

    let resident_before = measure::resident_bytes();
    let engine = EskerEngine::create(&path, &arguments.run, capacity)?;
    let stats = engine.stats();
    let report = run::run(&run::Job {
        arguments: &arguments.run,
        engine: &engine,
        name: "esker",
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capacity_bytes: stats.capacity_bytes,
        engine_options: engine_options(&stats, &arguments.run),
        interrupted,
        started,
        resident_before,
    })?;
    engine.close()?;
    drop(temporary);
    print_line(report.summary().trim_end())?;
    save(arguments, &report)
}

/// Options of the store worth a line in the report.
pub fn engine_options(stats: &esker::Stats, run: &RunArguments) -> Vec<(String, String)> {
    [
        ("capacity_bytes", stats.capacity_bytes.to_string()),
        ("segment_bytes", stats.segment_bytes.to_string()),
        ("cache_bytes", run.cache_bytes.to_string()),
        ("device", stats.device.kind.to_owned()),
        ("io", stats.device.io.to_owned()),
        ("direct", stats.device.direct.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn save(arguments: &Arguments, report: &Report) -> Outcome {
    if let Some(path) = &arguments.json {
        let mut value = serde_json::to_value(report)
            .map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
        value["arguments"]["path"] = serde_json::json!(arguments.path);
        value["arguments"]["json"] = serde_json::json!(arguments.json);
        value["arguments"]["plot"] = serde_json::json!(arguments.plot);
        write_json(path, &value)?;
    }
    if let Some(path) = &arguments.plot {
        plot::draw(path, report)?;
    }
    Ok(())
}

/// Refuses an output file that cannot be made, before a minute is spent.
pub fn check_output(path: Option<&Path>) -> Outcome {
    let Some(path) = path else { return Ok(()) };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.is_dir() || !parent.is_dir() {
        return Err(Failure::usage(format!(
            "cannot write {}: give a file in a directory that exists",
            path.display()
        )));
    }
    Ok(())
}

/// Makes way for the store, or refuses.
pub fn prepare_path(path: &Path, force: bool) -> Outcome {
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(());
    };
    if metadata.file_type().is_block_device() {
        return if force { clear_device(path) } else { Ok(()) };
    }
    if !metadata.is_file() || !force {
        return Err(Failure::usage(format!(
            "{} exists; give another --path, or --force to overwrite a file",
            path.display()
        )));
    }
    fs::remove_file(path).map_err(|error| Failure::io("remove", path, error))
}

/// Refuses a store its file system cannot hold, before it fills it.
pub fn check_space(path: &Path, capacity: u64) -> Outcome {
    if path.exists() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let space = rustix::fs::statvfs(parent)
        .map_err(|error| Failure::io("look at the file system of", parent, error))?;
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    if available < capacity {
        return Err(Failure::failed(format!(
            "the run needs {} and {} has {} free; lower --keys or --value-bytes, or give --path",
            format_size(capacity),
            parent.display(),
            format_size(available)
        )));
    }
    Ok(())
}
