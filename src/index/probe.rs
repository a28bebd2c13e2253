//! Finding, placing and removing entries within one unit.
//!
//! An entry is in its home bucket or displaced to its *other* bucket, one of [`OFFSETS`]
//! after the home as its tag says; so both are known from the tag and either one. A lookup
//! without a lock reads the home, and the other bucket only if the home's `overflow` says
//! that some of its entries are displaced; a miss counts only if the home did not change
//! meanwhile, because entries move between the two.
//!
//! An insert that finds both buckets full looks for the shortest chain of entries that can
//! each move to their other bucket, as in cuckoo hashing. A bucket with an empty slot has
//! no displaced entries: removing takes one back. So at 94% of slots filled, nine of ten
//! entries are at home.
//!
//! Every move writes the copy before it clears the original.

use super::bucket::Home;
use super::entry::{Entry, Slot, high};
use super::position::Place;
use super::unit::{Unit, capacity};
use super::{BUCKETS, OFFSETS, SLOTS_MAX};

/// The most buckets that an insert looks at; it finds room within ten nearly always.
const SEARCHED_MAX: usize = if BUCKETS < 96 { BUCKETS } else { 96 };

/// Where an entry was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    home: usize,
    bucket: usize,
    index: usize,
    /// The slot's word.
    pub(super) word: u64,
}

/// An entry and its home.
pub(super) type Homed = (usize, Slot);

/// Which of [`OFFSETS`] a tag with this high part uses: bits that never age.
fn way(high: u32) -> usize {
    high as usize % OFFSETS.len()
}

/// Where entries of `home` go that use the offset `way`.
fn other(home: usize, way: usize) -> usize {
    (home + OFFSETS[way]) % BUCKETS
}

/// The bucket that an entry in `bucket` can move to.
fn opposite(bucket: usize, home: Home, high: u32) -> usize {
    match home {
        Home::This => other(bucket, way(high)),
        Home::Elsewhere => (bucket + BUCKETS - OFFSETS[way(high)]) % BUCKETS,
    }
}

/// Removes from `displaced` on what is also between `start` and there: a move that had
/// written the copy and not yet cleared the original. Addresses are of one entry only.
fn forget_copies(out: &mut Vec<Entry>, start: usize, displaced: usize) {
    let mut index = displaced;
    while index < out.len() {
        let address = out[index].address;
        if out[start..displaced]
            .iter()
            .any(|entry| entry.address == address)
        {
            out.swap_remove(index);
        } else {
            index += 1;
        }
    }
}

impl Unit {
    /// The entry at `place`, without a lock.
    pub(super) fn get(&self, place: Place) -> Option<Entry> {
        loop {
            let home = self.bucket(place.bucket);
            let (meta, word) = home.probe(place.tag, Home::This);
            if let Some(word) = word {
                return Slot::entry(word);
            }
            if !meta.overflow() {
                return None;
            }
            let other = self.bucket(other(place.bucket, way(high(place.tag))));
            let (_, word) = other.probe(place.tag, Home::Elsewhere);
            if let Some(word) = word {
                return Slot::entry(word);
            }
            if home.unchanged(meta) {
                return None;
            }
        }
    }

    /// Appends the entries whose home is `bucket`, without a lock.
    pub(super) fn collect(&self, bucket: usize, out: &mut Vec<Entry>) {
        let start = out.len();
        loop {
            out.truncate(start);
            let home = self.bucket(bucket);
            let meta = home.collect(|kind, _| kind == Home::This, out);
            if !meta.overflow() {
                return;
            }
            let displaced = out.len();
            for number in 0..OFFSETS.len() {
                let wanted = |kind, high| kind == Home::Elsewhere && way(high) == number;
                self.bucket(other(bucket, number)).collect(wanted, out);
            }
            if home.unchanged(meta) {
                forget_copies(out, start, displaced);
                return;
            }
        }
    }

    // The rest is for the holder of the shard's lock.

