//! What is done to which key, with contents that can be verified when read.
//!
//! A value is a header that names its key and version, then slices of a pool of random
//! bytes at offsets hashed from both: it does not compress, costs a `memcpy` to make and a
//! `memcmp` to verify, and no two versions share their bytes in place.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The kind of the measured part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Workload {
    /// Puts of keys that are not there yet, each once, in random order.
    Fill,
    /// Puts of keys that are there.
    Overwrite,
    /// Gets.
    RandomRead,
    /// Gets in this fraction of the operations, overwrites in the rest.
    Mixed(f64),
}

impl Workload {
    /// The fraction of operations that read.
    pub fn read_share(self) -> f64 {
        match self {
            Self::Fill | Self::Overwrite => 0.0,
            Self::RandomRead => 1.0,
            Self::Mixed(share) => share,
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fill" => Ok(Self::Fill),
            "overwrite" => Ok(Self::Overwrite),
            "randread" => Ok(Self::RandomRead),
            _ => {
                let Some(share) = text.strip_prefix("mixed:") else {
                    return Err("use fill, overwrite, randread or mixed:R".into());
                };
                match share.parse::<f64>() {
                    Ok(share) if (0.0..=1.0).contains(&share) => Ok(Self::Mixed(share)),
                    _ => Err("R of mixed:R is the fraction of gets, 0 to 1".into()),
                }
            }
        }
    }
}

impl TryFrom<String> for Workload {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Workload> for String {
    fn from(workload: Workload) -> Self {
        workload.to_string()
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fill => f.write_str("fill"),
            Self::Overwrite => f.write_str("overwrite"),
            Self::RandomRead => f.write_str("randread"),
            Self::Mixed(share) => write!(f, "mixed:{share}"),
        }
    }
}

/// Writes the key of number `id` into `key`, whose length is the key size: the number in big
/// endian, then bytes hashed from it, so that no engine gains by shared prefixes.
pub fn write_key(id: u64, key: &mut [u8]) {
    let number = id.to_be_bytes();
    if key.len() <= 8 {
        key.copy_from_slice(&number[8 - key.len()..]);
        return;
    }
    let (head, tail) = key.split_at_mut(8);
    head.copy_from_slice(&number);
    Rng::with_seed(id).fill(tail);
}

/// How many keys of this size there are, at most.
pub fn key_count_max(key_bytes: usize) -> u64 {
    if key_bytes >= 8 {
        u64::MAX
    } else {
        1 << (8 * key_bytes)
    }
}

/// Offsets of value bodies in the pool; a power of two.
const POOL_BYTES: usize = 1 << 20;
/// A body is made of slices of at most this size.
const SLICE_BYTES: usize = 64 << 10;
/// Key number and version, at the front of each value long enough for them.
const HEADER_BYTES: usize = 16;
/// Shorter values are hashes alone: after a header there must be enough of a body to notice
/// that the header is damaged.
const HEADED_BYTES_MIN: usize = HEADER_BYTES + 8;

/// Makes and verifies values.
pub struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
    seed: u64,
}

impl Values {
    /// Values of `value_bytes` bytes; another seed, other contents.
    pub fn new(value_bytes: usize, seed: u64) -> Self {
        let mut pool = vec![0; POOL_BYTES + SLICE_BYTES];
        Rng::with_seed(seed ^ 0x7661_6c75_6573).fill(&mut pool);
        Self {
            pool,
            value_bytes,
            seed,
        }
    }

