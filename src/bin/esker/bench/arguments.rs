//! What to run: the arguments `bench` and `compare` share, checked before any effect.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::workload::{WRITERS_MAX, Workload, key_count_max};
use crate::failure::{Failure, Outcome};
use crate::size::{format_count, parse_count, parse_size};

/// The largest value a store takes.
const VALUE_BYTES_MAX: u64 = 64 << 20;
/// The largest key a store takes.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityName {
    /// A put returns when its bytes survive power loss.
    Committed,
    /// A put returns when it is readable; it is on flash soon after.
    Buffered,
}

/// The smallest store a benchmark makes, in bytes.
const CAPACITY_MIN: u64 = 32 << 20;

impl DurabilityName {
    /// As the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Buffered => "buffered",
        }
    }
}

/// The workload, the store's size and how to count.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct RunArguments {
    /// Number of keys: plain, 2^18 or with k, M (1000-based).
    #[arg(long, value_name = "N", default_value = "2^16", value_parser = parse_count)]
    pub keys: u64,

    /// Bytes of each value, 0 to 64M.
    #[arg(long, value_name = "B", default_value = "4K", value_parser = parse_size)]
    pub value_bytes: u64,

    /// Bytes of each key, 1 to 64K.
    #[arg(long, value_name = "B", default_value = "16", value_parser = parse_size)]
    pub key_bytes: u64,

    /// Operations of the measured part, all threads together.
    #[arg(long, value_name = "M", conflicts_with = "seconds", value_parser = parse_count)]
    pub ops: Option<u64>,

    /// Length of the measured part in seconds. With neither --ops nor --seconds the whole run
    /// takes about a minute, and the warm-up is cut short where the device needs more.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,

    /// Threads of the measured part.
    #[arg(long, value_name = "T", default_value_t = 4)]
    pub threads: u64,

    /// What is measured: fill (first puts), overwrite, randread, or mixed:R where R is the
    /// fraction of gets.
    #[arg(long, value_name = "NAME", default_value = "overwrite")]
    pub workload: Workload,

    /// Which keys: uniform, zipf:A (true Zipf of exponent A), or hot:F:P (a fraction F of the
    /// keys gets a fraction P of the operations).
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    pub distribution: Distribution,

    /// When a put returns.
    #[arg(long, value_enum, default_value = "buffered")]
    pub durability: DurabilityName,

    /// Sizes the store: bytes of all keys and values / capacity, over 0 and under 1.
    #[arg(long, value_name = "U", default_value_t = 0.8)]
    pub utilization: f64,

    /// Seed of keys, values and order.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Overwrites of the data set between load and measured part, with the distribution of
    /// the workload; 4 unless the workload is fill or randread. Counting write amplification
    /// sooner flatters any log: its cleaner has not started.
    #[arg(long, value_name = "X")]
    pub warmup: Option<f64>,

    /// Offers this many operations per second, whether or not they keep up, and measures each
    /// latency from when the operation should have started; without it each thread starts the
    /// next operation when the last one ends, which hides stalls.
    #[arg(long, value_name = "OPS", value_parser = parse_count)]
    pub rate: Option<u64>,

    /// DRAM for the record cache (block cache of the rivals), in bytes.
    #[arg(long, value_name = "B", default_value = "64M", value_parser = parse_size)]
    pub cache_bytes: u64,

    /// Bytes of log between two checkpoints of the same part of the index; the store chooses
    /// when not given.
    #[arg(long, value_name = "B", value_parser = parse_size)]
    pub checkpoint_interval: Option<u64>,

    /// Segment size in bytes, a power of two; the store chooses when not given.
    #[arg(long, value_name = "B", value_parser = parse_size)]
    pub segment_bytes: Option<u64>,

    /// Does not verify what is read.
    #[arg(long)]
    pub no_verify: bool,

    /// Counts device bytes by this block device's statistics, such as
    /// /sys/block/loop0/stat, and not by the process's own counters. Everything written to
    /// the device counts, so nothing else should use it.
    #[arg(long, value_name = "FILE")]
    pub device_stat: Option<PathBuf>,
}

impl RunArguments {
    /// Refuses what cannot be run, before anything is touched.
    pub fn check(&self) -> Outcome {
        let refuse = |message: String| Err(Failure::usage(message));
        if self.keys == 0 {
            return refuse("--keys must be at least 1".into());
        }
        if self.keys > 1 << 40 {
            return refuse("--keys must be at most 2^40".into());
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return refuse("--value-bytes must be at most 64M".into());
        }
        if self.key_bytes == 0 || self.key_bytes > KEY_BYTES_MAX {
            return refuse("--key-bytes must be from 1 to 64K".into());
        }
        if self.keys > key_count_max(self.key_bytes as usize) {
            return refuse(format!(
                "there are no {} different keys of {} bytes; raise --key-bytes",
                format_count(self.keys),
                self.key_bytes
            ));
        }
        if self.threads == 0 || self.threads > WRITERS_MAX {
            return refuse(format!("--threads must be from 1 to {WRITERS_MAX}"));
        }
        if !(self.utilization > 0.0 && self.utilization < 1.0) {
            return refuse("--utilization must be over 0 and under 1, as in 0.8".into());
        }
        if self.ops == Some(0) {
            return refuse("--ops must be at least 1".into());
        }
        if self.rate == Some(0) {
            return refuse("--rate must be at least 1 operation per second".into());
        }
        if !self.seconds.is_none_or(|s| s > 0.0 && s <= 1e7) {
            return refuse("--seconds must be over 0".into());
        }
        if !self.warmup.is_none_or(|x| (0.0..=1e6).contains(&x)) {
            return refuse("--warmup must be 0 or more overwrites of the data set".into());
        }
        if self.workload == Workload::Fill && self.warmup.is_some_and(|x| x > 0.0) {
            return refuse("--workload fill measures the first puts; it takes no --warmup".into());
        }
        if let Some(path) = &self.device_stat {
            super::measure::DeviceCounter::BlockDevice(path.clone()).read()?;
        }
        Ok(())
    }

    /// Bytes of key and value of one write.
    pub fn entry_bytes(&self) -> u64 {
        self.key_bytes + self.value_bytes
    }

    /// Bytes of keys and values of the whole data set.
    pub fn user_bytes(&self) -> u64 {
        self.keys.saturating_mul(self.entry_bytes())
    }

    /// The capacity at which the data set is the wanted fraction of the store; at least
    /// [`CAPACITY_MIN`], below which the store's own reserve is most of it.
    pub fn capacity(&self) -> u64 {
        let exact = (self.user_bytes() as f64 / self.utilization).ceil() as u64;
        exact.next_multiple_of(4096).max(CAPACITY_MIN)
    }

    /// Overwrites of the data set before the measured part.
    pub fn warmup_overwrites(&self) -> f64 {
        let default = match self.workload {
            Workload::Overwrite | Workload::Mixed(_) => 4.0,
            Workload::Fill | Workload::RandomRead => 0.0,
        };
        self.warmup.unwrap_or(default)
    }
}