    /// The entry at `place`.
    pub(super) fn find(&self, place: Place) -> Option<Found> {
        let home = self.bucket(place.bucket);
        let found = |bucket, (index, word)| Found {
            home: place.bucket,
            bucket,
            index,
            word,
        };
        if let Some(at) = home.find(place.tag, Home::This) {
            return Some(found(place.bucket, at));
        }
        if !home.meta().overflow() {
            return None;
        }
        let other = other(place.bucket, way(high(place.tag)));
        let at = self.bucket(other).find(place.tag, Home::Elsewhere)?;
        Some(found(other, at))
    }

    /// The displaced entries whose home is `bucket`, with bucket and index.
    fn displaced(&self, bucket: usize) -> impl Iterator<Item = (usize, usize, Slot)> {
        let ways = if self.bucket(bucket).meta().overflow() {
            OFFSETS.len()
        } else {
            0
        };
        (0..ways).flat_map(move |number| {
            let at = other(bucket, number);
            let entries = self.bucket(at).occupied(Home::Elsewhere);
            let entries = entries.filter(move |(_, slot)| way(slot.high) == number);
            entries.map(move |(index, slot)| (at, index, slot))
        })
    }

    /// The entries whose home is `bucket`.
    pub(super) fn homed(&self, bucket: usize) -> impl Iterator<Item = Slot> {
        let own = self.bucket(bucket).occupied(Home::This);
        let displaced = self.displaced(bucket).map(|(_, _, slot)| slot);
        own.map(|(_, slot)| slot).chain(displaced)
    }

    /// Every entry.
    pub(super) fn entries(&self) -> Vec<Homed> {
        let mut entries = Vec::with_capacity(self.count());
        for bucket in 0..BUCKETS {
            entries.extend(
                self.bucket(bucket)
                    .entries()
                    .map(|(_, slot, kind)| match kind {
                        Home::This => (bucket, slot),
                        Home::Elsewhere => (opposite(bucket, kind, slot.high), slot),
                    }),
            );
        }
        debug_assert_eq!(entries.len(), self.count());
        entries
    }

    /// Replaces what was found, and makes its tag fresh.
    pub(super) fn overwrite(&self, found: Found, entry: Entry, tag: u64) {
        let home = if found.bucket == found.home {
            Home::This
        } else {
            Home::Elsewhere
        };
        self.bucket(found.bucket)
            .put(found.index, Slot::new(entry, tag), home);
    }

    /// Empties the slot of what was found, and moves displaced entries back.
    pub(super) fn remove(&self, found: Found) {
        let bucket = self.bucket(found.bucket);
        self.clear(found.bucket, found.index, bucket.meta().overflow());
        self.set_count(self.count() - 1);
        if found.bucket != found.home {
            self.update_overflow(found.home);
        }
        self.refill(found.bucket, found.index);
    }

    /// Fills an empty slot with a displaced entry of the bucket, the slot that leaves empty
    /// with one of that bucket, and so on.
    fn refill(&self, mut bucket: usize, mut vacancy: usize) {
        for _ in 0..BUCKETS {
            let Some((from, index, slot)) = self.displaced(bucket).next() else {
                return;
            };
            self.shift(from, (index, slot, Home::Elsewhere), bucket, vacancy);
            (bucket, vacancy) = (from, index);
        }
    }

    /// Moves an entry to the empty slot of its opposite bucket.
    fn shift(&self, from: usize, entry: (usize, Slot, Home), to: usize, vacancy: usize) {
        let (index, slot, home) = entry;
        match home {
            Home::This => {
                self.put(to, vacancy, slot, Home::Elsewhere);
                self.clear(from, index, true);
            }
            Home::Elsewhere => {
                self.put(to, vacancy, slot, Home::This);
                self.clear(from, index, self.bucket(from).meta().overflow());
                self.update_overflow(to);
            }
        }
    }

    fn put(&self, bucket: usize, index: usize, slot: Slot, home: Home) {
        self.bucket(bucket).put(index, slot, home);
        self.set_vacant(bucket, self.bucket(bucket).vacancy().is_some());
    }

    fn clear(&self, bucket: usize, index: usize, overflow: bool) {
        self.bucket(bucket).clear(index, overflow);
        self.set_vacant(bucket, true);
    }

