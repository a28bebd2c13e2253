//! Finding, placing and removing entries within one unit.
//!
//! An entry is in its home bucket or in the next. A lookup without a lock reads the home,
//! and the next bucket only if the home's `overflow` says so; a miss counts only if the
//! home did not change meanwhile, because entries move between the two.
//!
//! Writers keep this: *a bucket with an empty slot has no displaced entries*. So an insert
//! into a full home that finds no way to shift entries forward proves that no arrangement
//! has room (a run of full buckets holds all the entries it can), and few entries are
//! displaced at any time.
//!
//! Every move writes the copy before it clears the original.

use super::bucket::Home;
use super::entry::{Entry, Slot};
use super::position::Place;
use super::unit::{Unit, capacity};
use super::{BUCKETS, next_bucket};

/// Where an entry was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    home: usize,
    bucket: usize,
    index: usize,
    /// The slot's word.
    pub(super) word: u64,
}

impl Unit<'_> {
    /// The entry at `place`, without a lock.
    pub(super) fn get(self, place: Place) -> Option<Entry> {
        loop {
            let home = self.bucket(place.bucket);
            let (meta, word) = home.probe(place.tag, Home::This);
            if let Some(word) = word {
                return Slot::entry(word);
            }
            if !meta.overflow() {
                return None;
            }
            let next = self.bucket(next_bucket(place.bucket));
            let (_, word) = next.probe(place.tag, Home::Previous);
            if let Some(word) = word {
                return Slot::entry(word);
            }
            if home.unchanged(meta) {
                return None;
            }
        }
    }

    /// Appends the entries whose home is `bucket`, without a lock.
    pub(super) fn collect(self, bucket: usize, out: &mut Vec<Entry>) {
        let start = out.len();
        loop {
            out.truncate(start);
            let home = self.bucket(bucket);
            let meta = home.collect(Home::This, out);
            if !meta.overflow() {
                return;
            }
            self.bucket(next_bucket(bucket))
                .collect(Home::Previous, out);
            if home.unchanged(meta) {
                return;
            }
        }
    }

    // The rest is for the holder of the shard's lock.

    /// The entry at `place`.
    pub(super) fn find(self, place: Place) -> Option<Found> {
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
        let next = next_bucket(place.bucket);
        let at = self.bucket(next).find(place.tag, Home::Previous)?;
        Some(found(next, at))
    }

    /// The entries whose home is `bucket`.
    pub(super) fn homed(self, bucket: usize) -> impl Iterator<Item = Slot> {
        let home = self.bucket(bucket);
        let next = self.bucket(next_bucket(bucket));
        let displaced = home
            .meta()
            .overflow()
            .then(|| next.occupied(Home::Previous));
        let own = home.occupied(Home::This);
        own.chain(displaced.into_iter().flatten())
            .map(|(_, slot)| slot)
    }

    /// Replaces what was found, and makes its tag fresh.
    pub(super) fn overwrite(self, found: Found, entry: Entry, tag: u64) {
        let home = if found.bucket == found.home {
            Home::This
        } else {
            Home::Previous
        };
        self.bucket(found.bucket)
            .put(found.index, Slot::new(entry, tag), home);
    }

    /// Empties the slot of what was found, and moves displaced entries back.
    pub(super) fn remove(self, found: Found) {
        let bucket = self.bucket(found.bucket);
        bucket.clear(found.index, bucket.meta().overflow());
        self.set_count(self.count() - 1);
        if found.bucket != found.home {
            self.update_overflow(found.home);
        }
        self.refill(found.bucket, found.index);
    }

    /// Fills an empty slot with a displaced entry of the bucket, the slot that leaves empty
    /// with one of the next bucket, and so on; at most once round the unit.
    fn refill(self, mut bucket: usize, mut vacancy: usize) {
        for _ in 0..BUCKETS {
            if !self.bucket(bucket).meta().overflow() {
                return;
            }
            let next = next_bucket(bucket);
            let from = self.bucket(next);
            let Some((index, slot)) = from.occupied(Home::Previous).next() else {
                debug_assert!(false, "overflow without a displaced entry");
                return;
            };
            self.bucket(bucket).put(vacancy, slot, Home::This);
            from.clear(index, from.meta().overflow());
            self.update_overflow(bucket);
            (bucket, vacancy) = (next, index);
        }
    }

    fn update_overflow(self, home: usize) {
        let next = self.bucket(next_bucket(home));
        let overflow = next.occupied(Home::Previous).next().is_some();
        self.bucket(home).set_overflow(overflow);
    }

    /// How many buckets from `home` on must pass an entry to the next for one more entry to
    /// find room; `None` when there is none.
    fn shifts(self, home: usize) -> Option<usize> {
        let mut bucket = home;
        for shifts in 0..BUCKETS {
            let here = self.bucket(bucket);
            if here.vacancy().is_some() {
                return Some(shifts);
            }
            // The home itself may pass on the new entry.
            if shifts > 0 && here.occupied(Home::This).next().is_none() {
                return None;
            }
            bucket = next_bucket(bucket);
        }
        None
    }

    /// Whether one more entry with this home has room.
    pub(super) fn has_room(self, home: usize) -> bool {
        self.count() < capacity(self.slots()) && self.shifts(home).is_some()
    }

    /// Adds an entry; the caller knows that its key has none. False if there is no room.
    pub(super) fn place(self, home: usize, slot: Slot) -> bool {
        if self.count() >= capacity(self.slots()) {
            return false;
        }
        let Some(shifts) = self.shifts(home) else {
            return false;
        };
        // From the far end: each step fills the vacancy of the one before.
        for step in (1..shifts).rev() {
            self.pass_on((home + step) % BUCKETS);
        }
        let (bucket, kind) = if shifts == 0 {
            (home, Home::This)
        } else {
            (next_bucket(home), Home::Previous)
        };
        let Some(index) = self.bucket(bucket).vacancy() else {
            unreachable!("the last step made room");
        };
        self.bucket(bucket).put(index, slot, kind);
        if kind == Home::Previous {
            self.bucket(home).set_overflow(true);
        }
        self.set_count(self.count() + 1);
        true
    }

    /// Moves an entry of this home to the next bucket.
    fn pass_on(self, home: usize) {
        let next = self.bucket(next_bucket(home));
        let vacancy = next.vacancy();
        let entry = self.bucket(home).occupied(Home::This).next();
        let (Some(vacancy), Some((index, slot))) = (vacancy, entry) else {
            unreachable!("`shifts` saw both");
        };
        next.put(vacancy, slot, Home::Previous);
        self.bucket(home).clear(index, true);
    }
}
