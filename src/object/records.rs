//! Operations of the object layer, as the log keeps them.
//!
//! ```text
//! key    operation u8 | family u64 | member u32        13 bytes
//! value  as below
//! ```
//! Collections have their name where nodes have family and member: in the value.

use crate::format::Invalid;
use crate::format::bytes::{u16_at, u32_at, u64_at};

use super::ObjectId;

/// Bytes of an operation's key.
pub(crate) const OPERATION_KEY_BYTES: usize = 13;
/// Bytes of an omap record's key before its form.
const OMAP_PREFIX_BYTES: usize = 12;
/// Forms of omap records: the whole value, or a part of a large one.
const WHOLE: u8 = 0;
const PART: u8 = 1;

/// What changed a node or a collection. Byte strings are borrowed from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// A new object, empty: its space and sort key.
    Create { name: &'a [u8] },
    /// A new object with the size, attributes, extents, hint and omap header of another
    /// member of its family. Omap values follow one by one.
    Clone { source: u32, name: &'a [u8] },
    /// The object is gone.
    Remove,
    /// The object has another name.
    Rename { name: &'a [u8] },
    /// The object has this many bytes.
    Resize { bytes: u64 },
    /// Blocks from `first` to before `end` are zero.
    Unmap { first: u32, end: u64 },
    /// Packed attributes that are set.
    SetAttributes { packed: &'a [u8] },
    /// A packed attribute of which this is more: the value is longer than one record has.
    ExtendAttribute { packed: &'a [u8] },
    /// Packed names (values empty) of attributes that are gone.
    RemoveAttributes { packed: &'a [u8] },
    /// No attributes are left.
    ClearAttributes,
    /// Packed keys (values empty) that are gone.
    OmapRemove { packed: &'a [u8] },
    /// Keys from `first` to before `last` are gone.
    OmapRemoveRange { first: &'a [u8], last: &'a [u8] },
    /// No keys and no header are left.
    OmapClear,
    /// The omap header.
    OmapHeader { header: &'a [u8] },
    /// More of the omap header.
    ExtendOmapHeader { header: &'a [u8] },
    /// What the caller expects of the object: see `set_alloc_hint`.
    Hint { bits: u64 },
    /// A collection is there, with these bits.
    CollectionSet { bits: u32, name: &'a [u8] },
    /// A collection is gone.
    CollectionRemove { name: &'a [u8] },
}

const CREATE: u8 = 1;
const CLONE: u8 = 2;
const REMOVE: u8 = 3;
const RENAME: u8 = 4;
const RESIZE: u8 = 5;
const UNMAP: u8 = 6;
const SET_ATTRIBUTES: u8 = 7;
const REMOVE_ATTRIBUTES: u8 = 8;
const CLEAR_ATTRIBUTES: u8 = 9;
const OMAP_REMOVE: u8 = 10;
const OMAP_REMOVE_RANGE: u8 = 11;
const OMAP_CLEAR: u8 = 12;
const OMAP_HEADER: u8 = 13;
const HINT: u8 = 14;
const COLLECTION_SET: u8 = 15;
const COLLECTION_REMOVE: u8 = 16;
const EXTEND_ATTRIBUTE: u8 = 17;
const EXTEND_OMAP_HEADER: u8 = 18;

/// The id of collections' operations.
const NO_OBJECT: ObjectId = ObjectId {
    family: 0,
    member: 0,
};

/// An operation's key and value.
pub(crate) struct EncodedOperation {
    pub(crate) key: [u8; OPERATION_KEY_BYTES],
    pub(crate) value: Vec<u8>,
}

impl Operation<'_> {
    /// Whether it is about a collection, not an object.
    pub(crate) fn is_of_collection(&self) -> bool {
        matches!(
            self,
            Self::CollectionSet { .. } | Self::CollectionRemove { .. }
        )
    }

    pub(crate) fn encode(&self, id: ObjectId) -> EncodedOperation {
        let mut value = Vec::new();
        let code = match self {
            Self::Create { name } => {
                value.extend_from_slice(name);
                CREATE
            }
            Self::Clone { source, name } => {
                value.extend_from_slice(&source.to_le_bytes());
                value.extend_from_slice(name);
                CLONE
            }
            Self::Remove => REMOVE,
            Self::Rename { name } => {
                value.extend_from_slice(name);
                RENAME
            }
            Self::Resize { bytes } => {
                value.extend_from_slice(&bytes.to_le_bytes());
                RESIZE
            }
            Self::Unmap { first, end } => {
                value.extend_from_slice(&first.to_le_bytes());
                value.extend_from_slice(&end.to_le_bytes());
                UNMAP
            }
            Self::SetAttributes { packed } => {
                value.extend_from_slice(packed);
                SET_ATTRIBUTES
            }
            Self::ExtendAttribute { packed } => {
                value.extend_from_slice(packed);
                EXTEND_ATTRIBUTE
            }
            Self::ExtendOmapHeader { header } => {
                value.extend_from_slice(header);
                EXTEND_OMAP_HEADER
            }
            Self::RemoveAttributes { packed } => {
                value.extend_from_slice(packed);
                REMOVE_ATTRIBUTES
            }
            Self::ClearAttributes => CLEAR_ATTRIBUTES,
            Self::OmapRemove { packed } => {
                value.extend_from_slice(packed);
                OMAP_REMOVE
            }
            Self::OmapRemoveRange { first, last } => {
                value.extend_from_slice(&(first.len() as u32).to_le_bytes());
                value.extend_from_slice(first);
                value.extend_from_slice(last);
                OMAP_REMOVE_RANGE
            }
            Self::OmapClear => OMAP_CLEAR,
            Self::OmapHeader { header } => {
                value.extend_from_slice(header);
                OMAP_HEADER
            }
            Self::Hint { bits } => {
                value.extend_from_slice(&bits.to_le_bytes());
                HINT
            }
            Self::CollectionSet { bits, name } => {
                value.extend_from_slice(&bits.to_le_bytes());
                value.extend_from_slice(name);
                COLLECTION_SET
            }
            Self::CollectionRemove { name } => {
                value.extend_from_slice(name);
                COLLECTION_REMOVE
            }
        };
        let id = if self.is_of_collection() {
            NO_OBJECT
        } else {
            id
        };
        let mut key = [code; OPERATION_KEY_BYTES];
        key[1..9].copy_from_slice(&id.family.to_le_bytes());
        key[9..].copy_from_slice(&id.member.to_le_bytes());
        EncodedOperation { key, value }
    }
}

/// Reads an operation and whom it concerns.
///
/// # Errors
/// Bytes that are no operation.
pub(crate) fn decode_operation<'a>(
    key: &[u8],
    value: &'a [u8],
) -> Result<(ObjectId, Operation<'a>), Invalid> {
    if key.len() != OPERATION_KEY_BYTES {
        return Err(Invalid::Field("key of an operation"));
    }
    let id = ObjectId {
        family: u64_at(key, 1)?,
        member: u32_at(key, 9)?,
    };
    let after = |bytes: usize| value.get(bytes..).ok_or(Invalid::Truncated);
    let operation = match key.first().copied().unwrap_or_default() {
        CREATE => Operation::Create { name: value },
        CLONE => Operation::Clone {
            source: u32_at(value, 0)?,
            name: after(4)?,
        },
        REMOVE => Operation::Remove,
        RENAME => Operation::Rename { name: value },
        RESIZE => Operation::Resize {
            bytes: u64_at(value, 0)?,
        },
        UNMAP => Operation::Unmap {
            first: u32_at(value, 0)?,
            end: u64_at(value, 4)?,
        },
        SET_ATTRIBUTES => Operation::SetAttributes { packed: value },
        EXTEND_ATTRIBUTE => Operation::ExtendAttribute { packed: value },
        EXTEND_OMAP_HEADER => Operation::ExtendOmapHeader { header: value },
        REMOVE_ATTRIBUTES => Operation::RemoveAttributes { packed: value },
        CLEAR_ATTRIBUTES => Operation::ClearAttributes,
        OMAP_REMOVE => Operation::OmapRemove { packed: value },
        OMAP_REMOVE_RANGE => {
            let first_bytes = u32_at(value, 0)? as usize;
            let rest = after(4)?;
            if first_bytes > rest.len() {
                return Err(Invalid::Truncated);
            }
            let (first, last) = rest.split_at(first_bytes);
            Operation::OmapRemoveRange { first, last }
        }
        OMAP_CLEAR => Operation::OmapClear,
        OMAP_HEADER => Operation::OmapHeader { header: value },
        HINT => Operation::Hint {
            bits: u64_at(value, 0)?,
        },
        COLLECTION_SET => Operation::CollectionSet {
            bits: u32_at(value, 0)?,
            name: after(4)?,
        },
        COLLECTION_REMOVE => Operation::CollectionRemove { name: value },
        _ => return Err(Invalid::Field("operation")),
    };
    Ok((id, operation))
}

/// What the key of an omap value's record says.
///
/// ```text
/// 0   family u64, member u32
/// 12  form u8: 0 the whole value, 1 a part of it
/// 13  of a part: its number u16 from 0, number of parts u16
///     omap key
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OmapRecord<'a> {
    pub(crate) id: ObjectId,
    /// Which part of the value it has, of how many: 0 of 1 if it has all.
    pub(crate) part: u16,
    pub(crate) parts: u16,
    pub(crate) key: &'a [u8],
}

impl<'a> OmapRecord<'a> {
    /// The record of a value that one record has all of.
    pub(crate) fn whole(id: ObjectId, key: &'a [u8]) -> Self {
        Self {
            id,
            part: 0,
            parts: 1,
            key,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(OMAP_PREFIX_BYTES + 5 + self.key.len());
        key.extend_from_slice(&self.id.family.to_le_bytes());
        key.extend_from_slice(&self.id.member.to_le_bytes());
        if self.parts == 1 {
            key.push(WHOLE);
        } else {
            key.push(PART);
            key.extend_from_slice(&self.part.to_le_bytes());
            key.extend_from_slice(&self.parts.to_le_bytes());
        }
        key.extend_from_slice(self.key);
        key
    }

    /// Reads the key of a record.
    ///
    /// # Errors
    /// Bytes that are no such key.
    pub(crate) fn decode(key: &'a [u8]) -> Result<Self, Invalid> {
        let id = ObjectId {
            family: u64_at(key, 0)?,
            member: u32_at(key, 8)?,
        };
        let (part, parts, key_at) = match key.get(OMAP_PREFIX_BYTES) {
            Some(&WHOLE) => (0, 1, OMAP_PREFIX_BYTES + 1),
            Some(&PART) => {
                let at = OMAP_PREFIX_BYTES + 1;
                (u16_at(key, at)?, u16_at(key, at + 2)?, at + 4)
            }
            _ => return Err(Invalid::Field("form of an omap value")),
        };
        if part >= parts || (parts == 1) != (key_at == OMAP_PREFIX_BYTES + 1) {
            return Err(Invalid::Field("part of an omap value"));
        }
        Ok(Self {
            id,
            part,
            parts,
            key: key.get(key_at..).ok_or(Invalid::Truncated)?,
        })
    }
}

/// Appends one packed key.
pub(crate) fn pack_key(key: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&(key.len() as u16).to_le_bytes());
    into.extend_from_slice(key);
}

/// Walks packed keys; stops where the bytes do not hold another.
pub(crate) struct PackedKeys<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for PackedKeys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::from(u16_at(self.0, 0).ok()?);
        let key = self.0.get(2..2 + bytes)?;
        self.0 = &self.0[2 + bytes..];
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_survive_encoding_and_cuts_do_not_panic() {
        let id = ObjectId {
            family: 0x0102_0304_0506_0708,
            member: 9,
        };
        let all = [
            Operation::Create { name: b"n" },
            Operation::Clone {
                source: 3,
                name: b"m",
            },
            Operation::Remove,
            Operation::Rename { name: b"" },
            Operation::Resize { bytes: 7 },
            Operation::Unmap {
                first: 1,
                end: 1 << 32,
            },
            Operation::SetAttributes { packed: b"p" },
            Operation::RemoveAttributes { packed: b"q" },
            Operation::ClearAttributes,
            Operation::OmapRemove { packed: b"k" },
            Operation::OmapRemoveRange {
                first: b"a",
                last: b"bb",
            },
            Operation::OmapClear,
            Operation::OmapHeader { header: b"h" },
            Operation::Hint { bits: 5 },
            Operation::ExtendAttribute { packed: b"r" },
            Operation::ExtendOmapHeader { header: b"g" },
        ];
        for operation in all {
            let encoded = operation.encode(id);
            assert_eq!(
                decode_operation(&encoded.key, &encoded.value),
                Ok((id, operation))
            );
            for len in 0..encoded.value.len() {
                let _ = decode_operation(&encoded.key, &encoded.value[..len]);
            }
        }
        let set = Operation::CollectionSet {
            bits: 3,
            name: b"meta",
        };
        let encoded = set.encode(NO_OBJECT);
        assert_eq!(
            decode_operation(&encoded.key, &encoded.value),
            Ok((NO_OBJECT, set))
        );
    }

    #[test]
    fn omap_keys_survive_encoding_and_cuts_do_not_panic() {
        let id = ObjectId {
            family: 7,
            member: 1,
        };
        for (part, parts) in [(0, 1), (0, 2), (1, 2), (600, 1024)] {
            let record = OmapRecord {
                id,
                part,
                parts,
                key: b"key",
            };
            let encoded = record.encode();
            assert_eq!(OmapRecord::decode(&encoded), Ok(record));
            for len in 0..encoded.len() {
                let _ = OmapRecord::decode(&encoded[..len]);
            }
        }
    }
}
