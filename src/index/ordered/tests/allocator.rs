//! The allocator of the library's tests: the system's, and it counts what each thread has in
//! use, so that tests can check what the engine says of its memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes in use that this thread allocated, less those it freed.
    static IN_USE: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread has in use, the allocator's own included.
pub(super) fn in_use() -> i64 {
    IN_USE.get()
}

/// Bytes of a piece: malloc adds a word and deals in 16 bytes, at least 32.
fn piece(layout: Layout) -> i64 {
    (layout.size() + 8).next_multiple_of(16).max(32) as i64
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call is handed on to the system's allocator as it came. Counting does not
// allocate: the cell needs no initialisation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.set(IN_USE.get() + piece(layout));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get() - piece(layout));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}
