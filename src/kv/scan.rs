//! Scanning all entries in the order of their key hashes, bucket by bucket.
//!
//! The order survives growth and splits of the index, so a cursor is a position in it. An
//! entry that is there during the whole scan is returned exactly once; one that comes or
//! goes meanwhile may or may not be.

use crate::Result;
use crate::format::Kind;
use crate::index::ScanPosition;
use crate::log::Log;

use super::{KeyValue, Value};

/// Where a scan stopped: a later scan goes on from there, also after reopening the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// 0 at the start; else one more than the next position.
    next: Option<u64>,
    done: bool,
}

impl Cursor {
    /// The cursor of a scan from the start.
    #[must_use]
    pub fn start() -> Self {
        Self::default()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The cursor as a number, to be kept outside; `None` when nothing is left.
    #[must_use]
    pub fn to_bits(&self) -> Option<u64> {
        if self.done {
            None
        } else {
            Some(self.next.unwrap_or(0))
        }
    }

    /// The cursor of [`Cursor::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            next: Some(bits),
            done: false,
        }
    }
}

/// Entries of a store, unordered; made by `Store::scan`.
pub struct Scan<'a> {
    kv: &'a KeyValue,
    log: &'a Log,
    cursor: Cursor,
    /// Entries of the bucket before the cursor that were not returned yet, last first.
    ready: Vec<(Vec<u8>, Value)>,
}

impl KeyValue {
    /// Whether a key's place in the order of scans is from `start` to before `end`.
    fn is_between(&self, key: &[u8], start: ScanPosition, end: Option<ScanPosition>) -> bool {
        let position = ScanPosition::of(self.user_hash(key));
        position >= start && end.is_none_or(|end| position < end)
    }
}

impl<'a> Scan<'a> {
    pub(crate) fn new(kv: &'a KeyValue, log: &'a Log, cursor: Cursor) -> Self {
        Self {
            kv,
            log,
            cursor,
            ready: Vec::new(),
        }
    }

    /// Where a later scan can go on: after every entry of the buckets visited so far. Exact
    /// when taken once the scan has been asked for all it had ready; otherwise a few entries
    /// may not have been returned, see [`Scan::is_at_cursor`].
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Whether every entry before the cursor has been returned.
    #[must_use]
    pub fn is_at_cursor(&self) -> bool {
        self.ready.is_empty()
    }

    /// Reads the next bucket; false at the end.
    fn advance(&mut self) -> Result<bool> {
        if self.cursor.done {
            return Ok(false);
        }
        let at = ScanPosition::from_bits(self.cursor.next.unwrap_or(0));
        let mut entries = Vec::new();
        let next = 'again: loop {
            entries.clear();
            self.ready.clear();
            let next = self.kv.index.scan_bucket(at, &mut entries);
            for entry in &entries {
                let still_there = || {
                    let mut now = Vec::new();
                    self.kv.index.scan_bucket(at, &mut now);
                    now.contains(entry)
                };
                let Some(loaded) = self.kv.load(self.log, *entry, still_there)? else {
                    // It moved or was overwritten: read the bucket anew.
                    continue 'again;
                };
                if !self.kv.is_between(&loaded.key, at, next) && !still_there() {
                    // The segment was reused meanwhile: this is another's record.
                    continue 'again;
                }
                match loaded.kind {
                    Kind::Put => self.ready.push((loaded.key.to_vec(), loaded.value)),
                    Kind::Head => match self.kv.get(self.log, &loaded.key)? {
                        Some(value) => self.ready.push((loaded.key.to_vec(), value)),
                        None => continue 'again,
                    },
                    _ => {}
                }
            }
            break next;
        };
        match next {
            Some(position) => self.cursor.next = Some(position.bits()),
            None => self.cursor.done = true,
        }
        Ok(true)
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.pop() {
                return Some(Ok(entry));
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.cursor.done = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
