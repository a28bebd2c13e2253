//! Little-endian integers in byte slices, checked.

use super::Invalid;

/// The `N` bytes at `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Invalid> {
    bytes
        .get(at..)
        .and_then(|tail| tail.first_chunk::<N>())
        .copied()
        .ok_or(Invalid::Truncated)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Invalid> {
    Ok(u16::from_le_bytes(array(bytes, at)?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Invalid> {
    Ok(u32::from_le_bytes(array(bytes, at)?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Invalid> {
    Ok(u64::from_le_bytes(array(bytes, at)?))
}

/// Writes fields one after another into a buffer that is known to be large enough.
pub(crate) struct FieldWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> FieldWriter<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn put(&mut self, field: &[u8]) -> &mut Self {
        let end = self.at + field.len();
        self.bytes[self.at..end].copy_from_slice(field);
        self.at = end;
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn written(&self) -> usize {
        self.at
    }
}
