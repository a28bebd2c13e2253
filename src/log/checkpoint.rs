//! Checkpoints: images of the owner's partitions, and the roots that name them.
//!
//! Partitions are imaged one after another, a few at a time, so that the work is spread
//! over the interval. Two generations of every partition are kept: losing one costs a
//! longer replay, nothing else. A root is published only when everything its images refer
//! to is durable, and what the new root no longer names is freed only after it is (D10).

use std::collections::{BTreeMap, HashSet};

use crate::device::{AlignedBuf, WriteOp};
use crate::format::{
    CheckpointSegment, Class, Clean, ImageRef, PIECE_HEADER_BYTES, PartitionImages, Piece,
    PieceHeader, PieceKind, Root, RootRef, SegmentHeader, SegmentId, Seqno,
};
use crate::sync::{MutexGuard, Ordering};
use crate::{Error, Result};

use super::image_room::{ImageRoom, Sizes};
use super::recovery::{Found, header_of};
use super::{Counters, Log, Owner, RESERVE, Start, State, Wait};

/// Partitions imaged between two roots: fewer make replay shorter by a little, more make
/// roots cheaper.
const PARTITIONS_A_ROOT: u32 = 8;
/// Longest body of a piece.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// A rest of a segment smaller than this is not worth a piece.
const PIECE_BYTES_MIN: u64 = 16 << 10;
/// Interval unless the index is large: half a gigabyte replays in about a second.
const INTERVAL_BYTES: u64 = 512 << 20;
/// Interval in images: bounds the share of device writes that checkpoints take.
const INTERVAL_IMAGES: u64 = 4;
/// Free segments a checkpoint leaves to the cleaner.
const FREE_FLOOR: usize = RESERVE.cleaner;
/// Bytes by which a root may become longer than the last one.
const ROOT_GROWTH: u64 = 8 << 10;

/// Segments being filled, and which of them: images, and each copy of a root.
const FILLINGS: usize = 3;
const IMAGES: usize = 0;
const ROOT_COPIES: std::ops::Range<usize> = 1..FILLINGS;

/// A segment being filled with pieces.
struct Filling {
    header: SegmentHeader,
    next: u64,
}

/// What a checkpoint does when there is no room for all images it was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scarcity {
    /// Waits for room; publishes those there was room for if there is no more.
    Wait,
    /// Publishes those there was room for.
    Part,
    /// Publishes none.
    Fail,
}

/// An image not yet named by a root.
struct Fresh {
    partition: u32,
    image: ImageRef,
    /// What its owner said it would take.
    estimate: u64,
}

/// What the checkpoint writer knows.
#[derive(Default)]
pub(crate) struct CheckpointState {
    root: Root,
    root_refs: Vec<RootRef>,
    image_sequence: u64,
    /// Images written since the last root.
    fresh: Vec<Fresh>,
    /// Of every partition, what [`Owner::pinning_image_bytes`] said when its newest and older
    /// images were written.
    estimates: Vec<[u64; 2]>,
    /// Bytes of the last root.
    root_bytes: u64,
    /// Where images go, and the copies of roots. Those are not among images: each is needed for
    /// two roots only, and what is left of it would take room until its segment goes.
    filling: [Option<Filling>; FILLINGS],
    /// Headers of the checkpoint segments.
    lives: BTreeMap<SegmentId, CheckpointSegment>,
    next_partition: u32,
    /// Whether the present checkpoint may wait for room: not when it is the cleaner's.
    may_wait: bool,
    /// Appended bytes when the last partitions were imaged.
    imaged_at_bytes: u64,
}

