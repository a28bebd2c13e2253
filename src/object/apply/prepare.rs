//! The records of a plan's effects, made before any lock is taken.

use crate::format::{
    COMMIT_STREAM, Geometry, Kind, LengthCode, RecordFields, content_hash, extent_key,
    extent_value, payload_checksum, record_length,
};
use crate::log::{self, Log, NewRecord, Purpose, Room, max_payload};
use crate::{Error, Result};

use super::super::attributes::pack_attribute;
use super::super::extents::Extent;
use super::super::omap_changes::OmapChange;
use super::super::pieces::{Piece, Source, cut};
use super::super::plan::{Effect, Plan};
use super::super::records::{OmapRecord, Operation, pack_key};
use super::super::{BLOCK_BYTES, ObjectId, Objects, payload_head, stored_name, tail_sectors};

/// Operations longer than this are several.
const OPERATION_BYTES: usize = 32 << 10;
/// What pads payload to whole blocks.
const ZEROS: [u8; 4096] = [0; 4096];

/// A record to be appended, with what its effect needs of it.
pub(super) struct Prepared<'p> {
    pub(super) kind: Kind,
    pub(super) key: Vec<u8>,
    pub(super) value: std::borrow::Cow<'p, [u8]>,
    pub(super) content: u64,
    pub(super) length: LengthCode,
    pub(super) head: u8,
    pub(super) payload: Vec<&'p [u8]>,
    pub(super) payload_bytes: u64,
    /// Of an extent.
    pub(super) first: u32,
    pub(super) checksums: Vec<u32>,
    pub(super) exponent: u8,
}

/// An extent of as many bytes costs little beside its payload.
const LARGE_EXTENT_BYTES: u64 = 32 << 10;

/// The most payload of one extent. What does not fit in the rest of a segment leaves it unused,
/// and objects are often as large as a segment, so an extent is a small part of one.
fn largest_extent(geometry: &Geometry) -> u64 {
    let part = (geometry.segment_bytes / 16).max(LARGE_EXTENT_BYTES);
    u64::from(max_payload(geometry)).min(part) / BLOCK_BYTES * BLOCK_BYTES
}

/// Takes prepared records off the list, one effect after another.
pub(super) struct Cursor<'p> {
    pub(super) prepared: Vec<Prepared<'p>>,
    /// How many records each effect has.
    pub(super) counts: Vec<usize>,
}