    /// An empty slot of a bucket.
    fn vacancy(&self, bucket: usize) -> Option<usize> {
        if !self.is_vacant(bucket) {
            return None;
        }
        self.bucket(bucket).vacancy()
    }

    fn update_overflow(&self, home: usize) {
        let overflow = self.displaced(home).next().is_some();
        self.bucket(home).set_overflow(overflow);
    }

    /// Adds an entry; the caller knows that its key has none. False if there is no room.
    pub(super) fn place(&self, home: usize, slot: Slot) -> bool {
        if self.count() >= capacity(self.slots()) {
            return false;
        }
        let Some((bucket, index)) = self.vacancy_for(home, slot.high) else {
            return false;
        };
        if bucket == home {
            self.put(home, index, slot, Home::This);
        } else {
            self.put(bucket, index, slot, Home::Elsewhere);
            self.bucket(home).set_overflow(true);
        }
        self.set_count(self.count() + 1);
        true
    }

    /// Makes sure that an entry with this place has room, by moving others if need be; false
    /// if that is impossible.
    pub(super) fn make_room(&self, place: Place) -> bool {
        let full = self.count() >= capacity(self.slots());
        !full && self.vacancy_for(place.bucket, high(place.tag)).is_some()
    }

    /// An empty slot at home or else in the other bucket.
    fn vacancy_for(&self, home: usize, high: u32) -> Option<(usize, usize)> {
        let other = other(home, way(high));
        let vacancy = |bucket| Some((bucket, self.vacancy(bucket)?));
        let room = vacancy(home).or_else(|| vacancy(other));
        room.or_else(|| self.make_vacancy(home, other))
    }

    /// Empties a slot of one of two full buckets by shifting a chain of entries, the
    /// shortest that there is.
    fn make_vacancy(&self, first: usize, second: usize) -> Option<(usize, usize)> {
        let mut chains = [Link::UNREACHED; BUCKETS];
        let mut queue = [0; SEARCHED_MAX];
        chains[first] = Link::ROOT;
        chains[second] = Link::ROOT;
        queue[..2].copy_from_slice(&[first, second]);
        let mut queued = if first == second { 1 } else { 2 };
        let mut next = 0;
        while next < queued {
            let bucket = queue[next];
            next += 1;
            for (index, high, home) in self.bucket(bucket).highs() {
                let to = opposite(bucket, home, high);
                if chains[to] != Link::UNREACHED {
                    continue;
                }
                chains[to] = Link::from(bucket, index);
                if let Some(vacancy) = self.vacancy(to) {
                    return Some(self.shift_chain(&chains, to, vacancy));
                }
                if queued < SEARCHED_MAX {
                    queue[queued] = to;
                    queued += 1;
                }
            }
        }
        None
    }

    /// Shifts the chain that ends with an empty slot, from its end.
    fn shift_chain(
        &self,
        chains: &[Link; BUCKETS],
        mut bucket: usize,
        mut vacancy: usize,
    ) -> (usize, usize) {
        while let Some((from, index)) = chains[bucket].entry() {
            let (slot, home) = self.bucket(from).entry(index);
            self.shift(from, (index, slot, home), bucket, vacancy);
            (bucket, vacancy) = (from, index);
        }
        (bucket, vacancy)
    }
}

/// How a search for an empty slot came to a bucket: by which entry that can move there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link(u16);

const _: () = assert!(BUCKETS * SLOTS_MAX < Link::ROOT.0 as usize);

impl Link {
    const UNREACHED: Self = Self(0);
    /// One of the two buckets that the search began with.
    const ROOT: Self = Self(u16::MAX);

    fn from(bucket: usize, index: usize) -> Self {
        Self((1 + bucket * SLOTS_MAX + index) as u16)
    }

    fn entry(self) -> Option<(usize, usize)> {
        if self == Self::ROOT {
            return None;
        }
        let entry = usize::from(self.0).checked_sub(1)?;
        Some((entry / SLOTS_MAX, entry % SLOTS_MAX))
    }
}