impl Log {
    /// Takes up where recovery ended.
    pub(super) fn begin(&self, start: Start, root: Root, headers: &[Found], owner: &dyn Owner) {
        let mut state = self.checkpoint.lock();
        state.root_refs = self.superblocks.lock().current.roots.clone();
        let images = root
            .partitions
            .iter()
            .flat_map(|images| [&images.newest, &images.older]);
        let newest_image = images.flatten().map(|image| image.sequence).max();
        state.image_sequence = newest_image.unwrap_or(0);
        self.older_horizon
            .store(root.older_horizon, Ordering::Relaxed);
        self.newest_horizon
            .store(root.newest_horizon, Ordering::Relaxed);
        state.root = root;
        let used = headers.iter().filter_map(header_of);
        let of_checkpoints = used.filter(|header| header.class == Class::Checkpoint);
        state.lives = of_checkpoints
            .map(|header| (header.segment, CheckpointSegment::from(&header)))
            .collect();
        self.start_appender(start);
        if self.options.read_only {
            return;
        }
        state.estimates = state.root.partitions.iter().map(sizes_in_force).collect();
        self.keep_image_room(&state, owner);
        let kept = state.referenced();
        let mut appender = self.appender.lock();
        for (segment, found) in (0..).zip(headers) {
            let unused = matches!(found, Found::Header(header) if header.class == Class::Checkpoint)
                && !kept.contains(&segment);
            if unused {
                appender.emptied(segment);
            }
        }
    }

    /// Takes up where a rebuild of the owner ended: no image is in force, and sequences go
    /// on after the highest seen. The segments of the roots named stay.
    pub(super) fn begin_rebuilt(&self, start: Start, root_sequence: u64, image_sequence: u64) {
        let mut state = self.checkpoint.lock();
        state.root_refs = self.superblocks.lock().current.roots.clone();
        state.image_sequence = image_sequence;
        state.root = Root {
            sequence: root_sequence,
            ..Root::default()
        };
        self.older_horizon.store(0, Ordering::Relaxed);
        self.newest_horizon.store(0, Ordering::Relaxed);
        self.start_appender(start);
    }

    /// Frees the checkpoint segments that nothing in force names.
    pub(super) fn free_old_images(&self) {
        self.free_unreferenced(&self.checkpoint.lock());
    }

    /// Bytes of log between two images of one partition.
    pub(crate) fn checkpoint_interval(&self, owner: &dyn Owner) -> u64 {
        self.options.checkpoint_interval_bytes.unwrap_or_else(|| {
            INTERVAL_BYTES
                .min(self.geometry.capacity / 2)
                .max(INTERVAL_IMAGES * owner.image_bytes())
        })
    }

    /// The checkpointer thread: images the partitions that are due.
    pub(crate) fn checkpointer(&self, owner: &dyn Owner) {
        let count = u64::from(owner.partition_count());
        while !self.is_stopping() {
            let interval = self.checkpoint_interval(owner);
            let step = interval / count.div_ceil(u64::from(PARTITIONS_A_ROOT));
            // Before the appender's lock, which is the inner one of the two.
            let due_at = self.checkpoint.lock().imaged_at_bytes + step.max(1);
            self.checkpoint_due.store(due_at, Ordering::Relaxed);
            let appender = self.appender.lock();
            let appended = appender.appended_bytes();
            let wanted = self.wants_checkpoint.load(Ordering::Relaxed);
            if appended >= due_at || wanted > 0 {
                drop(appender);
                let done = self.checkpoint_some(owner, PARTITIONS_A_ROOT);
                let imaged = done.as_ref().map_or(u64::MAX, |count| u64::from(*count));
                if done.is_ok() && appended > due_at {
                    // Late: the next ones are due before another step has been appended.
                    let latest = due_at.max(appended.saturating_sub(interval));
                    self.checkpoint.lock().imaged_at_bytes = latest;
                }
                // An error ends it: where callers wait for room the cleaner writes images itself.
                let left = wanted.saturating_sub(imaged);
                self.wants_checkpoint.store(left, Ordering::Relaxed);
            } else {
                drop(
                    self.work
                        .wait_for(appender, std::time::Duration::from_millis(100)),
                );
            }
        }
    }

    /// Images every partition now.
    pub(crate) fn checkpoint_all(&self, owner: &dyn Owner) -> Result<()> {
        let mut left = owner.partition_count();
        while left > 0 {
            left -= self.checkpoint_some(owner, left.min(PARTITIONS_A_ROOT))?;
        }
        Ok(())
    }