impl Objects {
    pub(super) fn prepare<'p>(
        &self,
        log: &Log,
        plan: &'p Plan<'_>,
        ids: &[ObjectId],
        is_busy: bool,
    ) -> Result<Cursor<'p>> {
        let mut cursor = Cursor {
            prepared: Vec::with_capacity(plan.effects.len() + 2),
            counts: Vec::with_capacity(plan.effects.len()),
        };
        let unit_bytes = log.geometry().unit_bytes;
        // A record leaves the rest of a segment unused where it does not fit.
        let part_bytes = (log.geometry().segment_bytes / 8) as usize;
        for effect in &plan.effects {
            let before = cursor.prepared.len();
            let mut operation = |id, operation: Operation<'_>| {
                let encoded = operation.encode(id);
                cursor.push(
                    Kind::Object,
                    encoded.key.to_vec(),
                    encoded.value.into(),
                    unit_bytes,
                )
            };
            match effect {
                Effect::Create { work } => {
                    let name = self.stored_name(plan, *work);
                    operation(ids[*work], Operation::Create { name: &name })?;
                }
                Effect::Clone { work, source } => {
                    let name = self.stored_name(plan, *work);
                    let source = ids[*source].member;
                    operation(
                        ids[*work],
                        Operation::Clone {
                            source,
                            name: &name,
                        },
                    )?;
                }
                Effect::Remove { work } => operation(ids[*work], Operation::Remove)?,
                Effect::Rename { work, name } => {
                    let name = stored_name(plan.works[*work].space.id, name);
                    operation(ids[*work], Operation::Rename { name: &name })?;
                }
                Effect::Resize { work, bytes } => {
                    operation(ids[*work], Operation::Resize { bytes: *bytes })?;
                }
                Effect::Unmap { work, first, end } => {
                    let unmap = Operation::Unmap {
                        first: *first,
                        end: *end,
                    };
                    operation(ids[*work], unmap)?;
                }
                Effect::Hint { work, bits } => {
                    operation(ids[*work], Operation::Hint { bits: *bits })?;
                }
                Effect::Attributes {
                    work,
                    clear,
                    changes,
                } => {
                    if *clear {
                        operation(ids[*work], Operation::ClearAttributes)?;
                    }
                    let (mut set, mut removed) = (Vec::new(), Vec::new());
                    for (name, value) in changes {
                        let Some(value) = value else {
                            pack_attribute(name, &[], &mut removed);
                            continue;
                        };
                        let (first, rest) = value.split_at(value.len().min(OPERATION_BYTES));
                        pack_attribute(name, first, &mut set);
                        if !rest.is_empty() {
                            // What one record has comes first.
                            let packed = std::mem::take(&mut set);
                            let first = Operation::SetAttributes { packed: &packed };
                            operation(ids[*work], first)?;
                        }
                        for more in rest.chunks(OPERATION_BYTES) {
                            let mut packed = Vec::new();
                            pack_attribute(name, more, &mut packed);
                            let more = Operation::ExtendAttribute { packed: &packed };
                            operation(ids[*work], more)?;
                        }
                        if set.len() >= OPERATION_BYTES {
                            let packed = std::mem::take(&mut set);
                            let set = Operation::SetAttributes { packed: &packed };
                            operation(ids[*work], set)?;
                        }
                    }
                    if !set.is_empty() {
                        operation(ids[*work], Operation::SetAttributes { packed: &set })?;
                    }
                    if !removed.is_empty() {
                        let removed = Operation::RemoveAttributes { packed: &removed };
                        operation(ids[*work], removed)?;
                    }
                }
                Effect::Omap { work, change } => match change {
                    OmapChange::Clear => operation(ids[*work], Operation::OmapClear)?,
                    OmapChange::Header(header) => {
                        let (first, rest) = header.split_at(header.len().min(OPERATION_BYTES));
                        operation(ids[*work], Operation::OmapHeader { header: first })?;
                        for header in rest.chunks(OPERATION_BYTES) {
                            operation(ids[*work], Operation::ExtendOmapHeader { header })?;
                        }
                    }
                    OmapChange::RemoveRange(first, last) => {
                        if first < last {
                            let range = Operation::OmapRemoveRange { first, last };
                            operation(ids[*work], range)?;
                        }
                    }
                    OmapChange::Remove(keys) => {
                        let mut packed = Vec::new();
                        for key in keys {
                            pack_key(key, &mut packed);
                            if packed.len() >= OPERATION_BYTES {
                                let some = std::mem::take(&mut packed);
                                operation(ids[*work], Operation::OmapRemove { packed: &some })?;
                            }
                        }
                        if !packed.is_empty() {
                            operation(ids[*work], Operation::OmapRemove { packed: &packed })?;
                        }
                    }
                    OmapChange::Set(entries) => {
                        for (key, value) in entries {
                            cursor.push_value(ids[*work], key, value, part_bytes, unit_bytes)?;
                        }
                    }
                },
                Effect::Write {
                    work,
                    first,
                    parts,
                    stored_bytes,
                } => {
                    let exponent = self.exponent_of(log, ids[*work], *first);
                    let head = if is_busy {
                        payload_head(exponent)
                    } else {
                        COMMIT_STREAM
                    };
                    let extents = Extents {
                        plan,
                        id: ids[*work],
                        parts,
                        stored_bytes: log.geometry().round_to_block(*stored_bytes),
                        largest: largest_extent(log.geometry()),
                    };
                    for mut prepared in extents.split(*first, unit_bytes)? {
                        prepared.head = head;
                        prepared.exponent = exponent;
                        cursor.prepared.push(prepared);
                    }
                }
                Effect::Collection { slot, exists, bits } => {
                    let name = slot.name.to_string();
                    let name = name.as_bytes();
                    let change = if *exists {
                        Operation::CollectionSet { bits: *bits, name }
                    } else {
                        Operation::CollectionRemove { name }
                    };
                    operation(
                        ObjectId {
                            family: 0,
                            member: 0,
                        },
                        change,
                    )?;
                }
            }
            cursor.counts.push(cursor.prepared.len() - before);
        }
        let most = log.geometry().segment_bytes / 2;
        let too_long = cursor
            .prepared
            .iter()
            .find(|prepared| log.record_bytes(prepared.length) > most);
        if let Some(prepared) = too_long {
            return Err(Error::TooLarge {
                what: "attribute or omap value",
                len: prepared.value.len() as u64,
                max: most,
            });
        }
        Ok(cursor)
    }

    pub(super) fn stored_name(&self, plan: &Plan<'_>, work: usize) -> Vec<u8> {
        let work = &plan.works[work];
        stored_name(work.space.id, &work.name)
    }

    /// The rewrite-interval exponent of a block that is overwritten.
    pub(super) fn exponent_of(&self, log: &Log, id: ObjectId, block: u32) -> u8 {
        let old = self
            .table
            .read(id.family)
            .get(id)
            .and_then(|node| node.extents.get(block));
        let Some(old) = old else {
            return log::first_exponent();
        };
        let Some((_, segment, _)) = log.table().locate(old.address) else {
            return old.exponent;
        };
        let interval = log.clock().saturating_sub(segment.mean_clock());
        log::next_exponent(
            old.exponent,
            interval,
            log.table().live_total(),
            old.checksum,
        )
    }
}

