//! Walking an omap.

use std::collections::VecDeque;
use std::ops::Bound;

use crate::object::ObjectId;
use crate::{Error, Result};

use super::ObjectStore;

/// Omap entries an iterator reads at first, and at most, at a time.
const PREFETCH_FIRST: usize = 32;
const PREFETCH_MAX: usize = 512;

/// A cursor over the entries of an omap, in the order of their keys. It pins nothing: it
/// reads some entries ahead, and goes on from the last key when they are used up.
pub struct OmapIterator<'a> {
    store: &'a ObjectStore,
    id: ObjectId,
    /// The present entry and those read ahead.
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    at_once: usize,
    status: Result<()>,
}

impl<'a> OmapIterator<'a> {
    pub(super) fn new(store: &'a ObjectStore, id: ObjectId) -> Self {
        Self {
            store,
            id,
            entries: VecDeque::new(),
            at_once: PREFETCH_FIRST,
            status: Ok(()),
        }
    }

    fn fill(&mut self, bound: Bound<&[u8]>) {
        let objects = self.store.objects();
        let log = &self.store.inner().log;
        match objects.read_omap_from(log, self.id, bound, self.at_once) {
            Ok(entries) => {
                self.entries = entries.into();
                self.at_once = (self.at_once * 4).min(PREFETCH_MAX);
            }
            Err(error) => {
                self.entries.clear();
                self.status = Err(error);
            }
        }
    }

    fn seek(&mut self, bound: Bound<&[u8]>) {
        self.status = Ok(());
        self.at_once = PREFETCH_FIRST;
        self.fill(bound);
    }

    /// Goes to the first entry.
    pub fn seek_to_first(&mut self) {
        self.seek(Bound::Unbounded);
    }

    /// Goes to the first entry whose key is `key` or greater.
    pub fn lower_bound(&mut self, key: &[u8]) {
        self.seek(Bound::Included(key));
    }

    /// Goes to the first entry whose key is greater than `key`.
    pub fn upper_bound(&mut self, key: &[u8]) {
        self.seek(Bound::Excluded(key));
    }

    /// Whether it is at an entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Goes to the next entry.
    pub fn next(&mut self) {
        let Some((key, _)) = self.entries.pop_front() else {
            return;
        };
        if self.entries.is_empty() {
            self.fill(Bound::Excluded(&key));
        }
    }

    /// The key it is at; empty past the end.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.entries.front().map_or(&[], |(key, _)| key)
    }

    /// The value it is at; empty past the end.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.entries.front().map_or(&[], |(_, value)| value)
    }

    /// What went wrong, if anything.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn status(&self) -> std::result::Result<(), &Error> {
        match &self.status {
            Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
