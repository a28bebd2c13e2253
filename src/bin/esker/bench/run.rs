//! A run: load, warm-up, settle, measure, settle, verify; with a live line on the terminal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::arguments::{DurabilityName, RunArguments};
use super::engine::{Counters, Engine};
use super::lanes::{Action, Crew, Lane, Phase, totals};
use super::measure::{DeviceCounter, cpu_us, resident_bytes};
use super::report::{PhaseSeconds, Report, format_rate};
use super::series::Series;
use super::workload::Workload;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::size::format_count;

/// Length of a run whose length was not given, all phases together.
const RUN: Duration = Duration::from_secs(58);
/// A warm-up that was not asked for ends by then.
const WARMUP_END: Duration = Duration::from_secs(35);
/// The measured part is at least so long.
const MEASURED_MIN: Duration = Duration::from_secs(15);
/// A group commit wants company: phases that are not measured use so many threads.
const COMMITTED_THREADS: u64 = 64;
/// Gets that verify the store after a run.
const SAMPLE: u64 = 4096;

/// A run to do.
pub struct Job<'a> {
    /// What to run.
    pub arguments: &'a RunArguments,
    /// On what.
    pub engine: &'a dyn Engine,
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: String,
    /// The store's capacity; 0 for a rival.
    pub capacity_bytes: u64,
    /// Options as set, for the report.
    pub engine_options: Vec<(String, String)>,
    /// Set from outside to end the run.
    pub interrupted: &'a AtomicBool,
    /// When the whole run began.
    pub started: Instant,
    /// Resident memory before the engine was made.
    pub resident_before: u64,
}

/// The live line: phase, speed, write amplification.
struct Live {
    progress: Progress,
    name: String,
    counter: DeviceCounter,
    device_bytes_before: u64,
    entry_bytes: u64,
    last: (Instant, u64),
    ops_per_second: f64,
}

impl Live {
    fn new(job: &Job<'_>, counter: &DeviceCounter) -> Outcome<Self> {
        Ok(Self {
            progress: Progress::of_message(),
            name: job.name.to_owned(),
            counter: counter.clone(),
            device_bytes_before: 0,
            entry_bytes: job.arguments.entry_bytes(),
            last: (Instant::now(), 0),
            ops_per_second: 0.0,
        })
    }

    fn begin(&mut self) -> Outcome {
        self.device_bytes_before = self.counter.read()?;
        self.last = (Instant::now(), 0);
        Ok(())
    }

    fn show(&mut self, what: &str, phase: &Phase, lanes: &[Lane], elapsed: Duration) {
        let (ops, puts) = totals(lanes);
        let since = self.last.0.elapsed().as_secs_f64();
        if since >= 0.5 {
            self.ops_per_second = (ops - self.last.1) as f64 / since;
            self.last = (Instant::now(), ops);
        }
        let by_ops = phase.ops.map_or(0.0, |total| ops as f64 / total as f64);
        let by_time = phase
            .limit
            .map_or(0.0, |limit| elapsed.div_duration_f64(limit));
        let done = by_ops.max(by_time).min(1.0);
        self.progress.set((done * 1000.0) as u64, 1000);
        let device_bytes = self.counter.read().unwrap_or(0);
        let user_bytes = puts * self.entry_bytes;
        let amplification = if user_bytes == 0 {
            String::new()
        } else {
            let written = device_bytes.saturating_sub(self.device_bytes_before);
            format!(", WA {:.2}", written as f64 / user_bytes as f64)
        };
        self.progress.say(format!(
            "{} {what} {:.0}%: {} ops/s, {}{amplification}",
            self.name,
            done * 100.0,
            format_count(self.ops_per_second as u64),
            format_rate(self.ops_per_second * self.entry_bytes as f64)
        ));
    }
}

/// Counters at the start of the measured part; what was added to them at its end.
struct Window {
    device_bytes: u64,
    counters: Counters,
    cpu_us: f64,
}

impl Window {
    fn open(job: &Job<'_>, counter: &DeviceCounter) -> Outcome<Self> {
        Ok(Self {
            device_bytes: counter.read_settled()?,
            counters: job.engine.counters(),
            cpu_us: cpu_us(),
        })
    }