impl<'p> Prepared<'p> {
    pub(super) fn record(&self) -> NewRecord<'_> {
        NewRecord {
            fields: RecordFields {
                kind: self.kind,
                relocated: false,
                key: &self.key,
                value: &self.value,
                content: self.content,
            },
            length: self.length,
            head: self.head,
            // Room was counted; the floor must not stop the transaction in its middle.
            purpose: Purpose::Counted,
            clock: None,
            payload: (self.payload_bytes > 0).then_some(self.payload.as_slice()),
        }
    }

    pub(super) fn extent(&self, address: crate::format::Address) -> Extent<'_> {
        Extent {
            first: self.first,
            address,
            tail_sectors: tail_sectors(self.payload_bytes),
            exponent: self.exponent,
            checksums: &self.checksums,
        }
    }
}

impl<'p> Cursor<'p> {
    pub(super) fn push(
        &mut self,
        kind: Kind,
        key: Vec<u8>,
        value: std::borrow::Cow<'p, [u8]>,
        unit_bytes: u32,
    ) -> Result<()> {
        self.prepared.push(prepared(kind, key, value, unit_bytes)?);
        Ok(())
    }

    /// Pushes an omap value, in parts if it is long.
    pub(super) fn push_value(
        &mut self,
        id: ObjectId,
        key: &[u8],
        value: &'p [u8],
        part_bytes: usize,
        unit_bytes: u32,
    ) -> Result<()> {
        if value.len() <= part_bytes {
            let key = OmapRecord::whole(id, key).encode();
            return self.push(Kind::OmapValue, key, value.into(), unit_bytes);
        }
        let parts = value.len().div_ceil(part_bytes) as u16;
        for (part, bytes) in (0..).zip(value.chunks(part_bytes)) {
            let record = OmapRecord {
                id,
                part,
                parts,
                key,
            };
            self.push(Kind::OmapValue, record.encode(), bytes.into(), unit_bytes)?;
        }
        Ok(())
    }

    pub(super) fn rooms(&self, log: &Log, purpose: Purpose, growth: u64) -> Vec<Room> {
        let mut rooms: Vec<Room> = Vec::new();
        for prepared in &self.prepared {
            let bytes = log.record_bytes(prepared.length);
            let room = match rooms.iter_mut().find(|room| room.head == prepared.head) {
                Some(room) => room,
                None => {
                    rooms.push(Room::new(prepared.head, purpose));
                    let Some(room) = rooms.last_mut() else {
                        unreachable!("one was just pushed")
                    };
                    room
                }
            };
            room.add(bytes, prepared.payload_bytes);
        }
        if let Some(room) = rooms.first_mut() {
            room.image_growth = growth;
        }
        rooms
    }

    pub(super) fn record_bytes(&self, log: &Log) -> u64 {
        self.prepared
            .iter()
            .map(|prepared| log.record_bytes(prepared.length))
            .sum()
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        self.prepared
            .iter()
            .map(|prepared| prepared.payload_bytes)
            .sum()
    }

