//! Reading omap values: many at once, with few reads of the device.

use std::ops::Bound;

use crate::device::AlignedBuf;
use crate::format::{Invalid, Kind, parse_record};
use crate::log::{Counters, Log, READ_RETRIES};
use crate::{Error, Result};

use super::records::split_omap_key;
use super::{ObjectId, Objects, OmapLocation};

/// An omap key and its value.
pub(crate) type OmapEntry = (Vec<u8>, Vec<u8>);

/// Values that lie within so many bytes are read at once, if no gap is wider than the other.
const SPAN_BYTES_MAX: u64 = 1 << 20;
const GAP_BYTES_MAX: u64 = 64 << 10;

impl Objects {
    /// Everything in an omap, in order.
    pub(crate) fn read_omap(&self, log: &Log, id: ObjectId) -> Result<Vec<OmapEntry>> {
        const AT_ONCE: usize = 1024;
        let mut all: Vec<OmapEntry> = Vec::new();
        loop {
            let bound = match all.last() {
                Some((key, _)) => Bound::Excluded(key.clone()),
                None => Bound::Unbounded,
            };
            let some = self.read_omap_from(log, id, bound.as_ref().map(Vec::as_slice), AT_ONCE)?;
            if some.is_empty() {
                return Ok(all);
            }
            all.extend(some);
        }
    }

    /// Up to `max` entries from a bound on. An object that is gone has none.
    pub(crate) fn read_omap_from(
        &self,
        log: &Log,
        id: ObjectId,
        bound: Bound<&[u8]>,
        max: usize,
    ) -> Result<Vec<OmapEntry>> {
        let mut found = Vec::new();
        {
            let shard = self.table.read(id.family);
            if let Some(omap) = shard.get(id).and_then(|node| node.omap.as_ref()) {
                omap.keys.read_from(bound, max, &mut found);
            }
        }
        self.read_values(log, id, found)
    }

    /// The values of keys, of those that are there.
    pub(crate) fn read_omap_keys<'k>(
        &self,
        log: &Log,
        id: ObjectId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Vec<OmapEntry>> {
        let mut found = Vec::new();
        {
            let shard = self.table.read(id.family);
            if let Some(omap) = shard.get(id).and_then(|node| node.omap.as_ref()) {
                found.extend(keys.filter_map(|key| Some((key.to_vec(), omap.keys.get(key)?))));
            }
        }
        self.read_values(log, id, found)
    }

    /// Values of keys by where they are. Those that moved or went meanwhile are looked up
    /// again; the order of the keys stays.
    fn read_values(
        &self,
        log: &Log,
        id: ObjectId,
        found: Vec<(Vec<u8>, u64)>,
    ) -> Result<Vec<OmapEntry>> {
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_unstable_by_key(|at| found[*at].1);
        let mut values: Vec<Option<Vec<u8>>> = vec![None; found.len()];
        let mut buffer = AlignedBuf::new();
        let mut at = 0;
        while at < order.len() {
            let run = self.run(log, &order[at..], &found);
            let members = &order[at..at + run];
            at += run;
            self.read_run(log, id, members, &found, &mut values, &mut buffer)?;
        }
        let mut entries = Vec::with_capacity(found.len());
        for ((key, bits), value) in found.into_iter().zip(values) {
            let value = match value {
                Some(value) => Some(value),
                None => self.read_value(log, id, &key, bits, &mut buffer)?,
            };
            entries.extend(value.map(|value| (key, value)));
        }
        Ok(entries)
    }

    /// How many of the first values can be read at once.
    fn run(&self, log: &Log, order: &[usize], found: &[(Vec<u8>, u64)]) -> usize {
        let place = |at: usize| {
            let location = OmapLocation::from_bits(found[at].1);
            let start = log.geometry().device_offset(location.address());
            (start, start + log.record_bytes(location.length()))
        };
        let segment = |offset: u64| {
            offset.saturating_sub(log.geometry().segment_offset(0)) / log.geometry().segment_bytes
        };
        let Some((first, mut end)) = order.first().map(|at| place(*at)) else {
            return 0;
        };
        let mut count = 1;
        for (start, next_end) in order[1..].iter().map(|at| place(*at)) {
            let fits = segment(start) == segment(first)
                && start <= end + GAP_BYTES_MAX
                && next_end - first <= SPAN_BYTES_MAX;
            if !fits {
                break;
            }
            end = end.max(next_end);
            count += 1;
        }
        count
    }

