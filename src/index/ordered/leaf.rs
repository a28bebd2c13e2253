//! A leaf: up to [`ENTRIES_MAX`] keys and their values in one shared allocation.
//!
//! ```text
//! entries 1 | bytes of keys 4 | keys: (shared, length, suffix) each | values: 8 each | slack
//! ```
//!
//! A key is the first `shared` bytes of the key before it and a suffix. `shared` is all that
//! the two have in common, never less: [`Leaf::search`] relies on it to compare a suffix only
//! where the outcome is open, and never builds a key. The first key shares nothing, so it can
//! be had as a slice.
//!
//! The bytes before the slack are also the leaf's form on media.

use super::Edge;
use crate::format::KEY_BYTES_MAX;
use crate::sync::SharedArc;

/// The most entries of a leaf: a search walks half of them, some 100 ns; and a full leaf
/// spreads what it costs beside its entries, 32 bytes in itself, 24 in its branch and a whole
/// first key, over enough keys to be forgotten.
pub(super) const ENTRIES_MAX: usize = 64;
/// The most bytes of keys after the first in a leaf of several entries: what a write moves or
/// copies is small even if keys are long. One key is not counted, so that long keys may
/// share a leaf if they differ by little.
pub(super) const BODY_MAX: usize = 4096;
/// Bytes of a leaf before its keys.
pub(super) const HEADER_BYTES: usize = 5;
/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 8;
const CACHE_LINE_BYTES: usize = 64;
/// The counts of the `Arc`, in the same allocation.
const ARC_BYTES: usize = 16;

// The count of entries is a byte.
const _: () = assert!(ENTRIES_MAX < 256);
// A length takes at most three bytes of seven bits.
const _: () = assert!(KEY_BYTES_MAX < 1 << 21);
// The bytes of keys are counted in four.
const _: () = assert!((KEY_BYTES_MAX + 6) * ENTRIES_MAX < 1 << 32);

/// A leaf. It has an entry, except for a moment after its last was removed.
#[derive(Clone)]
pub(super) struct Leaf(pub(super) SharedArc<[u8]>);

/// Where the parts of a key are, as offsets in the bytes of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// How much it shares with the key before.
    pub(super) shared: usize,
    /// Where the suffix begins.
    pub(super) suffix: usize,
    /// Where the suffix and the entry end.
    pub(super) end: usize,
}

/// Where a key is, or belongs, in a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Number of keys before.
    pub(super) index: usize,
    /// Where the entry at the spot begins in the bytes of keys.
    pub(super) offset: usize,
    /// Whether that entry has the key.
    pub(super) found: bool,
    /// What the key has in common with the one before.
    pub(super) shared: usize,
    /// What the key has in common with the one at the spot.
    pub(super) shared_next: usize,
}

impl Leaf {
    /// A leaf of a single entry.
    pub(super) fn single(key: &[u8], word: u64) -> Self {
        let head = head(0, key.len());
        Self::build(1, &[head.bytes(), key], &[&word.to_le_bytes()])
    }

    /// A leaf of `count` entries from pieces of its keys and of its values.
    pub(super) fn build(count: usize, keys: &[&[u8]], values: &[&[u8]]) -> Self {
        assert!(count <= ENTRIES_MAX, "a leaf's entries");
        let keys_bytes: usize = keys.iter().map(|piece| piece.len()).sum();
        let needed = used(count, keys_bytes);
        let mut bytes = Vec::with_capacity(room(needed));
        bytes.push(count as u8);
        bytes.extend_from_slice(&(keys_bytes as u32).to_le_bytes());
        for piece in keys.iter().chain(values) {
            bytes.extend_from_slice(piece);
        }
        assert_eq!(bytes.len(), needed, "a value for each key");
        bytes.resize(room(needed), 0);
        Self(SharedArc::from(bytes))
    }

    /// Number of entries.
    pub(super) fn count(&self) -> usize {
        usize::from(self.0[0])
    }

    /// Bytes of its keys, encoded.
    pub(super) fn keys_bytes(&self) -> usize {
        u32::from_le_bytes([self.0[1], self.0[2], self.0[3], self.0[4]]) as usize
    }

