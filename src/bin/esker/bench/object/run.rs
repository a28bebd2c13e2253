//! A run on objects: the image is written once, then for each size warm-up, measured part,
//! settling, verification.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::device::SimulatedDevice;
use esker::{ObjectStore, Options, Stats};

use super::arguments::{DeviceName, RunArguments, Workload};
use super::crew::{Crew, Order, Phase, Taken};
use super::image::{Image, OBJECT_BYTES};
use super::report::{Report, SizeReport};
use crate::bench::engine::{Counters, Observed, allocated_bytes};
use crate::bench::lanes::{self, Lane, totals};
use crate::bench::measure::{DeviceCounter, cpu_us};
use crate::bench::report::{PhaseSeconds, format_rate};
use crate::bench::series::Series;
use crate::failure::{Failure, Outcome};
use crate::opening::explain;
use crate::progress::Progress;
use crate::size::{format_count, format_size};

/// What a null device claims to hold: so much that its store never cleans, for a cleaner
/// would want to read.
const NULL_BYTES: u64 = 1 << 40;
/// The image is written by transactions of an object each, so many in flight.
const FILL_DEPTH: u64 = 8;
/// Operations read again after each measured part.
const SAMPLE: u64 = 4096;

/// The store under test.
pub struct Subject {
    pub store: ObjectStore,
    path: Option<PathBuf>,
    counter: DeviceCounter,
}

impl Subject {
    /// Makes the store, at `path` unless its device is simulated.
    pub fn create(arguments: &RunArguments, path: Option<PathBuf>) -> Outcome<Self> {
        let mut options = Options::default();
        if let Some(bytes) = arguments.checkpoint_interval {
            options = options.checkpoint_interval_bytes(bytes);
        }
        if arguments.device != DeviceName::Null {
            options.segment_bytes = arguments.wanted_segment_bytes();
        }
        let device = match (arguments.device, &path) {
            (DeviceName::File, Some(path)) => {
                options = options.capacity(arguments.capacity);
                let store = ObjectStore::create(path, &options);
                return Ok(Self {
                    store: store.map_err(|error| explain(path, &error))?,
                    counter: DeviceCounter::new(arguments.device_stat.as_ref()),
                    path: Some(path.clone()),
                });
            }
            (DeviceName::File, None) => return Err(Failure::failed("no place for the store")),
            (DeviceName::Memory, _) => {
                SimulatedDevice::new(arguments.capacity, arguments.block_bytes as u32)
                    .without_crashes()
            }
            (DeviceName::Null, _) => SimulatedDevice::null(NULL_BYTES),
        };
        let device = Arc::new(device);
        Ok(Self {
            store: ObjectStore::create_on(device.clone(), &options)?,
            path: None,
            counter: DeviceCounter::Simulated(device),
        })
    }

    fn stats(&self) -> Stats {
        self.store.store().stats()
    }
}

impl Observed for Subject {
    fn counters(&self) -> Counters {
        Counters::from(&self.stats())
    }

    fn space_bytes(&self) -> u64 {
        let allocated = self
            .path
            .as_ref()
            .and_then(|path| allocated_bytes(path).ok());
        allocated
            .filter(|&bytes| bytes > 0)
            .unwrap_or_else(|| self.stats().capacity_bytes)
    }
}

/// A run that is under way.
struct Run<'a> {
    subject: &'a Subject,
    arguments: &'a RunArguments,
    interrupted: &'a AtomicBool,
    progress: Progress,
}

