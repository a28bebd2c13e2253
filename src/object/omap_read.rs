//! Reading omap values: many at once, with few reads of the device.

use std::ops::Bound;

use crate::device::AlignedBuf;
use crate::format::{Invalid, Kind, parse_record};
use crate::log::{Counters, Log, READ_RETRIES};
use crate::{Error, Result};

use super::omap::Omap;
use super::records::OmapRecord;
use super::{ObjectId, Objects, OmapLocation};

/// An omap key and its value.
pub(crate) type OmapEntry = (Vec<u8>, Vec<u8>);

/// A key that was found, and where its value is.
struct Found {
    key: Vec<u8>,
    first: OmapLocation,
    /// Of a value in several records.
    parts: Vec<OmapLocation>,
}

impl Found {
    fn new(key: &[u8], omap: &Omap) -> Option<Self> {
        let (first, parts) = omap.get(key)?;
        Some(Self {
            key: key.to_vec(),
            first,
            parts: parts.to_vec(),
        })
    }
}

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
                let mut left = max;
                let range = (bound, Bound::Unbounded);
                omap.keys.visit(range, &mut |key, bits| {
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    found.push(Found {
                        key: key.to_vec(),
                        first: OmapLocation::from_bits(bits),
                        parts: omap.parts_of(key).to_vec(),
                    });
                    true
                });
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
                found.extend(keys.filter_map(|key| Found::new(key, omap)));
            }
        }
        self.read_values(log, id, found)
    }

    /// Values of keys by where they are. Those that moved or went meanwhile are looked up
    /// again; the order of the keys stays.
    fn read_values(&self, log: &Log, id: ObjectId, found: Vec<Found>) -> Result<Vec<OmapEntry>> {
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_unstable_by_key(|at| found[*at].first.bits());
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
        for (found, value) in found.into_iter().zip(values) {
            let value = match value {
                Some(value) if found.parts.is_empty() => Some(value),
                _ => self.read_value(log, id, &found, &mut buffer)?,
            };
            entries.extend(value.map(|value| (found.key, value)));
        }
        Ok(entries)
    }

    /// How many of the first values can be read at once.
    fn run(&self, log: &Log, order: &[usize], found: &[Found]) -> usize {
        let place = |at: usize| {
            let location = found[at].first;
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
        found: &[Found],
        values: &mut [Option<Vec<u8>>],
        buffer: &mut AlignedBuf,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (members.first(), members.last()) else {
            return Ok(());
        };
        let first = found[*first].first;
        let last = found[*last].first;
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
            let location = found[*at].first;
            let Some((_, _, offset)) = log.table().locate(location.address()) else {
                continue;
            };
            let bytes = &buffer[(offset - start) as usize..];
            let len = log.record_bytes(location.length()) as usize;
            let bytes = bytes.get(..len).unwrap_or_default();
            if let Ok(record) = parse_record(bytes, seed, offset, geometry.unit_bytes) {
                let whole = OmapRecord::whole(id, &found[*at].key);
                values[*at] = value_of(&record, &whole).map(<[u8]>::to_vec);
            }
        }
        Ok(())
    }

    /// One value, looked up again as long as it moves; `None` when the key is gone.
    fn read_value(
        &self,
        log: &Log,
        id: ObjectId,
        found: &Found,
        buffer: &mut AlignedBuf,
    ) -> Result<Option<Vec<u8>>> {
        let mut first = found.first;
        let mut parts = found.parts.clone();
        let mut attempt = 0;
        loop {
            let count = parts.len() as u16 + 1;
            let mut value = Vec::new();
            let mut failed = None;
            for (part, location) in (0..).zip(std::iter::once(&first).chain(&parts)) {
                let record = OmapRecord {
                    id,
                    part,
                    parts: count,
                    key: &found.key,
                };
                if let Err(why) = self.read_part(log, &record, *location, buffer, &mut value)? {
                    failed = Some((*location, why));
                    break;
                }
            }
            let Some((location, why)) = failed else {
                return Ok(Some(value));
            };
            let now = {
                let shard = self.table.read(id.family);
                let omap = shard.get(id).and_then(|node| node.omap.as_ref());
                omap.and_then(|omap| Found::new(&found.key, omap))
            };
            let Some(now) = now else {
                return Ok(None);
            };
            if now.first != first || now.parts != parts {
                (first, parts) = (now.first, now.parts);
                attempt = 0;
                continue;
            }
            if attempt == READ_RETRIES {
                Counters::add(&log.counters.read_errors, 1);
                let offset = log.geometry().device_offset(location.address());
                return Err(Error::Corrupt { offset, why });
            }
            attempt += 1;
            Counters::add(&log.counters.read_retries, 1);
        }
    }

    /// Appends the value in one record to `value`; the inner error when it is not there.
    fn read_part(
        &self,
        log: &Log,
        expected: &OmapRecord<'_>,
        location: OmapLocation,
        buffer: &mut AlignedBuf,
        value: &mut Vec<u8>,
    ) -> Result<std::result::Result<(), Invalid>> {
        let Some((segment_id, segment, offset)) = log.table().locate(location.address()) else {
            return Ok(Err(Invalid::Field("address")));
        };
        let seed = segment.seed();
        let len = log.record_bytes(location.length());
        let geometry = log.geometry();
        let mut start = offset;
        let on_device = offset + len <= u64::from(segment.written());
        buffer.resize_for_overwrite(len as usize);
        if on_device
            || !log
                .appender()
                .copy_pending(segment_id, offset as u32, buffer)
        {
            let block = u64::from(geometry.block_bytes);
            start = offset / block * block;
            let end = (offset + len).next_multiple_of(block);
            let end = end.min(geometry.segment_bytes);
            buffer.resize_for_overwrite(end.saturating_sub(start) as usize);
            log.read_device(geometry.segment_offset(segment_id) + start, buffer)?;
        }
        let bytes = buffer.get((offset - start) as usize..).unwrap_or_default();
        let bytes = bytes.get(..len as usize).unwrap_or_default();
        Ok(
            match parse_record(bytes, seed, offset, geometry.unit_bytes) {
                Ok(record) => match value_of(&record, expected) {
                    Some(part) => {
                        value.extend_from_slice(part);
                        Ok(())
                    }
                    None => Err(Invalid::Field("omap key")),
                },
                Err(why) => Err(why),
            },
        )
    }
}

/// The value in a record, if it is the one expected.
fn value_of<'r>(record: &crate::format::Record<'r>, expected: &OmapRecord<'_>) -> Option<&'r [u8]> {
    let is_it =
        record.kind == Kind::OmapValue && OmapRecord::decode(record.key).as_ref() == Ok(expected);
    is_it.then_some(record.value)
}