    /// Its keys, encoded.
    pub(super) fn keys(&self) -> &[u8] {
        &self.0[HEADER_BYTES..HEADER_BYTES + self.keys_bytes()]
    }

    /// The bytes of its values.
    pub(super) fn values(&self) -> &[u8] {
        let start = HEADER_BYTES + self.keys_bytes();
        &self.0[start..start + VALUE_BYTES * self.count()]
    }

    /// The bytes that mean something: all but the slack.
    pub(super) fn image(&self) -> &[u8] {
        &self.0[..used(self.count(), self.keys_bytes())]
    }

    /// The value of an entry.
    pub(super) fn value(&self, index: usize) -> u64 {
        let at = VALUE_BYTES * index;
        let bytes = self.values()[at..].first_chunk();
        u64::from_le_bytes(*bytes.expect("a value for each key"))
    }

    /// The first key.
    pub(super) fn first_key(&self) -> &[u8] {
        let first = entry_at(self.keys(), 0);
        &self.keys()[first.suffix..first.end]
    }

    /// Bytes of keys after the first, which [`BODY_MAX`] limits.
    pub(super) fn body_bytes(&self) -> usize {
        self.keys_bytes() - entry_at(self.keys(), 0).end
    }

    /// Bytes of memory, the allocator's included.
    pub(super) fn memory(&self) -> usize {
        allocated(ARC_BYTES + self.0.len())
    }

    /// Has the processor fetch the leaf at once, or the first 2 KiB of one with long keys: a
    /// search alone would wait for one cache line after the other where nothing of a large map
    /// is in the caches.
    fn touch(&self) {
        let lines = self.0.iter().step_by(CACHE_LINE_BYTES).take(32);
        std::hint::black_box(lines.fold(0, |all, byte| all ^ byte));
    }

