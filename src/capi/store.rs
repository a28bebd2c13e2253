//! The store as a whole: options, create, open, close, statistics, check.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::values::{Buf, Bytes, text};
use super::{Failure, Outcome, give, guard, guard_unit, guard64, handle, handle_mut, take_back};
use crate::device::{FileDevice, FileOptions};
use crate::inspect::{self, CheckOptions, Severity};
use crate::sync::SharedArc;
use crate::{Durability, ObjectStore, Options, Statfs};

/// `esker_store`. Collections and iterators share it, so a close can tell that there are some.
pub struct StoreHandle {
    pub(super) store: SharedArc<ObjectStore>,
}

/// The store behind a pointer.
///
/// # Safety
/// Null, or of a live handle.
pub(super) unsafe fn store<'a>(from: *const StoreHandle) -> Outcome<&'a SharedArc<ObjectStore>> {
    // SAFETY: the caller's promise.
    Ok(&unsafe { handle(from) }?.store)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_new(to: *mut *mut Options) -> c_int {
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, || Ok(Options::default())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set(
    options: *mut Options,
    name: *const c_char,
    value: u64,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2, 3 and 8.
        let (options, name) = unsafe { (handle_mut(options)?, text(name)?) };
        match name.to_bytes() {
            b"capacity" => options.capacity = Some(value),
            b"segment_bytes" => options.segment_bytes = Some(value),
            b"cache_bytes" => options.cache_bytes = value,
            b"memory_limit" => options.memory_limit = Some(value),
            b"buffered" => {
                options.durability = match value {
                    0 => Durability::Committed,
                    _ => Durability::Buffered,
                }
            }
            b"read_only" => options.read_only = value != 0,
            b"discard_bytes_per_second" => options.discard_bytes_per_second = value,
            b"checkpoint_interval_bytes" => options.checkpoint_interval_bytes = Some(value),
            b"direct_io" => options.direct_io = value != 0,
            b"io_uring" => options.io_uring = value != 0,
            _ => return Err(Failure::invalid("no option of that name")),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_free(options: *mut Options) {
    // SAFETY: esker.h, convention 5.
    unsafe { take_back(options) }
}

/// # Safety
/// As `esker.h` says of `esker_create` and `esker_open`.
unsafe fn start(
    path: *const c_char,
    options: *const Options,
    to: *mut *mut StoreHandle,
    how: fn(&Path, &Options) -> crate::Result<ObjectStore>,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 2 and 3.
        let (path, options) = unsafe { (text(path)?, options.as_ref()) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let store = how(path, &options.cloned().unwrap_or_default())?;
        Ok(StoreHandle {
            store: SharedArc::new(store),
        })
    };
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_create(
    path: *const c_char,
    options: *const Options,
    to: *mut *mut StoreHandle,
) -> c_int {
    // SAFETY: as this function's caller was told.
    unsafe {
        start(path, options, to, |path, options| {
            ObjectStore::create(path, options)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_open(
    path: *const c_char,
    options: *const Options,
    to: *mut *mut StoreHandle,
) -> c_int {
    // SAFETY: as this function's caller was told.
    unsafe {
        start(path, options, to, |path, options| {
            ObjectStore::open(path, options)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_in_use(path: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: esker.h, convention 2.
        let path = unsafe { text(path) }?;
        let options = FileOptions {
            read_only: true,
            direct_io: false,
            io_uring: false,
        };
        match FileDevice::open(Path::new(OsStr::from_bytes(path.to_bytes())), &options) {
            Ok(_) => Ok(0),
            Err(crate::Error::InUse) => Ok(1),
            Err(error) => Err(error.into()),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_close(store: *mut StoreHandle) -> c_int {
    guard_unit(|| {
        if store.is_null() {
            return Ok(());
        }
        // SAFETY: esker.h, convention 5.
        if SharedArc::strong_count(unsafe { self::store(store) }?) > 1 {
            return Err(Failure::Plain(
                rustix::io::Errno::BUSY,
                "collections or iterators of the store are still open",
            ));
        }
        // SAFETY: it is a box's, and no other call is under way.
        let handle = unsafe { Box::from_raw(store) };
        match SharedArc::try_unwrap(handle.store) {
            Ok(store) => Ok(store.close()?),
            Err(_) => Err(Failure::invalid("the store was used while it was closed")),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_sync(from: *const StoreHandle) -> c_int {
    // SAFETY: esker.h, convention 5.
    guard_unit(|| Ok(unsafe { store(from) }?.store().sync()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_checkpoint(from: *const StoreHandle) -> c_int {
    // SAFETY: esker.h, convention 5.
    guard_unit(|| Ok(unsafe { store(from) }?.store().checkpoint()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_set_cache_bytes(from: *const StoreHandle, bytes: u64) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, convention 5.
        unsafe { store(from) }?.store().set_cache_bytes(bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_stats(from: *const StoreHandle, json: *mut Buf) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let (store, json) = unsafe { (store(from)?, handle_mut(json)?) };
        json.begin();
        let text = serde_json::to_vec(&store.store().stats())
            .map_err(|_| Failure::invalid("statistics that are no JSON"))?;
        json.fill(text);
        Ok(())
    })
}

const DEEP: u32 = 1;
const REPAIR: u32 = 2;

type Visit = Option<unsafe extern "C" fn(*mut c_void, *const Bytes)>;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_check(
    path: *const c_char,
    flags: u32,
    visit: Visit,
    context: *mut c_void,
) -> i64 {
    guard64(|| {
        if flags & !(DEEP | REPAIR) != 0 {
            return Err(Failure::invalid("unknown flags"));
        }
        // SAFETY: esker.h, convention 2.
        let path = unsafe { text(path) }?;
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let options = CheckOptions::default()
            .deep(flags & DEEP != 0)
            .repair(flags & REPAIR != 0);
        let report = inspect::check(path, &options, &mut |_| {})?;
        if let Some(visit) = visit {
            for finding in &report.findings {
                let severity = match finding.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                };
                let line = format!(
                    "{severity} at byte {}: {:?}: {}",
                    finding.offset, finding.structure, finding.detail
                );
                // SAFETY: esker.h, convention 6.
                unsafe { visit(context, &Bytes::of(line.as_bytes())) };
            }
        }
        Ok(report.errors as i64)
    })
}

/// `esker_statfs_t`.
#[repr(C)]
pub struct StatfsOut {
    total: u64,
    available: u64,
    internally_reserved: u64,
    allocated: u64,
    data_stored: u64,
    omap_allocated: u64,
    internal_metadata: u64,
    objects: u64,
}

impl From<Statfs> for StatfsOut {
    fn from(from: Statfs) -> Self {
        Self {
            total: from.total,
            available: from.available,
            internally_reserved: from.internally_reserved,
            allocated: from.allocated,
            data_stored: from.data_stored,
            omap_allocated: from.omap_allocated,
            internal_metadata: from.internal_metadata,
            objects: from.objects,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_statfs(from: *const StoreHandle, to: *mut StatfsOut) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let (store, to) = unsafe { (store(from)?, handle_mut(to)?) };
        *to = store.statfs().into();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_pool_statfs(
    from: *const StoreHandle,
    pool: i64,
    to: *mut StatfsOut,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let (store, to) = unsafe { (store(from)?, handle_mut(to)?) };
        *to = store.pool_statfs(pool).into();
        Ok(())
    })
}
