//! Operations on objects and collections, in Ceph's names and numbers, and their limits.

use super::CollectionName;
use super::bytes::Bytes;
use super::name::{ObjectName, low_bits};
use crate::sync::SharedArc;
use crate::{Error, Result};

/// Largest size of an object in bytes: offset + length stays below `0xffff_ffff`, as in
/// BlueStore.
pub const OBJECT_BYTES_MAX: u64 = 0xffff_fffe;
/// Longest namespace, locator key or name of an object in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest name of an attribute in bytes.
pub const ATTR_NAME_BYTES_MAX: usize = 256;
/// Longest value of an attribute in bytes.
pub const ATTR_VALUE_BYTES_MAX: usize = 1 << 20;
/// Longest omap key in bytes.
pub const OMAP_KEY_BYTES_MAX: usize = 32 << 10;
/// Longest omap value or header in bytes.
pub const OMAP_VALUE_BYTES_MAX: usize = 16 << 20;

/// The name of an object in a transaction: cheap to clone.
pub(super) type Name = SharedArc<ObjectName>;

/// One operation. The numbers are Ceph's.
///
/// An operation on a collection that is not there is [`Error::NoEntry`]. What an operation
/// does on an absent object is said at each: *creates* it, is *ignored*, or is *refused*
/// with [`Error::NoEntry`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(u8)]
pub enum Op<'a> {
    /// Nothing.
    Nop = 0,
    /// Makes an object; does nothing if it exists.
    Create {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
    } = 7,
    /// Makes an object if there is none; changes nothing else.
    Touch {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
    } = 9,
    /// Writes data; creates. No data leaves the size as it is, else the object is extended
    /// as far as needed, and the gap reads as zeros.
    Write {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// First byte.
        offset: u64,
        /// The bytes, in pieces.
        data: Vec<Bytes<'a>>,
    } = 10,
    /// Makes a range zero, as writing zeros does; creates.
    Zero {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    } = 11,
    /// Sets the size; ignored on an absent object.
    Truncate {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// New size in bytes.
        size: u64,
    } = 12,
    /// Removes an object with all its parts; ignored on an absent one.
    Remove {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
    } = 13,
    /// Sets attributes; refused on an absent object.
    SetAttrs {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// Names and values; the last of one name wins.
        attrs: Vec<(Bytes<'a>, Bytes<'a>)>,
    } = 15,
    /// Removes an attribute, if it is there; refused on an absent object.
    RmAttr {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// Name of the attribute.
        attr: Bytes<'a>,
    } = 16,
    /// Makes the target a copy of the source in all parts; what it held is gone. Refused
    /// without a source.
    Clone {
        /// Where.
        collection: CollectionName,
        /// What is copied.
        source: Name,
        /// The copy; not the source.
        target: Name,
    } = 17,
    /// Makes a collection; [`Error::Exists`] if it is there.
    CreateCollection {
        /// Its name.
        collection: CollectionName,
        /// How many low bits of the hash its objects share.
        bits: u32,
    } = 20,
    /// Removes a collection; [`Error::NotEmpty`] if it has objects at that point.
    RemoveCollection {
        /// Which.
        collection: CollectionName,
    } = 21,
    /// Removes all attributes; ignored on an absent object.
    RmAttrs {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
    } = 28,
    /// Copies data, holes as zeros; creates the target. Refused without a source, and
    /// [`Error::InvalidArgument`] if the range goes past the source's end.
    CloneRange {
        /// Where.
        collection: CollectionName,
        /// What is copied.
        source: Name,
        /// Where to; not the source.
        target: Name,
        /// First byte in the source.
        source_offset: u64,
        /// Length in bytes.
        len: u64,
        /// First byte in the target.
        target_offset: u64,
    } = 30,
    /// Removes all omap keys and the header; ignored on an absent object.
    OmapClear {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
    } = 31,
    /// Sets omap keys; refused on an absent object.
    OmapSetKeys {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// Keys and values; the last of one key wins.
        entries: Vec<(Bytes<'a>, Bytes<'a>)>,
    } = 32,
    /// Removes omap keys, those that are there; refused on an absent object.
    OmapRmKeys {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// The keys.
        keys: Vec<Bytes<'a>>,
    } = 33,
    /// Sets the omap header; refused on an absent object.
    OmapSetHeader {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// The header.
        header: Bytes<'a>,
    } = 34,
    /// Moves the objects whose hash has `rem` as its low `bits` to the target, and sets the
    /// bits of the collection. The target must have these bits, and no objects.
    SplitCollection {
        /// What is split.
        collection: CollectionName,
        /// The bits of both afterwards.
        bits: u32,
        /// The low bits of the objects that move.
        rem: u32,
        /// Where to.
        target: CollectionName,
    } = 36,
    /// Removes the omap keys from the first to before the last; refused on an absent object.
    OmapRmKeyRange {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// The least key that goes.
        first: Bytes<'a>,
        /// The key before which it ends; not below `first`.
        last: Bytes<'a>,
    } = 37,
    /// Renames an object, with all parts; ignored on an absent one, [`Error::Exists`] if
    /// there is a target. Both collections must be the same.
    CollectionMoveRename {
        /// Where the object is.
        source_collection: CollectionName,
        /// Which object.
        source: Name,
        /// Where it goes.
        collection: CollectionName,
        /// Its new name.
        target: Name,
    } = 38,
    /// Says what to expect of an object; changes nothing.
    SetAllocHint {
        /// Where.
        collection: CollectionName,
        /// Which object.
        object: Name,
        /// Expected size of the object in bytes.
        object_bytes: u64,
        /// Expected size of writes in bytes.
        write_bytes: u64,
        /// Ceph's `CEPH_OSD_ALLOC_HINT_FLAG_*`.
        flags: u32,
    } = 39,
    /// Says what to expect of a collection; changes nothing, and unknown ones are ignored.
    CollectionHint {
        /// Which.
        collection: CollectionName,
        /// Ceph's `COLL_HINT_*`.
        kind: u32,
        /// What comes with it.
        hint: Bytes<'a>,
    } = 40,
    /// Renames an object in its collection, as [`Op::CollectionMoveRename`].
    TryRename {
        /// Where.
        collection: CollectionName,
        /// Which object.
        source: Name,
        /// Its new name.
        target: Name,
    } = 41,
    /// Sets the bits of a collection; moves nothing.
    CollectionSetBits {
        /// Which.
        collection: CollectionName,
        /// How many low bits of the hash its objects share.
        bits: u32,
    } = 42,
    /// Moves all objects to the target, removes the collection, sets the target's bits.
    MergeCollection {
        /// What goes.
        collection: CollectionName,
        /// Where to.
        target: CollectionName,
        /// The target's bits afterwards.
        bits: u32,
    } = 43,
}