    /// Images some partitions, for the cleaner. It waits neither for room nor for another
    /// checkpoint, both of which may wait for the cleaner: `None` when there is another.
    pub(super) fn checkpoint_for_cleaner(&self, owner: &dyn Owner) -> Option<Result<u32>> {
        let state = self.checkpoint.try_lock()?;
        let count = PARTITIONS_A_ROOT.min(owner.partition_count());
        Some(self.checkpoint_locked(state, owner, count, Scarcity::Part))
    }

    /// Whether what is kept for images is for what was added since those in force.
    pub(super) fn images_are_behind(&self) -> bool {
        self.appender.lock().image_room().is_behind()
    }

    /// Finds what images take, and keeps the room for more of them.
    fn keep_image_room(&self, state: &CheckpointState, owner: &dyn Owner) {
        let count = owner.partition_count();
        let sizes: Vec<Sizes> = (0..count)
            .map(|at| (state.next_partition + at) % count)
            .map(|partition| (partition, owner.pinning_image_bytes(partition)))
            .filter(|(_, now)| *now > 0)
            .map(|(partition, now)| {
                let made = state.estimates.get(partition as usize);
                let [newest, older] = made.copied().unwrap_or_default();
                Sizes { now, newest, older }
            })
            .collect();
        let room = ImageRoom::of(sizes.iter().copied());
        let [all, largest] = &self.pinning_images;
        // Relaxed: estimates.
        all.store(sizes.iter().map(|sizes| sizes.now).sum(), Ordering::Relaxed);
        largest.store(room.largest, Ordering::Relaxed);
        self.appender.lock().set_image_room(room);
    }

    /// Bytes of log that a crash now would replay, at most, by the seqnos of the images.
    pub(crate) fn newest_horizon(&self) -> Seqno {
        // Relaxed: it is a bound, and never goes back.
        self.newest_horizon.load(Ordering::Relaxed)
    }

    /// Images the next `count` partitions, or those of them there is room for, and publishes a
    /// root; returns how many. An error leaves the last root in force.
    fn checkpoint_some(&self, owner: &dyn Owner, count: u32) -> Result<u32> {
        self.checkpoint_locked(self.checkpoint.lock(), owner, count, Scarcity::Wait)
    }

    pub(super) fn checkpoint_locked(
        &self,
        mut state: MutexGuard<'_, CheckpointState>,
        owner: &dyn Owner,
        count: u32,
        scarcity: Scarcity,
    ) -> Result<u32> {
        state.may_wait = scarcity == Scarcity::Wait;
        let appended = self.appender.lock().appended_bytes();
        state.imaged_at_bytes = appended;
        state.fresh.clear();
        let first = state.next_partition;
        let written = self.write_images(&mut state, owner, count, scarcity);
        let result = written.and_then(|imaged| {
            self.publish(&mut state, owner.partition_count())?;
            Ok(imaged)
        });
        if result.is_err() {
            // The images are lost, and what they took is not.
            state.next_partition = first;
        } else {
            self.keep_image_room(&state, owner);
        }
        self.free_unreferenced(&state);
        result
    }

    /// Writes images of the next partitions; returns how many.
    fn write_images(
        &self,
        state: &mut CheckpointState,
        owner: &dyn Owner,
        count: u32,
        scarcity: Scarcity,
    ) -> Result<u32> {
        // First, so that what there is room for can be published.
        for slot in ROOT_COPIES {
            self.keep_room(
                state,
                slot,
                state.root_bytes + state.root_bytes / 4 + ROOT_GROWTH,
            )?;
        }
        for done in 0..count {
            let partition = state.next_partition;
            // Before the image: what is added meanwhile may not be in it.
            let estimate = owner.pinning_image_bytes(partition);
            match self.write_image(state, owner, partition) {
                Ok(image) => state.fresh.push(Fresh {
                    partition,
                    image,
                    estimate,
                }),
                // What there was room for counts: older images go when it is published.
                Err(Error::NoSpace { .. }) if done > 0 && scarcity != Scarcity::Fail => {
                    return Ok(done);
                }
                Err(error) => return Err(error),
            }
            state.next_partition = (partition + 1) % owner.partition_count();
        }
        Ok(count)
    }

    /// Bytes left in the segment being filled.
    fn filling_room(&self, state: &CheckpointState, slot: usize) -> u64 {
        let filling = state.filling.get(slot).and_then(Option::as_ref);
        filling.map_or(0, |filling| self.geometry.segment_bytes - filling.next)
    }

