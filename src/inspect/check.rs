//! Comparing media with the index.
//!
//! The index is what an ordinary read-only open makes of the store. One pass over all
//! segments then counts, segment by segment, the bytes of records that the index points
//! to. Where that sum is the segment's count of live bytes, every entry in it is borne out
//! by a record of its key; only where it is not, entries are looked at one by one.

use std::collections::BTreeSet;

use crate::device::AlignedBuf;
use crate::format::{Cut, Invalid, Kind, RootRef, SegmentHeader, SegmentId, Superblock};
use crate::kv::{Belonging, KeyValue};
use crate::log::{Found, Log, LogOptions, open_log};
use crate::object::Objects;
use crate::store::Owners;
use crate::{Durability, Error, Result};

use super::checkpoints::{self, has_segment};
use super::ends::{Ends, Unsealed};
use super::media::Media;
use super::objects::ObjectCheck;
use super::report::{CheckOptions, CheckReport, Progress, Severity, Structure};
use super::walk::{Gap, Item, Life, Located, claimed};

/// Reads of a segment before damage in it is believed.
const READS: u32 = 3;

/// Checks a store.
pub(super) fn run(
    media: &Media,
    options: &CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport> {
    let mut report = CheckReport {
        list_max: options.list_max,
        segments: media.census(),
        ..CheckReport::default()
    };
    check_superblocks(media, &mut report);
    check_headers(media, &mut report);
    let roots = roots_of(media.superblock.as_ref());
    checkpoints::check(media, roots, &mut report);
    let opened = match open(media) {
        Ok(opened) => Some(opened),
        Err(Error::Corrupt { offset, why }) => {
            let detail = format!("the store does not open: {why}");
            report.error(Structure::Store, offset, detail);
            None
        }
        Err(other) => return Err(other),
    };
    report.opens = opened.is_some();
    let opened = opened.as_ref().map(|(log, owners)| (log, owners));
    walk_and_compare(media, opened, options.deep, report, progress)
}

/// Checks a store that is open: what it has in memory is taken instead of what an open makes
/// of media. Nobody writes meanwhile.
pub(super) fn run_open(
    media: &Media,
    log: &Log,
    owners: &Owners<Objects>,
    options: &CheckOptions,
) -> Result<CheckReport> {
    let mut report = CheckReport {
        list_max: options.list_max,
        segments: media.census(),
        opens: true,
        ..CheckReport::default()
    };
    check_superblocks(media, &mut report);
    check_headers(media, &mut report);
    checkpoints::check(media, roots_of(media.superblock.as_ref()), &mut report);
    walk_and_compare(
        media,
        Some((log, owners)),
        options.deep,
        report,
        &mut |_| {},
    )
}

fn walk_and_compare(
    media: &Media,
    opened: Option<(&Log, &Owners<Objects>)>,
    deep: bool,
    report: CheckReport,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport> {
    let cuts = match (opened, &media.superblock) {
        (Some((log, _)), _) => log.cuts(),
        (None, Some(superblock)) => superblock.cuts.clone(),
        (None, None) => Vec::new(),
    };
    let root = media.newest_root(roots_of(media.superblock.as_ref()));
    let mut check = Check {
        media,
        deep,
        opened,
        cuts,
        objects: ObjectCheck::new(root.as_ref()),
        covered: root.map(|root| root.covered_by_older).unwrap_or_default(),
        report,
        found_live: vec![0; media.headers.len()],
        pending: Vec::new(),
    };
    check.walk_all(progress)?;
    check.compare()?;
    let mut report = check.report;
    report.errors_before_repair = report.errors;
    Ok(report)
}

fn check_superblocks(media: &Media, report: &mut CheckReport) {
    let valid = media.slots.iter().filter(|slot| slot.content.is_ok());
    report.superblocks_valid = valid.count() as u32;
    let bad = || {
        let slots = media.slots.iter().zip([0, 1, 0, 1]);
        slots.filter(|(slot, _)| slot.content.is_err())
    };
    let mut pairs: Vec<u32> = bad().map(|(_, pair)| pair).collect();
    pairs.dedup();
    let same_pair = pairs.iter().all(|pair| Some(pair) == pairs.first());
    let is_clean = media
        .superblock
        .as_ref()
        .is_none_or(|superblock| superblock.clean.is_some());
    // A power cut in the middle of an update tears the slots of one pair, no more.
    let severity = if !is_clean && same_pair && report.superblocks_valid >= 2 {
        Severity::Warning
    } else {
        Severity::Error
    };
    for (slot, _) in bad() {
        if let Err(why) = &slot.content {
            let detail = format!("a superblock copy: {why}");
            report.find(severity, Structure::Superblock, slot.offset, detail);
        }
    }
}

fn check_headers(media: &Media, report: &mut CheckReport) {
    for (segment, found) in (0..).zip(&media.headers) {
        if let Found::Damaged(why) = found {
            let offset = media.geometry.segment_offset(segment);
            let detail = format!("the header of segment {segment}: {why}");
            report.error(Structure::SegmentHeader, offset, detail);
        }
    }
}

/// Opens the store read-only, as anybody would.
pub(super) fn open(media: &Media) -> Result<(Log, Owners<Objects>)> {
    let Some(current) = media.superblock.clone() else {
        return Err(Error::Corrupt {
            offset: 0,
            why: Invalid::Missing("every superblock"),
        });
    };
    if current.geometry.capacity > media.device.capacity() {
        return Err(Error::Corrupt {
            offset: media.device.capacity(),
            why: Invalid::Truncated,
        });
    }
    let owners = new_owners(media);
    let log = open_log(
        media.device.clone(),
        media.superblocks(current),
        log_options(true),
        &owners,
    )?;
    Ok((log, owners))
}

/// Owners with nothing in them, of a store that may have objects.
pub(super) fn new_owners(media: &Media) -> Owners<Objects> {
    let owners = Owners {
        kv: KeyValue::new(&media.geometry, 0, None, Durability::Committed),
        objects: Objects::new(&media.geometry, None),
    };
    owners.objects.set_in_use(true);
    owners
}

pub(super) fn log_options(read_only: bool) -> LogOptions {
    LogOptions {
        read_only,
        checkpoint_interval_bytes: None,
        discard_bytes_per_second: 0,
        first_number: 1,
    }
}

/// The last group of an epoch that counts.
pub(super) fn last_group(cuts: &[Cut], epoch: u64) -> u64 {
    let cut = cuts.iter().find(|cut| cut.epoch == epoch);
    cut.map_or(u64::MAX, |cut| cut.group)
}

/// Reads a segment until it is whole, or it is clear that it is not.
pub(super) fn read_life<'a>(
    media: &Media,
    header: SegmentHeader,
    last_group: u64,
    buffer: &'a mut AlignedBuf,
) -> Life<'a> {
    for read in 1..=READS {
        media.read_segment(header.segment, buffer);
        if read == READS || life_of(header, last_group, buffer, true).is_whole() {
            break;
        }
    }
    life_of(header, last_group, buffer, true)
}

