//! Listings of the objects of a collection.

use std::ffi::c_int;

use super::collections::{CollectionHandle, collection};
use super::values::{Oid, oid};
use super::{Failure, Outcome, give, guard_unit, handle, handle_mut, take_back};
use crate::object::{ObjectName, Page};

/// A bound of a listing, or what no bound means.
///
/// # Safety
/// Null, or of an `esker_oid` whose pointers are good.
unsafe fn bound(from: *const Oid, otherwise: ObjectName) -> Outcome<ObjectName> {
    if from.is_null() {
        return Ok(otherwise);
    }
    // SAFETY: the caller's promise.
    unsafe { oid(from) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_list(
    coll: *const CollectionHandle,
    start: *const Oid,
    end: *const Oid,
    max: usize,
    to: *mut *mut Page,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 2, 3 and 5.
        let (store, collection) = unsafe { collection(coll) }?;
        // SAFETY: as above.
        let (start, end) = unsafe {
            (
                bound(start, ObjectName::min())?,
                bound(end, ObjectName::max())?,
            )
        };
        Ok(store.collection_list(collection, &start, &end, max)?)
    };
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_page_count(page: *const Page) -> usize {
    // SAFETY: esker.h, convention 8.
    unsafe { page.as_ref() }.map_or(0, |page| page.objects.len())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_page_oid(page: *const Page, at: usize, to: *mut Oid) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 8.
        let (page, to) = unsafe { (handle(page)?, handle_mut(to)?) };
        let object = page.objects.get(at);
        *to = Oid::of(object.ok_or(Failure::invalid("an object out of the page"))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_page_next(page: *const Page, to: *mut Oid) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 8.
        let (page, to) = unsafe { (handle(page)?, handle_mut(to)?) };
        *to = Oid::of(&page.next);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_page_free(page: *mut Page) {
    // SAFETY: esker.h, convention 5.
    unsafe { take_back(page) }
}