impl Op<'_> {
    /// The collections it concerns: two at most.
    pub(crate) fn collections(&self) -> [Option<CollectionName>; 2] {
        match self {
            Self::Nop => [None, None],
            Self::Create { collection, .. }
            | Self::Touch { collection, .. }
            | Self::Write { collection, .. }
            | Self::Zero { collection, .. }
            | Self::Truncate { collection, .. }
            | Self::Remove { collection, .. }
            | Self::SetAttrs { collection, .. }
            | Self::RmAttr { collection, .. }
            | Self::Clone { collection, .. }
            | Self::CreateCollection { collection, .. }
            | Self::RemoveCollection { collection }
            | Self::RmAttrs { collection, .. }
            | Self::CloneRange { collection, .. }
            | Self::OmapClear { collection, .. }
            | Self::OmapSetKeys { collection, .. }
            | Self::OmapRmKeys { collection, .. }
            | Self::OmapSetHeader { collection, .. }
            | Self::OmapRmKeyRange { collection, .. }
            | Self::SetAllocHint { collection, .. }
            | Self::CollectionHint { collection, .. }
            | Self::TryRename { collection, .. }
            | Self::CollectionSetBits { collection, .. } => [Some(*collection), None],
            Self::SplitCollection {
                collection, target, ..
            }
            | Self::MergeCollection {
                collection, target, ..
            } => [Some(*collection), Some(*target)],
            Self::CollectionMoveRename {
                source_collection,
                collection,
                ..
            } => [Some(*source_collection), Some(*collection)],
        }
    }

    /// Finds what is wrong with the operation whatever the store holds.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] and [`Error::InvalidArgument`].
    pub fn check(&self) -> Result<()> {
        for name in self.objects().into_iter().flatten() {
            check_name(name)?;
        }
        match self {
            Self::Write { offset, data, .. } => {
                let len = data.iter().map(|piece| piece.len() as u64).sum();
                check_end(*offset, len)
            }
            Self::Zero { offset, len, .. } => check_end(*offset, *len),
            Self::Truncate { size, .. } => check_end(*size, 0),
            Self::SetAttrs { attrs, .. } => attrs.iter().try_for_each(|(attr, value)| {
                at_most("attribute name", attr.len(), ATTR_NAME_BYTES_MAX)?;
                at_most("attribute value", value.len(), ATTR_VALUE_BYTES_MAX)
            }),
            Self::RmAttr { attr, .. } => at_most("attribute name", attr.len(), ATTR_NAME_BYTES_MAX),
            Self::Clone { source, target, .. } => differ(source, target),
            Self::CloneRange {
                source,
                target,
                source_offset,
                len,
                target_offset,
                ..
            } => {
                differ(source, target)?;
                check_end(*source_offset, *len)?;
                check_end(*target_offset, *len)
            }
            Self::OmapSetKeys { entries, .. } => entries.iter().try_for_each(|(key, value)| {
                at_most("omap key", key.len(), OMAP_KEY_BYTES_MAX)?;
                at_most("omap value", value.len(), OMAP_VALUE_BYTES_MAX)
            }),
            Self::OmapRmKeys { keys, .. } => keys
                .iter()
                .try_for_each(|key| at_most("omap key", key.len(), OMAP_KEY_BYTES_MAX)),
            Self::OmapRmKeyRange { first, last, .. } if first > last => Err(
                Error::InvalidArgument("a range of keys ends before it begins"),
            ),
            Self::OmapSetHeader { header, .. } => {
                at_most("omap header", header.len(), OMAP_VALUE_BYTES_MAX)
            }
            Self::CreateCollection { bits, .. } | Self::CollectionSetBits { bits, .. } => {
                check_bits(*bits)
            }
            Self::SplitCollection {
                collection,
                bits,
                rem,
                target,
            } => {
                check_bits(*bits)?;
                check_relatives(collection, target)?;
                match target {
                    CollectionName::Pg { seed, .. }
                        if (seed ^ rem) & low_bits(*bits) == 0 && rem & !low_bits(*bits) == 0 =>
                    {
                        Ok(())
                    }
                    _ => Err(Error::InvalidArgument("the target's seed is not rem")),
                }
            }
            Self::MergeCollection {
                collection,
                target,
                bits,
            } => {
                check_bits(*bits)?;
                check_relatives(collection, target)?;
                match (collection, target) {
                    (CollectionName::Pg { seed: a, .. }, CollectionName::Pg { seed: b, .. })
                        if (a ^ b) & low_bits(*bits) == 0 =>
                    {
                        Ok(())
                    }
                    _ => Err(Error::InvalidArgument(
                        "the seeds differ in the target's bits",
                    )),
                }
            }
            Self::CollectionMoveRename {
                source_collection,
                collection,
                ..
            } if source_collection != collection => {
                Err(Error::InvalidArgument("a rename to another collection"))
            }
            _ => Ok(()),
        }
    }

    /// The objects it names: one or two, or none.
    pub(super) fn objects(&self) -> [Option<&ObjectName>; 2] {
        match self {
            Self::Nop
            | Self::CreateCollection { .. }
            | Self::RemoveCollection { .. }
            | Self::SplitCollection { .. }
            | Self::CollectionHint { .. }
            | Self::CollectionSetBits { .. }
            | Self::MergeCollection { .. } => [None, None],
            Self::Create { object, .. }
            | Self::Touch { object, .. }
            | Self::Write { object, .. }
            | Self::Zero { object, .. }
            | Self::Truncate { object, .. }
            | Self::Remove { object, .. }
            | Self::SetAttrs { object, .. }
            | Self::RmAttr { object, .. }
            | Self::RmAttrs { object, .. }
            | Self::OmapClear { object, .. }
            | Self::OmapSetKeys { object, .. }
            | Self::OmapRmKeys { object, .. }
            | Self::OmapSetHeader { object, .. }
            | Self::OmapRmKeyRange { object, .. }
            | Self::SetAllocHint { object, .. } => [Some(object), None],
            Self::Clone { source, target, .. }
            | Self::CloneRange { source, target, .. }
            | Self::CollectionMoveRename { source, target, .. }
            | Self::TryRename { source, target, .. } => [Some(source), Some(target)],
        }
    }
}