/// As [`read_life`], without payload if all is whole without it.
fn read_life_without_payload<'a>(
    media: &Media,
    header: SegmentHeader,
    last_group: u64,
    buffer: &'a mut AlignedBuf,
) -> Life<'a> {
    media.read_records(&header, buffer);
    if life_of(header, last_group, buffer, false).is_whole() {
        life_of(header, last_group, buffer, false)
    } else {
        read_life(media, header, last_group, buffer)
    }
}

fn life_of(header: SegmentHeader, last_group: u64, bytes: &[u8], has_payload: bool) -> Life<'_> {
    Life {
        bytes,
        base: 0,
        header,
        last_group,
        has_payload,
    }
}

pub(super) struct Check<'m> {
    pub(super) media: &'m Media,
    pub(super) deep: bool,
    pub(super) opened: Option<(&'m Log, &'m Owners<Objects>)>,
    pub(super) cuts: Vec<Cut>,
    pub(super) objects: ObjectCheck,
    /// Segments whose damage no recovery can meet: both generations of images cover them.
    covered: Vec<u64>,
    pub(super) report: CheckReport,
    /// Bytes of live records found, by segment.
    pub(super) found_live: Vec<i64>,
    /// Damage whose weight depends on what is live there.
    pending: Vec<(SegmentId, Gap)>,
}

