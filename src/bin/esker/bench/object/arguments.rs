//! What to run on objects: the arguments, checked before any effect.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::image::OBJECT_BYTES;
use crate::bench::distribution::Distribution;
use crate::bench::measure::DeviceCounter;
use crate::failure::{Failure, Outcome};
use crate::size::{format_size, parse_count, parse_size};

/// Blocks of the object layer.
const BLOCK_BYTES: u64 = 4096;
/// The smallest store a benchmark makes, in bytes.
const CAPACITY_MIN: u64 = 32 << 20;

/// Fewer segments than this leave the cleaner little choice.
const SEGMENTS_MIN: u64 = 128;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Overwrites in an image of 4 MiB objects.
    RbdRandwrite,
    /// Reads of such an image.
    RbdRandread,
    /// Overwrites of such an image from its begin to its end.
    RbdSeqwrite,
    /// Whole objects of the size, made, and replaced once there are enough.
    RadosWrite,
}

impl Workload {
    /// As the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RbdRandwrite => "rbd-randwrite",
            Self::RbdRandread => "rbd-randread",
            Self::RbdSeqwrite => "rbd-seqwrite",
            Self::RadosWrite => "rados-write",
        }
    }
}

/// Under the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceName {
    /// The file or block device of --path.
    File,
    /// Memory: no latency, but nothing is left out.
    Memory,
    /// Nothing: writes are counted and dropped, so that what is left is CPU.
    Null,
}

/// Sizes of operations: a list of sizes and of doubling ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sizes(pub Vec<u64>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (mut size, last) = (parse_size(first)?, parse_size(last)?);
            for bound in [size, last] {
                if bound == 0 || !bound.is_multiple_of(BLOCK_BYTES) || bound > OBJECT_BYTES {
                    return Err("sizes are multiples of 4K from 4K to 4M".into());
                }
                if !OBJECT_BYTES.is_multiple_of(bound) {
                    return Err("an object of 4M must be whole operations, as with 4K, 64K".into());
                }
            }
            if size > last {
                return Err(format!("the range {part} ends before it begins"));
            }
            while size <= last {
                sizes.push(size);
                size *= 2;
            }
        }
        Ok(Self(sizes))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(|&size| format_size(size)).collect();
        f.write_str(&sizes.join(", "))
    }
}

/// The workload, the store's size and how to count.
#[derive(Debug, Clone, Args, Serialize)]
pub struct RunArguments {
    /// What is measured.
    #[arg(long, value_enum, default_value = "rbd-randwrite")]
    pub workload: Workload,

    /// Bytes of each operation: a list as in 4K,64K, and doubling ranges as in 4K..1M. Each
    /// size is a run of its own on the same store; more than one gives a table.
    #[arg(long, value_name = "SIZES", default_value = "4K")]
    pub sizes: Sizes,

    /// Transactions in flight, queued and not yet committed, all threads together; for
    /// rbd-randread, threads that read.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub depth: u64,

    /// Threads that queue transactions, each for placement groups of its own.
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: u64,

    /// Placement groups that the objects are spread over: a power of two.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub pgs: u64,

    /// Which parts of the image: uniform, zipf:A, or hot:F:P, over operations of the size;
    /// with several threads, each draws from its own objects.
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    pub distribution: Distribution,

    /// Size of the store.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub capacity: u64,

    /// Sizes the image: bytes of its data / capacity, over 0 and under 1.
    #[arg(long, value_name = "U", default_value_t = 0.7)]
    pub utilization: f64,

    /// Operations of the measured part of each size.
    #[arg(long, value_name = "M", conflicts_with = "seconds", value_parser = parse_count)]
    pub ops: Option<u64>,

    /// Length of the measured part of each size in seconds; 10 when --ops is not given.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,

    /// Overwrites of the image by the same operations before each measured part. The image is
    /// always written once. When not given: 1, cut to the length of the measured part.
    #[arg(long, value_name = "X")]
    pub warmup: Option<f64>,

    /// Seed of contents and order.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// What is under the store.
    #[arg(long, value_enum, default_value = "file")]
    pub device: DeviceName,

    /// Logical block of --device memory, in bytes.
    #[arg(long, value_name = "B", default_value = "512", value_parser = parse_size)]
    pub block_bytes: u64,

