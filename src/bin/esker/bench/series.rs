//! The measured part over time: one row an interval, and the totals.

use std::sync::PoisonError;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::engine::{Counters, Observed};
use super::lanes::{Lane, Phase, new_histogram};
use super::measure::DeviceCounter;
use super::report::{Interval, Latency};
use crate::failure::Outcome;

/// Length of an interval, unless that makes too many of them.
const INTERVAL: Duration = Duration::from_millis(250);
/// A plot is about a thousand pixels wide.
const INTERVALS_MAX: u32 = 2000;

/// Collects intervals while a phase runs.
pub struct Series<'a> {
    engine: &'a dyn Observed,
    counter: &'a DeviceCounter,
    entry_bytes: u64,
    length: Duration,
    first_device_bytes: u64,
    last: Reading,
    /// Gets and puts of all intervals.
    all: [Histogram<u64>; 2],
    intervals: Vec<Interval>,
    /// The most space seen.
    pub space_bytes_peak: u64,
}

struct Reading {
    at: Duration,
    ops: u64,
    puts: u64,
    device_bytes: u64,
    counters: Counters,
}

impl<'a> Series<'a> {
    /// Begins a series now.
    pub fn new(
        engine: &'a dyn Observed,
        counter: &'a DeviceCounter,
        entry_bytes: u64,
        phase: &Phase,
    ) -> Outcome<Self> {
        let first_device_bytes = counter.read()?;
        Ok(Self {
            engine,
            counter,
            entry_bytes,
            length: phase
                .limit
                .map_or(INTERVAL, |l| INTERVAL.max(l / INTERVALS_MAX)),
            first_device_bytes,
            last: Reading {
                at: Duration::ZERO,
                ops: 0,
                puts: 0,
                device_bytes: first_device_bytes,
                counters: engine.counters(),
            },
            all: [new_histogram(), new_histogram()],
            intervals: Vec::new(),
            space_bytes_peak: 0,
        })
    }

    /// Ends an interval when it is long enough, or when the phase has `ended`.
    pub fn tick(&mut self, lanes: &[Lane], elapsed: Duration, ended: bool) {
        if ended || elapsed >= self.last.at + self.length {
            // All threads may have ended just before the last tick but one.
            self.sample(lanes, elapsed.max(self.last.at));
        }
    }

    fn sample(&mut self, lanes: &[Lane], at: Duration) {
        let mut taken = [new_histogram(), new_histogram()];
        for lane in lanes {
            let mut latencies = lane
                .latencies
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for (sum, part) in taken.iter_mut().zip(latencies.iter_mut()) {
                if !part.is_empty() {
                    // Same bounds, so adding cannot fail.
                    let _ = sum.add(&*part);
                    part.reset();
                }
            }
        }
        let mut both = taken[0].clone();
        let _ = both.add(&taken[1]);
        for (sum, part) in self.all.iter_mut().zip(&taken) {
            let _ = sum.add(part);
        }
        // Counted by what was taken, so that rows add up to the totals.
        let ops = self.last.ops + both.len();
        let puts = self.last.puts + taken[1].len();
        let device_bytes = self.counter.read().unwrap_or(self.last.device_bytes);
        let counters = self.engine.counters();
        let added = counters.since(&self.last.counters);
        let space_bytes = self.engine.space_bytes();
        self.space_bytes_peak = self.space_bytes_peak.max(space_bytes);
        let ratio = |device: u64, puts: u64| {
            (puts > 0).then(|| device as f64 / (puts * self.entry_bytes).max(1) as f64)
        };
        let span = (at - self.last.at).as_secs_f64().max(1e-9);
        self.intervals.push(Interval {
            end_s: at.as_secs_f64(),
            ops_per_second: both.len() as f64 / span,
            latency_us: latency(&both),
            write_amplification: ratio(
                device_bytes.saturating_sub(self.last.device_bytes),
                taken[1].len(),
            ),
            write_amplification_so_far: ratio(
                device_bytes.saturating_sub(self.first_device_bytes),
                puts,
            ),
            utilization: counters.utilization,
            victims_cleaned: added.victims_cleaned,
            checkpoints_taken: added.checkpoints_taken,
            space_bytes,
        });
        self.last = Reading {
            at,
            ops,
            puts,
            device_bytes,
            counters,
        };
    }

    /// Operations and puts of all intervals.
    pub fn totals(&self) -> (u64, u64) {
        (self.last.ops, self.last.puts)
    }

    /// Latencies of gets and puts together.
    pub fn both(&self) -> Latency {
        let mut both = self.all[0].clone();
        let _ = both.add(&self.all[1]);
        latency(&both)
    }

    /// Latencies of gets and of puts, where there were both.
    pub fn split(&self) -> [Option<Latency>; 2] {
        let mixed = self.all.iter().all(|part| !part.is_empty());
        [0, 1].map(|kind| mixed.then(|| latency(&self.all[kind])))
    }

    /// The rows.
    pub fn into_intervals(self) -> Vec<Interval> {
        self.intervals
    }
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Latency {
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64 / 1e3,
        mean: histogram.mean() / 1e3,
        count: histogram.len(),
    }
}
