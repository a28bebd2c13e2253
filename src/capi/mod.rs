//! The C ABI: what `esker.h` declares, whose numbered conventions this module keeps.
//!
//! Every function runs in [`guard`] (or a sibling of it): nothing unwinds out of it, and a
//! failure is kept for `esker_last_error`. Structs that cross are plain data in
//! `values.rs`; handles are boxes.

#![allow(
    unsafe_code,
    reason = "pointers of a C caller cannot be checked, only believed"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "what a caller owes is said once, in esker.h"
)]

mod collections;
mod iterator;
mod key_value;
mod listing;
mod read;
mod store;
mod table;
mod transaction;
mod values;

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;
use values::Buf;

/// Why a call failed.
enum Failure {
    Store(Error),
    Plain(rustix::io::Errno, &'static str),
}

type Outcome<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    fn invalid(why: &'static str) -> Self {
        Self::Plain(rustix::io::Errno::INVAL, why)
    }

    fn errno(&self) -> c_int {
        match self {
            Self::Store(error) => error.errno(),
            Self::Plain(errno, _) => -errno.raw_os_error(),
        }
    }
}

thread_local! {
    /// Made into text only when it is asked for: "no such attribute" is an everyday answer.
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static LAST_TEXT: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs the body of a function that returns a count of 64 bits.
fn guard64(body: impl FnOnce() -> Outcome<i64>) -> i64 {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Failure::Plain(
        rustix::io::Errno::FAULT,
        "a defect of the library: it panicked",
    )));
    match outcome {
        Ok(result) => result,
        Err(failure) => {
            let errno = failure.errno();
            // Not there any more while the thread ends: then there is no one to ask.
            let _ = LAST.try_with(|last| last.replace(Some(failure)));
            i64::from(errno)
        }
    }
}

/// Runs the body of a function that returns an `int`.
fn guard(body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    guard64(|| body().map(i64::from)) as c_int
}

/// Runs the body of a function that returns 0.
fn guard_unit(body: impl FnOnce() -> Outcome<()>) -> c_int {
    guard(|| body().map(|()| 0))
}

/// Runs the body of a function that gives something back.
fn guard_free(body: impl FnOnce()) {
    guard_unit(|| {
        body();
        Ok(())
    });
}

/// The handle behind a pointer.
///
/// # Safety
/// The pointer is null, or of a live handle that nobody changes meanwhile.
unsafe fn handle<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Failure::invalid("a null handle or argument"))
}

/// The handle behind a pointer, to be changed.
///
/// # Safety
/// The pointer is null, or of a live handle that nobody else uses meanwhile.
unsafe fn handle_mut<'a, T>(pointer: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or(Failure::invalid("a null handle or argument"))
}

/// Gives a new handle out.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn give<T>(to: *mut *mut T, make: impl FnOnce() -> Outcome<T>) -> c_int {
    guard_unit(|| {
        // SAFETY: the caller's promise.
        let to = unsafe { handle_mut(to) }?;
        *to = Box::into_raw(Box::new(make()?));
        Ok(())
    })
}

/// Takes a handle back.
///
/// # Safety
/// `pointer` is null, or came from [`give`] and is not used again.
unsafe fn take_back<T>(pointer: *mut T) {
    guard_free(|| {
        if !pointer.is_null() {
            // SAFETY: the caller's promise; it is a box's.
            drop(unsafe { Box::from_raw(pointer) });
        }
    });
}

/// The context of a callback, handed to whichever thread makes it.
struct Context(*mut c_void);

// SAFETY: the library only carries it; esker.h tells the caller which thread gets it.
unsafe impl Send for Context {}

#[unsafe(no_mangle)]
pub extern "C" fn esker_abi() -> u32 {
    1
}

#[unsafe(no_mangle)]
pub extern "C" fn esker_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn esker_last_error() -> *const c_char {
    let mut text = c"".as_ptr();
    guard_free(|| {
        let message = LAST.with_borrow(|last| match last {
            None => String::new(),
            Some(Failure::Store(error)) => error.to_string(),
            Some(Failure::Plain(_, why)) => (*why).to_owned(),
        });
        let message = CString::new(message).unwrap_or_default();
        text = LAST_TEXT.with_borrow_mut(|kept| {
            *kept = message;
            kept.as_ptr()
        });
    });
    text
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_buf_free(buf: *mut Buf) {
    guard_free(|| {
        // SAFETY: esker.h, conventions 3 and 4.
        if let Some(buf) = unsafe { buf.as_mut() } {
            buf.empty();
        }
    });
}