    /// Begins a fresh segment if there are not so many bytes left in the one being filled.
    fn keep_room(&self, state: &mut CheckpointState, slot: usize, bytes: u64) -> Result<()> {
        let most = self.geometry.segment_bytes - self.geometry.header_bytes();
        if self.filling_room(state, slot) < self.geometry.round_to_block(bytes).min(most) {
            self.fresh_segment(state, slot)?;
        }
        Ok(())
    }

    fn write_image(
        &self,
        state: &mut CheckpointState,
        owner: &dyn Owner,
        partition: u32,
    ) -> Result<ImageRef> {
        state.image_sequence += 1;
        let mut image = ImageRef {
            sequence: state.image_sequence,
            horizon: 0,
            bytes: 0,
            pieces: Vec::new(),
        };
        let mut piece = PieceBuilder::default();
        let sequence = image.sequence;
        let header = |before: &[Piece]| PieceHeader {
            kind: PieceKind::Image,
            partition,
            index: before.len() as u32,
            sequence,
        };
        let mut pieces = Vec::new();
        let mut bytes = 0;
        let horizon = || self.appender.lock().next_seqno();
        let lowest = owner.image(partition, &horizon, &mut |unit| {
            if piece.body_bytes() > 0 && piece.body_bytes() + unit.len() as u64 > piece.limit {
                let header = header(&pieces);
                pieces.push(self.write_piece(state, IMAGES, &mut piece, header)?);
            }
            if piece.body_bytes() == 0 {
                piece.limit = self.piece_room(state, unit.len() as u64)?;
            }
            bytes += unit.len() as u64;
            piece.push(unit);
            Ok(())
        })?;
        if piece.body_bytes() > 0 {
            let header = header(&pieces);
            pieces.push(self.write_piece(state, IMAGES, &mut piece, header)?);
        }
        image.horizon = lowest;
        image.bytes = bytes;
        image.pieces = pieces;
        Ok(image)
    }

    /// Room for the body of the next piece of an image, at least `wanted`: in a fresh segment
    /// if need be.
    fn piece_room(&self, state: &mut CheckpointState, wanted: u64) -> Result<u64> {
        let least = wanted.max(PIECE_BYTES_MIN) + PIECE_HEADER_BYTES as u64;
        self.keep_room(state, IMAGES, least)?;
        let room = self.filling_room(state, IMAGES);
        Ok(room.min(PIECE_BYTES_MAX) - PIECE_HEADER_BYTES as u64)
    }

    fn fresh_segment(&self, state: &mut CheckpointState, slot: usize) -> Result<()> {
        let header = loop {
            let taken = self.appender.lock().take_for_checkpoint(FREE_FLOOR);
            match taken {
                Ok(header) => break header,
                Err(_) if self.appender.lock().emptied_count() > 0 => self.commit_now()?,
                Err(_) if !state.may_wait => return Err(Error::NoSpace { what: "capacity" }),
                Err(_) => self.wait_for_checkpoint_room()?,
            }
        };
        state
            .lives
            .insert(header.segment, CheckpointSegment::from(&header));
        let filling = Filling {
            header,
            next: self.geometry.header_bytes(),
        };
        state.filling[slot] = Some(filling);
        Ok(())
    }

    fn wait_for_checkpoint_room(&self) -> Result<()> {
        self.checkpoint_waits.store(true, Ordering::Relaxed);
        let result = self.wait_for_space(&mut |appender| {
            if appender.free_count() > FREE_FLOOR || appender.emptied_count() > 0 {
                Wait::Over
            } else if self.checkpoint_waits.load(Ordering::Relaxed) {
                Wait::Excused
            } else {
                // The cleaner said so.
                Wait::Vain
            }
        });
        self.checkpoint_waits.store(false, Ordering::Relaxed);
        result
    }

