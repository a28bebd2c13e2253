//! The plain data of `esker.h` and what it is in Rust.

use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::{Failure, Outcome, guard, guard_unit, handle, handle_mut};
use crate::object::{NO_SHARD, ObjectName};
use crate::sync::SharedArc;
use crate::{CollectionName, Value};

/// `esker_bytes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    data: *const u8,
    len: usize,
}

impl Bytes {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// # Safety
    /// The pointer and length are of memory that stays as it is for `'a`.
    pub(super) unsafe fn get<'a>(self) -> Outcome<&'a [u8]> {
        // SAFETY: the caller's promise.
        unsafe { array(self.data, self.len) }
    }
}

/// An array of a caller's: null is an empty one.
///
/// # Safety
/// `count` elements are there, and stay as they are for `'a`.
pub(super) unsafe fn array<'a, T>(data: *const T, count: usize) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if data.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid("a null pointer with a length"));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// Memory of a caller's to be written.
///
/// # Safety
/// `len` bytes are there, written before, and nobody else uses them for `'a`.
pub(super) unsafe fn array_mut<'a>(data: *mut u8, len: usize) -> Outcome<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if data.is_null() || len > isize::MAX as usize {
        return Err(Failure::invalid("a null pointer with a length"));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, len) })
}

/// An array of byte strings of a caller's.
///
/// # Safety
/// As for [`array`], and for what each of them points to.
pub(super) unsafe fn strings<'a>(data: *const Bytes, count: usize) -> Outcome<Vec<&'a [u8]>> {
    // SAFETY: the caller's promise, here and below.
    let all = unsafe { array(data, count) }?;
    // SAFETY: as the caller promises of each.
    all.iter().map(|bytes| unsafe { bytes.get() }).collect()
}

