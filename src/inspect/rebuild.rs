//! Making the index anew from the log, and making that durable.
//!
//! Images that can be read are used, partition by partition; for the rest the whole log is
//! replayed, frame by frame in the order of groups, going on behind damage. Then one more
//! pass takes out chunks without their head and heads without their chunks, and lists the
//! keys that are in doubt. Memory: the index, a few dozen bytes for each frame, one segment.

use std::collections::HashSet;

use crate::device::{AlignedBuf, WriteOp};
use crate::format::{
    Class, Piece, PieceHeader, PieceKind, Root, RootRef, SegmentHeader, SegmentId, Seqno,
    Superblock,
};
use crate::log::{Lane, Log, Owner, Position, Rebuilt, log_to_rebuild};
use crate::object::Objects;
use crate::store::Owners;
use crate::{Error, Result};

use super::check::{log_options, new_owners};
use super::doubt::{Doubt, Loaded};
use super::media::Media;
use super::order::{FrameRef, Loose, Order, Settled, survey};
use super::repair::highest_sequence;
use super::report::{CheckReport, Progress, Structure};
use super::restore::{self, Restored};
use super::salvage::Salvage;
use super::walk::{Item, Life, PayloadAt};

/// Epochs left out when the superblocks are lost: the last opens may have left traces that
/// only their epoch tells from what is written next.
const EPOCHS_LEFT_OUT: u64 = 1 << 10;
/// Images written at most between two roots: a root that is older by more is not the newest.
const IMAGES_A_ROOT: u64 = 8;

/// Rebuilds a store that does not open.
pub(super) fn run(
    mut media: Media,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    if media.geometry.capacity > media.device.capacity() {
        // Writing would go past the end.
        return Err(Error::InvalidArgument(
            "the store is larger than its file or device; enlarge that to repair it",
        ));
    }
    if media.geometry.block_bytes < media.device.block_bytes() {
        return Err(Error::InvalidArgument(
            "the device's blocks are larger than the store's",
        ));
    }
    let restored = restore::headers(&mut media);
    for segment in &restored.given_up {
        let offset = media.geometry.segment_offset(*segment);
        let detail = format!("nothing verifies in segment {segment}: what it held is lost");
        report.error(Structure::SegmentHeader, offset, detail);
    }
    let lost_superblocks = media.superblock.is_none();
    let sequences = find_pieces(&media);
    let epochs = media.used_headers().map(|header| header.epoch);
    let epoch_max = epochs.max().unwrap_or(1);
    let mut superblock = media.superblock.clone().unwrap_or_else(|| Superblock {
        sequence: 0,
        geometry: media.geometry,
        epoch: epoch_max + EPOCHS_LEFT_OUT,
        cuts: Vec::new(),
        clean: None,
        roots: sequences.newest_root.iter().cloned().collect(),
    });
    superblock.sequence = highest_sequence(&media);
    let unsettled = match &media.superblock {
        Some(found) if found.clean.is_some() => None,
        Some(found) => Some(found.epoch),
        None => Some(epoch_max),
    };
    let roots = superblock.roots.clone();
    let newest = media.newest_root(&roots);
    let before = media.newest_root(roots.get(1..).unwrap_or_default());
    let root = newest.as_ref().or(before.as_ref());
    let clean_seqno = superblock.clean.map_or(1, |clean| clean.next_seqno);
    let clean_group = superblock.clean.map_or(1, |clean| clean.next_group);
    let cuts = superblock.cuts.clone();
    let owners = new_owners(&media);
    let log = log_to_rebuild(
        media.device.clone(),
        media.superblocks(superblock),
        log_options(false),
        &media.headers,
    );
    let images = load_images(&media, &log, &owners, root, newest.is_some(), &restored);
    let loaded = images.iter().flatten().count();
    let settled = Settled {
        cuts,
        unsettled,
        others: lost_superblocks || loaded < images.len(),
        committed_below: root.map_or(0, newest_horizon),
    };
    let order = survey(&media, &settled, progress)?;
    write_headers(&media, &restored.headers)?;
    let doubt = Doubt::new(&media, &order, &restored, newest.as_ref(), images);
    let mut rebuild = Rebuild {
        media: &media,
        log: &log,
        owners: &owners,
        doubt,
        salvage: Salvage::default(),
        report,
    };
    rebuild.replay(&order)?;
    rebuild.finish_objects(&restored.given_up)?;
    rebuild.tidy(&settled.cuts, &order, progress)?;
    let seqno = root.map_or(1, |root| root.next_seqno);
    let clock = root.map_or(0, |root| root.clock);
    log.finish_rebuild(
        &owners,
        &Rebuilt {
            next_seqno: (order.last_seqno + 1).max(seqno).max(clean_seqno),
            next_group: (order.last_group + 1).max(clean_group),
            clock: order.clock.max(clock),
            cut: order.cut,
            root_sequence: sequences.root,
            image_sequence: sequences.image,
            given_up: restored.given_up.clone(),
        },
        &media.headers,
    )?;
    tell_repairs(report, &restored, lost_superblocks, loaded, &owners);
    Ok(())
}

