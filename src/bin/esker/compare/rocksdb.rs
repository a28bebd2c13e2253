//! RocksDB through its C API: the few calls the benchmark needs, bound by hand.
//!
//! All unsafe code of the binary is in this file. Options are set as text, the same text the
//! report shows, so the report cannot tell another story than the run.
#![expect(unsafe_code, reason = "RocksDB is reached through its C API")]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::bench::arguments::{DurabilityName, RunArguments};
use crate::bench::engine::{Counters, Engine, Observed, allocated_bytes};

/// Declarations of `rocksdb/c.h`, version 7.8; they have not changed since 5.x.
mod c {
    use super::{c_char, c_int, c_uchar, c_void};

    macro_rules! opaque {
        ($($name:ident),*) => { $(
            #[repr(C)]
            pub struct $name { _private: [u8; 0] }
        )* };
    }
    opaque!(
        Db,
        Options,
        WriteOptions,
        ReadOptions,
        FlushOptions,
        PinnableSlice
    );

    #[link(name = "rocksdb")]
    unsafe extern "C" {
        pub fn rocksdb_options_create() -> *mut Options;
        pub fn rocksdb_options_destroy(options: *mut Options);
        pub fn rocksdb_get_options_from_string(
            base: *const Options,
            text: *const c_char,
            target: *mut Options,
            error: *mut *mut c_char,
        );
        pub fn rocksdb_open(
            options: *const Options,
            name: *const c_char,
            error: *mut *mut c_char,
        ) -> *mut Db;
        pub fn rocksdb_close(db: *mut Db);
        pub fn rocksdb_writeoptions_create() -> *mut WriteOptions;
        pub fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, sync: c_uchar);
        pub fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
        pub fn rocksdb_readoptions_create() -> *mut ReadOptions;
        pub fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
        pub fn rocksdb_put(
            db: *mut Db,
            options: *const WriteOptions,
            key: *const c_char,
            key_len: usize,
            value: *const c_char,
            value_len: usize,
            error: *mut *mut c_char,
        );
        pub fn rocksdb_get_pinned(
            db: *mut Db,
            options: *const ReadOptions,
            key: *const c_char,
            key_len: usize,
            error: *mut *mut c_char,
        ) -> *mut PinnableSlice;
        pub fn rocksdb_pinnableslice_value(
            slice: *const PinnableSlice,
            len: *mut usize,
        ) -> *const c_char;
        pub fn rocksdb_pinnableslice_destroy(slice: *mut PinnableSlice);
        pub fn rocksdb_property_int(db: *mut Db, name: *const c_char, value: *mut u64) -> c_int;
        pub fn rocksdb_flushoptions_create() -> *mut FlushOptions;
        pub fn rocksdb_flushoptions_set_wait(options: *mut FlushOptions, wait: c_uchar);
        pub fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
        pub fn rocksdb_flush(db: *mut Db, options: *const FlushOptions, error: *mut *mut c_char);
        pub fn rocksdb_free(pointer: *mut c_void);
    }
}

/// How RocksDB keeps its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Style {
    /// Leveled compaction, the default: least space.
    Leveled,
    /// Universal compaction: fewer writes, more space.
    Universal,
    /// Leveled compaction of keys, values in blob files.
    BlobDb,
}

impl Style {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Leveled, Self::Universal, Self::BlobDb];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveled => "rocksdb leveled",
            Self::Universal => "rocksdb universal",
            Self::BlobDb => "rocksdb blobdb",
        }
    }
}

