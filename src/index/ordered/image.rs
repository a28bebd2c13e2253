//! A leaf's bytes from media, checked: they may be anything.
//!
//! The form is the one in memory (`leaf.rs`) without slack, so a sound leaf takes no more
//! memory than its bytes and what any leaf does. Sound means what [`Leaf::search`] relies on:
//! keys ascend, and each shares with the one before all that it could.

use super::leaf::{ENTRIES_MAX, HEADER_BYTES, Leaf, VALUE_BYTES, number_at};
use crate::format::bytes::u32_at;
use crate::format::{Invalid, KEY_BYTES_MAX};

/// Decodes the leaf that `bytes` begin with, to follow `previous`.
///
/// # Errors
/// [`Invalid::Truncated`] when `bytes` end before it does, [`Invalid::Field`] when it is not
/// sound or does not follow.
pub(super) fn decode(bytes: &[u8], previous: Option<&Leaf>) -> Result<Leaf, Invalid> {
    let count = usize::from(*bytes.first().ok_or(Invalid::Truncated)?);
    if count == 0 || count > ENTRIES_MAX {
        return Err(Invalid::Field("entries of a leaf"));
    }
    let keys_bytes = u32_at(bytes, 1)? as usize;
    let rest = bytes.get(HEADER_BYTES..).ok_or(Invalid::Truncated)?;
    let (keys, rest) = rest
        .split_at_checked(keys_bytes)
        .ok_or(Invalid::Truncated)?;
    let values = rest.get(..VALUE_BYTES * count).ok_or(Invalid::Truncated)?;
    let first = check_keys(keys, count)?;
    if previous.is_some_and(|leaf| *leaf.last_key() >= *first) {
        return Err(Invalid::Field("order of leaves"));
    }
    Ok(Leaf::build(count, &[keys], &[values]))
}

/// Checks that `keys` are `count` sound entries and nothing else, and returns the first key.
fn check_keys(keys: &[u8], count: usize) -> Result<&[u8], Invalid> {
    let bad = Invalid::Field("keys of a leaf");
    let mut first: Option<&[u8]> = None;
    let mut key: Vec<u8> = Vec::new();
    let mut offset = 0;
    for _ in 0..count {
        let (shared, length_at) = number_at(keys, offset).ok_or(bad)?;
        let (length, start) = number_at(keys, length_at).ok_or(bad)?;
        if shared > key.len() || shared + length > KEY_BYTES_MAX {
            return Err(bad);
        }
        let suffix = keys.get(start..start + length).ok_or(bad)?;
        // Greater, and what is shared is all that the two have in common: the key before ends
        // there, or goes on with a lesser byte.
        let follows = match (key.get(shared), suffix.first()) {
            _ if first.is_none() => true,
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(after)) => before < after,
        };
        if !follows {
            return Err(bad);
        }
        first = first.or(Some(suffix));
        key.truncate(shared);
        key.extend_from_slice(suffix);
        offset = start + length;
    }
    if offset != keys.len() {
        return Err(bad);
    }
    first.ok_or(bad)
}
