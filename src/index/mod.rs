//! The hash index: from a key's hash to where its newest record is, in memory.
//!
//! It takes 15 to 17 bytes a key at any size, never stops to reorganise itself, and
//! reads without locks. Keys are not stored: 69 bits and more of their salted hash are.
//!
//! - The hash's top bits select one of [`SHARDS`] **shards**, which writers lock; the next,
//!   through the shard's directory (`directory.rs`), a **unit** of [`BUCKETS`] buckets
//!   (`unit.rs`); then the **bucket** (`bucket.rs`); and what follows is the **tag** in the
//!   slot (`entry.rs`). An entry is in its home bucket or in another that its tag names
//!   (`probe.rs`).
//! - A unit without room is copied into one with a slot more per bucket or, at
//!   [`SLOTS_MAX`], split in two (`grow.rs`). Readers find the new units through atomic
//!   pointers; crossbeam-epoch frees the old.
//! - `scan.rs` walks the entries, `image.rs` writes and loads checkpoint images.
//!
//! # Collisions
//!
//! An entry is known by its shard, unit and bucket and the known bits of its tag. Written at
//! depth `d` that is 8, `d`, 8 and 53 bits, and as many ever after, since a split moves one
//! bit from the tag to the unit. A new key takes another's place if all these are equal.
//!
//! Let `n` keys come one by one. Units hold 1920 to 3840 entries, so while the depth is `d`
//! the index goes from 256 * 1920 * 2^d entries to twice as many, and each of these meets at
//! most `n` later keys with probability 2^-(69 + d). So each doubling contributes the same,
//! n * 256 * 1920 * 2^-69 = 8.3e-8 for n = 1e8, and depth 0, which starts at nothing, twice
//! that. From there to 1e8 keys it is 6.7 doublings. Together 7.2e-7 expected collisions;
//! less 1.2e-7 since a key meets only what came before it: 6e-7.
//! Overwriting an entry makes its tag fresh, which only helps.

mod bucket;
mod directory;
mod entry;
mod grow;
mod image;
mod ordered;
mod position;
mod probe;
mod scan;
mod unit;

#[cfg(test)]
mod tests;

pub(crate) use entry::Entry;
pub(crate) use ordered::OrderedMap;
pub(crate) use position::ScanPosition;

use directory::{Directory, Shard, Writer};
use entry::Slot;
use grow::{Grown, grow};
use position::{Place, unit_span};
use unit::{Unit, unit_bytes};

use crate::format::{Address, KeyHash, Seqno};
use crate::sync::{ArcGuard, AtomicU64, MODEL, MutexGuard, Ordering, epoch};

/// Bits that select the shard: 256 locks, and directories small enough to copy at once.
pub(crate) const SHARD_BITS: u32 = if MODEL { 1 } else { 8 };
/// Number of shards.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
/// Bits that select the bucket in a unit.
const BUCKET_BITS: u32 = if MODEL { 2 } else { 8 };
/// Buckets in a unit. More would make growth slower, fewer the entries' spread wider.
const BUCKETS: usize = 1 << BUCKET_BITS;
/// The most slots per bucket: above, a bucket is longer than four cache lines and its
/// flags do not fit in its first word.
const SLOTS_MAX: usize = if MODEL { 2 } else { 16 };
/// The greatest depth: a tag loses a bit for each and must keep its high 32; and no image,
/// however damaged, makes a directory of over 1 MiB. It is enough for
/// 256 * 2^17 * 1920 = 6e10 entries.
const DEPTH_MAX: u32 = 17;

/// How far after their home displaced entries go, as their tag says: few enough that a scan
/// can look at all, and far enough apart that chains spread over the unit.
const OFFSETS: &[usize] = if MODEL { &[1] } else { &[1, 7, 29, 97] };

/// There is no room for an entry: nothing was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index is full: it would take {needed} bytes of {limit}")]
pub(crate) struct IndexFull {
    /// Bytes the index would take.
    pub(crate) needed: u64,
    /// The limit.
    pub(crate) limit: u64,
}

/// The hash index.
pub(crate) struct Index {
    shards: Box<[Shard]>,
    /// Bytes of all units and directories.
    memory: AtomicU64,
}