impl<'m> Check<'m> {
    fn walk_all(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let mut buffer = AlignedBuf::new();
        let superblock = self.media.superblock.as_ref();
        let crashed = superblock.filter(|found| found.clean.is_none());
        let unsettled = crashed.map(|found| found.epoch);
        let mut ends = Ends::new(self.media, unsettled, self.opened.is_none());
        let segment_bytes = self.media.geometry.segment_bytes;
        let total_bytes = self.media.data_segments().count() as u64 * segment_bytes;
        let mut done_bytes = 0;
        for header in self.media.data_segments() {
            let life = self.life(header, &mut buffer);
            let end = life.walk(&mut |item| {
                if let Item::Frame(frame) = &item {
                    ends.saw(header.epoch, frame.header.group, &frame.header.extents);
                }
                self.item(&header, item)
            })?;
            if !end.sealed {
                ends.unsealed.push(Unsealed { header, end });
            }
            done_bytes += segment_bytes;
            progress(Progress {
                done_bytes,
                total_bytes,
            });
        }
        for unsealed in &ends.unsealed {
            if let Some(tail) = ends.tail(unsealed, &self.cuts) {
                let header = unsealed.header;
                let life = read_life(self.media, header, u64::MAX, &mut buffer);
                life.tail(unsealed.end, tail, &mut |item| self.item(&header, item))?;
            }
        }
        Ok(())
    }