fn tell_repairs(
    report: &mut CheckReport,
    restored: &Restored,
    lost_superblocks: bool,
    loaded: usize,
    owners: &Owners<Objects>,
) {
    let repairs = &mut report.repairs;
    if lost_superblocks {
        repairs.push("the superblock is made anew from segment headers".into());
    }
    for header in &restored.headers {
        let segment = header.segment;
        repairs.push(format!(
            "the header of segment {segment} is told from its content"
        ));
    }
    for segment in &restored.given_up {
        repairs.push(format!(
            "segment {segment} holds nothing that verifies; it is free now"
        ));
    }
    let (entries, objects) = (owners.kv.entries(), owners.objects.count());
    repairs.push(format!(
        "the index is made anew: {loaded} partitions from images, the rest from the log; \
         {entries} entries, {objects} objects"
    ));
}

/// Writes restored headers in place: their blocks hold nothing else.
fn write_headers(media: &Media, headers: &[SegmentHeader]) -> Result<()> {
    for header in headers {
        let mut block = AlignedBuf::zeroed(media.geometry.header_bytes() as usize);
        header.encode(&mut block);
        let offset = media.geometry.segment_offset(header.segment);
        let data = &block;
        let written = media.device.write_and_flush(&[WriteOp { offset, data }]);
        written.map_err(|source| Error::Io {
            op: "write and flush",
            offset,
            source,
        })?;
    }
    Ok(())
}

/// The highest sequences of roots and images on media, and the newest root.
#[derive(Default)]
struct Sequences {
    root: u64,
    image: u64,
    newest_root: Option<RootRef>,
}

/// Looks through the checkpoint segments.
fn find_pieces(media: &Media) -> Sequences {
    let mut sequences = Sequences::default();
    for root in super::check::roots_of(media.superblock.as_ref()) {
        sequences.root = sequences.root.max(root.sequence);
    }
    let mut newest: Option<(RootRef, u64)> = None;
    let mut buffer = AlignedBuf::new();
    let block = media.geometry.block_bytes as usize;
    let of_checkpoint = media
        .used_headers()
        .filter(|header| header.class == Class::Checkpoint);
    for header in of_checkpoint {
        media.read_segment(header.segment, &mut buffer);
        for offset in (block..buffer.len()).step_by(block) {
            let bytes = buffer.get(offset..).unwrap_or_default();
            let Ok((piece, body)) = PieceHeader::decode(bytes, header.seed(), offset as u64) else {
                continue;
            };
            if piece.kind == PieceKind::Image {
                sequences.image = sequences.image.max(piece.sequence);
                continue;
            }
            sequences.root = sequences.root.max(piece.sequence);
            let copy = Piece {
                segment: header.segment,
                offset: offset as u32,
                bytes: (crate::format::PIECE_HEADER_BYTES + body.len()) as u32,
            };
            let Ok(root) = Root::decode(body) else {
                continue;
            };
            match &mut newest {
                Some((known, _)) if known.sequence > piece.sequence => {}
                Some((known, _)) if known.sequence == piece.sequence => known.copies.push(copy),
                _ => {
                    let found = RootRef {
                        sequence: piece.sequence,
                        copies: vec![copy],
                    };
                    newest = Some((found, newest_image(&root)));
                }
            }
        }
    }
    // Images that no root names are of the root under way, or the newest root is lost.
    let is_newest = |image: u64| sequences.image <= image + IMAGES_A_ROOT;
    sequences.newest_root = newest
        .filter(|(_, image)| is_newest(*image))
        .map(|(root, _)| root);
    sequences
}

/// The highest horizon of a root's newest images.
fn newest_horizon(root: &Root) -> Seqno {
    let images = root.partitions.iter().flat_map(|images| &images.newest);
    images.map(|image| image.horizon).max().unwrap_or(0)
}

fn newest_image(root: &Root) -> u64 {
    let images = root.partitions.iter().flat_map(|images| &images.newest);
    images.map(|image| image.sequence).max().unwrap_or(0)
}