/// A path or the name of an option.
///
/// # Safety
/// Null, or a string that ends with NUL.
pub(super) unsafe fn text<'a>(from: *const c_char) -> Outcome<&'a CStr> {
    if from.is_null() {
        return Err(Failure::invalid("a null string"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(from) })
}

/// What a [`Buf`] keeps alive.
enum Owner {
    Bytes(#[expect(dead_code, reason = "kept alive")] Vec<u8>),
    Shared(#[expect(dead_code, reason = "kept alive")] Value),
}

/// `esker_buf`.
#[repr(C)]
pub struct Buf {
    data: *const u8,
    len: usize,
    owner: *mut c_void,
}

impl Buf {
    pub(super) fn fill(&mut self, bytes: Vec<u8>) {
        (self.data, self.len) = (bytes.as_ptr(), bytes.len());
        self.own(Owner::Bytes(bytes));
    }

    pub(super) fn fill_shared(&mut self, value: Value) {
        (self.data, self.len) = (value.as_ptr(), value.len());
        self.own(Owner::Shared(value));
    }

    fn own(&mut self, owner: Owner) {
        self.owner = Box::into_raw(Box::new(owner)).cast();
    }

    /// Forgets what an earlier call may have left, without freeing it.
    pub(super) fn begin(&mut self) {
        *self = Self {
            data: ptr::null(),
            len: 0,
            owner: ptr::null_mut(),
        };
    }

    pub(super) fn empty(&mut self) {
        let owner: *mut Owner = self.owner.cast();
        self.begin();
        if !owner.is_null() {
            // SAFETY: it came from `own`, and is given back once.
            drop(unsafe { Box::from_raw(owner) });
        }
    }
}

/// `esker_range`.
#[repr(C)]
pub struct Range {
    pub(super) offset: u64,
    pub(super) len: u64,
}

const META: u8 = 0;
const HEAD: u8 = 1;
const TEMP: u8 = 2;

/// `esker_cid`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Cid {
    pool: i64,
    seed: u32,
    shard: i8,
    kind: u8,
}

impl Cid {
    pub(super) fn of(name: &CollectionName) -> Self {
        match *name {
            CollectionName::Meta => Self {
                pool: 0,
                seed: 0,
                shard: NO_SHARD,
                kind: META,
            },
            CollectionName::Pg {
                pool,
                seed,
                shard,
                temp,
            } => Self {
                pool,
                seed,
                shard,
                kind: if temp { TEMP } else { HEAD },
            },
        }
    }

    pub(super) fn name(self) -> Outcome<CollectionName> {
        match self.kind {
            META => Ok(CollectionName::Meta),
            HEAD | TEMP if self.pool >= 0 && self.shard >= NO_SHARD => Ok(CollectionName::Pg {
                pool: self.pool,
                seed: self.seed,
                shard: self.shard,
                temp: self.kind == TEMP,
            }),
            _ => Err(Failure::invalid("not the name of a collection")),
        }
    }
}

/// The collection's name behind a pointer.
///
/// # Safety
/// Null, or of an `esker_cid`.
pub(super) unsafe fn cid(from: *const Cid) -> Outcome<CollectionName> {
    // SAFETY: the caller's promise.
    unsafe { handle(from) }?.name()
}

/// `esker_oid`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Oid {
    pool: i64,
    snap: u64,
    generation: u64,
    hash: u32,
    shard: i8,
    max: u8,
    nspace: Bytes,
    key: Bytes,
    name: Bytes,
}

impl Oid {
    pub(super) fn of(name: &ObjectName) -> Self {
        Self {
            pool: name.pool(),
            snap: name.snap(),
            generation: name.generation(),
            hash: name.hash(),
            shard: name.shard(),
            max: name.is_max().into(),
            nspace: Bytes::of(name.nspace()),
            key: Bytes::of(name.key()),
            name: Bytes::of(name.name()),
        }
    }

    /// # Safety
    /// What it points to is there.
    pub(super) unsafe fn name(&self) -> Outcome<ObjectName> {
        if self.max != 0 {
            return Ok(ObjectName::max());
        }
        // SAFETY: the caller's promise.
        let (nspace, key, name) =
            unsafe { (self.nspace.get()?, self.key.get()?, self.name.get()?) };
        Ok(ObjectName::new(self.pool, self.hash, name)
            .with_shard(self.shard)
            .with_nspace(nspace)
            .with_key(key)
            .with_snap(self.snap)
            .with_generation(self.generation))
    }
}

/// The object's name behind a pointer.
///
/// # Safety
/// Null, or of an `esker_oid` whose pointers are good.
pub(super) unsafe fn oid(from: *const Oid) -> Outcome<ObjectName> {
    // SAFETY: the caller's promise.
    unsafe { handle(from)?.name() }
}

/// As [`oid`], as transactions share it.
///
/// # Safety
/// As for [`oid`].
pub(super) unsafe fn shared_oid(from: *const Oid) -> Outcome<SharedArc<ObjectName>> {
    // SAFETY: the caller's promise.
    unsafe { oid(from) }.map(SharedArc::new)
}

/// `ESKER_CID_TEXT`.
const CID_TEXT: usize = 64;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_cid_parse(text: *const u8, len: usize, to: *mut Cid) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2 and 3.
        let (text, to) = unsafe { (array(text, len)?, handle_mut(to)?) };
        let text = str::from_utf8(text)
            .map_err(|_| Failure::invalid("not the text of a collection's name"))?;
        *to = Cid::of(&text.parse()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_cid_format(from: *const Cid, to: *mut [u8; CID_TEXT]) -> c_int {
    guard(|| {
        // SAFETY: esker.h, convention 3.
        let (name, to) = unsafe { (cid(from)?, handle_mut(to)?) };
        let text = name.to_string();
        // The longest has 19 digits, 8, 3 and a suffix of 5 and two signs.
        let target = to
            .get_mut(..=text.len())
            .ok_or(Failure::invalid("the name has no room"))?;
        let (target, end) = target.split_at_mut(text.len());
        target.copy_from_slice(text.as_bytes());
        end.fill(0);
        Ok(text.len() as c_int)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_oid_compare(a: *const Oid, b: *const Oid) -> c_int {
    guard(|| {
        // SAFETY: esker.h, conventions 2 and 3.
        let (a, b) = unsafe { (oid(a)?, oid(b)?) };
        Ok(match a.cmp(&b) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })
    })
}