fn check_name(name: &ObjectName) -> Result<()> {
    if name.is_max() {
        return Err(Error::InvalidArgument("the maximum names no object"));
    }
    [name.nspace(), name.key(), name.name()]
        .iter()
        .try_for_each(|text| at_most("object name", text.len(), NAME_BYTES_MAX))
}

fn check_end(offset: u64, len: u64) -> Result<()> {
    let end = offset.saturating_add(len);
    if end > OBJECT_BYTES_MAX {
        return Err(Error::TooLarge {
            what: "object",
            len: end,
            max: OBJECT_BYTES_MAX,
        });
    }
    Ok(())
}

fn at_most(what: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max {
        return Err(Error::TooLarge {
            what,
            len: len as u64,
            max: max as u64,
        });
    }
    Ok(())
}

fn differ(source: &Name, target: &Name) -> Result<()> {
    if source == target {
        return Err(Error::InvalidArgument("a clone of an object to itself"));
    }
    Ok(())
}

fn check_bits(bits: u32) -> Result<()> {
    if bits > 32 {
        return Err(Error::InvalidArgument("a hash has 32 bits"));
    }
    Ok(())
}

/// Placement groups split and merge within their pool and shard.
fn check_relatives(a: &CollectionName, b: &CollectionName) -> Result<()> {
    let family = |name: &CollectionName| match *name {
        CollectionName::Meta => None,
        CollectionName::Pg {
            pool, shard, temp, ..
        } => Some((pool, shard, temp)),
    };
    if a == b || family(a).is_none() || family(a) != family(b) {
        return Err(Error::InvalidArgument(
            "a split or merge of collections that are not two of a pool and shard",
        ));
    }
    Ok(())
}
