//! Transactions built by calls, which own what they are given.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::slice;

use super::collections::{CollectionHandle, Done, both, queue};
use super::store::StoreHandle;
use super::values::{Bytes, Cid, Oid, cid, shared_oid, strings};
use super::{Failure, Outcome, give, guard_unit, guard64, handle, handle_mut, take_back};
use crate::object::ObjectName;
use crate::sync::SharedArc;
use crate::{CollectionName, Op, Transaction};

/// `esker_txn`.
pub type Built = Transaction<'static>;

type Name = SharedArc<ObjectName>;

/// Adds what `make` makes to a transaction.
///
/// # Safety
/// Null, or of a live handle that nobody else uses meanwhile.
unsafe fn add(txn: *mut Built, make: impl FnOnce() -> Outcome<Op<'static>>) -> c_int {
    guard_unit(|| {
        // SAFETY: the caller's promise.
        let txn = unsafe { handle_mut(txn) }?;
        txn.push(make()?);
        Ok(())
    })
}

/// The collection and the object that an operation is about.
///
/// # Safety
/// Null, or as `esker.h` has them.
unsafe fn place(collection: *const Cid, object: *const Oid) -> Outcome<(CollectionName, Name)> {
    // SAFETY: the caller's promise.
    unsafe { Ok((cid(collection)?, shared_oid(object)?)) }
}

/// # Safety
/// As for [`Bytes::get`].
unsafe fn own(bytes: Bytes) -> Outcome<Cow<'static, [u8]>> {
    // SAFETY: the caller's promise.
    Ok(Cow::Owned(unsafe { bytes.get() }?.to_vec()))
}

/// # Safety
/// As for [`strings`].
unsafe fn own_all(data: *const Bytes, count: usize) -> Outcome<Vec<Cow<'static, [u8]>>> {
    // SAFETY: the caller's promise.
    let all = unsafe { strings(data, count) }?;
    Ok(all
        .into_iter()
        .map(|bytes| Cow::Owned(bytes.to_vec()))
        .collect())
}

type Pair = (Cow<'static, [u8]>, Cow<'static, [u8]>);