    /// Bytes of log between two checkpoints of the same nodes; the store chooses when not
    /// given.
    #[arg(long, value_name = "B", value_parser = parse_size)]
    pub checkpoint_interval: Option<u64>,

    /// Segment size in bytes, a power of two. When not given it is 4M if that makes 128
    /// segments, as in the large stores that this stands for, else what the store chooses.
    #[arg(long, value_name = "B", value_parser = parse_size)]
    pub segment_bytes: Option<u64>,

    /// Counts device bytes by this block device's statistics, such as
    /// /sys/block/loop0/stat, and not by the process's own counters.
    #[arg(long, value_name = "FILE")]
    pub device_stat: Option<PathBuf>,
}

impl RunArguments {
    /// Refuses what cannot be run, before anything is touched.
    pub fn check(&self) -> Outcome {
        let refuse = |message: &str| Err(Failure::usage(message));
        if self.depth == 0 || self.depth > 4096 {
            return refuse("--depth must be from 1 to 4096");
        }
        if !self.pgs.is_power_of_two() || self.pgs > 1 << 16 {
            return refuse("--pgs must be a power of two up to 65536, as in 32");
        }
        if self.threads == 0 || self.threads > self.depth || !self.pgs.is_multiple_of(self.threads)
        {
            return refuse("--threads must be at most --depth and divide --pgs");
        }
        if !(self.utilization > 0.0 && self.utilization < 1.0) {
            return refuse("--utilization must be over 0 and under 1, as in 0.7");
        }
        if self.capacity < CAPACITY_MIN || !self.capacity.is_multiple_of(BLOCK_BYTES) {
            return refuse("--capacity must be at least 32M and whole blocks of 4K");
        }
        if self.object_count(OBJECT_BYTES) < self.threads {
            return refuse("the image has fewer objects of 4M than threads; raise --capacity");
        }
        if self.ops == Some(0) {
            return refuse("--ops must be at least 1");
        }
        if !self.seconds.is_none_or(|s| s > 0.0 && s <= 1e7) {
            return refuse("--seconds must be over 0");
        }
        if !self.warmup.is_none_or(|x| (0.0..=1e6).contains(&x)) {
            return refuse("--warmup must be 0 or more overwrites of the image");
        }
        if self.device == DeviceName::Null && self.workload == Workload::RbdRandread {
            return refuse("--device null has nothing to read; use --device memory");
        }
        if self
            .segment_bytes
            .is_some_and(|bytes| !bytes.is_power_of_two())
        {
            return refuse("--segment-bytes must be a power of two, as in 4M");
        }
        if ![512, 4096].contains(&self.block_bytes) {
            return refuse("--block-bytes must be 512 or 4096");
        }
        if self.device != DeviceName::File && self.device_stat.is_some() {
            return refuse("--device-stat is of a block device, not of --device memory or null");
        }
        if let Some(path) = &self.device_stat {
            DeviceCounter::BlockDevice(path.clone()).read()?;
        }
        Ok(())
    }

    /// Objects of the image, of this size.
    pub fn object_count(&self, object_bytes: u64) -> u64 {
        (self.capacity as f64 * self.utilization / object_bytes as f64) as u64
    }

    /// Segment size to ask for, if any. Stores of a gigabyte have segments so small by
    /// themselves that an object does not fit in one, which no store of a disk's size has.
    pub fn wanted_segment_bytes(&self) -> Option<u64> {
        let is_enough = self.capacity / OBJECT_BYTES >= SEGMENTS_MIN;
        self.segment_bytes.or(is_enough.then_some(OBJECT_BYTES))
    }

    /// Length of the measured part, if it is no number of operations.
    pub fn limit_seconds(&self) -> Option<f64> {
        match self.ops {
            Some(_) => None,
            None => Some(self.seconds.unwrap_or(10.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_and_ranges() {
        let sizes = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(sizes("4K"), Ok(vec![4096]));
        assert_eq!(sizes("4K..16K,1M"), Ok(vec![4096, 8192, 16384, 1 << 20]));
        assert_eq!(sizes("4K..1M").map(|sizes| sizes.len()), Ok(9));
        for wrong in ["", "512", "5000", "8M", "16K..4K", "12K", "4K..", "0"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }
}
