//! Collections, and queueing transactions to them.

use std::ffi::{c_int, c_void};

use super::store::{StoreHandle, store};
use super::values::{Cid, cid};
use super::{Context, Failure, Outcome, give, guard, guard_unit, handle, handle_mut, take_back};
use crate::sync::SharedArc;
use crate::{Callback, Collection, ObjectStore, Transaction};

/// `esker_coll`.
pub struct CollectionHandle {
    pub(super) store: SharedArc<ObjectStore>,
    pub(super) collection: Collection,
}

/// The collection behind a pointer.
///
/// # Safety
/// Null, or of a live handle.
pub(super) unsafe fn collection<'a>(
    from: *const CollectionHandle,
) -> Outcome<(&'a SharedArc<ObjectStore>, &'a Collection)> {
    // SAFETY: the caller's promise.
    let handle = unsafe { handle(from) }?;
    Ok((&handle.store, &handle.collection))
}

/// `esker_done_fn`.
pub(super) type Done = Option<unsafe extern "C" fn(*mut c_void, c_int)>;

/// A callback of C as one of Rust.
fn callback(done: Done, context: *mut c_void) -> Option<Callback> {
    let done = done?;
    let context = Context(context);
    Some(Box::new(move |result: crate::Result<()>| {
        // The whole of it, which may be sent, and not only the pointer in it.
        let context = context;
        let errno = result.map_or_else(|error| error.errno(), |()| 0);
        // SAFETY: esker.h, convention 7.
        unsafe { done(context.0, errno) };
    }))
}

/// What both forms of queueing end in.
pub(super) fn queue(
    from: &CollectionHandle,
    transactions: &[Transaction<'_>],
    on_applied: Done,
    on_commit: Done,
    context: *mut c_void,
) -> Outcome<()> {
    let on_applied = callback(on_applied, context);
    let on_commit = callback(on_commit, context);
    let store = &from.store;
    Ok(store.queue_transactions(&from.collection, transactions, on_applied, on_commit)?)
}

/// Refuses a collection of another store.
///
/// # Safety
/// Null, or of live handles.
pub(super) unsafe fn both<'a>(
    from: *const StoreHandle,
    coll: *const CollectionHandle,
) -> Outcome<&'a CollectionHandle> {
    // SAFETY: the caller's promise.
    let (store, coll) = unsafe { (store(from)?, handle(coll)?) };
    if SharedArc::ptr_eq(store, &coll.store) {
        Ok(coll)
    } else {
        Err(Failure::invalid("the collection is of another store"))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_create(
    from: *const StoreHandle,
    name: *const Cid,
    to: *mut *mut CollectionHandle,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 3 and 5.
        let (store, name) = unsafe { (store(from)?, cid(name)?) };
        Ok(CollectionHandle {
            store: store.clone(),
            collection: store.create_new_collection(name),
        })
    };
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_open(
    from: *const StoreHandle,
    name: *const Cid,
    to: *mut *mut CollectionHandle,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 3 and 5.
        let (store, name) = unsafe { (store(from)?, cid(name)?) };
        let collection = store.open_collection(&name);
        Ok(CollectionHandle {
            store: store.clone(),
            collection: collection.ok_or(crate::Error::NoEntry("collection"))?,
        })
    };
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_close(coll: *mut CollectionHandle) {
    // SAFETY: esker.h, convention 5.
    unsafe { take_back(coll) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_cid(coll: *const CollectionHandle, to: *mut Cid) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let ((_, collection), to) = unsafe { (collection(coll)?, handle_mut(to)?) };
        *to = Cid::of(&collection.name());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_exists(from: *const StoreHandle, name: *const Cid) -> c_int {
    guard(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let (store, name) = unsafe { (store(from)?, cid(name)?) };
        Ok(store.collection_exists(&name).into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_empty(coll: *const CollectionHandle) -> c_int {
    guard(|| {
        // SAFETY: esker.h, convention 5.
        let (store, collection) = unsafe { collection(coll) }?;
        Ok(store.collection_empty(collection)?.into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_bits(coll: *const CollectionHandle) -> c_int {
    guard(|| {
        // SAFETY: esker.h, convention 5.
        let (store, collection) = unsafe { collection(coll) }?;
        Ok(store.collection_bits(collection)? as c_int)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_list(
    from: *const StoreHandle,
    visit: Option<unsafe extern "C" fn(*mut c_void, *const Cid)>,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, convention 5.
        let store = unsafe { store(from) }?;
        let visit = visit.ok_or(Failure::invalid("no visitor"))?;
        for name in store.list_collections() {
            // SAFETY: esker.h, convention 6.
            unsafe { visit(context, &Cid::of(&name)) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_flush(coll: *const CollectionHandle) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, convention 5.
        let (store, collection) = unsafe { collection(coll) }?;
        store.flush(collection);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_coll_flush_commit(
    coll: *const CollectionHandle,
    done: Done,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: esker.h, convention 5.
        let (store, collection) = unsafe { collection(coll) }?;
        let done = callback(done, context).ok_or(Failure::invalid("no callback"))?;
        Ok(store.flush_commit(collection, done).into())
    })
}