/// Options for this style and workload, as RocksDB's own option text.
fn options_of(style: Style, arguments: &RunArguments) -> Vec<(String, String)> {
    // RocksDB's own sizes from 1 GiB of data on. A smaller run stands for a larger one, so it
    // gets a tree of the same shape: with buffers as large as the data there would be no
    // tree, and the log and buffers alone would be several times the data.
    let data_bytes = arguments.user_bytes();
    let write_buffer_bytes = (data_bytes / 16).clamp(8 << 20, 64 << 20);
    // Debt is bounded by what is worth compacting: a quarter of the data slows writers, all
    // of it stops them. The floor lets a level fill.
    let soft_bytes = (data_bytes / 4).max(4 * write_buffer_bytes);
    let mut options = vec![
        ("create_if_missing", "true".to_owned()),
        ("compression", "kNoCompression".to_owned()),
        ("use_direct_reads", "true".to_owned()),
        ("use_direct_io_for_flush_and_compaction", "true".to_owned()),
        // One flush and two compactions at a time.
        ("max_background_jobs", "3".to_owned()),
        ("write_buffer_size", write_buffer_bytes.to_string()),
        ("max_write_buffer_number", "4".to_owned()),
        ("target_file_size_base", write_buffer_bytes.to_string()),
        (
            "max_bytes_for_level_base",
            (4 * write_buffer_bytes).to_string(),
        ),
        (
            "soft_pending_compaction_bytes_limit",
            soft_bytes.to_string(),
        ),
        (
            "hard_pending_compaction_bytes_limit",
            (soft_bytes * 4).to_string(),
        ),
        // Unsynced log reaches flash soon, as a buffered write of Esker does.
        ("wal_bytes_per_sync", (1 << 20).to_string()),
        (
            "block_based_table_factory",
            format!(
                "{{block_cache={};filter_policy=bloomfilter:10:false}}",
                arguments.cache_bytes
            ),
        ),
    ];
    match style {
        Style::Leveled => {}
        Style::Universal => {
            options.push(("compaction_style", "kCompactionStyleUniversal".to_owned()));
        }
        Style::BlobDb => options.extend([
            ("enable_blob_files", "true".to_owned()),
            // Values that are hardly larger than their keys stay in the tree.
            ("min_blob_size", "64".to_owned()),
            ("blob_file_size", (4 * write_buffer_bytes).to_string()),
            ("blob_compression_type", "kNoCompression".to_owned()),
            ("enable_blob_garbage_collection", "true".to_owned()),
            ("blob_garbage_collection_age_cutoff", "0.25".to_owned()),
        ]),
    }
    options
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// An open database.
pub struct RocksDb {
    db: NonNull<c::Db>,
    write_options: NonNull<c::WriteOptions>,
    read_options: NonNull<c::ReadOptions>,
    directory: PathBuf,
    options: Vec<(String, String)>,
    interrupted: &'static AtomicBool,
}

// SAFETY: RocksDB's DB object, and its option objects once no longer changed, may be used by
// many threads at a time (rocksdb/db.h: "The DB class is thread-safe"); nothing here changes
// them after `open`.
unsafe impl Sync for RocksDb {}

/// Takes over an error that a call reported through its last argument.
fn take_error(error: *mut c_char) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a non-null error is a NUL-terminated string that the caller owns.
    let text = unsafe { CStr::from_ptr(error) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: the string was allocated by RocksDB and is not used after this.
    unsafe { c::rocksdb_free(error.cast()) };
    Err(text)
}

/// A pointer that RocksDB never returns as null.
fn non_null<T>(pointer: *mut T) -> Result<NonNull<T>, String> {
    NonNull::new(pointer).ok_or_else(|| "RocksDB returned a null pointer".to_owned())
}

impl RocksDb {
    /// Makes a database in `directory`.
    pub fn open(
        directory: &Path,
        style: Style,
        arguments: &RunArguments,
        interrupted: &'static AtomicBool,
    ) -> Result<Self, String> {
        let options = options_of(style, arguments);
        let text: Vec<String> = options.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let text = CString::new(text.join(";")).map_err(|error| error.to_string())?;
        let name = directory.as_os_str().as_bytes();
        let name = CString::new(name).map_err(|error| error.to_string())?;

        // SAFETY: takes nothing; the result is destroyed below.
        let base = non_null(unsafe { c::rocksdb_options_create() })?;
        // SAFETY: as above.
        let parsed = non_null(unsafe { c::rocksdb_options_create() })?;
        let mut error = null_mut();
        // SAFETY: both options live until destroyed below, the text is NUL-terminated and
        // lives through the call, and `error` is null as the API demands.
        unsafe {
            c::rocksdb_get_options_from_string(
                base.as_ptr(),
                text.as_ptr(),
                parsed.as_ptr(),
                &raw mut error,
            );
        }
        let db = take_error(error).and_then(|()| {
            let mut error = null_mut();
            // SAFETY: as above; RocksDB copies the options it needs.
            let db = unsafe { c::rocksdb_open(parsed.as_ptr(), name.as_ptr(), &raw mut error) };
            take_error(error).and_then(|()| non_null(db))
        });
        // SAFETY: created above, not used after this.
        unsafe { c::rocksdb_options_destroy(base.as_ptr()) };
        // SAFETY: as above.
        unsafe { c::rocksdb_options_destroy(parsed.as_ptr()) };
        let db = db?;

        // SAFETY: takes nothing; destroyed when `self` is dropped.
        let write_options = non_null(unsafe { c::rocksdb_writeoptions_create() })?;
        let sync = c_uchar::from(arguments.durability == DurabilityName::Committed);
        // SAFETY: just created, not shared yet.
        unsafe { c::rocksdb_writeoptions_set_sync(write_options.as_ptr(), sync) };
        // SAFETY: takes nothing; destroyed when `self` is dropped.
        let read_options = non_null(unsafe { c::rocksdb_readoptions_create() })?;
        let mut options = options;
        options.push(("sync".to_owned(), (sync != 0).to_string()));
        Ok(Self {
            db,
            write_options,
            read_options,
            directory: directory.to_owned(),
            options,
            interrupted,
        })
    }

    /// The options as set.
    pub fn options(&self) -> &[(String, String)] {
        &self.options
    }

    /// The version of the library in this process, from the name of its file: the C API has
    /// no call for it.
    pub fn version() -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.lines()
            .find_map(|line| line.split_once("librocksdb.so."))
            .map_or_else(
                || "unknown".to_owned(),
                |(_, version)| version.trim().to_owned(),
            )
    }

    /// A number RocksDB tells about itself.
    fn property(&self, name: &CStr) -> u64 {
        let mut value = 0;
        // SAFETY: the database is open, the name NUL-terminated, the target valid.
        let known =
            unsafe { c::rocksdb_property_int(self.db.as_ptr(), name.as_ptr(), &raw mut value) };
        if known == 0 { value } else { 0 }
    }

    fn flush(&self) -> Result<(), String> {
        // SAFETY: takes nothing; destroyed below.
        let options = non_null(unsafe { c::rocksdb_flushoptions_create() })?;
        // SAFETY: just created, not shared.
        unsafe { c::rocksdb_flushoptions_set_wait(options.as_ptr(), 1) };
        let mut error = null_mut();
        // SAFETY: database and options are alive, `error` is null as the API demands.
        unsafe { c::rocksdb_flush(self.db.as_ptr(), options.as_ptr(), &raw mut error) };
        // SAFETY: created above, not used after this.
        unsafe { c::rocksdb_flushoptions_destroy(options.as_ptr()) };
        take_error(error)
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: `self` owns the database, and no other thread can use it any more.
        unsafe { c::rocksdb_close(self.db.as_ptr()) };
        // SAFETY: as above.
        unsafe { c::rocksdb_writeoptions_destroy(self.write_options.as_ptr()) };
        // SAFETY: as above.
        unsafe { c::rocksdb_readoptions_destroy(self.read_options.as_ptr()) };
    }
}

