//! Changes of one entry of a leaf: in place if nobody shares the leaf and it has room, else in
//! a copy.

use super::leaf::{
    BODY_MAX, ENTRIES_MAX, HEADER_BYTES, Leaf, VALUE_BYTES, entry_at, head, suits, used,
};
use crate::sync::SharedArc;
use std::ops::Range;

/// What an insert into a leaf did.
pub(super) enum Inserted {
    /// The key was there, with this value.
    Replaced(u64),
    /// The leaf has an entry more.
    Added,
    /// The leaf was full, and entries went to another that follows it.
    Split(Leaf),
}

/// What happens to the values while keys are spliced.
#[derive(Clone, Copy)]
enum Change {
    Insert(usize, u64),
    Remove(usize),
}

impl Leaf {
    /// Sets the value of an entry.
    pub(super) fn set_value(&mut self, index: usize, word: u64) {
        let at = HEADER_BYTES + self.keys_bytes() + VALUE_BYTES * index;
        let bytes = SharedArc::make_mut(&mut self.0);
        bytes[at..at + VALUE_BYTES].copy_from_slice(&word.to_le_bytes());
    }

    /// Sets the value of a key if it is `old`. Copies nothing if it is not.
    pub(super) fn update(&mut self, key: &[u8], old: u64, new: u64) -> bool {
        let spot = self.search(key);
        let here = spot.found && self.value(spot.index) == old;
        if here {
            self.set_value(spot.index, new);
        }
        here
    }

    /// Sets the value of a key.
    pub(super) fn insert(&mut self, key: &[u8], word: u64) -> Inserted {
        let spot = self.search(key);
        if spot.found {
            let old = self.value(spot.index);
            self.set_value(spot.index, word);
            return Inserted::Replaced(old);
        }
        let (count, keys) = (self.count(), self.keys());
        let mut with = Vec::with_capacity(key.len() - spot.shared + 12);
        with.extend_from_slice(head(spot.shared, key.len() - spot.shared).bytes());
        with.extend_from_slice(&key[spot.shared..]);
        let mut cut = spot.offset..spot.offset;
        let mut body = self.body_bytes() + with.len();
        if spot.index < count {
            // What the next key has in common with this one goes from its suffix.
            let next = entry_at(keys, spot.offset);
            let gone = spot.shared_next - next.shared;
            let rest = next.end - next.suffix - gone;
            with.extend_from_slice(head(spot.shared_next, rest).bytes());
            cut.end = next.suffix + gone;
            if spot.index == 0 {
                body = self.body_bytes() + rest;
            }
        }
        if count == ENTRIES_MAX || body > BODY_MAX {
            return Inserted::Split(self.split(spot.index, key, word));
        }
        self.splice(cut, &with, Change::Insert(spot.index, word));
        Inserted::Added
    }

    /// Makes two leaves of this one and a key that belongs at `index`; returns the second.
    fn split(&mut self, index: usize, key: &[u8], word: u64) -> Self {
        let count = self.count();
        // Keys that come in order leave full leaves behind.
        if index == count {
            return Self::single(key, word);
        }
        if index == 0 {
            return std::mem::replace(self, Self::single(key, word));
        }
        let middle = self.middle();
        let mut right = self.extract(middle..count);
        *self = self.extract(0..middle);
        let half = if index <= middle {
            &mut *self
        } else {
            &mut right
        };
        half.insert_whole(key, word);
        right
    }

    /// Inserts an absent key without regard to [`BODY_MAX`]: a half may still be above it when
    /// it has a long key. The next insert splits it again.
    fn insert_whole(&mut self, key: &[u8], word: u64) {
        let spot = self.search(key);
        let single = Self::single(key, word);
        let count = self.count();
        if spot.index == count {
            *self = Self::join(self, &single);
            return;
        }
        let right = Self::join(&single, &self.extract(spot.index..count));
        *self = if spot.index == 0 {
            right
        } else {
            Self::join(&self.extract(0..spot.index), &right)
        };
    }

    /// Removes a key. Returns its value and which entry it was.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<(u64, usize)> {
        let spot = self.search(key);
        if !spot.found {
            return None;
        }
        let word = self.value(spot.index);
        let keys = self.keys();
        let entry = entry_at(keys, spot.offset);
        let mut cut = spot.offset..entry.end;
        let mut with = Vec::new();
        if spot.index + 1 < self.count() {
            // What the next key shared with this one and not with the one before is now its.
            let next = entry_at(keys, entry.end);
            let shared = entry.shared.min(next.shared);
            let regained = next.shared - shared;
            let length = regained + next.end - next.suffix;
            with.extend_from_slice(head(shared, length).bytes());
            with.extend_from_slice(&keys[entry.suffix..entry.suffix + regained]);
            cut.end = next.suffix;
        }
        self.splice(cut, &with, Change::Remove(spot.index));
        Some((word, spot.index))
    }

    /// Replaces a range of the encoded keys, and changes the values.
    fn splice(&mut self, cut: Range<usize>, with: &[u8], change: Change) {
        let (count, keys) = (self.count(), self.keys_bytes());
        let count_after = match change {
            Change::Insert(..) => count + 1,
            Change::Remove(_) => count - 1,
        };
        let keys_after = keys - cut.len() + with.len();
        let suits = suits(self.0.len(), used(count_after, keys_after));
        let Some(bytes) = SharedArc::get_mut(&mut self.0).filter(|_| suits) else {
            *self = self.spliced(cut, with, change, count_after);
            return;
        };
        let (values, values_after) = (HEADER_BYTES + keys, HEADER_BYTES + keys_after);
        let tail = HEADER_BYTES + cut.end..values;
        let tail_after = HEADER_BYTES + cut.start + with.len();
        // Everything moves to the right, so the last goes first; or to the left.
        match change {
            Change::Insert(index, word) => {
                assert!(keys_after >= keys, "an insert makes keys longer");
                let at = VALUE_BYTES * index;
                let end = values + VALUE_BYTES * count;
                bytes.copy_within(values + at..end, values_after + at + VALUE_BYTES);
                bytes.copy_within(values..values + at, values_after);
                bytes.copy_within(tail, tail_after);
                let value = values_after + at..values_after + at + VALUE_BYTES;
                bytes[value].copy_from_slice(&word.to_le_bytes());
            }
            Change::Remove(index) => {
                assert!(keys_after <= keys, "a removal makes keys shorter");
                let at = VALUE_BYTES * index;
                let end = values + VALUE_BYTES * count;
                bytes.copy_within(tail, tail_after);
                bytes.copy_within(values..values + at, values_after);
                bytes.copy_within(values + at + VALUE_BYTES..end, values_after + at);
            }
        }
        bytes[HEADER_BYTES + cut.start..tail_after].copy_from_slice(with);
        bytes[0] = count_after as u8;
        bytes[1..HEADER_BYTES].copy_from_slice(&(keys_after as u32).to_le_bytes());
    }

    /// As [`Self::splice`], in a copy.
    fn spliced(&self, cut: Range<usize>, with: &[u8], change: Change, count: usize) -> Self {
        let (keys, values) = (self.keys(), self.values());
        let keys = [&keys[..cut.start], with, &keys[cut.end..]];
        match change {
            Change::Insert(index, word) => {
                let (before, after) = values.split_at(VALUE_BYTES * index);
                Self::build(count, &keys, &[before, &word.to_le_bytes(), after])
            }
            Change::Remove(index) => {
                let (before, after) = values.split_at(VALUE_BYTES * index);
                Self::build(count, &keys, &[before, &after[VALUE_BYTES..]])
            }
        }
    }
}