    fn write_piece(
        &self,
        state: &mut CheckpointState,
        slot: usize,
        piece: &mut PieceBuilder,
        header: PieceHeader,
    ) -> Result<Piece> {
        let Some(filling) = state.filling.get_mut(slot).and_then(Option::as_mut) else {
            unreachable!("piece_room chose a segment")
        };
        let body_bytes = piece.body_bytes() as usize;
        let bytes = piece.bytes.len() as u32;
        header.encode(
            filling.header.seed(),
            filling.next,
            &mut piece.bytes,
            body_bytes,
        );
        piece.bytes.pad_to(self.geometry.block_bytes as usize);
        let place = Piece {
            segment: filling.header.segment,
            offset: filling.next as u32,
            bytes,
        };
        filling.next += piece.bytes.len() as u64;
        assert!(
            filling.next <= self.geometry.segment_bytes,
            "a piece stays in its segment"
        );
        let offset = self.geometry.segment_offset(place.segment) + u64::from(place.offset);
        let op = WriteOp {
            offset,
            data: &piece.bytes,
        };
        self.device.write_many(&[op]).map_err(|source| {
            self.poison();
            Error::Io {
                op: "write",
                offset,
                source,
            }
        })?;
        Counters::add(&self.counters.checkpoint_bytes, piece.bytes.len() as u64);
        piece.bytes.clear();
        Ok(place)
    }

    fn publish(&self, state: &mut CheckpointState, partition_count: u32) -> Result<()> {
        self.settle()?;
        let mut root = state.root.clone();
        root.sequence += 1;
        root.partitions
            .resize(partition_count as usize, PartitionImages::default());
        let mut estimates = state.estimates.clone();
        estimates.resize(partition_count as usize, [0; 2]);
        let imaged = state.fresh.len() as u64;
        for fresh in std::mem::take(&mut state.fresh) {
            let partition = fresh.partition as usize;
            if let Some(images) = root.partitions.get_mut(partition) {
                images.older = images.newest.replace(fresh.image);
            }
            if let Some([newest, older]) = estimates.get_mut(partition) {
                *older = std::mem::replace(newest, fresh.estimate);
            }
        }
        let lowest = |pick: fn(&PartitionImages) -> &Option<ImageRef>| {
            let horizons = root
                .partitions
                .iter()
                .map(|images| pick(images).as_ref().map_or(0, |i| i.horizon));
            horizons.min().unwrap_or(0)
        };
        root.newest_horizon = lowest(|images| &images.newest);
        root.older_horizon = lowest(|images| &images.older);
        {
            let appender = self.appender.lock();
            root.next_seqno = appender.next_seqno();
            root.next_group = appender.next_group();
            root.extents = appender.extents();
            root.clock = appender.clock();
        }
        root.covered_by_newest = self.covered(root.newest_horizon);
        root.covered_by_older = self.covered(root.older_horizon);
        let root_ref = self.write_root(state, &mut root)?;
        let mut superblocks = self.superblocks.lock();
        let written = superblocks.update(&*self.device, |next| {
            next.roots.insert(0, root_ref);
            next.roots.truncate(2);
            next.cuts.retain(|cut| cut.is_needed(root.older_horizon));
        });
        let written = written.inspect_err(|_| self.poison())?;
        Counters::add(&self.counters.superblock_bytes, written);
        Counters::add(&self.counters.flushes, 2);
        state.root_refs = superblocks.current.roots.clone();
        drop(superblocks);
        self.older_horizon
            .store(root.older_horizon, Ordering::Relaxed);
        self.newest_horizon
            .store(root.newest_horizon, Ordering::Relaxed);
        state.root = root;
        state.estimates = estimates;
        let kept = state.referenced();
        state.lives.retain(|segment, _| kept.contains(segment));
        Counters::add(&self.counters.partitions_imaged, imaged);
        Ok(())
    }

    /// Makes all pieces, and everything the images refer to, durable.
    fn settle(&self) -> Result<()> {
        let last = self.appender.lock().next_seqno() - 1;
        self.commit_through(last)?;
        // Headers of new checkpoint segments go with a group; the flush is for the pieces.
        self.commit_now()?;
        self.flush_device().inspect_err(|_| self.poison())
    }

