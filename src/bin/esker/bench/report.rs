//! What a run measured: the JSON for scripts and the summary for people.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::arguments::RunArguments;
use super::engine::Causes;
use crate::failure::{Failure, Outcome};
use crate::size::{format_count, format_size, format_size_f64};

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the operations were faster.
    pub p50: f64,
    /// 99 of 100 were faster.
    pub p99: f64,
    /// 999 of 1000 were faster.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// How many there were.
    pub count: u64,
}

/// One interval of the measured part.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, in seconds from the start of the measured part.
    pub end_s: f64,
    /// Operations per second in it.
    pub ops_per_second: f64,
    /// Latencies of the operations that ended in it.
    pub latency_us: Latency,
    /// Device bytes / user bytes in it; `None` when nothing was put.
    pub write_amplification: Option<f64>,
    /// Device bytes / user bytes from the start of the measured part to its end.
    pub write_amplification_so_far: Option<f64>,
    /// Live bytes / usable bytes at its end, as the engine says.
    pub utilization: f64,
    /// Segments cleaned in it.
    pub victims_cleaned: u64,
    /// Checkpoints completed in it.
    pub checkpoints_taken: u64,
    /// Allocated bytes at its end.
    pub space_bytes: u64,
}

/// How long each phase took, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// Putting every key once.
    pub load: f64,
    /// Overwrites before the measured part.
    pub warmup: f64,
    /// Settling before the counters were read.
    pub settle_before: f64,
    /// The operations measured.
    pub measured: f64,
    /// Settling after them, whose writes count.
    pub settle_after: f64,
}

/// All of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// `esker`, or a rival's name.
    pub engine: String,
    /// The engine's version.
    pub version: String,
    /// Operations per second while operations ran.
    pub ops_per_second: f64,
    /// Operations per second when the time to settle afterwards is counted too.
    pub ops_per_second_settled: f64,
    /// User bytes put and got, MiB per second.
    pub mib_per_second: f64,
    /// Device bytes / user bytes; `None` when nothing was put.
    pub write_amplification: Option<f64>,
    /// Latencies of all operations.
    pub latency_us: Latency,
    /// Latencies of the gets.
    pub get_latency_us: Option<Latency>,
    /// Latencies of the puts.
    pub put_latency_us: Option<Latency>,
    /// Allocated bytes at the end.
    pub space_bytes: u64,
    /// The most allocated bytes seen in the measured part and while settling after it.
    pub space_bytes_peak: u64,
    /// Bytes of keys and values put in the measured part.
    pub user_bytes: u64,
    /// Bytes written to the device for them.
    pub device_bytes: u64,
    /// How device bytes were counted.
    pub device_bytes_counted_by: String,
    /// CPU microseconds per operation, the benchmark's own included.
    pub cpu_us_per_op: f64,
    /// DRAM of the index per key; for a rival its resident memory's growth per key.
    pub dram_bytes_per_key: f64,
    /// Growth of resident memory from before the load to the end.
    pub rss_growth_bytes: i64,
    /// Operations done in the measured part.
    pub ops: u64,
    /// Gets whose contents were verified, the sample after the run included.
    pub verified: u64,
    /// Bytes of all keys and values.
    pub data_set_bytes: u64,
    /// Capacity of the store; 0 for a rival, which takes what it wants.
    pub capacity_bytes: u64,
    /// Overwrites of the data set actually done before the measured part.
    pub warmup_overwrites: f64,
    /// Whether the warm-up was cut short to keep the run to a minute.
    pub warmup_cut: bool,
    /// Segments cleaned in the measured part.
    pub victims_cleaned: u64,
    /// Checkpoints taken in the measured part.
    pub checkpoints_taken: u64,
    /// Group commits in the measured part.
    pub groups: u64,
    /// Device flushes in the measured part.
    pub flushes: u64,
    /// The engine's own account of the bytes written in the measured part.
    pub written: Causes,
    /// Utilization at the end, as the engine says.
    pub utilization: f64,
    /// Options of the engine that matter, as set.
    pub engine_options: Vec<(String, String)>,
    /// Length of the phases.
    pub phase_seconds: PhaseSeconds,
    /// The arguments of the run.
    pub arguments: RunArguments,
    /// The measured part over time.
    pub intervals: Vec<Interval>,
}

