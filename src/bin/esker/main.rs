//! The command line: one file per command, this one only parses, dispatches and reports.
//!
//! A command that fails prints one line on stderr saying what to do, and the exit code is 2
//! for a wrong command line and 1 for everything else. Only what `lib.rs` exports is used.

mod archive;
mod bench;
mod check;
mod collection;
mod compare;
mod dump;
mod escape;
mod export;
mod failure;
mod get;
mod import;
mod info;
mod ls;
mod mkfs;
mod object;
mod opening;
mod output;
mod picture;
mod progress;
mod put;
mod rm;
mod size;
mod stats;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use failure::{Failure, Outcome};

const ABOUT: &str = "\
Esker keeps keys and values, and Ceph's objects, in one file or block device, written as a log
that is tuned for flash: what is written once stays where it was written until its segment is
cleaned.

First steps:
  esker mkfs my.esker --capacity 1G
  esker put my.esker greeting hello
  esker get my.esker greeting
  esker collection create my.esker 1.0
  esker object put my.esker 1.0 cat cat.jpg
  esker bench                         one minute: speed, latency, write amplification

Sizes take the suffixes K, M, G, T (1024-based; KiB and so on are the same) or KB, MB, GB, TB
(1000-based). Exit codes: 0 done, 1 failed, 2 the command line was wrong.";

/// A key-value store for flash in which the log is the data.
#[derive(Parser)]
#[command(name = "esker", version, after_long_help = ABOUT, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Arguments),
    Info(info::Arguments),
    Stats(stats::Arguments),
    Put(put::Arguments),
    Get(get::Arguments),
    Rm(rm::Arguments),
    Ls(ls::Arguments),
    Collection(collection::Arguments),
    Object(object::Arguments),
    Import(import::Arguments),
    Export(export::Arguments),
    Check(check::Arguments),
    Dump(dump::Arguments),
    Bench(bench::Arguments),
    #[command(hide = true)]
    BenchObject(bench::object::Arguments),
    Compare(compare::Arguments),
    #[cfg(feature = "compare")]
    #[command(hide = true)]
    CompareChild(compare::child::Arguments),
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Mkfs(arguments) => mkfs::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Put(arguments) => put::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Rm(arguments) => rm::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Collection(arguments) => collection::run(&arguments),
        Command::Object(arguments) => object::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchObject(arguments) => bench::object::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        #[cfg(feature = "compare")]
        Command::CompareChild(arguments) => compare::child::run(&arguments),
    }
}

/// Reports a wrong command line in one line, or prints the help that was asked for.
fn report_usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody is left to tell when stdout is closed.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            eprintln!("esker: no command given; see `esker --help`");
            return ExitCode::from(Failure::USAGE);
        }
        _ => {}
    }
    let text = error.render().to_string();
    let mut words: Vec<&str> = Vec::new();
    let mut help = "esker --help".to_owned();
    for line in text.lines() {
        if let Some(usage) = line.strip_prefix("Usage: ") {
            let commands = usage
                .split_whitespace()
                .take_while(|word| !word.starts_with(['[', '<', '-']));
            help = format!("{} --help", commands.collect::<Vec<_>>().join(" "));
        } else if !line.starts_with("For more information") {
            words.extend(line.split_whitespace());
        }
    }
    let sentence = words.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    eprintln!("esker: {sentence}; see `{help}`");
    ExitCode::from(Failure::USAGE)
}

fn main() -> ExitCode {
    let arguments = bench::choose_layer(std::env::args_os().collect());
    let command_line = match CommandLine::try_parse_from(arguments) {
        Ok(command_line) => command_line,
        Err(error) => return report_usage(&error),
    };
    match run(command_line.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("esker: {}", failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}