impl Engine for RocksDb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mut error = null_mut();
        // SAFETY: the pointers and lengths are those of live slices, which RocksDB copies;
        // `error` is null as the API demands.
        unsafe {
            c::rocksdb_put(
                self.db.as_ptr(),
                self.write_options.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        take_error(error)
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
        let mut error = null_mut();
        // SAFETY: as in `put`; the slice returned is destroyed below.
        let slice = unsafe {
            c::rocksdb_get_pinned(
                self.db.as_ptr(),
                self.read_options.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                &raw mut error,
            )
        };
        take_error(error)?;
        if slice.is_null() {
            look(None);
            return Ok(());
        }
        let mut len = 0;
        // SAFETY: the slice is alive.
        let bytes = unsafe { c::rocksdb_pinnableslice_value(slice, &raw mut len) };
        if len == 0 {
            // The pointer of an empty value may be null.
            look(Some(&[]));
        } else {
            // SAFETY: RocksDB keeps `len` bytes there until the slice is destroyed below.
            look(Some(unsafe {
                std::slice::from_raw_parts(bytes.cast(), len)
            }));
        }
        // SAFETY: obtained above, not used after this.
        unsafe { c::rocksdb_pinnableslice_destroy(slice) };
        Ok(())
    }

    fn settle(&self) -> Result<(), String> {
        const POLL: Duration = Duration::from_millis(20);
        /// A compaction that has ended may be followed by another one at once.
        const QUIET: Duration = Duration::from_millis(200);
        /// Universal compaction can say for ever that one is pending and then find nothing
        /// to do; one that can run is picked up within milliseconds.
        const QUIET_WITH_PENDING: Duration = Duration::from_secs(2);
        const LIMIT: Duration = Duration::from_secs(1800);
        self.flush()?;
        let started = Instant::now();
        let mut busy = Instant::now();
        while started.elapsed() < LIMIT {
            let running = self.property(c"rocksdb.num-running-compactions")
                + self.property(c"rocksdb.num-running-flushes");
            if running > 0 {
                busy = Instant::now();
            }
            let pending = self.property(c"rocksdb.compaction-pending")
                + self.property(c"rocksdb.mem-table-flush-pending")
                + self.property(c"rocksdb.estimate-pending-compaction-bytes");
            let enough = if pending == 0 {
                QUIET
            } else {
                QUIET_WITH_PENDING
            };
            if busy.elapsed() >= enough || self.interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err("compactions did not end within half an hour".into())
    }
}

impl Observed for RocksDb {
    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn space_bytes(&self) -> u64 {
        allocated_bytes(&self.directory).unwrap_or(0)
    }
}