    fn read_run(
        &self,
        log: &Log,
        id: ObjectId,
        members: &[usize],
        found: &[(Vec<u8>, u64)],
        values: &mut [Option<Vec<u8>>],
        buffer: &mut AlignedBuf,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (members.first(), members.last()) else {
            return Ok(());
        };
        let first = OmapLocation::from_bits(found[*first].1);
        let last = OmapLocation::from_bits(found[*last].1);
        let Some((segment_id, segment, from)) = log.table().locate(first.address()) else {
            return Ok(());
        };
        let Some((_, _, last_from)) = log.table().locate(last.address()) else {
            return Ok(());
        };
        let end = last_from + log.record_bytes(last.length());
        let seed = segment.seed();
        let geometry = log.geometry();
        if end > u64::from(segment.written()) || end > geometry.segment_bytes {
            // Not all on the device yet: one by one.
            return Ok(());
        }
        let block = u64::from(geometry.block_bytes);
        let start = from / block * block;
        buffer.resize_for_overwrite((end.next_multiple_of(block) - start) as usize);
        log.read_device(geometry.segment_offset(segment_id) + start, buffer)?;
        for at in members {
            let location = OmapLocation::from_bits(found[*at].1);
            let Some((_, _, offset)) = log.table().locate(location.address()) else {
                continue;
            };
            let bytes = &buffer[(offset - start) as usize..];
            let len = log.record_bytes(location.length()) as usize;
            let bytes = bytes.get(..len).unwrap_or_default();
            if let Ok(record) = parse_record(bytes, seed, offset, geometry.unit_bytes) {
                values[*at] = value_of(&record, id, &found[*at].0).map(<[u8]>::to_vec);
            }
        }
        Ok(())
    }

    /// One value, looked up again as long as it moves; `None` when the key is gone.
    fn read_value(
        &self,
        log: &Log,
        id: ObjectId,
        key: &[u8],
        bits: u64,
        buffer: &mut AlignedBuf,
    ) -> Result<Option<Vec<u8>>> {
        let mut bits = bits;
        let mut attempt = 0;
        loop {
            let location = OmapLocation::from_bits(bits);
            let device_offset = log.geometry().device_offset(location.address());
            let Some((segment_id, segment, offset)) = log.table().locate(location.address()) else {
                return Err(Error::Corrupt {
                    offset: device_offset,
                    why: Invalid::Field("address"),
                });
            };
            let seed = segment.seed();
            let len = log.record_bytes(location.length());
            let geometry = log.geometry();
            let mut start = offset;
            let on_device = offset + len <= u64::from(segment.written());
            buffer.resize_for_overwrite(len as usize);
            if on_device || !log.appender().copy_pending(segment_id, offset as u32, buffer) {
                let block = u64::from(geometry.block_bytes);
                start = offset / block * block;
                let end = (offset + len).next_multiple_of(block).min(geometry.segment_bytes);
                buffer.resize_for_overwrite(end.saturating_sub(start) as usize);
                log.read_device(geometry.segment_offset(segment_id) + start, buffer)?;
            }
            let bytes = buffer.get((offset - start) as usize..).unwrap_or_default();
            let bytes = bytes.get(..len as usize).unwrap_or_default();
            let parsed = parse_record(bytes, seed, offset, geometry.unit_bytes);
            let value = parsed.as_ref().ok().and_then(|record| value_of(record, id, key));
            if let Some(value) = value {
                return Ok(Some(value.to_vec()));
            }
            let now = {
                let shard = self.table.read(id.family);
                let omap = shard.get(id).and_then(|node| node.omap.as_ref());
                omap.and_then(|omap| omap.keys.get(key))
            };
            match now {
                None => return Ok(None),
                Some(now) if now != bits || segment.seed() != seed => {
                    bits = now;
                    attempt = 0;
                }
                Some(_) if attempt < READ_RETRIES => {
                    attempt += 1;
                    Counters::add(&log.counters.read_retries, 1);
                }
                Some(_) => {
                    Counters::add(&log.counters.read_errors, 1);
                    return Err(Error::Corrupt {
                        offset: device_offset,
                        why: parsed.err().unwrap_or(Invalid::Field("omap key")),
                    });
                }
            }
        }
    }
}

/// The value in a record, if it is that of this key.
fn value_of<'r>(record: &crate::format::Record<'r>, id: ObjectId, key: &[u8]) -> Option<&'r [u8]> {
    let is_it = record.kind == Kind::OmapValue && split_omap_key(record.key) == Ok((id, key));
    is_it.then_some(record.value)
}