impl Index {
    /// An empty index.
    pub(crate) fn new() -> Self {
        let memory = AtomicU64::new(size_of::<[Shard; SHARDS]>() as u64);
        let shards = (0..SHARDS).map(|_| Shard::new(&memory)).collect();
        Self { shards, memory }
    }

    /// The shard that a hash belongs to.
    pub(crate) fn shard_of(hash: KeyHash) -> usize {
        ScanPosition::of(hash).shard()
    }

    /// The entry of a hash. Lock-free.
    pub(crate) fn get(&self, hash: KeyHash) -> Option<Entry> {
        let position = ScanPosition::of(hash);
        // Before the directory is loaded: U3.
        let guard = epoch::pin();
        let directory = self.shards[position.shard()].directory.load();
        let unit = directory.unit(position.offset(), &guard)?;
        unit.get(Place::of(hash, unit.depth()))
    }

    /// Locks a shard for writing.
    pub(crate) fn lock(&self, shard: usize) -> ShardGuard<'_> {
        let writer = self.shards[shard].writer.lock();
        ShardGuard {
            index: self,
            number: shard,
            writer,
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u64 {
        // Relaxed: a counter.
        let counts = self.shards.iter().map(|shard| &shard.count);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of memory, the allocator's included; without units that wait for reclamation.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // Relaxed: a counter.
        self.memory.load(Ordering::Relaxed)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.clear(&self.memory);
        }
    }
}

/// A locked shard.
pub(crate) struct ShardGuard<'a> {
    index: &'a Index,
    number: usize,
    writer: MutexGuard<'a, Writer>,
}

