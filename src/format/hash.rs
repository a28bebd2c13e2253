//! The 128-bit hash that stands for a key in the index, and the salted function behind it.
//!
//! The index never stores keys, so the hash must be unpredictable to whoever chooses them:
//! every store makes a random salt once and expands it into the secret of xxh3-128.
//! `design/format.md` (Key hash) fixes the expansion; hashes live in checkpoint images.

use xxhash_rust::xxh3::{xxh3_128_with_secret, xxh3_128_with_seed};

/// Bytes of an xxh3 secret; the library's own default has this size.
const SECRET_BYTES: usize = 192;

/// How many kinds of key [`KeyHasher::hash`] separates.
pub const KEY_KINDS: usize = 8;

/// The hash of a key. The index consumes its bits from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(u128);

impl KeyHash {
    /// The hash with these bits.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits of the hash.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }
}

/// The hash function of one store.
#[derive(Clone)]
pub struct KeyHasher {
    secret: [u8; SECRET_BYTES],
    /// One mask per kind, so that equal keys of two kinds never have one hash, and
    /// different keys of two kinds share one no more often than chance.
    masks: [u128; KEY_KINDS],
}

impl KeyHasher {
    /// The function a store with this salt uses.
    #[must_use]
    pub fn new(salt: [u8; 16]) -> Self {
        let mut secret = [0; SECRET_BYTES];
        for (number, part) in (0_u64..).zip(secret.chunks_exact_mut(16)) {
            part.copy_from_slice(&xxh3_128_with_seed(&salt, number).to_le_bytes());
        }
        let mut masks = [0; KEY_KINDS];
        for (number, mask) in (SECRET_BYTES as u64..).zip(masks.iter_mut()) {
            *mask = xxh3_128_with_seed(&salt, number);
        }
        Self { secret, masks }
    }

    /// The hash of `key`, of one of [`KEY_KINDS`] kinds: user keys and the engine's own
    /// keys (chunks of large values) are kinds of their own.
    ///
    /// # Panics
    /// If `kind` is not below [`KEY_KINDS`].
    #[must_use]
    pub fn hash(&self, kind: u8, key: &[u8]) -> KeyHash {
        assert!((kind as usize) < KEY_KINDS, "no such kind of key");
        let mask = self.masks.get(kind as usize).copied().unwrap_or_default();
        KeyHash(xxh3_128_with_secret(key, &self.secret) ^ mask)
    }
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of logs.
        f.write_str("KeyHasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_and_kinds_separate() {
        let one = KeyHasher::new([1; 16]);
        let two = KeyHasher::new([2; 16]);
        for key in [&b""[..], b"a", b"twelve bytes", &[7; 300]] {
            assert_eq!(one.hash(0, key), one.clone().hash(0, key));
            assert_ne!(one.hash(0, key), two.hash(0, key));
            assert_ne!(one.hash(0, key), one.hash(1, key));
        }
    }

    #[test]
    fn golden_hashes() {
        // Hashes are in checkpoint images: a change of the function is a change of format.
        let hasher = KeyHasher::new(*b"0123456789abcdef");
        let hashes: Vec<_> = [&b"esker"[..], &[b'x'; 100], &[b'y'; 1000]]
            .iter()
            .map(|key| format!("{:032x}", hasher.hash(1, key).bits()))
            .collect();
        assert_eq!(hashes, GOLDEN);
    }

    const GOLDEN: [&str; 3] = [
        "d4f84453b734678819039ac4cb47f37c",
        "afc4b4ab8f54bf4b29f047e909b34179",
        "8e380dfa266e6f1b4368c65e37568170",
    ];
}
