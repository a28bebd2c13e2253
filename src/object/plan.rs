//! Planning: what a transaction does, found out before it does anything.
//!
//! The operations run in order over *works*: what the transaction has made of each object so
//! far, over the node as it is. Every error is met here. The outcome is a list of effects in
//! order, of which [`super::apply`] makes records and changes of nodes, and cannot fail.
//!
//! The collections of the transaction are locked, so nobody else changes their objects;
//! the cleaner may move payload meanwhile, so effects are changes, not new states.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::log::Log;
use crate::sync::SharedArc;
use crate::{Error, Result};

use super::omap_changes::OmapChange;
use super::pieces::{Piece, Pieces, Source, cut};
use super::registry::Slot;
use super::table::Space;
use super::op::{OBJECT_BYTES_MAX, Op};
use super::{BLOCK_BYTES, CollectionName, ObjectId, ObjectName, Objects, Transaction};

/// What an apply does, in order. `work` is the object's place in the plan's works.
pub(crate) enum Effect<'t> {
    Create { work: usize },
    Clone { work: usize, source: usize },
    Remove { work: usize },
    Rename { work: usize, name: SharedArc<[u8]> },
    Resize { work: usize, bytes: u64 },
    Write { work: usize, first: u32, parts: Vec<Piece<'t>>, stored_bytes: u64 },
    Unmap { work: usize, first: u32, end: u64 },
    Attributes { work: usize, clear: bool, changes: AttributeChanges<'t> },
    Omap { work: usize, change: OmapChange<'t> },
    Hint { work: usize, bits: u64 },
    Collection { slot: SharedArc<Slot>, exists: bool, bits: u32 },
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
            Op::Write { collection, object, offset, data } => {
                let work = self.find_or_create(collection, object)?;
                self.write(work, *offset, data)
            }
            Op::Zero { collection, object, offset, len } => {
                let work = self.find_or_create(collection, object)?;
                self.zero(work, *offset, *len)
            }
            Op::Truncate { collection, object, size } => {
                match self.find(collection, object)? {
                    Some(work) => self.truncate(work, *size),
                    None => Ok(()),
                }
            }
            Op::Remove { collection, object } => {
                if let Some(work) = self.find(collection, object)? {
                    self.remove(work);
                }
                Ok(())
            }
            Op::SetAttrs { collection, object, attrs } => {
                let work = self.find_existing(collection, object)?;
                let changes = &mut self.plan.works[work].pending_attributes;
                for (name, value) in attrs {
                    let value = Some(Cow::Borrowed(&**value));
                    changes.insert(Cow::Borrowed(&**name), value);
                }
                Ok(())
            }
            Op::RmAttr { collection, object, attr } => {
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
            Op::Clone { collection, source, target } => self.clone(collection, source, target),
            Op::CloneRange { collection, source, target, source_offset, len, target_offset } => {
                self.clone_range(collection, source, target, *source_offset, *len, *target_offset)
            }
            Op::OmapClear { collection, object } => {
                if let Some(work) = self.find(collection, object)? {
                    self.plan.works[work].omap.push(OmapChange::Clear);
                }
                Ok(())
            }
            Op::OmapSetKeys { collection, object, entries } => {
                let change = OmapChange::set(entries.iter());
                self.omap(collection, object, change)
            }
            Op::OmapRmKeys { collection, object, keys } => {
                let keys = keys.iter().map(|key| Cow::Borrowed(&**key)).collect();
                self.omap(collection, object, OmapChange::Remove(keys))
            }
            Op::OmapRmKeyRange { collection, object, first, last } => {
                let change = OmapChange::RemoveRange(Cow::Borrowed(first), Cow::Borrowed(last));
                self.omap(collection, object, change)
            }
            Op::OmapSetHeader { collection, object, header } => {
                self.omap(collection, object, OmapChange::Header(Cow::Borrowed(header)))
            }
            Op::SetAllocHint { collection, object, object_bytes, write_bytes, flags } => {
                if let Some(work) = self.find(collection, object)? {
                    let bits = super::hint_bits(*object_bytes, *write_bytes, *flags);
                    self.plan.effects.push(Effect::Hint { work, bits });
                }
                Ok(())
            }
            Op::CollectionHint { collection, .. } => self.collection(collection).map(drop),
            Op::CollectionMoveRename { source_collection, source, collection, target } => {
                if source_collection != collection {
                    return Err(Error::InvalidArgument("a rename leaves its collection"));
                }
                self.rename(collection, source, target)
            }
            Op::TryRename { collection, source, target } => {
                self.rename(collection, source, target)
            }
            Op::CreateCollection { collection, bits } => {
                if self.collection_state(collection).0 {
                    return Err(Error::Exists { what: format!("collection {collection}") });
                }
                self.set_collection(collection, true, *bits);
                Ok(())
            }
            Op::RemoveCollection { collection } => {
                self.collection(collection)?;
                if !self.is_empty(collection) {
                    return Err(Error::NotEmpty { what: collection.to_string() });
                }
                self.set_collection(collection, false, 0);
                Ok(())
            }
            Op::SplitCollection { collection, bits, rem, target } => {
                self.split(collection, *bits, *rem, target)
            }
            Op::MergeCollection { collection, target, bits } => {
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

    // Collections.

    fn slot(&self, name: &CollectionName) -> &SharedArc<Slot> {
        match self.slots.get(name) {
            Some(slot) => slot,
            None => unreachable!("every collection of a transaction is locked"),
        }
    }

    /// Whether a collection exists at this point, and its bits.
    fn collection_state(&self, name: &CollectionName) -> (bool, u32) {
        let slot = self.slot(name);
        let planned = self.plan.collections.get(name).copied();
        planned.unwrap_or_else(|| (slot.exists(), slot.bits()))
    }

    fn collection(&self, name: &CollectionName) -> Result<SharedArc<Space>> {
        if self.collection_state(name).0 {
            Ok(self.slot(name).space.clone())
        } else {
            Err(Error::NoEntry("collection"))
        }
    }

    fn set_collection(&mut self, name: &CollectionName, exists: bool, bits: u32) {
        self.plan.collections.insert(*name, (exists, bits));
        let slot = self.slot(name).clone();
        self.plan.effects.push(Effect::Collection { slot, exists, bits });
    }

    fn same_space(&self, one: &CollectionName, other: &CollectionName) -> Result<()> {
        let mine = |name| self.slot(name).space.id;
        if one == other || mine(one) != mine(other) || *one == CollectionName::Meta {
            return Err(Error::InvalidArgument("two placement groups of one pool and shard"));
        }
        Ok(())
    }

    fn split(
        &mut self,
        name: &CollectionName,
        bits: u32,
        rem: u32,
        target: &CollectionName,
    ) -> Result<()> {
        self.collection(name)?;
        self.collection(target)?;
        self.same_space(name, target)?;
        let CollectionName::Pg { seed, .. } = *target else {
            return Err(Error::InvalidArgument("meta is not split"));
        };
        let mask = super::low_bits(bits);
        if self.collection_state(target).1 != bits || bits > 32 || seed & mask != rem & mask {
            return Err(Error::InvalidArgument("bits and remainder of a split"));
        }
        self.set_collection(name, true, bits);
        Ok(())
    }

    /// Whether a collection has no objects at this point.
    fn is_empty(&self, name: &CollectionName) -> bool {
        let (_, bits) = self.collection_state(name);
        let space = &self.slot(name).space;
        let ranges = super::listing::ranges(name, bits, space);
        let in_range = |key: &[u8]| {
            ranges.iter().any(|(start, end)| start.as_slice() <= key && key < end.as_slice())
        };
        let planned = |key: &SharedArc<[u8]>| self.plan.names.get(&(space.id, key.clone()));
        let made = self.plan.names.iter().any(|((id, key), work)| {
            *id == space.id && work.is_some() && in_range(key)
        });
        if made {
            return false;
        }
        let names = space.names.read();
        let mut found = ranges.iter().flat_map(|(start, end)| {
            use std::ops::Bound::{Excluded, Included};
            names.range::<[u8], _>((Included(start.as_slice()), Excluded(end.as_slice())))
        });
        // What the transaction removed or renamed does not count.
        !found.any(|(key, _)| !matches!(planned(key), Some(None)))
    }

    // Objects.

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
            name: node.name.clone(),
            old_name: Some(node.name.clone()),
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
            return Err(Error::Exists { what: format!("object {target}") });
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

    // Data.

    fn check_end(offset: u64, len: u64) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= OBJECT_BYTES_MAX => Ok(end),
            _ => Err(Error::TooLarge {
                what: "object",
                len: offset.saturating_add(len),
                max: OBJECT_BYTES_MAX,
            }),
        }
    }

    fn set(&mut self, work: usize, first: u32, count: u32, source: Source<'t>) {
        let piece = Piece { first, count, source };
        let work = &mut self.plan.works[work];
        work.view.set(piece);
        work.pending.set(piece);
    }

    fn extend(&mut self, work: usize, end: u64) {
        let work = &mut self.plan.works[work];
        if end > work.bytes {
            work.bytes = end;
            work.pending_bytes = Some(end);
        }
    }

    fn write(&mut self, work: usize, offset: u64, data: &'t [Cow<'t, [u8]>]) -> Result<()> {
        let len: u64 = data.iter().map(|slice| slice.len() as u64).sum();
        let end = Self::check_end(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.plan.user_bytes += len;
        let (whole_first, whole_end) = whole_blocks(offset, end);
        if whole_first < whole_end {
            let source = Source::Data {
                slices: data,
                offset: whole_first * BLOCK_BYTES - offset,
            };
            let count = (whole_end - whole_first) as u32;
            self.set(work, whole_first as u32, count, source);
        }
        for (block, from, to) in partial_blocks(offset, end) {
            let start = block * BLOCK_BYTES;
            let buffer = self.open_block(work, block as u32, (from, to))?;
            let mut at = from as usize;
            for slice in cut(data, start + from - offset, to - from) {
                self.plan.buffers[buffer][at..at + slice.len()].copy_from_slice(slice);
                at += slice.len();
            }
        }
        self.extend(work, end);
        Ok(())
    }

    fn zero(&mut self, work: usize, offset: u64, len: u64) -> Result<()> {
        let end = Self::check_end(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let old_bytes = self.plan.works[work].bytes;
        self.punch(work, offset, end.min(old_bytes).max(offset))?;
        self.extend(work, end);
        Ok(())
    }

    fn truncate(&mut self, work: usize, bytes: u64) -> Result<()> {
        Self::check_end(bytes, 0)?;
        let old_bytes = self.plan.works[work].bytes;
        if bytes < old_bytes {
            self.punch(work, bytes, old_bytes)?;
            let state = &mut self.plan.works[work];
            state.base_bytes = state.base_bytes.min(bytes);
        }
        if bytes != old_bytes {
            let state = &mut self.plan.works[work];
            state.bytes = bytes;
            state.pending_bytes = Some(bytes);
        }
        Ok(())
    }

    /// Makes a range zero that lies in the object.
    fn punch(&mut self, work: usize, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        // What is behind the end of the object is zero already: its last block is whole.
        let end = if end >= self.plan.works[work].bytes {
            end.next_multiple_of(BLOCK_BYTES)
        } else {
            end
        };
        let (whole_first, whole_end) = whole_blocks(offset, end);
        if whole_first < whole_end {
            let count = (whole_end - whole_first) as u32;
            self.set(work, whole_first as u32, count, Source::Hole);
        }
        for (block, from, to) in partial_blocks(offset, end) {
            if self.is_hole(work, block as u32) {
                continue;
            }
            let buffer = self.open_block(work, block as u32, (from, to))?;
            self.plan.buffers[buffer][from as usize..to as usize].fill(0);
        }
        Ok(())
    }

    fn is_hole(&self, work: usize, block: u32) -> bool {
        let work = &self.plan.works[work];
        match work.view.get(block) {
            Some(piece) => matches!(piece.source, Source::Hole),
            None => match work.base {
                Some(base) if u64::from(block) * BLOCK_BYTES < work.base_bytes => {
                    let shard = self.objects.table.read(base.family);
                    shard.get(base).is_none_or(|node| node.extents.get(block).is_none())
                }
                _ => true,
            },
        }
    }

    /// A buffer with the content of a block, to be changed in the range `changed`. The old
    /// content is read only if some of it stays.
    fn open_block(&mut self, work: usize, block: u32, changed: (u64, u64)) -> Result<usize> {
        let state = &self.plan.works[work];
        let start = u64::from(block) * BLOCK_BYTES;
        let held = state.bytes.saturating_sub(start).min(BLOCK_BYTES);
        let keeps = (changed.0 > 0 && held > 0) || changed.1 < held;
        let shared = match state.view.get(block).map(|piece| piece.source) {
            // A buffer that only this object has, not yet among the effects, is changed in
            // place.
            Some(Source::Buffer(buffer))
                if state.pending.get(block).is_some_and(
                    |piece| matches!(piece.source, Source::Buffer(same) if same == buffer),
                ) =>
            {
                return Ok(buffer);
            }
            other => other,
        };
        let content = if keeps {
            self.read_block(work, block)?
        } else {
            vec![0; BLOCK_BYTES as usize]
        };
        let _ = shared;
        let buffer = self.plan.buffers.len();
        self.plan.buffers.push(content);
        self.set(work, block, 1, Source::Buffer(buffer));
        Ok(buffer)
    }

    /// The content of a block at this point, zeros behind the end of the object.
    fn read_block(&self, work: usize, block: u32) -> Result<Vec<u8>> {
        let mut content = vec![0; BLOCK_BYTES as usize];
        self.read_blocks(work, u64::from(block) * BLOCK_BYTES, &mut content)?;
        Ok(content)
    }

    /// The content of a range at this point: zeros where nothing is.
    fn read_blocks(&self, work: usize, offset: u64, into: &mut [u8]) -> Result<()> {
        let state = &self.plan.works[work];
        let mut at = offset;
        let end = offset + into.len() as u64;
        while at < end {
            let block = (at / BLOCK_BYTES) as u32;
            let block_start = u64::from(block) * BLOCK_BYTES;
            let piece = state.view.get(block);
            // As far as one source goes.
            let to = match piece {
                Some(piece) => (piece.end() * BLOCK_BYTES).min(end),
                None => {
                    let next = state.view.iter().map(|piece| u64::from(piece.first));
                    let next = next.filter(|first| *first > u64::from(block)).min();
                    next.map_or(end, |first| (first * BLOCK_BYTES).min(end))
                }
            };
            let part = &mut into[(at - offset) as usize..(to - offset) as usize];
            match piece.map(|piece| (piece, piece.source)) {
                Some((_, Source::Hole)) => part.fill(0),
                Some((piece, Source::Data { slices, offset: from })) => {
                    let skip = at - u64::from(piece.first) * BLOCK_BYTES;
                    let mut filled = 0;
                    for slice in cut(slices, from + skip, to - at) {
                        part[filled..filled + slice.len()].copy_from_slice(slice);
                        filled += slice.len();
                    }
                }
                Some((piece, Source::Buffer(buffer))) => {
                    // A buffer is one block.
                    debug_assert_eq!(piece.count, 1);
                    let from = (at - block_start) as usize;
                    let buffer = &self.plan.buffers[buffer];
                    part.copy_from_slice(&buffer[from..from + part.len()]);
                }
                None => {
                    let counts = state.base_bytes.clamp(at, to) - at;
                    let (read, zeros) = part.split_at_mut(counts as usize);
                    zeros.fill(0);
                    match state.base {
                        Some(base) => self.objects.read_node(self.log, base, at, read)?,
                        None => read.fill(0),
                    }
                }
            }
            at = to;
        }
        Ok(())
    }

    fn clone(
        &mut self,
        collection: &CollectionName,
        source: &ObjectName,
        target: &ObjectName,
    ) -> Result<()> {
        let from = self.find_existing(collection, source)?;
        if source == target {
            return Err(Error::InvalidArgument("an object is not cloned onto itself"));
        }
        if let Some(old) = self.find(collection, target)? {
            self.remove(old);
        }
        // The clone copies the node, so everything must have reached it.
        self.flush(from);
        let space = self.plan.works[from].space.clone();
        let work = self.new_work(space, target, Some(from));
        self.plan.effects.push(Effect::Clone { work, source: from });
        let values = self.omap_values(from)?;
        let (base, base_bytes, bytes, view) = {
            let from = &self.plan.works[from];
            (from.base, from.base_bytes, from.bytes, from.view.clone())
        };
        let to = &mut self.plan.works[work];
        (to.base, to.base_bytes, to.bytes, to.view) = (base, base_bytes, bytes, view);
        if !values.is_empty() {
            to.omap.push(OmapChange::Set(values));
        }
        Ok(())
    }

    fn clone_range(
        &mut self,
        collection: &CollectionName,
        source: &ObjectName,
        target: &ObjectName,
        source_offset: u64,
        len: u64,
        target_offset: u64,
    ) -> Result<()> {
        let from = self.find_existing(collection, source)?;
        let end = Self::check_end(target_offset, len)?;
        let source_end = source_offset.checked_add(len);
        if source_end.is_none_or(|end| end > self.plan.works[from].bytes) {
            return Err(Error::InvalidArgument("range of a clone"));
        }
        let to = self.find_or_create(collection, target)?;
        let mut at = 0;
        while at < len {
            // Block by block of the target: what is a hole stays one where it can.
            let block = (target_offset + at) / BLOCK_BYTES;
            let from_in_block = target_offset + at - block * BLOCK_BYTES;
            let count = (BLOCK_BYTES - from_in_block).min(len - at);
            let mut bytes = vec![0; count as usize];
            self.read_blocks(from, source_offset + at, &mut bytes)?;
            if bytes.iter().all(|byte| *byte == 0) {
                let start = target_offset + at;
                self.punch(to, start, (start + count).min(self.plan.works[to].bytes.max(start)))?;
            } else {
                let to_in_block = from_in_block + count;
                let buffer = self.open_block(to, block as u32, (from_in_block, to_in_block))?;
                self.plan.buffers[buffer][from_in_block as usize..to_in_block as usize]
                    .copy_from_slice(&bytes);
                self.extend(to, target_offset + at + count);
            }
            at += count;
        }
        self.plan.user_bytes += len;
        self.extend(to, if len == 0 { 0 } else { end });
        Ok(())
    }

    // Omap.

    fn omap(
        &mut self,
        collection: &CollectionName,
        object: &ObjectName,
        change: OmapChange<'t>,
    ) -> Result<()> {
        let work = self.find_existing(collection, object)?;
        self.plan.user_bytes += change.user_bytes();
        self.plan.works[work].omap.push(change);
        Ok(())
    }

    /// All keys and values of an object's omap at this point.
    fn omap_values(&self, work: usize) -> Result<BTreeMap<Cow<'t, [u8]>, Cow<'t, [u8]>>> {
        let state = &self.plan.works[work];
        let mut values = BTreeMap::new();
        if let Some(base) = state.omap_base {
            for (key, value) in self.objects.read_omap(self.log, base)? {
                values.insert(Cow::Owned(key), Cow::Owned(value));
            }
        }
        for change in &state.omap {
            change.apply_to(&mut values);
        }
        Ok(values)
    }

    // Effects.

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
                let stored_end = (last.end() * BLOCK_BYTES).min(bytes.max(
                    (last.end() - 1) * BLOCK_BYTES + 1,
                ));
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
            if parts.last().is_some_and(|last| last.end() != u64::from(piece.first)) {
                emit(&mut parts);
            }
            parts.push(*piece);
        }
        emit(&mut parts);
        for (first, end) in holes {
            effects.push(Effect::Unmap { work: number, first, end });
        }
        if let Some(bytes) = work.pending_bytes.take() {
            effects.push(Effect::Resize { work: number, bytes });
        }
        let clear = std::mem::take(&mut work.pending_clear);
        let changes = std::mem::take(&mut work.pending_attributes);
        if clear || !changes.is_empty() {
            effects.push(Effect::Attributes { work: number, clear, changes });
        }
        for change in work.omap.iter().skip(work.omap_done) {
            effects.push(Effect::Omap { work: number, change: change.clone() });
        }
        work.omap_done = work.omap.len();
    }
}

/// The blocks that lie wholly in a range of bytes.
fn whole_blocks(offset: u64, end: u64) -> (u64, u64) {
    (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES)
}

/// The blocks a range of bytes covers in part: block, and from and to in it.
fn partial_blocks(offset: u64, end: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let first = offset / BLOCK_BYTES;
    let last = (end - 1) / BLOCK_BYTES;
    let in_block = move |block: u64| {
        let start = block * BLOCK_BYTES;
        let from = offset.max(start) - start;
        let to = end.min(start + BLOCK_BYTES) - start;
        (block, from, to)
    };
    let is_partial = |(_, from, to): &(u64, u64, u64)| *from > 0 || *to < BLOCK_BYTES;
    let second = (last != first).then(|| in_block(last));
    [Some(in_block(first)), second]
        .into_iter()
        .flatten()
        .filter(move |part| is_partial(part))
}
