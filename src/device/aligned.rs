//! Byte buffers that direct I/O accepts.
//!
//! Promises: the bytes start at a multiple of [`AlignedBuf::ALIGN`]; every byte of the
//! capacity is initialised at all times, so that no length ever exposes undefined memory;
//! clearing keeps the allocation. Relies on the global allocator; like `Vec`, it aborts
//! the process when memory runs out. The one home of unsafe memory in the device layer.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A growable byte buffer that starts at a multiple of 4096.
///
/// It dereferences to the bytes up to its length.
pub struct AlignedBuf {
    /// `capacity` initialised bytes owned by this value; dangling while `capacity` is 0.
    bytes: NonNull<u8>,
    len: usize,
    /// 0 or a multiple of `ALIGN`.
    capacity: usize,
}

/// Gives the empty buffer an aligned address, too.
#[repr(align(4096))]
struct Page;

#[expect(unsafe_code, reason = "an owned allocation may move between threads")]
// SAFETY: the bytes are owned by this value alone and reached only through it.
unsafe impl Send for AlignedBuf {}
#[expect(unsafe_code, reason = "a shared reference only reads")]
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// What the address of the first byte is a multiple of: the largest logical block in
    /// use, and the page size.
    pub const ALIGN: usize = 4096;

    /// An empty buffer without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: NonNull::<Page>::dangling().cast(),
            len: 0,
            capacity: 0,
        }
    }

    /// An empty buffer with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buf = Self::new();
        buf.reserve(capacity);
        buf
    }

    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_capacity(len);
        buf.len = len;
        buf
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How long the buffer can become without a new allocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes the length 0 and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Shortens to `len`; does nothing if the buffer is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes room for `additional` bytes after the length.
    pub fn reserve(&mut self, additional: usize) {
        // A length near usize::MAX is no request that can be met: fail as Vec does.
        let needed = self.len.saturating_add(additional);
        if needed > self.capacity {
            // Doubling keeps appending linear.
            self.reallocate(needed.max(self.capacity.saturating_mul(2)));
        }
    }

    /// Makes the length `len`; what is added is zero.
    pub fn resize(&mut self, len: usize) {
        let old = self.len;
        self.resize_for_overwrite(len);
        if let Some(added) = self.get_mut(old..) {
            added.fill(0);
        }
    }

    /// Makes the length `len`; what is added holds zeros or bytes the buffer held before,
    /// and is to be overwritten, as by a read.
    pub fn resize_for_overwrite(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len));
        self.len = len;
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let old = self.len;
        self.resize_for_overwrite(old.saturating_add(bytes.len()));
        if let Some(added) = self.get_mut(old..) {
            added.copy_from_slice(bytes);
        }
    }

    /// Appends zeros until the length is a multiple of `block`, a power of two.
    pub fn pad_to(&mut self, block: usize) {
        assert!(
            block.is_power_of_two(),
            "padding to {block}, not a power of two"
        );
        self.resize(self.len.next_multiple_of(block));
    }

    fn layout(capacity: usize) -> Option<Layout> {
        Layout::from_size_align(capacity, Self::ALIGN).ok()
    }

    /// Moves the bytes into an allocation of at least `capacity` bytes.
    fn reallocate(&mut self, capacity: usize) {
        let layout = capacity
            .checked_next_multiple_of(Self::ALIGN)
            .and_then(Self::layout);
        let Some(layout) = layout else {
            panic!("buffer of {capacity} bytes: larger than the address space")
        };
        #[expect(unsafe_code, reason = "std has no safe aligned allocation")]
        // SAFETY: the size is not 0, since `reserve` asks for more than the capacity.
        let Some(bytes) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let mut grown = Self {
            bytes,
            len: self.len,
            capacity: layout.size(),
        };
        grown.copy_from_slice(self);
        *self = grown;
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        if let Some(layout) = Self::layout(self.capacity) {
            #[expect(unsafe_code, reason = "std has no safe aligned allocation")]
            // SAFETY: `bytes` was allocated by `reallocate` with this layout, and nothing
            // borrows from a value that is dropped.
            unsafe {
                dealloc(self.bytes.as_ptr(), layout);
            }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        #[expect(unsafe_code, reason = "a slice over the owned allocation")]
        // SAFETY: `len <= capacity`, all initialised, owned, and borrowed with `self`; a
        // dangling pointer goes with length 0.
        unsafe {
            std::slice::from_raw_parts(self.bytes.as_ptr(), self.len)
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        #[expect(unsafe_code, reason = "a slice over the owned allocation")]
        // SAFETY: as in `deref`, and `&mut self` makes it the only borrow.
        unsafe {
            std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len)
        }
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::new();
        buf.extend_from_slice(bytes);
        buf
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(buf: &AlignedBuf) -> bool {
        (buf.as_ptr() as usize).is_multiple_of(AlignedBuf::ALIGN)
    }

    #[test]
    fn every_growth_is_aligned_and_keeps_the_bytes() {
        let mut buf = AlignedBuf::new();
        let mut model = Vec::new();
        for i in 0..300_usize {
            let piece = vec![i as u8; i * 7 % 900];
            buf.extend_from_slice(&piece);
            model.extend_from_slice(&piece);
            assert!(is_aligned(&buf));
            assert!(buf.capacity() >= buf.len());
        }
        assert_eq!(&*buf, &*model);
        assert_eq!(&*buf.clone(), &*model);
    }

    #[test]
    fn resize_zeroes_what_clear_left_behind() {
        let mut buf = AlignedBuf::from(&[7; 10_000][..]);
        let capacity = buf.capacity();
        buf.clear();
        assert!(buf.is_empty());
        buf.resize(5_000);
        assert_eq!(buf.capacity(), capacity, "reuse takes no new memory");
        assert!(buf.iter().all(|&byte| byte == 0));
        buf.resize_for_overwrite(10_000);
        assert!(buf.iter().skip(5_000).all(|&byte| byte == 7));
        buf.truncate(3);
        assert_eq!(buf.len(), 3);
        buf.truncate(9);
        assert_eq!(buf.len(), 3);
    }

    #[test]
    fn padding_appends_zeros_up_to_the_block() {
        let mut buf = AlignedBuf::from(&[1; 513][..]);
        buf.pad_to(512);
        assert_eq!(buf.len(), 1024);
        assert!(buf.iter().skip(513).all(|&byte| byte == 0));
        buf.pad_to(512);
        assert_eq!(buf.len(), 1024);
    }

    #[test]
    fn an_empty_buffer_holds_no_memory() {
        let buf = AlignedBuf::default();
        assert_eq!((buf.len(), buf.capacity()), (0, 0));
        assert!(is_aligned(&buf));
        assert_eq!(AlignedBuf::zeroed(0).len(), 0);
    }
}
