//! Counters outside the engine: device bytes, CPU, memory.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use esker::device::SimulatedDevice;
use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Failure, Outcome};

/// Where device bytes are counted.
#[derive(Clone)]
pub enum DeviceCounter {
    /// `write_bytes` of /proc/self/io: what this process made the storage layer write.
    Process,
    /// A block device's `stat` file: what reached the device, from anybody.
    BlockDevice(PathBuf),
    /// A simulated device's own counter.
    Simulated(Arc<SimulatedDevice>),
}

impl fmt::Debug for DeviceCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl DeviceCounter {
    /// The counter the arguments ask for.
    pub fn new(device_stat: Option<&PathBuf>) -> Self {
        device_stat.map_or(Self::Process, |path| Self::BlockDevice(path.clone()))
    }

    /// Bytes written so far.
    pub fn read(&self) -> Outcome<u64> {
        let (path, parse): (_, fn(&str) -> Option<u64>) = match self {
            Self::Process => (PathBuf::from("/proc/self/io"), parse_process_io),
            Self::BlockDevice(path) => (path.clone(), parse_device_stat),
            Self::Simulated(device) => return Ok(device.counters().write_bytes),
        };
        let text = fs::read_to_string(&path).map_err(|error| Failure::io("read", &path, error))?;
        parse(&text).ok_or_else(|| {
            Failure::usage(format!(
                "{} is no block device statistics file; give one such as /sys/block/vda/stat",
                path.display()
            ))
        })
    }

    /// Bytes written so far, after what the page cache still holds has been written.
    pub fn read_settled(&self) -> Outcome<u64> {
        if matches!(self, Self::BlockDevice(_)) {
            // Metadata of the file system counts too, once it is written.
            rustix::fs::sync();
        }
        self.read()
    }

    /// What is counted, for the report.
    pub fn describe(&self) -> String {
        match self {
            Self::Process => "write_bytes of /proc/self/io".into(),
            Self::BlockDevice(path) => format!("sectors written of {}", path.display()),
            Self::Simulated(_) => "bytes written to the simulated device".into(),
        }
    }
}

/// `write_bytes` of a /proc/PID/io file.
fn parse_process_io(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes:"))?;
    line.trim().parse().ok()
}

/// Bytes written of a block device's `stat` file: the seventh field counts sectors, always of
/// 512 bytes (Documentation/block/stat.rst of Linux).
fn parse_device_stat(text: &str) -> Option<u64> {
    let fields: Vec<u64> = text
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    // Kernels have written 11, 15 and 17 fields.
    if fields.len() < 11 {
        return None;
    }
    fields[6].checked_mul(512)
}

/// CPU time of the whole process, user and system, all threads, in microseconds.
pub fn cpu_us() -> f64 {
    clock_us(ClockId::ProcessCPUTime)
}

/// CPU time of this thread, user and system, in microseconds.
pub fn thread_cpu_us() -> f64 {
    clock_us(ClockId::ThreadCPUTime)
}

fn clock_us(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Resident memory of the process in bytes; 0 where it cannot be told.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_io_is_parsed() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 8192\n\
                    cancelled_write_bytes: 7\n";
        assert_eq!(parse_process_io(text), Some(8192));
        assert_eq!(parse_process_io("rchar: 1\n"), None);
    }

    #[test]
    fn device_stat_is_parsed() {
        let text = "     101        0     4242      10     2000     3000      160        5        \
                    0       20       15        0        0        0        0        0        0\n";
        assert_eq!(parse_device_stat(text), Some(160 * 512));
        let old = "1 2 3 4 5 6 7 8 9 10 11";
        assert_eq!(parse_device_stat(old), Some(7 * 512));
        for wrong in ["", "1 2 3 4 5 6 7", "a b c", "1 2 3 4 5 6 x 8 9 10 11"] {
            assert_eq!(parse_device_stat(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_can_be_measured() {
        assert!(DeviceCounter::Process.read().is_ok());
        assert!(cpu_us() > 0.0);
        assert!(resident_bytes() > 0);
    }
}
