//! Planning: what a transaction does, found out before it does anything.
//!
//! The operations run in order over *works*: what the transaction has made of each object so
//! far, over the node as it is. Every error is met here. The outcome is a list of effects in
//! order, of which [`super::apply`] makes records and changes of nodes, and cannot fail.
//!
//! The collections of the transaction are locked, so nobody else changes their objects;
//! the cleaner may move payload meanwhile, so effects are changes, not new states.

mod collections;
mod data;
mod omap;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::log::Log;
use crate::sync::SharedArc;
use crate::{Error, Result};

use super::omap_changes::OmapChange;
use super::op::Op;
use super::pieces::{Piece, Pieces, Source};
use super::registry::Slot;
use super::table::Space;
use super::{BLOCK_BYTES, CollectionName, ObjectId, ObjectName, Objects, Transaction};

/// Bytes of a `clone_range` copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// What an apply does, in order. `work` is the object's place in the plan's works.
pub(crate) enum Effect<'t> {
    Create {
        work: usize,
    },
    Clone {
        work: usize,
        source: usize,
    },
    Remove {
        work: usize,
    },
    Rename {
        work: usize,
        name: SharedArc<[u8]>,
    },
    Resize {
        work: usize,
        bytes: u64,
    },
    Write {
        work: usize,
        first: u32,
        parts: Vec<Piece<'t>>,
        stored_bytes: u64,
    },
    Unmap {
        work: usize,
        first: u32,
        end: u64,
    },
    Attributes {
        work: usize,
        clear: bool,
        changes: AttributeChanges<'t>,
    },
    Omap {
        work: usize,
        change: OmapChange<'t>,
    },
    Hint {
        work: usize,
        bits: u64,
    },
    Collection {
        slot: SharedArc<Slot>,
        exists: bool,
        bits: u32,
    },
}

/// Names and values to set (`Some`) or remove (`None`).
pub(crate) type AttributeChanges<'t> = BTreeMap<Cow<'t, [u8]>, Option<Cow<'t, [u8]>>>;

/// What the transaction has made of one object so far.
pub(crate) struct Work<'t> {
    /// Its id, if it has a node; else apply chooses one.
    pub(crate) id: Option<ObjectId>,
    /// The work it was cloned from, whose family it joins.
    pub(crate) cloned_from: Option<usize>,
    pub(crate) space: SharedArc<Space>,
    /// Its name when the transaction is over.
    pub(crate) name: SharedArc<[u8]>,
    /// Its name before, if it had a node.
    pub(crate) old_name: Option<SharedArc<[u8]>>,
    pub(crate) is_removed: bool,
    /// The node whose data lies under `view`, and how much of it still counts.
    base: Option<ObjectId>,
    base_bytes: u64,
    bytes: u64,
    view: Pieces<'t>,
    /// Changes not yet among the effects.
    pending: Pieces<'t>,
    pending_bytes: Option<u64>,
    pending_clear: bool,
    pending_attributes: AttributeChanges<'t>,
    /// Changes of the omap; those up to `omap_done` are among the effects.
    omap: Vec<OmapChange<'t>>,
    omap_done: usize,
    /// The node whose omap lies under `omap`.
    omap_base: Option<ObjectId>,
}

/// A planned transaction.
pub(crate) struct Plan<'t> {
    pub(crate) works: Vec<Work<'t>>,
    pub(crate) effects: Vec<Effect<'t>>,
    pub(crate) buffers: Vec<Vec<u8>>,
    /// Bytes of data that callers gave.
    pub(crate) user_bytes: u64,
    names: HashMap<(super::SpaceId, SharedArc<[u8]>), Option<usize>>,
    collections: BTreeMap<CollectionName, (bool, u32)>,
}

impl Plan<'_> {
    /// Whether it changes collections.
    pub(crate) fn has_collections(&self) -> bool {
        !self.collections.is_empty()
    }
}

