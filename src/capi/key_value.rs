//! Key-value entries.

use std::ffi::{c_int, c_void};
use std::mem;

use super::store::{StoreHandle, store};
use super::values::{Buf, Bytes};
use super::{Failure, give, guard, guard_unit, handle_mut, take_back};
use crate::{Batch, Cursor};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_put(from: *const StoreHandle, key: Bytes, value: Bytes) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 and 5.
        let (store, key, value) = unsafe { (store(from)?, key.get()?, value.get()?) };
        Ok(store.store().put(key, value)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_get(from: *const StoreHandle, key: Bytes, to: *mut Buf) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2, 3 and 5.
        let (store, key, to) = unsafe { (store(from)?, key.get()?, handle_mut(to)?) };
        to.begin();
        let value = store.store().get(key)?;
        let value = value.ok_or(Failure::Plain(rustix::io::Errno::NOENT, "no such key"))?;
        to.fill_shared(value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_contains(from: *const StoreHandle, key: Bytes) -> c_int {
    guard(|| {
        // SAFETY: esker.h, conventions 2 and 5.
        let (store, key) = unsafe { (store(from)?, key.get()?) };
        Ok(store.store().contains(key)?.into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_delete(from: *const StoreHandle, key: Bytes) -> c_int {
    guard(|| {
        // SAFETY: esker.h, conventions 2 and 5.
        let (store, key) = unsafe { (store(from)?, key.get()?) };
        Ok(store.store().delete(key)?.into())
    })
}

/// The cursor of a scan that has nothing left.
const AT_END: u64 = u64::MAX;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_scan(
    from: *const StoreHandle,
    cursor: *mut u64,
    max: u32,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const Bytes, *const Bytes)>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let (store, cursor) = unsafe { (store(from)?, handle_mut(cursor)?) };
        let visit = visit.ok_or(Failure::invalid("no visitor"))?;
        if *cursor == AT_END {
            return Ok(0);
        }
        let mut scan = store.store().scan_from(Cursor::from_bits(*cursor));
        let mut seen = 0;
        // To the end of a bucket: a cursor has no finer place.
        while seen < max || !scan.is_at_cursor() {
            let Some(entry) = scan.next() else { break };
            let (key, value) = entry?;
            // SAFETY: esker.h, convention 6.
            unsafe { visit(context, &Bytes::of(&key), &Bytes::of(&value)) };
            seen = seen.saturating_add(1);
        }
        *cursor = scan.cursor().to_bits().unwrap_or(AT_END);
        Ok((*cursor != AT_END).into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_new(to: *mut *mut Batch) -> c_int {
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, || Ok(Batch::new())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_put(batch: *mut Batch, key: Bytes, value: Bytes) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 and 8.
        let (batch, key, value) = unsafe { (handle_mut(batch)?, key.get()?, value.get()?) };
        batch.put(key, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_delete(batch: *mut Batch, key: Bytes) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 and 8.
        let (batch, key) = unsafe { (handle_mut(batch)?, key.get()?) };
        batch.delete(key);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_write(from: *const StoreHandle, batch: *mut Batch) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 5 and 8.
        let (store, batch) = unsafe { (store(from)?, handle_mut(batch)?) };
        Ok(store.store().write(mem::take(batch))?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_free(batch: *mut Batch) {
    // SAFETY: esker.h, convention 5.
    unsafe { take_back(batch) }
}