    fn covered(&self, horizon: Seqno) -> Vec<u64> {
        let mut bitmap = vec![0; (self.geometry.segment_count as usize).div_ceil(64)];
        for (id, segment) in self.table.iter() {
            // An emptied segment may outlive the cut of its epoch: it must not be scanned.
            let ended = matches!(
                segment.state(),
                State::Sealed | State::Cleaning | State::Emptied
            );
            if ended
                && segment.last_seqno() < horizon
                && let Some(word) = bitmap.get_mut(id as usize / 64)
            {
                *word |= 1 << (id % 64);
            }
        }
        bitmap
    }

    fn write_root(&self, state: &mut CheckpointState, root: &mut Root) -> Result<RootRef> {
        // With both segments that may be taken for it.
        let most = state.lives.len() + 2;
        root.segments = vec![CheckpointSegment::default(); most];
        let needed = self
            .geometry
            .round_to_block((PIECE_HEADER_BYTES + root.encode().len()) as u64);
        state.root_bytes = needed;
        for slot in ROOT_COPIES {
            self.keep_room(state, slot, needed)?;
        }
        // Only what stays in use as long as this root is in force.
        let named = state.named_with(root);
        let lives = state.lives.values();
        root.segments = lives
            .filter(|life| named.contains(&life.segment))
            .copied()
            .collect();
        let body = root.encode();
        let mut copies = Vec::new();
        for slot in ROOT_COPIES {
            let mut piece = PieceBuilder::default();
            piece.push(&body);
            let header = PieceHeader {
                kind: PieceKind::Root,
                partition: 0,
                index: 0,
                sequence: root.sequence,
            };
            copies.push(self.write_piece(state, slot, &mut piece, header)?);
        }
        self.settle()?;
        Ok(RootRef {
            sequence: root.sequence,
            copies,
        })
    }

    fn free_unreferenced(&self, state: &CheckpointState) {
        let kept = state.referenced();
        let mut appender = self.appender.lock();
        for (id, segment) in self.table.iter() {
            if segment.state() == State::Checkpoint && !kept.contains(&id) {
                appender.emptied(id);
            }
        }
        self.work.notify_all();
    }

    /// Sets the clean mark: everything is durable and imaged.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let clean = {
            let appender = self.appender.lock();
            Clean {
                next_seqno: appender.next_seqno(),
                next_group: appender.next_group(),
                clock: appender.clock(),
            }
        };
        let mut superblocks = self.superblocks.lock();
        superblocks
            .update(&*self.device, |next| next.clean = Some(clean))
            .map(drop)
    }
}

impl CheckpointState {
    /// Sequences go on after this one.
    pub(crate) fn number_from(&mut self, last: u64) {
        self.root.sequence = last;
        self.image_sequence = last;
    }

    /// Segments that hold anything a root in force names, or are being filled.
    fn referenced(&self) -> HashSet<SegmentId> {
        self.of(&self.root, &self.root_refs)
    }

    /// The same when a root is the newest, with its copies in what is being filled.
    fn named_with(&self, root: &Root) -> HashSet<SegmentId> {
        self.of(root, self.root_refs.get(..1).unwrap_or_default())
    }

    fn of(&self, root: &Root, refs: &[RootRef]) -> HashSet<SegmentId> {
        let images = root
            .partitions
            .iter()
            .flat_map(|images| [&images.newest, &images.older]);
        let pieces = images.flatten().flat_map(|image| &image.pieces);
        let copies = refs.iter().flat_map(|root| &root.copies);
        let filling = self.filling.iter().flatten();
        pieces
            .chain(copies)
            .map(|piece| piece.segment)
            .chain(filling.map(|filling| filling.header.segment))
            .collect()
    }
}

/// What the images of a partition take.
fn sizes_in_force(images: &PartitionImages) -> [u64; 2] {
    [&images.newest, &images.older].map(|image| image.as_ref().map_or(0, |image| image.bytes))
}

/// A piece being put together.
#[derive(Default)]
struct PieceBuilder {
    bytes: AlignedBuf,
    limit: u64,
}

impl PieceBuilder {
    fn body_bytes(&self) -> u64 {
        (self.bytes.len() as u64).saturating_sub(PIECE_HEADER_BYTES as u64)
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.resize(PIECE_HEADER_BYTES);
        }
        self.bytes.extend_from_slice(bytes);
    }
}