    /// Finds where a key is or belongs.
    ///
    /// `shared` is what the target has in common with the last key that is less. A key that
    /// shares more than this with its predecessor is less for the same reason; one that shares
    /// less is greater, and only one that shares as much must be compared.
    pub(super) fn search(&self, target: &[u8]) -> Spot {
        self.touch();
        let keys = self.keys();
        let mut shared = 0;
        let mut offset = 0;
        for index in 0..self.count() {
            let entry = entry_at(keys, offset);
            if entry.shared <= shared {
                let common = if entry.shared < shared {
                    entry.shared
                } else {
                    shared + in_common(&keys[entry.suffix..entry.end], &target[shared..])
                };
                let length = entry.shared + entry.end - entry.suffix;
                let found = common == length && common == target.len();
                // Less: it ends before the target does, or the first byte that differs is less.
                let less = entry.shared == shared
                    && common < target.len()
                    && (common == length || keys[entry.suffix + common - shared] < target[common]);
                if !less {
                    return Spot {
                        index,
                        offset,
                        found,
                        shared,
                        shared_next: common,
                    };
                }
                shared = common;
            }
            offset = entry.end;
        }
        Spot {
            index: self.count(),
            offset,
            found: false,
            shared,
            shared_next: 0,
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<u64> {
        let spot = self.search(key);
        spot.found.then(|| self.value(spot.index))
    }

    /// How many keys are before an edge.
    pub(super) fn before(&self, edge: Edge<'_>) -> usize {
        let spot = self.search(edge.key);
        spot.index + usize::from(spot.found && edge.after)
    }

    /// Calls `f` for the entries from `from` on until it returns false, which is then returned.
    /// `key` is scratch.
    pub(super) fn each(
        &self,
        from: usize,
        key: &mut Vec<u8>,
        f: &mut dyn FnMut(&[u8], u64) -> bool,
    ) -> bool {
        let keys = self.keys();
        let mut offset = 0;
        key.clear();
        for index in 0..self.count() {
            let entry = entry_at(keys, offset);
            key.truncate(entry.shared);
            key.extend_from_slice(&keys[entry.suffix..entry.end]);
            if index >= from && !f(key, self.value(index)) {
                return false;
            }
            offset = entry.end;
        }
        true
    }

    /// A key, and its entry.
    pub(super) fn key_at(&self, index: usize) -> (Vec<u8>, Entry) {
        let keys = self.keys();
        let mut key = Vec::new();
        let mut entry = entry_at(keys, 0);
        key.extend_from_slice(&keys[entry.suffix..entry.end]);
        for _ in 0..index {
            entry = entry_at(keys, entry.end);
            key.truncate(entry.shared);
            key.extend_from_slice(&keys[entry.suffix..entry.end]);
        }
        (key, entry)
    }

    /// The last key.
    pub(super) fn last_key(&self) -> Vec<u8> {
        self.key_at(self.count() - 1).0
    }
}

/// Bytes of a leaf without slack.
pub(super) fn used(count: usize, keys_bytes: usize) -> usize {
    HEADER_BYTES + keys_bytes + VALUE_BYTES * count
}

/// The step in which allocations of about this size grow: a sixteenth, so that most inserts
/// find slack and the slack is little.
fn step(total: usize) -> usize {
    (total / 16).next_power_of_two().clamp(16, 4096)
}

/// Bytes of a new leaf that needs so many. With the counts of the `Arc` and the allocator's
/// word it fills a chunk of the allocator exactly.
pub(super) fn room(needed: usize) -> usize {
    let overhead = ARC_BYTES + size_of::<usize>();
    let total = needed + overhead;
    total.next_multiple_of(step(total)) - overhead
}

/// Whether a leaf of `bytes` is a good home for so many: neither too small nor much too large.
/// Two steps more than needed, so that no sequence of inserts and removals copies each time.
pub(super) fn suits(bytes: usize, needed: usize) -> bool {
    needed <= bytes && bytes < room(needed) + 2 * step(needed)
}

/// Bytes of memory that an allocation takes: the allocator has a word of its own and deals in
/// 16 bytes, at least 32.
pub(super) const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let chunk = (bytes + size_of::<usize>()).next_multiple_of(16);
    if chunk < 32 { 32 } else { chunk }
}

/// How many leading bytes are the same.
pub(super) fn in_common(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let same = words.take_while(|(a, b)| a == b).count() * 8;
    let bytes = a[same..].iter().zip(&b[same..]);
    same + bytes.take_while(|(a, b)| a == b).count()
}

/// The entry at an offset in encoded keys that are known to be sound.
#[inline]
pub(super) fn entry_at(keys: &[u8], offset: usize) -> Entry {
    if let [shared @ ..0x80, length @ ..0x80, ..] = keys[offset..] {
        let suffix = offset + 2;
        return Entry {
            shared: usize::from(shared),
            suffix,
            end: suffix + usize::from(length),
        };
    }
    let (shared, length_at) = number_at(keys, offset).expect("a sound entry");
    let (length, suffix) = number_at(keys, length_at).expect("a sound entry");
    Entry {
        shared,
        suffix,
        end: suffix + length,
    }
}

/// A number of up to 21 bits, seven a byte, low ones first; and the offset after it. `None`
/// when it is cut off, longer, or not in its shortest form.
pub(super) fn number_at(bytes: &[u8], offset: usize) -> Option<(usize, usize)> {
    let mut number = 0;
    for place in 0..3 {
        let byte = *bytes.get(offset + place)?;
        number |= usize::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            let shortest = place == 0 || byte != 0;
            return shortest.then_some((number, offset + place + 1));
        }
    }
    None
}

/// The encoded numbers before a suffix.
pub(super) struct Head {
    bytes: [u8; 6],
    length: usize,
}

impl Head {
    /// The encoding.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, mut number: usize) {
        while number >= 0x80 {
            self.bytes[self.length] = number as u8 | 0x80;
            self.length += 1;
            number >>= 7;
        }
        self.bytes[self.length] = number as u8;
        self.length += 1;
    }
}

/// Encodes what comes before a suffix.
pub(super) fn head(shared: usize, length: usize) -> Head {
    let mut head = Head {
        bytes: [0; 6],
        length: 0,
    };
    head.push(shared);
    head.push(length);
    head
}