/// # Safety
/// As for [`strings`], twice.
unsafe fn own_pairs(keys: *const Bytes, values: *const Bytes, count: usize) -> Outcome<Vec<Pair>> {
    // SAFETY: the caller's promise.
    let (keys, values) = unsafe { (own_all(keys, count)?, own_all(values, count)?) };
    Ok(keys.into_iter().zip(values).collect())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_new(to: *mut *mut Built) -> c_int {
    // SAFETY: esker.h, convention 3.
    unsafe { give(to, || Ok(Transaction::new())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_free(txn: *mut Built) {
    // SAFETY: esker.h, convention 5.
    unsafe { take_back(txn) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_clear(txn: *mut Built) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, convention 8.
        *unsafe { handle_mut(txn) }? = Transaction::new();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_ops(txn: *const Built) -> i64 {
    // SAFETY: esker.h, convention 8.
    guard64(|| Ok(unsafe { handle(txn) }?.ops().len() as i64))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_append(txn: *mut Built, from: *mut Built) -> c_int {
    guard_unit(|| {
        if txn == from {
            return Err(Failure::invalid("a transaction appended to itself"));
        }
        // SAFETY: esker.h, convention 8; they are two.
        let (txn, from) = unsafe { (handle_mut(txn)?, handle_mut(from)?) };
        txn.append(std::mem::take(from));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_nop(txn: *mut Built) -> c_int {
    // SAFETY: esker.h, convention 8.
    unsafe { add(txn, || Ok(Op::Nop)) }
}

/// Functions whose operation has a collection, an object, and what is in the last braces.
macro_rules! object_operations {
    ($($function:ident => $op:ident {
        $($argument:ident: $type:ty),*
    } { $($field:ident: $value:expr),* })*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(
            txn: *mut Built,
            collection: *const Cid,
            object: *const Oid,
            $($argument: $type),*
        ) -> c_int {
            let make = || {
                // SAFETY: esker.h, conventions 2 and 3, for the values below, too.
                let (collection, object) = unsafe { place(collection, object) }?;
                #[allow(unused_unsafe, reason = "some values are plain")]
                // SAFETY: as above.
                unsafe {
                    Ok(Op::$op { collection, object, $($field: $value),* })
                }
            };
            // SAFETY: esker.h, convention 8.
            unsafe { add(txn, make) }
        }
    )* };
}

object_operations! {
    esker_txn_create => Create {} {}
    esker_txn_touch => Touch {} {}
    esker_txn_write => Write { offset: u64, pieces: *const Bytes, count: usize } {
        offset: offset, data: own_all(pieces, count)?
    }
    esker_txn_zero => Zero { offset: u64, len: u64 } { offset: offset, len: len }
    esker_txn_truncate => Truncate { size: u64 } { size: size }
    esker_txn_remove => Remove {} {}
    esker_txn_setattr => SetAttrs { attr: Bytes, value: Bytes } {
        attrs: vec![(own(attr)?, own(value)?)]
    }
    esker_txn_setattrs => SetAttrs { attrs: *const Bytes, values: *const Bytes, count: usize } {
        attrs: own_pairs(attrs, values, count)?
    }
    esker_txn_rmattr => RmAttr { attr: Bytes } { attr: own(attr)? }
    esker_txn_rmattrs => RmAttrs {} {}
    esker_txn_omap_clear => OmapClear {} {}
    esker_txn_omap_setkeys => OmapSetKeys {
        keys: *const Bytes, values: *const Bytes, count: usize
    } { entries: own_pairs(keys, values, count)? }
    esker_txn_omap_rmkeys => OmapRmKeys { keys: *const Bytes, count: usize } {
        keys: own_all(keys, count)?
    }
    esker_txn_omap_rmkeyrange => OmapRmKeyRange { first: Bytes, last: Bytes } {
        first: own(first)?, last: own(last)?
    }
    esker_txn_omap_setheader => OmapSetHeader { header: Bytes } { header: own(header)? }
    esker_txn_set_alloc_hint => SetAllocHint {
        object_bytes: u64, write_bytes: u64, flags: u32
    } { object_bytes: object_bytes, write_bytes: write_bytes, flags: flags }
}

/// Functions whose operation has collections and numbers, and no object.
macro_rules! collection_operations {
    ($($function:ident => $op:ident {
        $($argument:ident: $type:ty),*
    } { $($field:ident: $value:expr),* })*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(
            txn: *mut Built,
            collection: *const Cid,
            $($argument: $type),*
        ) -> c_int {
            let make = || {
                // SAFETY: esker.h, conventions 2 and 3.
                unsafe {
                    Ok(Op::$op { collection: cid(collection)?, $($field: $value),* })
                }
            };
            // SAFETY: esker.h, convention 8.
            unsafe { add(txn, make) }
        }
    )* };
}

collection_operations! {
    esker_txn_create_collection => CreateCollection { bits: u32 } { bits: bits }
    esker_txn_remove_collection => RemoveCollection {} {}
    esker_txn_split_collection => SplitCollection {
        bits: u32, rem: u32, target: *const Cid
    } { bits: bits, rem: rem, target: cid(target)? }
    esker_txn_merge_collection => MergeCollection { target: *const Cid, bits: u32 } {
        target: cid(target)?, bits: bits
    }
    esker_txn_collection_set_bits => CollectionSetBits { bits: u32 } { bits: bits }
    esker_txn_collection_hint => CollectionHint { kind: u32, hint: Bytes } {
        kind: kind, hint: own(hint)?
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_clone(
    txn: *mut Built,
    collection: *const Cid,
    source: *const Oid,
    target: *const Oid,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 2 and 3.
        let (collection, source) = unsafe { place(collection, source) }?;
        Ok(Op::Clone {
            collection,
            source,
            // SAFETY: as above.
            target: unsafe { shared_oid(target) }?,
        })
    };
    // SAFETY: esker.h, convention 8.
    unsafe { add(txn, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_clone_range(
    txn: *mut Built,
    collection: *const Cid,
    source: *const Oid,
    target: *const Oid,
    source_offset: u64,
    len: u64,
    target_offset: u64,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 2 and 3.
        let (collection, source) = unsafe { place(collection, source) }?;
        Ok(Op::CloneRange {
            collection,
            source,
            // SAFETY: as above.
            target: unsafe { shared_oid(target) }?,
            source_offset,
            len,
            target_offset,
        })
    };
    // SAFETY: esker.h, convention 8.
    unsafe { add(txn, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_move_rename(
    txn: *mut Built,
    source_collection: *const Cid,
    source: *const Oid,
    collection: *const Cid,
    target: *const Oid,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 2 and 3.
        let (source_collection, source) = unsafe { place(source_collection, source) }?;
        // SAFETY: as above.
        let (collection, target) = unsafe { place(collection, target) }?;
        Ok(Op::CollectionMoveRename {
            source_collection,
            source,
            collection,
            target,
        })
    };
    // SAFETY: esker.h, convention 8.
    unsafe { add(txn, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_try_rename(
    txn: *mut Built,
    collection: *const Cid,
    source: *const Oid,
    target: *const Oid,
) -> c_int {
    let make = || {
        // SAFETY: esker.h, conventions 2 and 3.
        let (collection, source) = unsafe { place(collection, source) }?;
        Ok(Op::TryRename {
            collection,
            source,
            // SAFETY: as above.
            target: unsafe { shared_oid(target) }?,
        })
    };
    // SAFETY: esker.h, convention 8.
    unsafe { add(txn, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_queue(
    store: *const StoreHandle,
    coll: *const CollectionHandle,
    txn: *const Built,
    on_applied: Done,
    on_commit: Done,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let (coll, txn) = unsafe { (both(store, coll)?, handle(txn)?) };
        queue(coll, slice::from_ref(txn), on_applied, on_commit, context)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_apply(
    store: *const StoreHandle,
    coll: *const CollectionHandle,
    txn: *const Built,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 3 and 5.
        let (coll, txn) = unsafe { (both(store, coll)?, handle(txn)?) };
        let txns = slice::from_ref(txn);
        Ok(coll.store.apply_transactions(&coll.collection, txns)?)
    })
}