/// Plans transactions as one.
pub(crate) fn plan<'t>(
    objects: &Objects,
    log: &Log,
    slots: &BTreeMap<CollectionName, SharedArc<Slot>>,
    transactions: &'t [Transaction<'t>],
) -> Result<Plan<'t>> {
    let mut planner = Planner {
        objects,
        log,
        slots,
        plan: Plan {
            works: Vec::new(),
            effects: Vec::new(),
            buffers: Vec::new(),
            user_bytes: 0,
            names: HashMap::new(),
            collections: BTreeMap::new(),
        },
    };
    for transaction in transactions {
        for op in transaction.ops() {
            planner.op(op)?;
        }
    }
    for work in 0..planner.plan.works.len() {
        planner.flush(work);
    }
    Ok(planner.plan)
}

struct Planner<'a, 't> {
    objects: &'a Objects,
    log: &'a Log,
    slots: &'a BTreeMap<CollectionName, SharedArc<Slot>>,
    plan: Plan<'t>,
}

impl<'t> Planner<'_, 't> {
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn op(&mut self, op: &'t Op<'t>) -> Result<()> {
        match op {
            Op::Nop => Ok(()),
            Op::Create { collection, object } | Op::Touch { collection, object } => {
                self.find_or_create(collection, object).map(drop)
            }
            Op::Write {
                collection,
                object,
                offset,
                data,
            } => {
                let work = self.find_or_create(collection, object)?;
                self.write(work, *offset, data)
            }
            Op::Zero {
                collection,
                object,
                offset,
                len,
            } => {
                let work = self.find_or_create(collection, object)?;
                self.zero(work, *offset, *len)
            }
            Op::Truncate {
                collection,
                object,
                size,
            } => match self.find(collection, object)? {
                Some(work) => self.truncate(work, *size),
                None => Ok(()),
            },
            Op::Remove { collection, object } => {
                if let Some(work) = self.find(collection, object)? {
                    self.remove(work);
                }
                Ok(())
            }
            Op::SetAttrs {
                collection,
                object,
                attrs,
            } => {
                let work = self.find_existing(collection, object)?;
                let changes = &mut self.plan.works[work].pending_attributes;
                for (name, value) in attrs {
                    let value = Some(Cow::Borrowed(&**value));
                    changes.insert(Cow::Borrowed(&**name), value);
                }
                Ok(())
            }
            Op::RmAttr {
                collection,
                object,
                attr,
            } => {
                let work = self.find_existing(collection, object)?;
                let changes = &mut self.plan.works[work].pending_attributes;
                changes.insert(Cow::Borrowed(&**attr), None);
                Ok(())
            }
            Op::RmAttrs { collection, object } => {
                if let Some(work) = self.find(collection, object)? {
                    let work = &mut self.plan.works[work];
                    work.pending_clear = true;
                    work.pending_attributes.clear();
                }
                Ok(())
            }
            Op::Clone {
                collection,
                source,
                target,
            } => self.clone(collection, source, target),
            Op::CloneRange {
                collection,
                source,
                target,
                source_offset,
                len,
                target_offset,
            } => self.clone_range(
                collection,
                source,
                target,
                *source_offset,
                *len,
                *target_offset,
            ),
            Op::OmapClear { collection, object } => {
                if let Some(work) = self.find(collection, object)? {
                    self.plan.works[work].omap.push(OmapChange::Clear);
                }
                Ok(())
            }
            Op::OmapSetKeys {
                collection,
                object,
                entries,
            } => {
                let change = OmapChange::set(entries.iter());
                self.omap(collection, object, change)
            }
            Op::OmapRmKeys {
                collection,
                object,
                keys,
            } => {
                let keys = keys.iter().map(|key| Cow::Borrowed(&**key)).collect();
                self.omap(collection, object, OmapChange::Remove(keys))
            }
            Op::OmapRmKeyRange {
                collection,
                object,
                first,
                last,
            } => {
                let change = OmapChange::RemoveRange(Cow::Borrowed(first), Cow::Borrowed(last));
                self.omap(collection, object, change)
            }
            Op::OmapSetHeader {
                collection,
                object,
                header,
            } => self.omap(
                collection,
                object,
                OmapChange::Header(Cow::Borrowed(header)),
            ),
            Op::SetAllocHint {
                collection,
                object,
                object_bytes,
                write_bytes,
                flags,
            } => {
                if let Some(work) = self.find(collection, object)? {
                    let bits = super::hint_bits(*object_bytes, *write_bytes, *flags);
                    self.plan.effects.push(Effect::Hint { work, bits });
                }
                Ok(())
            }
            Op::CollectionHint { collection, .. } => self.collection(collection).map(drop),
            Op::CollectionMoveRename {
                source_collection,
                source,
                collection,
                target,
            } => {
                if source_collection != collection {
                    return Err(Error::InvalidArgument("a rename leaves its collection"));
                }
                self.rename(collection, source, target)
            }
            Op::TryRename {
                collection,
                source,
                target,
            } => self.rename(collection, source, target),
            Op::CreateCollection { collection, bits } => {
                if self.collection_state(collection).0 {
                    return Err(Error::Exists {
                        what: format!("collection {collection}"),
                    });
                }
                self.set_collection(collection, true, *bits);
                Ok(())
            }
            Op::RemoveCollection { collection } => {
                self.collection(collection)?;
                if !self.is_empty(collection) {
                    return Err(Error::NotEmpty {
                        what: collection.to_string(),
                    });
                }
                self.set_collection(collection, false, 0);
                Ok(())
            }
            Op::SplitCollection {
                collection,
                bits,
                rem,
                target,
            } => self.split(collection, *bits, *rem, target),
            Op::MergeCollection {
                collection,
                target,
                bits,
            } => {
                self.collection(collection)?;
                self.collection(target)?;
                self.same_space(collection, target)?;
                self.set_collection(collection, false, 0);
                self.set_collection(target, true, *bits);
                Ok(())
            }
            Op::CollectionSetBits { collection, bits } => {
                self.collection(collection)?;
                self.set_collection(collection, true, *bits);
                Ok(())
            }
        }
    }

    /// The work of an object that exists at this point.
    fn find(&mut self, collection: &CollectionName, object: &ObjectName) -> Result<Option<usize>> {
        let space = self.collection(collection)?;
        if object.is_max() {
            return Err(Error::InvalidArgument("the greatest name is no object's"));
        }
        let name: SharedArc<[u8]> = object.sort_key().into();
        if let Some(known) = self.plan.names.get(&(space.id, name.clone())) {
            return Ok(*known);
        }
        let Some(id) = space.find(&name) else {
            return Ok(None);
        };
        let shard = self.objects.table.read(id.family);
        let Some(node) = shard.get(id) else {
            return Ok(None);
        };
        let work = Work {
            id: Some(id),
            cloned_from: None,
            space: space.clone(),
            old_name: Some(name.clone()),
            name,
            is_removed: false,
            base: Some(id),
            base_bytes: node.bytes,
            bytes: node.bytes,
            view: Pieces::default(),
            pending: Pieces::default(),
            pending_bytes: None,
            pending_clear: false,
            pending_attributes: BTreeMap::new(),
            omap: Vec::new(),
            omap_done: 0,
            omap_base: Some(id),
        };
        drop(shard);
        Ok(Some(self.push(work)))
    }

    fn push(&mut self, work: Work<'t>) -> usize {
        let number = self.plan.works.len();
        let key = (work.space.id, work.name.clone());
        self.plan.names.insert(key, Some(number));
        self.plan.works.push(work);
        number
    }

    fn find_existing(&mut self, collection: &CollectionName, object: &ObjectName) -> Result<usize> {
        self.find(collection, object)?
            .ok_or(Error::NoEntry("object"))
    }

    fn find_or_create(
        &mut self,
        collection: &CollectionName,
        object: &ObjectName,
    ) -> Result<usize> {
        match self.find(collection, object)? {
            Some(work) => Ok(work),
            None => {
                let space = self.collection(collection)?;
                let work = self.new_work(space, object, None);
                self.plan.effects.push(Effect::Create { work });
                Ok(work)
            }
        }
    }

    fn new_work(
        &mut self,
        space: SharedArc<Space>,
        object: &ObjectName,
        cloned_from: Option<usize>,
    ) -> usize {
        let name: SharedArc<[u8]> = object.sort_key().into();
        self.push(Work {
            id: None,
            cloned_from,
            space,
            name,
            old_name: None,
            is_removed: false,
            base: None,
            base_bytes: 0,
            bytes: 0,
            view: Pieces::default(),
            pending: Pieces::default(),
            pending_bytes: None,
            pending_clear: false,
            pending_attributes: BTreeMap::new(),
            omap: Vec::new(),
            omap_done: 0,
            omap_base: None,
        })
    }

    fn remove(&mut self, work: usize) {
        let removed = &mut self.plan.works[work];
        removed.is_removed = true;
        removed.pending = Pieces::default();
        removed.pending_bytes = None;
        removed.pending_clear = false;
        removed.pending_attributes.clear();
        removed.omap_done = removed.omap.len();
        let key = (removed.space.id, removed.name.clone());
        self.plan.names.insert(key, None);
        self.plan.effects.push(Effect::Remove { work });
    }

    fn rename(
        &mut self,
        collection: &CollectionName,
        source: &ObjectName,
        target: &ObjectName,
    ) -> Result<()> {
        let Some(work) = self.find(collection, source)? else {
            return Ok(());
        };
        if self.find(collection, target)?.is_some() {
            return Err(Error::Exists {
                what: format!("object {target}"),
            });
        }
        let name: SharedArc<[u8]> = target.sort_key().into();
        let renamed = &mut self.plan.works[work];
        let old = std::mem::replace(&mut renamed.name, name.clone());
        let space = renamed.space.id;
        self.plan.names.insert((space, old), None);
        self.plan.names.insert((space, name.clone()), Some(work));
        self.plan.effects.push(Effect::Rename { work, name });
        Ok(())
    }

    /// Puts what is pending of an object among the effects.
    fn flush(&mut self, number: usize) {
        let Plan { works, effects, .. } = &mut self.plan;
        let work = &mut works[number];
        let pending = std::mem::take(&mut work.pending);
        let mut parts: Vec<Piece<'t>> = Vec::new();
        let bytes = work.bytes;
        let mut emit = |parts: &mut Vec<Piece<'t>>| {
            if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
                let first = first.first;
                // The last block is stored as far as the object goes.
                let stored_end =
                    (last.end() * BLOCK_BYTES).min(bytes.max((last.end() - 1) * BLOCK_BYTES + 1));
                effects.push(Effect::Write {
                    work: number,
                    first,
                    stored_bytes: stored_end - u64::from(first) * BLOCK_BYTES,
                    parts: std::mem::take(parts),
                });
            }
        };
        let mut holes = Vec::new();
        for piece in pending.iter() {
            if matches!(piece.source, Source::Hole) {
                emit(&mut parts);
                holes.push((piece.first, piece.end()));
                continue;
            }
            if parts
                .last()
                .is_some_and(|last| last.end() != u64::from(piece.first))
            {
                emit(&mut parts);
            }
            parts.push(*piece);
        }
        emit(&mut parts);
        for (first, end) in holes {
            effects.push(Effect::Unmap {
                work: number,
                first,
                end,
            });
        }
        if let Some(bytes) = work.pending_bytes.take() {
            effects.push(Effect::Resize {
                work: number,
                bytes,
            });
        }
        let clear = std::mem::take(&mut work.pending_clear);
        let changes = std::mem::take(&mut work.pending_attributes);
        if clear || !changes.is_empty() {
            effects.push(Effect::Attributes {
                work: number,
                clear,
                changes,
            });
        }
        for change in work.omap.iter().skip(work.omap_done) {
            effects.push(Effect::Omap {
                work: number,
                change: change.clone(),
            });
        }
        work.omap_done = work.omap.len();
    }
}