impl Report {
    /// The summary for people.
    pub fn summary(&self) -> String {
        let a = &self.arguments;
        let mut text = format!(
            "{} {}: {} keys x {} ({} B keys), {}, {}, {}, {} threads\n",
            self.engine,
            self.version,
            format_count(a.keys),
            format_size(a.value_bytes),
            a.key_bytes,
            a.workload,
            a.distribution,
            a.durability.name(),
            a.threads
        );
        for (name, value) in self
            .speed()
            .into_iter()
            .chain(self.writes())
            .chain(self.cost())
        {
            text.push_str(&format!("  {name:<22} {value}\n"));
        }
        text
    }

    /// Throughput and latency.
    fn speed(&self) -> Vec<(&'static str, String)> {
        let offered = self.arguments.rate.map_or(String::new(), |rate| {
            format!(", {} a second offered", format_count(rate))
        });
        let throughput = format!(
            "{} ops/s, {:.1} MiB/s ({} ops in {:.1} s{offered})",
            format_count(self.ops_per_second.round() as u64),
            self.mib_per_second,
            format_count(self.ops),
            self.phase_seconds.measured
        );
        let mut lines = vec![
            ("throughput", throughput),
            ("latency", describe_latency(&self.latency_us)),
        ];
        if let (Some(get), Some(put)) = (&self.get_latency_us, &self.put_latency_us) {
            lines.push(("  of gets", describe_latency(get)));
            lines.push(("  of puts", describe_latency(put)));
        }
        lines
    }

    /// Write amplification, its causes, and what the cleaner did.
    fn writes(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if let Some(amplification) = self.write_amplification {
            let bytes = format!(
                "{amplification:.3} ({} to the device / {} of keys and values)",
                format_size(self.device_bytes),
                format_size(self.user_bytes)
            );
            lines.push(("write amplification", bytes));
        }
        if self.written != Causes::default() && self.user_bytes > 0 {
            let share = |bytes: u64| bytes as f64 / self.user_bytes as f64;
            let named = self.written.named();
            let parts: Vec<String> = named
                .iter()
                .filter(|(_, bytes)| *bytes > 0)
                .map(|(name, bytes)| format!("{name} {:.3}", share(*bytes)))
                .collect();
            lines.push(("  by cause", parts.join(", ")));
        }
        let cut = if self.warmup_cut { ", cut short" } else { "" };
        lines.push((
            "  after",
            format!("{:.1} overwrites of warm-up{cut}", self.warmup_overwrites),
        ));
        if self.capacity_bytes > 0 {
            let cleaned = format!(
                "{} victims, {} checkpoints; utilization {:.3}",
                format_count(self.victims_cleaned),
                format_count(self.checkpoints_taken),
                self.utilization
            );
            lines.push(("cleaning", cleaned));
        }
        lines
    }

    /// Space, CPU, DRAM, and what was verified.
    fn cost(&self) -> Vec<(&'static str, String)> {
        let space = format!(
            "{} (peak {}) for {} of data",
            format_size(self.space_bytes),
            format_size(self.space_bytes_peak),
            format_size(self.data_set_bytes)
        );
        let dram = format!(
            "{:.1} B per key (resident memory grew by {})",
            self.dram_bytes_per_key,
            format_size(self.rss_growth_bytes.max(0) as u64)
        );
        vec![
            ("space", space),
            ("CPU", format!("{:.2} us per operation", self.cpu_us_per_op)),
            ("DRAM", dram),
            ("verified", format!("{} gets", format_count(self.verified))),
        ]
    }
}

/// Latencies in one line.
fn describe_latency(latency: &Latency) -> String {
    format!(
        "p50 {}, p99 {}, p99.9 {}, max {}",
        format_us(latency.p50),
        format_us(latency.p99),
        format_us(latency.p999),
        format_us(latency.max)
    )
}

/// A time with a fitting unit.
pub fn format_us(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.1} us")
    } else if us < 1e6 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}

/// Rates of bytes for the progress bar.
pub fn format_rate(bytes_per_second: f64) -> String {
    format!("{}/s", format_size_f64(bytes_per_second))
}

/// Writes `item` to `path` as indented JSON.
pub fn write_json(path: &Path, item: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(item)
        .map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    fs::write(path, text + "\n").map_err(|error| Failure::io("write", path, error))
}
