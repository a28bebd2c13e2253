//! What a transaction takes for bytes: borrowed where it can be.

use std::borrow::Cow;

/// Bytes that a transaction borrows or owns.
pub(super) type Bytes<'a> = Cow<'a, [u8]>;

/// What becomes the bytes of a transaction: borrowed from a slice or a string, or owned.
pub trait IntoBytes<'a> {
    /// The bytes.
    fn into_bytes(self) -> Cow<'a, [u8]>;
}

macro_rules! borrowed {
    ($($from:ty)*) => {$(
        impl<'a> IntoBytes<'a> for &'a $from {
            fn into_bytes(self) -> Bytes<'a> {
                Cow::Borrowed(self.as_ref())
            }
        }
    )*};
}

borrowed!([u8] str Vec<u8> String);

impl<'a, const N: usize> IntoBytes<'a> for &'a [u8; N] {
    fn into_bytes(self) -> Bytes<'a> {
        Cow::Borrowed(self)
    }
}

impl<'a, const N: usize> IntoBytes<'a> for [u8; N] {
    fn into_bytes(self) -> Bytes<'a> {
        Cow::Owned(self.into())
    }
}

impl<'a> IntoBytes<'a> for Vec<u8> {
    fn into_bytes(self) -> Bytes<'a> {
        Cow::Owned(self)
    }
}

impl<'a> IntoBytes<'a> for String {
    fn into_bytes(self) -> Bytes<'a> {
        Cow::Owned(Self::into_bytes(self))
    }
}

impl<'a> IntoBytes<'a> for Bytes<'a> {
    fn into_bytes(self) -> Self {
        self
    }
}
