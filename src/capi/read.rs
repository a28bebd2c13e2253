//! Reading objects: data, attributes, omap.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use super::collections::{CollectionHandle, collection};
use super::values::{Buf, Bytes, Oid, Range, array, array_mut, oid, strings};
use super::{Failure, Outcome, guard, guard_unit, guard64, handle_mut};
use crate::object::ObjectName;
use crate::{Collection, Extent, ObjectStore};

/// Where a read looks: the store, the collection, the object.
type Place<'a> = (&'a ObjectStore, &'a Collection, ObjectName);

/// # Safety
/// Null, or as `esker.h` has them.
pub(super) unsafe fn place<'a>(
    coll: *const CollectionHandle,
    object: *const Oid,
) -> Outcome<Place<'a>> {
    // SAFETY: the caller's promise.
    let ((store, collection), object) = unsafe { (collection(coll)?, oid(object)?) };
    Ok((store, collection, object))
}

/// Fills a buffer with what a read finds.
///
/// # Safety
/// As for [`place`]; `to` may be written.
unsafe fn fill(
    coll: *const CollectionHandle,
    object: *const Oid,
    to: *mut Buf,
    read: impl FnOnce(Place<'_>) -> Outcome<Vec<u8>>,
) -> c_int {
    guard_unit(|| {
        // SAFETY: the caller's promise.
        let (place, to) = unsafe { (place(coll, object)?, handle_mut(to)?) };
        to.begin();
        to.fill(read(place)?);
        Ok(())
    })
}

/// `esker_bytes_fn` and `esker_pair_fn`.
type Visit = Option<unsafe extern "C" fn(*mut c_void, *const Bytes)>;
type VisitPair = Option<unsafe extern "C" fn(*mut c_void, *const Bytes, *const Bytes)>;
type VisitRange = Option<unsafe extern "C" fn(*mut c_void, u64, u64)>;

const NO_VISITOR: Failure = Failure::Plain(rustix::io::Errno::INVAL, "no visitor");

fn show(visit: Visit, context: *mut c_void, all: &[Vec<u8>]) -> Outcome<()> {
    let visit = visit.ok_or(NO_VISITOR)?;
    for bytes in all {
        // SAFETY: esker.h, convention 6.
        unsafe { visit(context, &Bytes::of(bytes)) };
    }
    Ok(())
}

fn show_pairs(
    visit: VisitPair,
    context: *mut c_void,
    all: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Outcome<()> {
    let visit = visit.ok_or(NO_VISITOR)?;
    for (key, value) in all {
        // SAFETY: esker.h, convention 6.
        unsafe { visit(context, &Bytes::of(key), &Bytes::of(value)) };
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_exists(coll: *const CollectionHandle, object: *const Oid) -> c_int {
    guard(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (store, collection, object) = unsafe { place(coll, object) }?;
        Ok(store.exists(collection, &object)?.into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_stat(
    coll: *const CollectionHandle,
    object: *const Oid,
    size: *mut u64,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (place, size) = unsafe { (place(coll, object)?, handle_mut(size)?) };
        let (store, collection, object) = place;
        *size = store.stat(collection, &object)?.size;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_read(
    coll: *const CollectionHandle,
    object: *const Oid,
    offset: u64,
    len: u64,
    to: *mut Buf,
) -> c_int {
    let read =
        |(store, collection, object): Place<'_>| Ok(store.read(collection, &object, offset, len)?);
    // SAFETY: esker.h, conventions 2 to 5.
    unsafe { fill(coll, object, to, read) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_read_into(
    coll: *const CollectionHandle,
    object: *const Oid,
    offset: u64,
    to: *mut u8,
    len: usize,
) -> i64 {
    guard64(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let ((store, collection, object), to) =
            unsafe { (place(coll, object)?, array_mut(to, len)?) };
        Ok(store.read_into(collection, &object, offset, to)? as i64)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_readv(
    coll: *const CollectionHandle,
    object: *const Oid,
    ranges: *const Range,
    count: usize,
    to: *mut Buf,
) -> c_int {
    let read = |(store, collection, object): Place<'_>| {
        // SAFETY: esker.h, convention 3.
        let ranges = unsafe { array(ranges, count) }?;
        let extent = |range: &Range| Extent {
            offset: range.offset,
            len: range.len,
        };
        let ranges: Vec<_> = ranges.iter().map(extent).collect();
        Ok(store.readv(collection, &object, &ranges)?)
    };
    // SAFETY: esker.h, conventions 2 to 5.
    unsafe { fill(coll, object, to, read) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_fiemap(
    coll: *const CollectionHandle,
    object: *const Oid,
    offset: u64,
    len: u64,
    visit: VisitRange,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (store, collection, object) = unsafe { place(coll, object) }?;
        let visit = visit.ok_or(NO_VISITOR)?;
        for extent in store.fiemap(collection, &object, offset, len)? {
            // SAFETY: esker.h, convention 6.
            unsafe { visit(context, extent.offset, extent.len) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_getattr(
    coll: *const CollectionHandle,
    object: *const Oid,
    attr: Bytes,
    to: *mut Buf,
) -> c_int {
    let read = |(store, collection, object): Place<'_>| {
        // SAFETY: esker.h, convention 2.
        let attr = unsafe { attr.get() }?;
        Ok(store.getattr(collection, &object, attr)?)
    };
    // SAFETY: esker.h, conventions 2 to 5.
    unsafe { fill(coll, object, to, read) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_getattrs(
    coll: *const CollectionHandle,
    object: *const Oid,
    visit: VisitPair,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (store, collection, object) = unsafe { place(coll, object) }?;
        show_pairs(visit, context, &store.getattrs(collection, &object)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_omap_get(
    coll: *const CollectionHandle,
    object: *const Oid,
    header: *mut Buf,
    visit: VisitPair,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (place, to) = unsafe { (place(coll, object)?, handle_mut(header)?) };
        let (store, collection, object) = place;
        to.begin();
        let (header, entries) = store.omap_get(collection, &object)?;
        show_pairs(visit, context, &entries)?;
        to.fill(header);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_omap_get_header(
    coll: *const CollectionHandle,
    object: *const Oid,
    header: *mut Buf,
) -> c_int {
    let read =
        |(store, collection, object): Place<'_>| Ok(store.omap_get_header(collection, &object)?);
    // SAFETY: esker.h, conventions 2 to 5.
    unsafe { fill(coll, object, header, read) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_omap_get_keys(
    coll: *const CollectionHandle,
    object: *const Oid,
    visit: Visit,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (store, collection, object) = unsafe { place(coll, object) }?;
        show(visit, context, &store.omap_get_keys(collection, &object)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_omap_get_values(
    coll: *const CollectionHandle,
    object: *const Oid,
    keys: *const Bytes,
    count: usize,
    visit: VisitPair,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (place, keys) = unsafe { (place(coll, object)?, strings(keys, count)?) };
        let (store, collection, object) = place;
        let found = store.omap_get_values(collection, &object, keys)?;
        show_pairs(visit, context, &found)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_omap_check_keys(
    coll: *const CollectionHandle,
    object: *const Oid,
    keys: *const Bytes,
    count: usize,
    visit: Visit,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 to 5.
        let (place, keys) = unsafe { (place(coll, object)?, strings(keys, count)?) };
        let (store, collection, object) = place;
        let found = store.omap_check_keys(collection, &object, keys)?;
        show(visit, context, &found)
    })
}