    fn header(id: u64, version: u64) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&id.to_le_bytes());
        header[8..].copy_from_slice(&version.to_le_bytes());
        header
    }

    /// The pool's slice for the part of a value that begins at `position`.
    fn slice(&self, hash: u64, position: usize, len: usize) -> &[u8] {
        let step = (position as u64 / SLICE_BYTES as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let offset = (hash.wrapping_add(step) >> 44) as usize;
        debug_assert!(offset < POOL_BYTES);
        &self.pool[offset..offset + len]
    }

    /// Writes version `version` of key `id` into `value`.
    pub fn write(&self, id: u64, version: u64, value: &mut [u8]) {
        let header = Self::header(id, version);
        let hash = xxh3_128_with_seed(&header, self.seed);
        if value.len() < HEADED_BYTES_MIN {
            for (byte, hashed) in value.iter_mut().zip(hash.to_le_bytes().iter().cycle()) {
                *byte = *hashed;
            }
            return;
        }
        let (head, body) = value.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header);
        for (number, part) in body.chunks_mut(SLICE_BYTES).enumerate() {
            let slice = self.slice(hash as u64, number * SLICE_BYTES, part.len());
            part.copy_from_slice(slice);
        }
    }

    /// Whether `value` is some version from `oldest` to `newest` of key `id`, and if not, why.
    pub fn verify(&self, id: u64, value: &[u8], oldest: u64, newest: u64) -> Result<(), String> {
        if value.len() != self.value_bytes {
            return Err(format!(
                "key {id} has {} bytes instead of {}",
                value.len(),
                self.value_bytes
            ));
        }
        if value.len() < HEADED_BYTES_MIN {
            let known = (oldest..=newest).rev().any(|version| {
                let hash = xxh3_128_with_seed(&Self::header(id, version), self.seed);
                value
                    .iter()
                    .eq(hash.to_le_bytes().iter().cycle().take(value.len()))
            });
            return if known {
                Ok(())
            } else {
                Err(format!("key {id} has other contents"))
            };
        }
        let (head, body) = value.split_at(HEADER_BYTES);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let (found_id, version) = (number(&head[..8]), number(&head[8..]));
        if found_id != id {
            return Err(format!("key {id} has the value of key {found_id}"));
        }
        if version < oldest || version > newest {
            return Err(format!(
                "key {id} has version {version}, not one from {oldest} to {newest}"
            ));
        }
        let hash = xxh3_128_with_seed(head, self.seed);
        for (number, part) in body.chunks(SLICE_BYTES).enumerate() {
            let position = number * SLICE_BYTES;
            if part != self.slice(hash as u64, position, part.len()) {
                return Err(format!(
                    "key {id} version {version} differs after byte {position}"
                ));
            }
        }
        Ok(())
    }
}

/// Which versions of each key a read may see, in one word a key.
///
/// A word holds the newest version handed out, how many writes of the key are under way, and
/// how far behind the newest two others are: the oldest version that can still be in the
/// store (the floor), and the first one of the writes that now overlap (the base). Writes
/// that overlap may be applied in either order, so when the last of them ends any of them
/// may have won, and the base becomes the floor.
pub struct Versions {
    words: Vec<AtomicU64>,
}

/// Newest version: 26 bits; writes under way: 10; distance of base and floor: 14 each.
const NEWEST_BITS: u32 = 26;
const WRITERS_BITS: u32 = 10;
const LAG_BITS: u32 = 14;
const LAG_MAX: u64 = (1 << LAG_BITS) - 1;

/// The most threads that may write at a time.
pub const WRITERS_MAX: u64 = (1 << WRITERS_BITS) - 1;

#[derive(Clone, Copy)]
struct Word {
    newest: u64,
    writers: u64,
    base_lag: u64,
    floor_lag: u64,
}

impl Word {
    fn unpack(word: u64) -> Self {
        Self {
            newest: word & ((1 << NEWEST_BITS) - 1),
            writers: word >> NEWEST_BITS & WRITERS_MAX,
            base_lag: word >> (NEWEST_BITS + WRITERS_BITS) & LAG_MAX,
            floor_lag: word >> (NEWEST_BITS + WRITERS_BITS + LAG_BITS),
        }
    }

    fn pack(self) -> u64 {
        self.newest
            | self.writers << NEWEST_BITS
            | self.base_lag.min(LAG_MAX) << (NEWEST_BITS + WRITERS_BITS)
            | self.floor_lag.min(LAG_MAX) << (NEWEST_BITS + WRITERS_BITS + LAG_BITS)
    }

    /// The oldest version the store may hold; a saturated distance says nothing.
    fn floor(self) -> u64 {
        if self.floor_lag == LAG_MAX {
            0
        } else {
            self.newest - self.floor_lag.min(self.newest)
        }
    }
}

