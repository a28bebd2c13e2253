//! One contender, in a process of its own, so that the process's counters are its own.
//!
//! The parent writes a [`Task`] as JSON to standard input and reads a report as JSON from
//! standard output; progress and errors go to the standard error both share.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::rocksdb::{RocksDb, Style};
use crate::bench::arguments::RunArguments;
use crate::bench::engine::EskerEngine;
use crate::bench::measure::resident_bytes;
use crate::bench::report::Report;
use crate::bench::run::{Job, run as run_job};
use crate::bench::{engine_options, interrupt};
use crate::failure::{Failure, Outcome};
use crate::output::print_json;

/// Runs one contender of `compare`; for its own use.
#[derive(Args, Debug)]
pub struct Arguments {}

/// Who runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// Esker, in a store of this capacity.
    Esker {
        /// Bytes.
        capacity: u64,
    },
    /// RocksDB.
    RocksDb(Style),
}

/// What the parent asks for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Who runs.
    pub contender: Contender,
    /// An empty directory.
    pub directory: PathBuf,
    /// What to run.
    pub arguments: RunArguments,
}

/// Runs the child.
pub fn run(_: &Arguments) -> Outcome {
    // Nobody would read the report of an orphan.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let started = Instant::now();
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    let task: Task = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("not for use by hand: {error}")))?;
    task.arguments.check()?;
    let report = match task.contender {
        Contender::Esker { capacity } => run_esker(&task, capacity, started)?,
        Contender::RocksDb(style) => run_rocksdb(&task, style, started)?,
    };
    print_json(&report)
}

fn run_esker(task: &Task, capacity: u64, started: Instant) -> Outcome<Report> {
    let interrupted = interrupt::install()?;
    let resident_before = resident_bytes();
    let path = task.directory.join("store.esker");
    let engine = EskerEngine::create(&path, &task.arguments, capacity)?;
    let stats = engine.stats();
    let report = run_job(&Job {
        arguments: &task.arguments,
        engine: &engine,
        name: "esker",
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capacity_bytes: stats.capacity_bytes,
        engine_options: engine_options(&stats, &task.arguments),
        interrupted,
        started,
        resident_before,
    })?;
    engine.close()?;
    Ok(report)
}

fn run_rocksdb(task: &Task, style: Style, started: Instant) -> Outcome<Report> {
    let interrupted = interrupt::install()?;
    let resident_before = resident_bytes();
    let engine = RocksDb::open(&task.directory, style, &task.arguments, interrupted)
        .map_err(|error| Failure::failed(format!("rocksdb: {error}")))?;
    run_job(&Job {
        arguments: &task.arguments,
        engine: &engine,
        name: style.name(),
        version: RocksDb::version(),
        capacity_bytes: 0,
        engine_options: engine.options().to_vec(),
        interrupted,
        started,
        resident_before,
    })
}