impl ShardGuard<'_> {
    fn number(&self) -> usize {
        self.number
    }

    fn shard(&self) -> &Shard {
        &self.index.shards[self.number]
    }

    fn loaded(&self) -> u64 {
        self.writer.loaded
    }

    /// Runs `f` on the unit of a hash.
    fn with_unit<T>(&self, hash: KeyHash, f: impl FnOnce(&Unit, Place) -> T) -> Option<T> {
        assert_eq!(Index::shard_of(hash), self.number, "a hash of this shard");
        let guard = epoch::pin();
        let directory: ArcGuard<Directory> = self.shard().directory.load();
        let unit = directory.unit(ScanPosition::of(hash).offset(), &guard)?;
        Some(f(unit, Place::of(hash, unit.depth())))
    }

    /// The entry of a hash.
    pub(crate) fn get(&self, hash: KeyHash) -> Option<Entry> {
        self.with_unit(hash, |unit, place| Slot::entry(unit.find(place)?.word))?
    }

    /// The horizon of the unit that a hash belongs to: 0, or what its image said when it,
    /// or what it was split from, was loaded.
    pub(crate) fn horizon(&self, hash: KeyHash) -> Seqno {
        self.with_unit(hash, |unit, _| unit.horizon()).unwrap_or(0)
    }

    /// Makes room for an insert of `hash`, growing as needed while the index stays within
    /// `memory_limit` bytes. An insert of the hash by this guard then cannot fail; for
    /// several hashes see [`Self::reserve_many`].
    ///
    /// # Errors
    /// [`IndexFull`] when the index may not grow as it must.
    pub(crate) fn reserve(&mut self, hash: KeyHash, memory_limit: u64) -> Result<(), IndexFull> {
        self.reserve_many(&[hash], memory_limit)
    }

    /// Makes room for inserts of all `hashes` of this shard together; a hash may occur more
    /// than once or be present. Removals in between do no harm.
    ///
    /// Room is counted by unit, not arranged: now and then an insert finds none and grows the
    /// unit all the same, which may take the index over the limit by some 20 KiB.
    ///
    /// # Errors
    /// [`IndexFull`] as for [`Self::reserve`]; room made for some stays.
    pub(crate) fn reserve_many(
        &mut self,
        hashes: &[KeyHash],
        memory_limit: u64,
    ) -> Result<(), IndexFull> {
        if let [hash] = hashes {
            return self.reserve_group(&[*hash], memory_limit).map(|_| ());
        }
        let mut sorted = hashes.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut rest = &sorted[..];
        while !rest.is_empty() {
            rest = &rest[self.reserve_group(rest, memory_limit)?..];
        }
        Ok(())
    }

    /// Makes room for those of the ascending `hashes` that are in the unit of the first, and
    /// returns how many these are.
    fn reserve_group(&self, hashes: &[KeyHash], memory_limit: u64) -> Result<usize, IndexFull> {
        loop {
            let room = self.with_unit(hashes[0], |unit, _| {
                let depth = unit.depth();
                let unit_of = |hash: &KeyHash| ScanPosition::of(*hash).offset() / unit_span(depth);
                let others = hashes.partition_point(|hash| unit_of(hash) == unit_of(&hashes[0]));
                let group = &hashes[..others];
                if let [hash] = group {
                    let place = Place::of(*hash, depth);
                    if unit.find(place).is_some() || unit.make_room(place) {
                        return Ok(1);
                    }
                    return Err(vec![*hash]);
                }
                if unit.count() + group.len() <= unit::capacity(unit.slots()) {
                    return Ok(group.len());
                }
                let absent = |hash: &&KeyHash| unit.find(Place::of(**hash, depth)).is_none();
                let absent: Vec<_> = group.iter().filter(absent).copied().collect();
                if unit.count() + absent.len() <= unit::capacity(unit.slots()) {
                    Ok(group.len())
                } else {
                    Err(absent)
                }
            });
            match room {
                Some(Ok(count)) => return Ok(count),
                Some(Err(wanted)) => self.grow(&wanted, memory_limit)?,
                None => self.create(hashes[0], memory_limit)?,
            }
        }
    }

    /// Sets the entry of a hash and returns the one before.
    ///
    /// # Errors
    /// [`IndexFull`] when the unit's entries are such that no split makes room. After
    /// [`Self::reserve`] it cannot happen; after [`Self::reserve_many`], and in a replay,
    /// only with hashes or a loaded image that somebody made for it.
    pub(crate) fn insert(
        &mut self,
        hash: KeyHash,
        entry: Entry,
    ) -> Result<Option<Entry>, IndexFull> {
        loop {
            let done = self.with_unit(hash, |unit, place| {
                if let Some(found) = unit.find(place) {
                    unit.overwrite(found, entry, place.tag);
                    return Some(Slot::entry(found.word));
                }
                let placed = unit.place(place.bucket, Slot::new(entry, place.tag));
                placed.then_some(None)
            });
            match done {
                Some(Some(replaced)) => {
                    self.shard().add_count(i64::from(replaced.is_none()));
                    return Ok(replaced);
                }
                Some(None) => self.grow(&[hash], u64::MAX)?,
                None => self.create(hash, u64::MAX)?,
            }
        }
    }

    /// Applies a write of the log with `seqno`: sets the entry that `make` makes of the one
    /// there. Returns the entry set and the one replaced; `None` when the image of the unit
    /// covers the write. One look at the unit, because replay does this for every record.
    ///
    /// # Errors
    /// As for [`Self::insert`].
    pub(crate) fn replay(
        &mut self,
        hash: KeyHash,
        seqno: Seqno,
        make: impl Fn(Option<Entry>) -> Entry,
    ) -> Result<Option<(Entry, Option<Entry>)>, IndexFull> {
        let done = self.with_unit(hash, |unit, place| {
            if seqno < unit.horizon() {
                return Some(None);
            }
            let Some(found) = unit.find(place) else {
                let entry = make(None);
                let placed = unit.place(place.bucket, Slot::new(entry, place.tag));
                return placed.then_some(Some((entry, None)));
            };
            let old = Slot::entry(found.word);
            let entry = make(old);
            unit.overwrite(found, entry, place.tag);
            Some(Some((entry, old)))
        });
        match done {
            Some(Some(applied)) => {
                if let Some((_, old)) = applied {
                    self.shard().add_count(i64::from(old.is_none()));
                }
                Ok(applied)
            }
            // The unit must be made or grow first.
            _ => {
                let entry = make(None);
                let old = self.insert(hash, entry)?;
                Ok(Some((entry, old)))
            }
        }
    }

    /// Removes the entry of a hash and returns it.
    pub(crate) fn remove(&mut self, hash: KeyHash) -> Option<Entry> {
        let removed = self.with_unit(hash, |unit, place| {
            let found = unit.find(place)?;
            unit.remove(found);
            Slot::entry(found.word)
        })??;
        self.shard().add_count(-1);
        Some(removed)
    }

    /// Sets the entry of a hash if there is one and it is at `from`: a relocation, which
    /// must not undo an overwrite or a removal since.
    pub(crate) fn redirect(&mut self, hash: KeyHash, from: Address, to: Entry) -> bool {
        let done = self.with_unit(hash, |unit, place| {
            let Some(found) = unit.find(place) else {
                return false;
            };
            let here = Slot::entry(found.word).is_some_and(|entry| entry.address == from);
            if here {
                unit.overwrite(found, to, place.tag);
            }
            here
        });
        done == Some(true)
    }

    /// Removes every entry of the shard, and forgets loaded images.
    pub(crate) fn clear(&mut self) {
        self.shard().clear(&self.index.memory);
        self.writer.loaded = 0;
    }

    /// Makes the first unit where `hash` belongs.
    fn create(&self, hash: KeyHash, memory_limit: u64) -> Result<(), IndexFull> {
        self.check_memory(unit_bytes(1), memory_limit)?;
        let depth = self.shard().directory.load().depth();
        let unit = Unit::new(1, depth, 0);
        let offset = ScanPosition::of(hash).offset();
        self.shard()
            .install(offset, depth, [unit], &self.index.memory);
        Ok(())
    }

    /// Grows the unit that `wanted`, hashes absent from it, belong to.
    fn grow(&self, wanted: &[KeyHash], memory_limit: u64) -> Result<(), IndexFull> {
        let memory = &self.index.memory;
        let grown = self.with_unit(wanted[0], |unit, _| {
            let grown = grow(unit, wanted);
            (unit.depth(), unit_bytes(unit.slots()), grown)
        });
        let Some((depth, old_bytes, grown)) = grown else {
            return self.create(wanted[0], memory_limit);
        };
        let offset = ScanPosition::of(wanted[0]).offset();
        let full = IndexFull {
            needed: u64::MAX,
            limit: memory_limit,
        };
        match grown.ok_or(full)? {
            Grown::Larger(unit) => {
                let bytes = unit_bytes(unit.slots());
                self.check_memory(bytes - old_bytes, memory_limit)?;
                self.shard().install(offset, depth, [unit], memory);
            }
            Grown::Split(units) => {
                if depth == DEPTH_MAX {
                    return Err(full);
                }
                let bytes = units.iter().map(|unit| unit_bytes(unit.slots()));
                let bytes = bytes.sum::<u64>().saturating_sub(old_bytes);
                let bytes = bytes + self.shard().bytes_to_deepen(depth + 1);
                self.check_memory(bytes, memory_limit)?;
                self.shard().deepen(depth + 1, memory);
                self.shard().install(offset, depth, units, memory);
            }
        }
        Ok(())
    }

    fn check_memory(&self, more: u64, limit: u64) -> Result<(), IndexFull> {
        let needed = self.index.memory_bytes().saturating_add(more);
        if needed > limit {
            return Err(IndexFull { needed, limit });
        }
        Ok(())
    }

    /// Whether there is no unit in the range of `depth` bits at `offset`.
    fn is_vacant(&self, offset: u64, depth: u32) -> bool {
        let guard = epoch::pin();
        let directory = self.shard().directory.load();
        let span = unit_span(depth);
        let step = unit_span(directory.depth());
        let mut offsets = (offset..offset + span).step_by(step as usize);
        offsets.all(|offset| directory.unit(offset, &guard).is_none())
    }

    /// Puts a loaded unit in its place, which is vacant.
    fn install_loaded(&mut self, offset: u64, unit: Unit) {
        let depth = unit.depth();
        let count = unit.count();
        self.shard().deepen(depth, &self.index.memory);
        self.shard()
            .install(offset, depth, [unit], &self.index.memory);
        self.shard().add_count(count as i64);
        self.writer.loaded = offset + unit_span(depth);
    }
}