    /// Reads what the check looks at of a segment.
    pub(super) fn life<'a>(&self, header: SegmentHeader, buffer: &'a mut AlignedBuf) -> Life<'a> {
        let last_group = last_group(&self.cuts, header.epoch);
        if self.deep {
            read_life(self.media, header, last_group, buffer)
        } else {
            read_life_without_payload(self.media, header, last_group, buffer)
        }
    }

    fn item(&mut self, header: &SegmentHeader, item: Item<'_>) -> Result<()> {
        match item {
            Item::Frame(_) => Ok(()),
            Item::Record(located) => self.record(header, &located),
            Item::Gap(gap) => {
                self.report.damaged_places += 1;
                self.pending.push((header.segment, gap));
                Ok(())
            }
        }
    }

    fn record(&mut self, header: &SegmentHeader, located: &Located<'_>) -> Result<()> {
        if located.record.kind.is_of_objects() {
            self.object_record(header, located);
            return Ok(());
        }
        let Some((log, owners)) = self.opened else {
            self.report.dead_records += 1;
            return Ok(());
        };
        let kv = &owners.kv;
        let record = &located.record;
        let address = header.geometry.address(header.segment, located.offset);
        let entry = kv.entry_of(record).filter(|entry| entry.address == address);
        let Some(entry) = entry.filter(|_| !record.kind.is_tombstone()) else {
            self.report.dead_records += 1;
            return Ok(());
        };
        let bytes = log.record_bytes(entry.length);
        self.report.live_records += 1;
        self.report.live_bytes += bytes;
        if let Some(live) = self.found_live.get_mut(header.segment as usize) {
            *live += bytes as i64;
        }
        let offset = header.geometry.segment_offset(header.segment) + located.offset;
        if entry.length != record.length {
            let detail = "an entry has another length than its record".to_owned();
            self.report.error(Structure::Entry, offset, detail);
        }
        match record.kind {
            Kind::Head => {
                let missing = match kv.large_value(record) {
                    Some(value) => kv.missing_chunk(&value).map(|number| {
                        format!("chunk {number} of {} is missing", value.chunk_count)
                    }),
                    None => Some("the head makes no sense".into()),
                };
                let unreadable = self.deep && missing.is_none() && !reads(log, kv, record.key);
                let missing = missing.or(unreadable.then(|| "it cannot be read".into()));
                if let Some(missing) = missing {
                    let detail = format!("large value: {missing}");
                    self.report.error(Structure::Chunk, offset, detail);
                    self.report.lose(record.key);
                } else {
                    self.report.large_values += 1;
                }
            }
            Kind::Chunk => {
                if kv.belonging(log, record) == Belonging::Orphan {
                    let detail = "a chunk that no large value has".to_owned();
                    self.report.error(Structure::Chunk, offset, detail);
                }
            }
            Kind::Put | Kind::Delete | Kind::TrimChunks => {}
            Kind::Extent | Kind::Object | Kind::OmapValue => {}
        }
        Ok(())
    }

    /// Compares the sums, and judges the damage met.
    fn compare(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let Some((log, owners)) = self.opened else {
            for (segment, gap) in &pending {
                let severity = if gap.certain {
                    Severity::Error
                } else {
                    Severity::Warning
                };
                gap_found(self.media, severity, *segment, gap, &mut self.report);
            }
            return Ok(());
        };
        let kv = &owners.kv;
        self.report.entries = kv.entries();
        let geometry = &self.media.geometry;
        let mut sums = vec![0_i64; self.found_live.len()];
        let mut add = |address, bytes: u64| {
            let segment = geometry
                .locate(address)
                .map(|(segment, _)| segment as usize);
            if let Some(sum) = segment.and_then(|segment| sums.get_mut(segment)) {
                *sum += bytes as i64;
            }
        };
        self.compare_nodes(&mut add);
        kv.for_each_entry(&mut |entry| add(entry.address, log.record_bytes(entry.length)));
        let unequal: BTreeSet<SegmentId> = (0..)
            .zip(sums.iter().zip(&self.found_live))
            .filter(|(_, (sum, found))| sum != found)
            .map(|(segment, _)| segment)
            .collect();
        let mut suspects = Vec::new();
        if !unequal.is_empty() {
            kv.for_each_entry(&mut |entry| {
                let Some((segment, _)) = geometry.locate(entry.address) else {
                    return suspects.push(entry);
                };
                if unequal.contains(&segment) && kv.verify_entry(log, entry).is_err() {
                    suspects.push(entry);
                }
            });
        }
        let mut hurt = self.find_missing(&unequal)?;
        for entry in &suspects {
            let offset = geometry.device_offset(entry.address);
            if let Some((segment, in_segment)) = geometry.locate(entry.address) {
                hurt.insert((segment, in_segment));
            }
            let raw = self
                .media
                .read_around(offset, log.record_bytes(entry.length));
            let key = raw.as_deref().and_then(claimed).map(|(_, key)| key);
            let key = key.filter(|key| kv.entry_of_key(key) == Some(*entry));
            let detail = "the index has a record here that does not verify".to_owned();
            self.report.error(Structure::Record, offset, detail);
            if let Some(key) = key {
                self.report.lose(key);
            }
        }
        for ((segment, entry), sum) in log.table().iter().zip(&sums) {
            let counted = entry.live_bytes();
            if counted != *sum {
                let detail = format!("{counted} live bytes are counted, {sum} are referred to");
                let offset = geometry.segment_offset(segment);
                self.report.error(Structure::LiveBytes, offset, detail);
            }
        }
        self.compare_strays();
        for (segment, gap) in pending {
            let from = hurt.range((segment, gap.from)..(segment, gap.to)).next();
            let harmless = from.is_none() && has_segment(&self.covered, segment);
            // What is live there has been reported by itself.
            let severity = if harmless || from.is_some() {
                Severity::Warning
            } else {
                Severity::Error
            };
            gap_found(self.media, severity, segment, &gap, &mut self.report);
        }
        Ok(())
    }
}

fn reads(log: &Log, kv: &KeyValue, key: &[u8]) -> bool {
    matches!(kv.get(log, key), Ok(Some(_)))
}

fn gap_found(
    media: &Media,
    severity: Severity,
    segment: SegmentId,
    gap: &Gap,
    report: &mut CheckReport,
) {
    let structure = if gap.in_frame {
        Structure::Record
    } else {
        Structure::Frame
    };
    let offset = media.geometry.segment_offset(segment) + gap.from;
    let bytes = gap.to - gap.from;
    let what = if gap.in_frame { "records" } else { "frames" };
    let detail = if gap.certain {
        format!("{bytes} bytes of {what} in segment {segment}: {}", gap.why)
    } else {
        format!("the last frames of segment {segment} may be missing")
    };
    report.find(severity, structure, offset, detail);
}

/// The roots a superblock names.
pub(super) fn roots_of(superblock: Option<&Superblock>) -> &[RootRef] {
    superblock.map_or(&[], |superblock| &superblock.roots)
}