/// Loads the newest readable image of each partition.
fn load_images(
    media: &Media,
    log: &Log,
    owners: &Owners<Objects>,
    root: Option<&Root>,
    is_newest: bool,
    restored: &Restored,
) -> Vec<Option<Loaded>> {
    let of_kv = owners.kv.partition_count();
    let mut loaded = vec![None; owners.partition_count() as usize];
    let Some(root) = root.filter(|root| root.partitions.len() >= of_kv as usize) else {
        return loaded;
    };
    // Under the root before, the newest images are at least the older ones of the newest
    // root, by whose horizon the cleaner leaves out tombstones and operations.
    let left_out = if is_newest { 0 } else { root.newest_horizon };
    let given_up: HashSet<SegmentId> = restored.given_up.iter().copied().collect();
    for (partition, used) in (0..).zip(&mut loaded) {
        let Some(images) = root.partitions.get(partition as usize) else {
            // There were no objects then.
            *used = Some(Loaded {
                horizon: root.newest_horizon,
                left_out: 0,
            });
            continue;
        };
        for image in [&images.newest, &images.older].into_iter().flatten() {
            let read = media.verify_image(partition, image, &mut |body| {
                owners.load_image(log, partition, body)
            });
            // An entry in a segment that is gone would have to be found in the log again.
            let is_gone = |address| {
                let segment = media.geometry.locate(address);
                segment.is_none_or(|(segment, _)| {
                    given_up.contains(&segment) || !is_data(media, segment)
                })
            };
            let is_whole = image.pieces.is_empty() || owners.partition_is_whole(partition);
            let sound = read.is_ok()
                && is_whole
                && (partition >= of_kv
                    || !owners
                        .kv
                        .any_entry(partition, &mut |entry| is_gone(entry.address)));
            if sound {
                let is_safe = image.horizon >= left_out;
                *used = Some(Loaded {
                    horizon: image.horizon,
                    left_out: if is_safe { 0 } else { left_out },
                });
                break;
            }
            owners.clear_partition(log, partition);
        }
    }
    loaded
}

pub(super) fn is_data(media: &Media, segment: SegmentId) -> bool {
    media
        .header(segment)
        .is_some_and(|header| matches!(header.class, Class::Data(_)))
}

/// A rebuild under way.
pub(super) struct Rebuild<'a> {
    pub(super) media: &'a Media,
    pub(super) log: &'a Log,
    pub(super) owners: &'a Owners<Objects>,
    pub(super) doubt: Doubt,
    pub(super) salvage: Salvage,
    pub(super) report: &'a mut CheckReport,
}

impl Rebuild<'_> {
    /// Replays groups in order, and records without a frame where their seqnos belong.
    fn replay(&mut self, order: &Order) -> Result<()> {
        let mut loose = order.loose.iter().peekable();
        for group in order.frames.chunk_by(|one, other| one.group == other.group) {
            let last = group
                .iter()
                .map(|frame| frame.last_seqno)
                .max()
                .unwrap_or(0);
            let mut some = Vec::new();
            while let Some(record) = loose.next_if(|record| record.seqno <= last) {
                some.push(*record);
            }
            self.group(group, &some)?;
        }
        for record in loose {
            self.group(&[], &[*record])?;
        }
        Ok(())
    }

    fn group(&mut self, frames: &[FrameRef], loose: &[Loose]) -> Result<()> {
        let read = |segment, offset: u32, bytes: u32| {
            let header = *self.media.header(segment)?;
            let at = header.geometry.segment_offset(segment) + u64::from(offset);
            let bytes = self.media.read_around(at, u64::from(bytes))?;
            Some((header, u64::from(offset), bytes))
        };
        let frames: Vec<_> = frames
            .iter()
            .filter_map(|frame| read(frame.segment, frame.offset, frame.bytes))
            .collect();
        let loose: Vec<_> = loose
            .iter()
            .filter_map(|one| Some((one.seqno, read(one.segment, one.offset, one.bytes)?)))
            .collect();
        let mut records = Vec::new();
        let position = |header: &SegmentHeader, offset, seqno| Position {
            address: header.geometry.address(header.segment, offset),
            seqno,
            head: match header.class {
                Class::Data(head) => head,
                _ => crate::format::COMMIT_STREAM,
            },
            payload: None,
        };
        let payload_of = |header: &SegmentHeader, at: Option<PayloadAt>| {
            at.map(|at| header.geometry.address(header.segment, at.offset))
        };
        let life = |header: &SegmentHeader, base, bytes| Life {
            bytes,
            base,
            header: *header,
            last_group: u64::MAX,
            has_payload: true,
        };
        for (header, offset, bytes) in &frames {
            life(header, *offset, bytes).visit_frame(*offset, &mut |item| {
                if let Item::Record(found) = item {
                    let position = Position {
                        payload: payload_of(header, found.payload),
                        ..position(header, found.offset, found.seqno)
                    };
                    records.push((position, found.record, found.exact));
                }
                Ok(())
            })?;
        }
        for (seqno, (header, offset, bytes)) in &loose {
            let to = offset + bytes.len() as u64;
            if let Ok(record) = life(header, *offset, bytes).record_at(*offset, to) {
                records.push((position(header, *offset, *seqno), record, false));
            }
        }
        records.sort_by_key(|(position, ..)| position.seqno);
        for (position, record, exact) in &records {
            if let Some((_, segment, _)) = self.log.table().locate(position.address) {
                segment.set_last_seqno(segment.last_seqno().max(position.seqno));
            }
            if record.kind.is_of_objects() {
                self.replay_object(record, *position, *exact)?;
                continue;
            }
            match self
                .owners
                .kv
                .replay(self.log, record, *position, Lane::ALL)
            {
                Err(Error::Corrupt { offset, why }) => {
                    let detail = format!("a record makes no sense: {why}");
                    self.report.error(Structure::Record, offset, detail);
                }
                other => other?,
            }
        }
        Ok(())
    }
}