/// Does the run.
pub fn run(
    subject: &Subject,
    arguments: &RunArguments,
    interrupted: &AtomicBool,
) -> Outcome<Report> {
    let mut run = Run {
        subject,
        arguments,
        interrupted,
        progress: Progress::of_message(),
    };
    let is_whole = arguments.workload == Workload::RadosWrite;
    let mut sizes = Vec::new();
    let mut image: Option<Image> = None;
    let mut load_s = 0.0;
    for &len in &arguments.sizes.0 {
        let object_bytes = if is_whole { len } else { OBJECT_BYTES };
        let is_same = image
            .as_ref()
            .is_some_and(|image| image.object_bytes() == object_bytes);
        let current = match image.take() {
            Some(image) if is_same => image,
            before => {
                let next = Image::new(&subject.store, arguments, object_bytes);
                match before {
                    // Its objects make way, the placement groups and their logs stay.
                    Some(before) => {
                        before.remove_objects(&subject.store)?;
                        next.take_groups(before)
                    }
                    None => {
                        next.create(&subject.store)?;
                        next
                    }
                }
            }
        };
        if !is_same && !is_whole {
            load_s = run.fill(&current)?;
        }
        sizes.push(run.measure(&current, len, std::mem::take(&mut load_s))?);
        image = Some(current);
    }
    run.progress.finish();
    let stats = subject.stats();
    let image_bytes = image.map_or(0, |image| image.data_bytes());
    Ok(Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        layer: "object",
        sizes,
        image_bytes,
        capacity_bytes: stats.capacity_bytes,
        segment_bytes: stats.segment_bytes,
        block_bytes: stats.device.block_bytes,
        device: format!("{} by {}", stats.device.kind, stats.device.io),
        device_bytes_counted_by: subject.counter.describe(),
        cpu_counted_by: Report::CPU,
        node_bytes_per_object: stats.objects.node_bytes_per_object,
        node_bytes_per_block: stats.objects.node_bytes as f64 / (image_bytes / 4096).max(1) as f64,
        arguments: arguments.clone(),
    })
}