    /// The engine has settled, so that no debt is left out; its CPU for that counts too.
    fn close(self, job: &Job<'_>, counter: &DeviceCounter) -> Outcome<Self> {
        let cpu_us = cpu_us() - self.cpu_us;
        Ok(Self {
            device_bytes: counter.read_settled()?.saturating_sub(self.device_bytes),
            counters: job.engine.counters().since(&self.counters),
            cpu_us,
        })
    }
}

/// Does the run.
pub fn run(job: &Job<'_>) -> Outcome<Report> {
    let arguments = job.arguments;
    let counter = DeviceCounter::new(arguments.device_stat.as_ref());
    let resident_without_crew = resident_bytes();
    let crew = Crew::new(job.engine, arguments, job.interrupted);
    // What the benchmark itself needs to verify values is not the engine's.
    let crew_bytes = resident_bytes().saturating_sub(resident_without_crew);
    let mut live = Live::new(job, &counter)?;
    let mut seconds = PhaseSeconds::default();
    let warmup = prepare(job, &crew, &mut live, &mut seconds)?;

    seconds.settle_before = settle(job, &mut live, &mut |_| ())?;
    let window = Window::open(job, &counter)?;
    let phase = measured_phase(job);
    let mut series = Series::new(job.engine, &counter, arguments.entry_bytes(), &phase)?;
    live.begin()?;
    let elapsed = crew.perform(&phase, &mut |lanes, elapsed, ended| {
        series.tick(lanes, elapsed, ended);
        live.show("measure", &phase, lanes, elapsed);
    });
    check(job, &crew)?;
    seconds.measured = elapsed.as_secs_f64();
    let mut space_bytes_peak = series.space_bytes_peak;
    seconds.settle_after = settle(job, &mut live, &mut |space| {
        space_bytes_peak = space_bytes_peak.max(space);
    })?;
    let window = window.close(job, &counter)?;
    let rss_growth_bytes = resident_bytes() as i64 - (job.resident_before + crew_bytes) as i64;

    live.progress.say(format!("{} verify", job.name));
    crew.verify_sample(SAMPLE).map_err(Failure::failed)?;
    check(job, &crew)?;
    live.progress.finish();
    let mut report = assemble(
        job,
        window,
        seconds,
        series,
        space_bytes_peak,
        rss_growth_bytes,
    );
    report.device_bytes_counted_by = counter.describe();
    report.verified = crew.verified();
    (report.warmup_overwrites, report.warmup_cut) = warmup;
    Ok(report)
}

/// The report of what was measured.
fn assemble(
    job: &Job<'_>,
    window: Window,
    seconds: PhaseSeconds,
    series: Series<'_>,
    space_bytes_peak: u64,
    rss_growth_bytes: i64,
) -> Report {
    let arguments = job.arguments;
    let added = window.counters;
    let (ops, puts) = series.totals();
    let user_bytes = puts * arguments.entry_bytes();
    let moved_mib = (ops * arguments.entry_bytes()) as f64 / f64::from(1 << 20);
    let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let space_bytes = job.engine.space_bytes();
    let [get_latency_us, put_latency_us] = series.split();
    Report {
        engine: job.name.to_owned(),
        version: job.version.clone(),
        ops_per_second: ratio(ops as f64, seconds.measured),
        ops_per_second_settled: ratio(ops as f64, seconds.measured + seconds.settle_after),
        mib_per_second: ratio(moved_mib, seconds.measured),
        write_amplification: (user_bytes > 0)
            .then(|| window.device_bytes as f64 / user_bytes as f64),
        latency_us: series.both(),
        get_latency_us,
        put_latency_us,
        space_bytes,
        space_bytes_peak: space_bytes_peak.max(space_bytes),
        user_bytes,
        device_bytes: window.device_bytes,
        device_bytes_counted_by: String::new(),
        cpu_us_per_op: ratio(window.cpu_us, ops as f64),
        dram_bytes_per_key: if added.entries > 0 {
            added.index_bytes as f64 / added.entries as f64
        } else {
            rss_growth_bytes.max(0) as f64 / arguments.keys as f64
        },
        rss_growth_bytes,
        ops,
        verified: 0,
        data_set_bytes: arguments.user_bytes(),
        capacity_bytes: job.capacity_bytes,
        warmup_overwrites: 0.0,
        warmup_cut: false,
        victims_cleaned: added.victims_cleaned,
        checkpoints_taken: added.checkpoints_taken,
        groups: added.groups,
        flushes: added.flushes,
        written: added.written,
        utilization: added.utilization,
        engine_options: job.engine_options.clone(),
        phase_seconds: seconds,
        arguments: arguments.clone(),
        intervals: series.into_intervals(),
    }
}

