//! STAND-IN, to be replaced by `esker::inspect` once the engine has it: delete this file and
//! its `mod` line, and put `use esker::inspect;` into `info.rs`, `check.rs` and `dump.rs`.

use std::io::Write;
use std::path::Path;

use esker::{Error, Options, Result, Store};
use serde::Serialize;

/// What the superblock says.
#[derive(Debug, Serialize)]
pub struct Info {
    /// Identity of the store.
    pub uuid: String,
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
}

/// How to check.
#[derive(Debug, Default, Clone, Copy)]
pub struct CheckOptions {
    /// Repairs what can be repaired.
    pub repair: bool,
    /// Reads every record, not only the index.
    pub deep: bool,
}

/// How far a check is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes looked at.
    pub done_bytes: u64,
    /// Bytes to look at.
    pub total_bytes: u64,
}

/// What a check found.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// Records verified.
    pub records: u64,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// What to dump.
#[derive(Debug, Default, Clone, Copy)]
pub struct DumpOptions {
    /// Only this segment.
    pub segment: Option<u64>,
    /// Records too, not only segments.
    pub records: bool,
}

/// Reads the superblock; works on a damaged store.
pub fn info(path: &Path) -> Result<Info> {
    let store = Store::open(path, &Options::default().read_only(true))?;
    let stats = store.stats();
    Ok(Info {
        uuid: stats.uuid,
        capacity_bytes: stats.capacity_bytes,
        segment_bytes: stats.segment_bytes,
    })
}

/// Verifies a store.
pub fn check(
    path: &Path,
    options: CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport> {
    let store = Store::open(path, &Options::default().read_only(!options.repair))?;
    let mut records = 0;
    let total_bytes = store.stats().live_bytes;
    let mut done_bytes = 0;
    for item in store.scan().filter(|_| options.deep) {
        let (key, value) = item?;
        records += 1;
        done_bytes += (key.len() + value.len()) as u64;
        progress(Progress {
            done_bytes,
            total_bytes,
        });
    }
    Ok(CheckReport {
        records,
        problems: Vec::new(),
    })
}

/// Writes segments and records as text.
pub fn dump(path: &Path, options: DumpOptions, target: &mut dyn Write) -> Result<()> {
    let store = Store::open(path, &Options::default().read_only(true))?;
    let failed = |source| Error::Io {
        op: "write",
        offset: 0,
        source,
    };
    writeln!(target, "segments {:?}", store.stats().segments).map_err(failed)?;
    if options.records && options.segment.is_none() {
        for item in store.scan() {
            let (key, value) = item?;
            writeln!(
                target,
                "record key {} B, value {} B",
                key.len(),
                value.len()
            )
            .map_err(failed)?;
        }
    }
    Ok(())
}