impl Run<'_> {
    fn crew<'a>(&'a self, image: &'a Image) -> Crew<'a> {
        Crew {
            store: &self.subject.store,
            image,
            arguments: self.arguments,
            interrupted: self.interrupted,
        }
    }

    /// Performs a phase under the live line.
    fn perform(
        &mut self,
        image: &Image,
        phase: &Phase,
        what: &str,
        watch: &mut dyn FnMut(&[Lane], Duration, bool),
    ) -> Outcome<Taken> {
        let crew = Crew {
            store: &self.subject.store,
            image,
            arguments: self.arguments,
            interrupted: self.interrupted,
        };
        let progress = &mut self.progress;
        let mut last = (Instant::now(), 0, 0.0);
        let taken = crew.perform(phase, &mut |lanes, elapsed, ended| {
            watch(lanes, elapsed, ended);
            if last.0.elapsed() < Duration::from_millis(500) {
                return;
            }
            let (ops, _) = totals(lanes);
            let rate = (ops - last.1) as f64 / last.0.elapsed().as_secs_f64();
            last = (Instant::now(), ops, rate);
            let by_ops = phase.ops.map_or(0.0, |all| ops as f64 / all as f64);
            let by_time = phase
                .limit
                .map_or(0.0, |limit| elapsed.div_duration_f64(limit));
            progress.set((by_ops.max(by_time).min(1.0) * 1000.0) as u64, 1000);
            progress.say(format!(
                "{what} {}: {} ops/s, {}",
                format_size(phase.len),
                format_count(rate as u64),
                format_rate(rate * phase.len as f64)
            ));
        });
        let taken = taken.map_err(|why| {
            let advice = if why.contains("no space") {
                "; lower --utilization or raise --capacity"
            } else {
                ""
            };
            Failure::failed(format!("{why}{advice}"))
        })?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure {
                message: "interrupted".into(),
                code: 130,
            });
        }
        Ok(taken)
    }

    /// Writes all of the image once; how long it took in seconds.
    fn fill(&mut self, image: &Image) -> Outcome<f64> {
        let phase = Phase {
            order: Order::Once,
            reads: false,
            len: image.object_bytes(),
            threads: self.arguments.threads,
            depth: FILL_DEPTH.max(self.arguments.threads),
            ops: Some(image.object_count()),
            limit: None,
        };
        let taken = self.perform(image, &phase, "load", &mut |_, _, _| ())?;
        Ok(taken.elapsed.as_secs_f64())
    }

    /// Returns when what has been queued is on flash; how long it took in seconds.
    fn settle(&self) -> Outcome<f64> {
        let started = Instant::now();
        self.subject.store.store().sync()?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Overwrites before the measured part: how many, and whether they were cut short.
    fn warm_up(&mut self, image: &Image, phase: &Phase) -> Outcome<(f64, bool, f64)> {
        let default = match self.arguments.workload {
            Workload::RbdRandwrite | Workload::RbdSeqwrite => 1.0,
            Workload::RbdRandread | Workload::RadosWrite => 0.0,
        };
        let overwrites = self.arguments.warmup.unwrap_or(default);
        let all = image.data_bytes() as f64 / phase.len as f64;
        let ops = (overwrites * all).ceil() as u64;
        if ops == 0 {
            return Ok((0.0, false, 0.0));
        }
        let phase = Phase {
            reads: false,
            ops: Some(ops),
            limit: phase.limit.filter(|_| self.arguments.warmup.is_none()),
            // A group commit wants company.
            depth: phase.depth.max(32),
            ..*phase
        };
        let mut done = 0;
        let taken = self.perform(image, &phase, "warm-up", &mut |lanes, _, _| {
            done = totals(lanes).0;
        })?;
        Ok((done as f64 / all, done < ops, taken.elapsed.as_secs_f64()))
    }

    fn measure(&mut self, image: &Image, len: u64, load_s: f64) -> Outcome<SizeReport> {
        let a = self.arguments;
        let phase = Phase {
            order: match a.workload {
                Workload::RbdRandwrite | Workload::RbdRandread => Order::Random,
                Workload::RbdSeqwrite | Workload::RadosWrite => Order::Sequential,
            },
            reads: a.workload == Workload::RbdRandread,
            len,
            threads: a.threads,
            depth: a.depth,
            ops: a.ops,
            limit: a.limit_seconds().map(Duration::from_secs_f64),
        };
        let generator_us = self.crew(image).generator_us(&phase);
        let mut seconds = PhaseSeconds {
            load: load_s,
            ..Default::default()
        };
        let (warmup_overwrites, warmup_cut, warmup_s) = self.warm_up(image, &phase)?;
        seconds.warmup = warmup_s;
        seconds.settle_before = self.settle()?;
        let (subject, counter) = (self.subject, &self.subject.counter);
        let device_bytes = counter.read_settled()?;
        let (counters, cpu) = (subject.counters(), cpu_us());
        let mut series = Series::new(subject, counter, len, &series_phase(&phase))?;
        let taken = self.perform(image, &phase, a.workload.name(), &mut |lanes, at, ended| {
            series.tick(lanes, at, ended);
        })?;
        seconds.measured = taken.elapsed.as_secs_f64();
        seconds.settle_after = self.settle()?;
        let cpu = cpu_us() - cpu - taken.watch_us;
        let device_bytes = counter.read_settled()?.saturating_sub(device_bytes);
        let added = subject.counters().since(&counters);
        let verified = if a.device == DeviceName::Null {
            0
        } else {
            let verified = self.crew(image).verify_sample(&phase, SAMPLE);
            verified.map_err(Failure::failed)?
        };
        let (ops, writes) = series.totals();
        let data_bytes = writes * len;
        let amplification = |bytes: u64| (writes > 0).then(|| bytes as f64 / data_bytes as f64);
        let each = |value: f64| value / ops.max(1) as f64;
        Ok(SizeReport {
            size_bytes: len,
            ops,
            ops_per_second: ops as f64 / seconds.measured,
            mib_per_second: (ops * len) as f64 / f64::from(1 << 20) / seconds.measured,
            latency_us: series.both(),
            data_bytes,
            device_bytes,
            write_amplification: amplification(device_bytes),
            write_amplification_before_cleaning: amplification(
                added.written.record_bytes + added.written.padding_bytes,
            ),
            written: added.written,
            cpu_us_per_op: (each(cpu) - generator_us).max(0.0),
            generator_us_per_op: generator_us,
            victims_cleaned: added.victims_cleaned,
            checkpoints_taken: added.checkpoints_taken,
            groups: added.groups,
            flushes: added.flushes,
            utilization: added.utilization,
            warmup_overwrites,
            warmup_cut,
            verified,
            phase_seconds: seconds,
            intervals: series.into_intervals(),
        })
    }
}

/// What a series wants to know of a phase.
fn series_phase(phase: &Phase) -> lanes::Phase {
    lanes::Phase {
        action: lanes::Action::Workload,
        threads: phase.threads,
        ops: phase.ops,
        limit: phase.limit,
        rate: None,
    }
}