    /// Bytes that stay: payload and omap values.
    pub(super) fn live_bytes(&self, log: &Log) -> u64 {
        let values = self
            .prepared
            .iter()
            .filter(|prepared| prepared.kind == Kind::OmapValue);
        values
            .map(|value| log.record_bytes(value.length))
            .sum::<u64>()
            + self.payload_bytes()
    }
}

fn prepared<'p>(
    kind: Kind,
    key: Vec<u8>,
    value: std::borrow::Cow<'p, [u8]>,
    unit_bytes: u32,
) -> Result<Prepared<'p>> {
    let length = record_length(kind, key.len(), value.len(), unit_bytes)
        .ok_or(Error::InvalidArgument("record length"))?;
    Ok(Prepared {
        kind,
        content: content_hash(&key, &value),
        key,
        value,
        length,
        head: COMMIT_STREAM,
        payload: Vec::new(),
        payload_bytes: 0,
        first: 0,
        checksums: Vec::new(),
        exponent: 0,
    })
}

/// One effect's data, to be cut into extents.
struct Extents<'a, 'p, 't> {
    plan: &'p Plan<'t>,
    id: ObjectId,
    parts: &'a [Piece<'t>],
    /// Bytes to store of all parts, whole blocks of the device.
    stored_bytes: u64,
    /// Most payload of one extent, whole logical blocks.
    largest: u64,
}

impl<'p> Extents<'_, 'p, '_> {
    pub(super) fn split(&self, first: u32, unit_bytes: u32) -> Result<Vec<Prepared<'p>>> {
        let mut all = Vec::new();
        let mut at = 0;
        while at < self.stored_bytes {
            let bytes = (self.stored_bytes - at).min(self.largest);
            let payload = self.slices(at, bytes);
            let checksums = checksums(&payload);
            let first = first + (at / BLOCK_BYTES) as u32;
            let value = extent_value(bytes as u32, first, &[], &checksums);
            let key = extent_key(self.id.family, self.id.member).to_vec();
            let mut extent = prepared(Kind::Extent, key, value.into(), unit_bytes)?;
            extent.payload = payload;
            extent.payload_bytes = bytes;
            extent.first = first;
            extent.checksums = checksums;
            all.push(extent);
            at += bytes;
        }
        Ok(all)
    }

    /// The bytes from `at` on, zeros behind the end of the data.
    pub(super) fn slices(&self, at: u64, bytes: u64) -> Vec<&'p [u8]> {
        let mut slices: Vec<&'p [u8]> = Vec::new();
        let (mut skip, mut left) = (at, bytes);
        for part in self.parts {
            let len = u64::from(part.count) * BLOCK_BYTES;
            if skip >= len {
                skip -= len;
                continue;
            }
            let take = (len - skip).min(left);
            match part.source {
                Source::Data {
                    slices: data,
                    offset,
                } => {
                    slices.extend(cut(data, offset + skip, take));
                }
                Source::Buffer(buffer) => {
                    let buffer: &'p [u8] = &self.plan.buffers[buffer];
                    slices.push(&buffer[skip as usize..(skip + take) as usize]);
                }
                Source::Hole => unreachable!("holes are not stored"),
            }
            left -= take;
            skip = 0;
            if left == 0 {
                break;
            }
        }
        while left > 0 {
            let take = left.min(ZEROS.len() as u64);
            slices.push(&ZEROS[..take as usize]);
            left -= take;
        }
        slices
    }
}

/// A checksum for each logical block of slices.
fn checksums(slices: &[&[u8]]) -> Vec<u32> {
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut sums = Vec::with_capacity(bytes.div_ceil(BLOCK_BYTES as usize));
    let mut block: Vec<u8> = Vec::new();
    for slice in slices {
        let mut rest = *slice;
        while !rest.is_empty() {
            let wanted = BLOCK_BYTES as usize - block.len();
            let (part, behind) = rest.split_at(wanted.min(rest.len()));
            rest = behind;
            if block.is_empty() && part.len() == BLOCK_BYTES as usize {
                sums.push(payload_checksum(part));
                continue;
            }
            // A block over several slices.
            block.extend_from_slice(part);
            if block.len() == BLOCK_BYTES as usize {
                sums.push(payload_checksum(&block));
                block.clear();
            }
        }
    }
    if !block.is_empty() {
        sums.push(payload_checksum(&block));
    }
    sums
}