impl Versions {
    /// Versions of `count` keys, none written yet.
    pub fn new(count: u64) -> Self {
        Self {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn update(&self, id: u64, change: impl Fn(Word) -> Word) -> Word {
        // Sequentially consistent, so that a get that starts after a put has ended sees it.
        let changed = |word| Some(change(Word::unpack(word)).pack());
        match self.words[id as usize].fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed) {
            Ok(word) | Err(word) => Word::unpack(word),
        }
    }

    /// A write of the key begins: its version.
    pub fn begin(&self, id: u64) -> u64 {
        let before = self.update(id, |word| {
            assert!(
                word.newest + 1 < 1 << NEWEST_BITS,
                "more than 2^26 writes of one key"
            );
            assert!(word.writers < WRITERS_MAX, "too many writers of one key");
            Word {
                newest: word.newest + 1,
                writers: word.writers + 1,
                base_lag: if word.writers == 0 {
                    0
                } else {
                    (word.base_lag + 1).min(LAG_MAX)
                },
                floor_lag: (word.floor_lag + 1).min(LAG_MAX),
            }
        });
        before.newest + 1
    }

    /// A write of the key has returned.
    pub fn end(&self, id: u64) {
        self.update(id, |word| Word {
            writers: word.writers - 1,
            floor_lag: if word.writers == 1 {
                word.base_lag
            } else {
                word.floor_lag
            },
            ..word
        });
    }

    /// The oldest version a read that begins now may return; 0 when it may find none.
    pub fn oldest(&self, id: u64) -> u64 {
        Word::unpack(self.words[id as usize].load(Ordering::SeqCst)).floor()
    }

    /// The newest version a read that ends now may return.
    pub fn newest(&self, id: u64) -> u64 {
        Word::unpack(self.words[id as usize].load(Ordering::SeqCst)).newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_verify_and_damage_shows() {
        for len in [
            0,
            1,
            8,
            15,
            16,
            17,
            100,
            4096,
            SLICE_BYTES + 17,
            3 * SLICE_BYTES,
        ] {
            let values = Values::new(len, 5);
            let mut value = vec![0; len];
            values.write(3, 7, &mut value);
            assert_eq!(values.verify(3, &value, 7, 7), Ok(()), "{len}");
            assert_eq!(values.verify(3, &value, 1, 9), Ok(()), "{len}");
            if len >= 8 {
                assert!(values.verify(4, &value, 7, 7).is_err(), "{len}");
                assert!(values.verify(3, &value, 8, 9).is_err(), "{len}");
                assert!(
                    Values::new(len, 6).verify(3, &value, 7, 7).is_err(),
                    "{len}"
                );
                for position in [0, len / 2, len - 1] {
                    value[position] ^= 1;
                    assert!(values.verify(3, &value, 1, 9).is_err(), "{len} {position}");
                    value[position] ^= 1;
                }
            }
            value.push(0);
            assert!(values.verify(3, &value, 7, 7).is_err());
        }
    }

    #[test]
    fn overlapping_writes_leave_any_of_them() {
        let versions = Versions::new(1);
        assert_eq!((versions.oldest(0), versions.newest(0)), (0, 0));
        assert_eq!(versions.begin(0), 1);
        assert_eq!((versions.oldest(0), versions.newest(0)), (0, 1));
        versions.end(0);
        assert_eq!(versions.oldest(0), 1);
        assert_eq!((versions.begin(0), versions.begin(0)), (2, 3));
        versions.end(0);
        assert_eq!((versions.oldest(0), versions.newest(0)), (1, 3));
        versions.end(0);
        assert_eq!((versions.oldest(0), versions.newest(0)), (2, 3));
        for version in 4..40_000 {
            assert_eq!(versions.begin(0), version);
            versions.end(0);
            assert_eq!(versions.oldest(0), version);
        }
    }

    #[test]
    fn keys_differ_and_have_their_size() {
        for len in [1, 7, 8, 9, 16, 100] {
            let (mut a, mut b) = (vec![0; len], vec![0; len]);
            write_key(1, &mut a);
            write_key(2, &mut b);
            assert!(a < b);
        }
        assert_eq!(key_count_max(1), 256);
    }

    #[test]
    fn names_parse_and_print() {
        for text in ["fill", "overwrite", "randread", "mixed:0.5"] {
            assert_eq!(
                text.parse::<Workload>().map(String::from),
                Ok(text.to_owned())
            );
        }
        for text in ["", "mixed", "mixed:2", "mixed:-1", "mixed:nan", "reads"] {
            assert!(text.parse::<Workload>().is_err(), "{text}");
        }
    }
}
