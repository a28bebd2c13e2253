//! Transactions: lists of operations, built with methods of Ceph's names.
//!
//! A transaction takes effect as a whole or not at all. Its operations apply in order and
//! see what those before them did. Bytes are borrowed where the caller has them: nothing is
//! copied before the log takes it.

use super::CollectionName;
use super::bytes::{Bytes, IntoBytes};
use super::op::{Name, Op};
use crate::Result;

/// An ordered list of operations that take effect together.
///
/// What each operation does is said at [`Op`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction<'a> {
    ops: Vec<Op<'a>>,
}

impl<'a> Transaction<'a> {
    /// A transaction without operations; it commits, too.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The operations, in order.
    #[must_use]
    pub fn ops(&self) -> &[Op<'a>] {
        &self.ops
    }

    /// Whether it has no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds an operation.
    pub fn push(&mut self, op: Op<'a>) -> &mut Self {
        self.ops.push(op);
        self
    }

    /// Adds the operations of another transaction behind those of this one.
    pub fn append(&mut self, other: Self) -> &mut Self {
        self.ops.extend(other.ops);
        self
    }

    /// Finds what is wrong with the transaction whatever the store holds.
    ///
    /// # Errors
    ///
    /// Those of the first operation that has one: [`Op::check`].
    pub fn check(&self) -> Result<()> {
        self.ops.iter().try_for_each(Op::check)
    }

    /// Adds [`Op::Nop`].
    pub fn nop(&mut self) -> &mut Self {
        self.push(Op::Nop)
    }

    /// Adds [`Op::Create`].
    pub fn create(&mut self, collection: CollectionName, object: &Name) -> &mut Self {
        self.push(Op::Create {
            collection,
            object: object.clone(),
        })
    }

    /// Adds [`Op::Touch`].
    pub fn touch(&mut self, collection: CollectionName, object: &Name) -> &mut Self {
        self.push(Op::Touch {
            collection,
            object: object.clone(),
        })
    }

