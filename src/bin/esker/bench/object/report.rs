//! What a run on objects measured: the table for people, the JSON for scripts.

use serde::Serialize;

use super::arguments::RunArguments;
use crate::bench::engine::Causes;
use crate::bench::report::{Interval, Latency, PhaseSeconds, format_us};
use crate::size::{format_count, format_size};

/// Operations of one size.
#[derive(Debug, Clone, Serialize)]
pub struct SizeReport {
    /// Bytes of an operation.
    pub size_bytes: u64,
    /// Operations of the measured part.
    pub ops: u64,
    /// Operations per second while operations ran.
    pub ops_per_second: f64,
    /// Data, MiB per second.
    pub mib_per_second: f64,
    /// Latencies, from queueing to the commit callback.
    pub latency_us: Latency,
    /// Bytes of data written.
    pub data_bytes: u64,
    /// Bytes written to the device for them.
    pub device_bytes: u64,
    /// Device bytes / data bytes.
    pub write_amplification: Option<f64>,
    /// The same by the engine's counters without cleaning, checkpoints and zeros written once
    /// into new segments: records, frames and padding.
    pub write_amplification_before_cleaning: Option<f64>,
    /// The engine's own account of the bytes written.
    pub written: Causes,
    /// CPU microseconds of the process per operation without the generator's own.
    pub cpu_us_per_op: f64,
    /// The generator's own.
    pub generator_us_per_op: f64,
    /// Segments cleaned.
    pub victims_cleaned: u64,
    /// Checkpoints taken.
    pub checkpoints_taken: u64,
    /// Group commits.
    pub groups: u64,
    /// Device flushes.
    pub flushes: u64,
    /// Live bytes / usable bytes at the end.
    pub utilization: f64,
    /// Overwrites of the image before the measured part.
    pub warmup_overwrites: f64,
    /// Whether the warm-up was cut short.
    pub warmup_cut: bool,
    /// Operations read again and verified.
    pub verified: u64,
    /// Length of the phases.
    pub phase_seconds: PhaseSeconds,
    /// The measured part over time.
    pub intervals: Vec<Interval>,
}

/// All of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The engine's version.
    pub version: String,
    /// Always `object`.
    pub layer: &'static str,
    /// One for each size.
    pub sizes: Vec<SizeReport>,
    /// Bytes of the data of all objects.
    pub image_bytes: u64,
    /// Capacity of the store.
    pub capacity_bytes: u64,
    /// Segments of the store.
    pub segment_bytes: u64,
    /// Logical blocks of the device.
    pub block_bytes: u32,
    /// The device.
    pub device: String,
    /// How device bytes were counted.
    pub device_bytes_counted_by: String,
    /// How CPU was counted.
    pub cpu_counted_by: &'static str,
    /// DRAM of the objects' nodes at the end, per object.
    pub node_bytes_per_object: f64,
    /// The same, per 4 KiB of data.
    pub node_bytes_per_block: f64,
    /// The arguments of the run.
    pub arguments: RunArguments,
}

impl Report {
    /// How CPU is counted.
    pub const CPU: &str = "user and system time of the whole process in the measured part, less \
                           that of the thread that watches and what a dry run of the generator \
                           takes for a transaction that is built, dropped and called back";

    /// One line that says what was run.
    pub fn heading(&self) -> String {
        let a = &self.arguments;
        format!(
            "esker {}: {}, {}, depth {}, {} threads, {} placement groups",
            self.version,
            a.workload.name(),
            a.distribution,
            a.depth,
            a.threads,
            a.pgs
        )
    }

    /// One line that says on what.
    pub fn details(&self) -> String {
        format!(
            "{} of data in a store of {}, segments of {}, {}, blocks of {} B",
            format_size(self.image_bytes),
            format_size(self.capacity_bytes),
            format_size(self.segment_bytes),
            self.device,
            self.block_bytes
        )
    }

    /// The table for people.
    pub fn summary(&self) -> String {
        let mut text = format!("{}\n{}\n\n", self.heading(), self.details());
        let columns = [
            "size",
            "ops/s",
            "MiB/s",
            "p50",
            "p99",
            "p99.9",
            "WA",
            "WA before",
            "CPU us",
            "victims",
            "ckpts",
        ];
        let mut rows: Vec<Vec<String>> = vec![columns.map(str::to_owned).into()];
        rows.extend(self.sizes.iter().map(SizeReport::row));
        let widths: Vec<usize> = (0..columns.len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let cells: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:>width$}"))
                .collect();
            text.push_str(&cells.join("  "));
            text.push('\n');
        }
        text.push_str("\nWA by cause (device bytes / data bytes), and what came before:\n");
        for size in &self.sizes {
            text.push_str(&format!(
                "  {:>8}  {}\n",
                format_size(size.size_bytes),
                size.causes()
            ));
        }
        text.push_str(&format!(
            "\nWA counts {}.\n\
             WA before: the engine's records and padding, before cleaning and checkpoints.\n\
             CPU: the process's, less the generator's own, per operation.\n\
             DRAM of nodes: {} B per object, {:.1} B per 4 KiB of data.\n",
            self.device_bytes_counted_by,
            format_count(self.node_bytes_per_object as u64),
            self.node_bytes_per_block
        ));
        text
    }
}

impl SizeReport {
    fn row(&self) -> Vec<String> {
        let ratio =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
        vec![
            format_size(self.size_bytes),
            format_count(self.ops_per_second.round() as u64),
            format!("{:.1}", self.mib_per_second),
            format_us(self.latency_us.p50),
            format_us(self.latency_us.p99),
            format_us(self.latency_us.p999),
            ratio(self.write_amplification),
            ratio(self.write_amplification_before_cleaning),
            format!("{:.1}", self.cpu_us_per_op),
            format_count(self.victims_cleaned),
            format_count(self.checkpoints_taken),
        ]
    }

    /// Write amplification by cause, in words.
    fn causes(&self) -> String {
        let mut parts = Vec::new();
        if self.data_bytes > 0 {
            let named = self.written.named();
            let share = |bytes: u64| bytes as f64 / self.data_bytes as f64;
            let shares = named.iter().filter(|(_, bytes)| *bytes > 0);
            parts.extend(shares.map(|(name, bytes)| format!("{name} {:.3}", share(*bytes))));
            let per_group = self.ops as f64 / self.groups.max(1) as f64;
            parts.push(format!("{per_group:.1} transactions a commit"));
        }
        let cut = if self.warmup_cut { " (cut short)" } else { "" };
        parts.push(format!(
            "after {:.1} overwrites{cut}, utilization {:.3}",
            self.warmup_overwrites, self.utilization
        ));
        parts.join(", ")
    }
}