/// Load and warm-up: how many overwrites were done, and whether that was cut short.
fn prepare(
    job: &Job<'_>,
    crew: &Crew<'_>,
    live: &mut Live,
    seconds: &mut PhaseSeconds,
) -> Outcome<(f64, bool)> {
    let arguments = job.arguments;
    if arguments.workload == Workload::Fill {
        return Ok((0.0, false));
    }
    let threads = match arguments.durability {
        DurabilityName::Committed => arguments.threads.max(COMMITTED_THREADS),
        DurabilityName::Buffered => arguments.threads,
    };
    let load = Phase {
        action: Action::Fill,
        threads,
        ops: Some(arguments.keys),
        limit: None,
        rate: None,
    };
    live.begin()?;
    let elapsed = crew.perform(&load, &mut |lanes, t, _| live.show("load", &load, lanes, t));
    seconds.load = elapsed.as_secs_f64();
    check(job, crew)?;
    let overwrites = arguments.warmup_overwrites();
    let ops = (overwrites * arguments.keys as f64).ceil() as u64;
    if ops == 0 {
        return Ok((0.0, false));
    }
    let told = arguments.warmup.is_some() || bounded(arguments);
    let warmup = Phase {
        action: Action::Overwrite,
        ops: Some(ops),
        limit: (!told).then(|| WARMUP_END.saturating_sub(job.started.elapsed())),
        ..load
    };
    live.begin()?;
    let mut done = 0;
    let elapsed = crew.perform(&warmup, &mut |lanes, t, _| {
        done = totals(lanes).0;
        live.show("warm-up", &warmup, lanes, t);
    });
    seconds.warmup = elapsed.as_secs_f64();
    check(job, crew)?;
    Ok((done as f64 / arguments.keys as f64, done < ops))
}

/// Whether the caller said how long the measured part is.
fn bounded(arguments: &RunArguments) -> bool {
    arguments.ops.is_some() || arguments.seconds.is_some()
}

fn measured_phase(job: &Job<'_>) -> Phase {
    let arguments = job.arguments;
    let fill = arguments.workload == Workload::Fill;
    let limit = match arguments.seconds {
        Some(seconds) => Some(Duration::from_secs_f64(seconds)),
        None if arguments.ops.is_some() || fill => None,
        None => Some(RUN.saturating_sub(job.started.elapsed()).max(MEASURED_MIN)),
    };
    Phase {
        action: if fill { Action::Fill } else { Action::Workload },
        threads: arguments.threads,
        ops: if fill {
            Some(arguments.ops.unwrap_or(arguments.keys).min(arguments.keys))
        } else {
            arguments.ops
        },
        limit,
        rate: arguments.rate,
    }
}

/// Settles the engine, watching its space meanwhile; how long it took in seconds.
fn settle(job: &Job<'_>, live: &mut Live, watch: &mut dyn FnMut(u64)) -> Outcome<f64> {
    let started = Instant::now();
    let done = &AtomicBool::new(false);
    let settled = std::thread::scope(|scope| {
        let main = std::thread::current();
        let thread = scope.spawn(move || {
            let settled = job.engine.settle();
            done.store(true, Ordering::SeqCst);
            main.unpark();
            settled
        });
        // A panic does not set the flag, but ends the thread.
        while !done.load(Ordering::SeqCst) && !thread.is_finished() {
            std::thread::park_timeout(Duration::from_millis(100));
            watch(job.engine.space_bytes());
            live.progress.say(format!(
                "{} settle: {:.0} s",
                job.name,
                started.elapsed().as_secs_f64()
            ));
        }
        thread.join()
    });
    match settled {
        Ok(Ok(())) => Ok(started.elapsed().as_secs_f64()),
        Ok(Err(error)) => Err(Failure::failed(format!("settling failed: {error}"))),
        Err(_) => Err(Failure::failed(
            "settling panicked; this is a bug, please report it",
        )),
    }
}

/// Ends the run when a thread failed or the user wants no more of it.
fn check(job: &Job<'_>, crew: &Crew<'_>) -> Outcome {
    if let Some(why) = crew.take_failure() {
        return Err(Failure::failed(why));
    }
    if job.interrupted.load(Ordering::Relaxed) {
        return Err(Failure {
            message: "interrupted".into(),
            code: 130,
        });
    }
    Ok(())
}
