//! Iterators over the omap of one object.

use std::ffi::c_int;

use super::collections::CollectionHandle;
use super::read::place;
use super::values::{Bytes, Oid};
use super::{Failure, Outcome, give, guard, guard_unit, handle, handle_mut, take_back};
use crate::sync::SharedArc;
use crate::{ObjectStore, OmapIterator};

/// `esker_iter`. The order of the fields is the order in which they are dropped.
pub struct IteratorHandle {
    /// Borrows from what `_store` points to, not for ever.
    iterator: OmapIterator<'static>,
    _store: SharedArc<ObjectStore>,
}

impl IteratorHandle {
    fn status(&self) -> Outcome<()> {
        self.iterator.status().map_err(|error| {
            // The iterator keeps the error; the caller gets what it amounts to.
            let errno = rustix::io::Errno::from_raw_os_error(-error.errno());
            Failure::Plain(errno, "an omap value cannot be read")
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_new(
    coll: *const CollectionHandle,
    object: *const Oid,
    to: *mut *mut IteratorHandle,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 2, 3 and 5.
        let ((_, collection, object), coll) = unsafe { (place(coll, object)?, handle(coll)?) };
        let store = coll.store.clone();
        // SAFETY: the handle owns a share of the store, which therefore neither moves nor
        // goes before the iterator does.
        let borrowed: &'static ObjectStore = unsafe { &*SharedArc::as_ptr(&store) };
        let handle = IteratorHandle {
            iterator: borrowed.omap_iterator(collection, &object)?,
            _store: store,
        };
        handle.status()?;
        Ok(handle)
    };
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, make) }
}

/// Moves an iterator and says what went wrong.
///
/// # Safety
/// Null, or of a live handle that nobody else uses meanwhile.
unsafe fn step(
    iter: *mut IteratorHandle,
    how: impl FnOnce(&mut OmapIterator<'static>) -> Outcome<()>,
) -> c_int {
    guard_unit(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle_mut(iter) }?;
        how(&mut handle.iterator)?;
        handle.status()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_seek_first(iter: *mut IteratorHandle) -> c_int {
    let how = |iterator: &mut OmapIterator<'static>| {
        iterator.seek_to_first();
        Ok(())
    };
    // SAFETY: esker.h, convention 8.
    unsafe { step(iter, how) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_lower_bound(iter: *mut IteratorHandle, key: Bytes) -> c_int {
    let how = |iterator: &mut OmapIterator<'static>| {
        // SAFETY: esker.h, convention 2.
        iterator.lower_bound(unsafe { key.get() }?);
        Ok(())
    };
    // SAFETY: esker.h, convention 8.
    unsafe { step(iter, how) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_upper_bound(iter: *mut IteratorHandle, key: Bytes) -> c_int {
    let how = |iterator: &mut OmapIterator<'static>| {
        // SAFETY: esker.h, convention 2.
        iterator.upper_bound(unsafe { key.get() }?);
        Ok(())
    };
    // SAFETY: esker.h, convention 8.
    unsafe { step(iter, how) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_next(iter: *mut IteratorHandle) -> c_int {
    let how = |iterator: &mut OmapIterator<'static>| {
        iterator.next();
        Ok(())
    };
    // SAFETY: esker.h, convention 8.
    unsafe { step(iter, how) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_valid(iter: *const IteratorHandle) -> c_int {
    // SAFETY: esker.h, convention 8.
    guard(|| Ok(unsafe { handle(iter) }?.iterator.valid().into()))
}

/// Gives out bytes of the entry that an iterator is at.
///
/// # Safety
/// Null, or of a live handle; `to` may be written.
unsafe fn entry(
    iter: *const IteratorHandle,
    to: *mut Bytes,
    which: fn(&'static OmapIterator<'static>) -> &'static [u8],
) -> c_int {
    guard_unit(|| {
        // SAFETY: the caller's promise, who knows how long the bytes are good.
        let (handle, to) = unsafe { (handle(iter)?, handle_mut(to)?) };
        if !handle.iterator.valid() {
            return Err(Failure::Plain(
                rustix::io::Errno::NOENT,
                "the iterator is at no entry",
            ));
        }
        *to = Bytes::of(which(&handle.iterator));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_key(iter: *const IteratorHandle, to: *mut Bytes) -> c_int {
    // SAFETY: esker.h, conventions 3 and 8.
    unsafe { entry(iter, to, |iterator| iterator.key()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_value(iter: *const IteratorHandle, to: *mut Bytes) -> c_int {
    // SAFETY: esker.h, conventions 3 and 8.
    unsafe { entry(iter, to, |iterator| iterator.value()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_free(iter: *mut IteratorHandle) {
    // SAFETY: esker.h, convention 5.
    unsafe { take_back(iter) }
}