    /// Adds [`Op::Write`]: the pieces one behind the other.
    pub fn write<P: IntoBytes<'a>>(
        &mut self,
        collection: CollectionName,
        object: &Name,
        offset: u64,
        pieces: impl IntoIterator<Item = P>,
    ) -> &mut Self {
        self.push(Op::Write {
            collection,
            object: object.clone(),
            offset,
            data: pieces.into_iter().map(IntoBytes::into_bytes).collect(),
        })
    }

    /// Adds [`Op::Zero`].
    pub fn zero(
        &mut self,
        collection: CollectionName,
        object: &Name,
        offset: u64,
        len: u64,
    ) -> &mut Self {
        self.push(Op::Zero {
            collection,
            object: object.clone(),
            offset,
            len,
        })
    }

    /// Adds [`Op::Truncate`].
    pub fn truncate(&mut self, collection: CollectionName, object: &Name, size: u64) -> &mut Self {
        self.push(Op::Truncate {
            collection,
            object: object.clone(),
            size,
        })
    }

    /// Adds [`Op::Remove`].
    pub fn remove(&mut self, collection: CollectionName, object: &Name) -> &mut Self {
        self.push(Op::Remove {
            collection,
            object: object.clone(),
        })
    }

    /// Adds [`Op::SetAttrs`] of one attribute.
    pub fn setattr(
        &mut self,
        collection: CollectionName,
        object: &Name,
        attr: impl IntoBytes<'a>,
        value: impl IntoBytes<'a>,
    ) -> &mut Self {
        self.setattrs(collection, object, [(attr, value)])
    }

    /// Adds [`Op::SetAttrs`].
    pub fn setattrs<K: IntoBytes<'a>, V: IntoBytes<'a>>(
        &mut self,
        collection: CollectionName,
        object: &Name,
        attrs: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Self {
        self.push(Op::SetAttrs {
            collection,
            object: object.clone(),
            attrs: pairs(attrs),
        })
    }

    /// Adds [`Op::RmAttr`].
    pub fn rmattr(
        &mut self,
        collection: CollectionName,
        object: &Name,
        attr: impl IntoBytes<'a>,
    ) -> &mut Self {
        self.push(Op::RmAttr {
            collection,
            object: object.clone(),
            attr: attr.into_bytes(),
        })
    }

    /// Adds [`Op::RmAttrs`].
    pub fn rmattrs(&mut self, collection: CollectionName, object: &Name) -> &mut Self {
        self.push(Op::RmAttrs {
            collection,
            object: object.clone(),
        })
    }

    /// Adds [`Op::Clone`].
    pub fn clone_object(
        &mut self,
        collection: CollectionName,
        source: &Name,
        target: &Name,
    ) -> &mut Self {
        self.push(Op::Clone {
            collection,
            source: source.clone(),
            target: target.clone(),
        })
    }

    /// Adds [`Op::CloneRange`].
    pub fn clone_range(
        &mut self,
        collection: CollectionName,
        source: &Name,
        target: &Name,
        source_offset: u64,
        len: u64,
        target_offset: u64,
    ) -> &mut Self {
        self.push(Op::CloneRange {
            collection,
            source: source.clone(),
            target: target.clone(),
            source_offset,
            len,
            target_offset,
        })
    }

    /// Adds [`Op::CreateCollection`].
    pub fn create_collection(&mut self, collection: CollectionName, bits: u32) -> &mut Self {
        self.push(Op::CreateCollection { collection, bits })
    }

    /// Adds [`Op::RemoveCollection`].
    pub fn remove_collection(&mut self, collection: CollectionName) -> &mut Self {
        self.push(Op::RemoveCollection { collection })
    }

    /// Adds [`Op::SplitCollection`].
    pub fn split_collection(
        &mut self,
        collection: CollectionName,
        bits: u32,
        rem: u32,
        target: CollectionName,
    ) -> &mut Self {
        self.push(Op::SplitCollection {
            collection,
            bits,
            rem,
            target,
        })
    }

    /// Adds [`Op::MergeCollection`].
    pub fn merge_collection(
        &mut self,
        collection: CollectionName,
        target: CollectionName,
        bits: u32,
    ) -> &mut Self {
        self.push(Op::MergeCollection {
            collection,
            target,
            bits,
        })
    }

    /// Adds [`Op::CollectionMoveRename`].
    pub fn collection_move_rename(
        &mut self,
        source_collection: CollectionName,
        source: &Name,
        collection: CollectionName,
        target: &Name,
    ) -> &mut Self {
        self.push(Op::CollectionMoveRename {
            source_collection,
            source: source.clone(),
            collection,
            target: target.clone(),
        })
    }

    /// Adds [`Op::TryRename`].
    pub fn try_rename(
        &mut self,
        collection: CollectionName,
        source: &Name,
        target: &Name,
    ) -> &mut Self {
        self.push(Op::TryRename {
            collection,
            source: source.clone(),
            target: target.clone(),
        })
    }

    /// Adds [`Op::OmapClear`].
    pub fn omap_clear(&mut self, collection: CollectionName, object: &Name) -> &mut Self {
        self.push(Op::OmapClear {
            collection,
            object: object.clone(),
        })
    }

    /// Adds [`Op::OmapSetKeys`].
    pub fn omap_setkeys<K: IntoBytes<'a>, V: IntoBytes<'a>>(
        &mut self,
        collection: CollectionName,
        object: &Name,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Self {
        self.push(Op::OmapSetKeys {
            collection,
            object: object.clone(),
            entries: pairs(entries),
        })
    }

    /// Adds [`Op::OmapRmKeys`].
    pub fn omap_rmkeys<K: IntoBytes<'a>>(
        &mut self,
        collection: CollectionName,
        object: &Name,
        keys: impl IntoIterator<Item = K>,
    ) -> &mut Self {
        self.push(Op::OmapRmKeys {
            collection,
            object: object.clone(),
            keys: keys.into_iter().map(IntoBytes::into_bytes).collect(),
        })
    }

    /// Adds [`Op::OmapRmKeyRange`].
    pub fn omap_rmkeyrange(
        &mut self,
        collection: CollectionName,
        object: &Name,
        first: impl IntoBytes<'a>,
        last: impl IntoBytes<'a>,
    ) -> &mut Self {
        self.push(Op::OmapRmKeyRange {
            collection,
            object: object.clone(),
            first: first.into_bytes(),
            last: last.into_bytes(),
        })
    }

    /// Adds [`Op::OmapSetHeader`].
    pub fn omap_setheader(
        &mut self,
        collection: CollectionName,
        object: &Name,
        header: impl IntoBytes<'a>,
    ) -> &mut Self {
        self.push(Op::OmapSetHeader {
            collection,
            object: object.clone(),
            header: header.into_bytes(),
        })
    }

    /// Adds [`Op::SetAllocHint`].
    pub fn set_alloc_hint(
        &mut self,
        collection: CollectionName,
        object: &Name,
        object_bytes: u64,
        write_bytes: u64,
        flags: u32,
    ) -> &mut Self {
        self.push(Op::SetAllocHint {
            collection,
            object: object.clone(),
            object_bytes,
            write_bytes,
            flags,
        })
    }

    /// Adds [`Op::CollectionSetBits`].
    pub fn collection_set_bits(&mut self, collection: CollectionName, bits: u32) -> &mut Self {
        self.push(Op::CollectionSetBits { collection, bits })
    }

    /// Adds [`Op::CollectionHint`].
    pub fn collection_hint(
        &mut self,
        collection: CollectionName,
        kind: u32,
        hint: impl IntoBytes<'a>,
    ) -> &mut Self {
        self.push(Op::CollectionHint {
            collection,
            kind,
            hint: hint.into_bytes(),
        })
    }
}

fn pairs<'a, K: IntoBytes<'a>, V: IntoBytes<'a>>(
    from: impl IntoIterator<Item = (K, V)>,
) -> Vec<(Bytes<'a>, Bytes<'a>)> {
    from.into_iter()
        .map(|(key, value)| (key.into_bytes(), value.into_bytes()))
        .collect()
}
