//! The contest: each contender in turn, then Esker at the space each rival used.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::child::{Contender, Task};
use super::rocksdb::Style;
use super::{Arguments, bars, table};
use crate::bench::arguments::RunArguments;
use crate::bench::report::{Report, write_json};
use crate::bench::{check_output, check_space, interrupt};
use crate::failure::{Failure, Outcome};
use crate::output::print_line;
use crate::size::format_size;

/// Length of each measured part when the caller gives none.
const SECONDS: f64 = 15.0;
/// The rivals' space, in data sets, to have before starting: the most seen is 4.4.
const SPACE_FACTOR: u64 = 6;
/// A child that was asked to end does so by then, or is ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// All results.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Esker at the wanted utilization, then the rivals.
    pub runs: Vec<Report>,
    /// Esker at each rival's space.
    pub equal_space: Vec<EqualSpace>,
    /// What was run.
    pub arguments: RunArguments,
}

/// Esker at the peak space of one rival.
#[derive(Debug, Serialize)]
pub struct EqualSpace {
    /// The rival.
    pub rival: String,
    /// The space it used at most, and Esker's capacity.
    pub space_bytes: u64,
    /// Space / bytes of all keys and values.
    pub space_per_data: f64,
    /// The rival's write amplification.
    pub rival_write_amplification: Option<f64>,
    /// Esker's.
    pub esker_write_amplification: Option<f64>,
    /// The rival's operations per second.
    pub rival_ops_per_second: f64,
    /// Esker's.
    pub esker_ops_per_second: f64,
    /// Esker's run, when it could be done.
    pub run: Option<Report>,
    /// Why it could not.
    pub failure: Option<String>,
}

/// Runs `esker compare`.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut run = arguments.run.clone();
    if run.ops.is_none() && run.seconds.is_none() {
        run.seconds = Some(SECONDS);
    }
    run.check()?;
    check_output(arguments.json.as_deref())?;
    check_output(arguments.plot.as_deref())?;
    let place = arguments.path.as_deref().unwrap_or(Path::new("."));
    if !place.is_dir() {
        return Err(Failure::usage(format!(
            "--path {} is no directory; give one to work in",
            place.display()
        )));
    }
    let interrupted = interrupt::install()?;
    let place = interrupt::TemporaryDirectory::new(place, "esker-compare-")?;
    check_space(
        &place.path().join("store"),
        run.user_bytes().saturating_mul(SPACE_FACTOR),
    )?;
    let contest = Contest {
        place: place.path(),
        run: &run,
        interrupted,
    };
    let mut runs = vec![contest.one(Contender::Esker {
        capacity: run.capacity(),
    })?];
    for style in Style::ALL {
        runs.push(contest.one(Contender::RocksDb(style))?);
    }
    let mut equal_space = Vec::new();
    for rival in runs.iter().skip(1).filter(|_| !arguments.no_equal_space) {
        equal_space.push(contest.at_space_of(rival)?);
    }
    let results = Results {
        runs,
        equal_space,
        arguments: run.clone(),
    };
    drop(place);
    print_line(table::render(&results).trim_end())?;
    if let Some(path) = &arguments.json {
        write_json(path, &results)?;
    }
    if let Some(path) = &arguments.plot {
        bars::draw(path, &results)?;
    }
    Ok(())
}

struct Contest<'a> {
    place: &'a Path,
    run: &'a RunArguments,
    interrupted: &'static AtomicBool,
}

impl Contest<'_> {
    /// Runs one contender in an empty directory.
    fn one(&self, contender: Contender) -> Outcome<Report> {
        self.with(contender, self.run.clone())
    }

    fn with(&self, contender: Contender, arguments: RunArguments) -> Outcome<Report> {
        let directory = self.place.join("run");
        fs::create_dir(&directory).map_err(|error| Failure::io("make", &directory, error))?;
        let task = Task {
            contender,
            directory: directory.clone(),
            arguments,
        };
        let report = self.child(&task);
        fs::remove_dir_all(&directory).map_err(|error| Failure::io("remove", &directory, error))?;
        report
    }

    /// Esker with the rival's peak space as capacity.
    fn at_space_of(&self, rival: &Report) -> Outcome<EqualSpace> {
        let capacity = rival.space_bytes_peak.next_multiple_of(4096);
        let mut arguments = self.run.clone();
        let warmup = arguments.warmup_overwrites();
        if warmup > 0.0 {
            // A log is in its steady state when every segment has been used.
            let to_the_end = capacity as f64 / rival.data_set_bytes.max(1) as f64;
            arguments.warmup = Some(warmup.max(to_the_end));
        }
        let (run, failure) = match self.with(Contender::Esker { capacity }, arguments) {
            Ok(report) => (Some(report), None),
            Err(failure) if self.interrupted.load(Ordering::Relaxed) => return Err(failure),
            Err(_) => {
                let why = format!("no run of Esker at {}", format_size(capacity));
                (None, Some(why))
            }
        };
        Ok(EqualSpace {
            rival: rival.engine.clone(),
            space_bytes: capacity,
            space_per_data: capacity as f64 / rival.data_set_bytes.max(1) as f64,
            rival_write_amplification: rival.write_amplification,
            esker_write_amplification: run.as_ref().and_then(|run| run.write_amplification),
            rival_ops_per_second: rival.ops_per_second,
            esker_ops_per_second: run.as_ref().map_or(0.0, |run| run.ops_per_second),
            run,
            failure,
        })
    }

    /// Runs a child to its end and reads its report.
    fn child(&self, task: &Task) -> Outcome<Report> {
        let fail = |what: &str| Failure::failed(format!("{what} of a contender failed"));
        let own = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
        let mut child = Command::new(own)
            .arg("compare-child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::failed(format!("cannot start a child: {error}")))?;
        let (Some(mut input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(fail("the pipe"));
        };
        let text = serde_json::to_string(task).map_err(|_| fail("the task"))?;
        input.write_all(text.as_bytes())?;
        drop(input);
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        });
        let succeeded = self.wait(&mut child)?;
        let text = reader.join().map_err(|_| fail("the report"))??;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure {
                message: "interrupted".into(),
                code: 130,
            });
        }
        if !succeeded {
            // The child has said why on the standard error both share.
            return Err(fail("the run"));
        }
        serde_json::from_str(&text).map_err(|_| fail("reading the report"))
    }

    /// Waits for a child; after an interrupt, which it gets too, only so long.
    fn wait(&self, child: &mut Child) -> Outcome<bool> {
        let mut asked = None;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status.success());
            }
            if self.interrupted.load(Ordering::Relaxed)
                && asked.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
