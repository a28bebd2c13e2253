//! Names of objects: identity, order, and the sort key that has the same order.
//!
//! The order is that of Ceph's `ghobject_t`: maximum last, then shard, pool, bit-reversed
//! hash, namespace, effective key (the locator key, or the name if there is none), name,
//! snap, generation. Strings compare as unsigned bytes.
//!
//! The **sort key** is one byte string with that order:
//!
//! ```text
//! 0 | shard + 128 | pool + 2^63 | reversed hash | nspace | effective key | name | snap | gen
//! 1     1 byte        8 bytes       4 bytes       text     text          below   8      8
//! ```
//!
//! Numbers are big-endian. A text is its bytes with 0x00 written as 0x00 0xff, then 0x00
//! 0x01: what follows a text is never taken for a part of it, and a prefix sorts first. The
//! name is `=` if it is the effective key, else `<` or `>` for how it compares to that, and
//! its text. The maximum is the one byte 1.

mod compact;

use std::cmp::Ordering;
use std::fmt;

use crate::format::Invalid;

pub(super) use compact::{compact, expand};

/// Snap of a head object: it is no clone of a snapshot. Ceph's `CEPH_NOSNAP`.
pub const NO_SNAP: u64 = u64::MAX - 1;
/// Snap of a snapshot directory. Ceph's `CEPH_SNAPDIR`.
pub const SNAPDIR: u64 = u64::MAX;
/// Generation of an object that has none. Ceph's `NO_GEN`.
pub const NO_GENERATION: u64 = u64::MAX;
/// Shard of an object of a replicated pool. Ceph's `NO_SHARD`.
pub const NO_SHARD: i8 = -1;

/// Bytes of a sort key before the first text: flag, shard, pool, reversed hash.
pub(super) const PREFIX_BYTES: usize = 14;
const MAX_KEY: [u8; 1] = [1];

/// The name of an object: Ceph's `ghobject_t`.
///
/// A locator key that equals the name is no locator key, as in Ceph; the constructors see
/// to it, so that equality and order agree.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectName {
    shard: i8,
    pool: i64,
    hash: u32,
    nspace: Vec<u8>,
    key: Vec<u8>,
    name: Vec<u8>,
    snap: u64,
    generation: u64,
    is_max: bool,
}

impl ObjectName {
    /// A head object of a pool: no shard, namespace, locator key or generation.
    #[must_use]
    pub fn new(pool: i64, hash: u32, name: impl Into<Vec<u8>>) -> Self {
        Self {
            shard: NO_SHARD,
            pool,
            hash,
            nspace: Vec::new(),
            key: Vec::new(),
            name: name.into(),
            snap: NO_SNAP,
            generation: NO_GENERATION,
            is_max: false,
        }
    }

    /// A bound that no name is below.
    #[must_use]
    pub fn min() -> Self {
        Self {
            shard: i8::MIN,
            snap: 0,
            generation: 0,
            ..Self::new(i64::MIN, 0, [])
        }
    }

    /// A bound that every other name is below; it names no object.
    #[must_use]
    pub fn max() -> Self {
        Self {
            is_max: true,
            ..Self::min()
        }
    }

    /// This name with another shard.
    #[must_use]
    pub fn with_shard(self, shard: i8) -> Self {
        Self { shard, ..self }
    }

    /// This name with another namespace.
    #[must_use]
    pub fn with_nspace(self, nspace: impl Into<Vec<u8>>) -> Self {
        Self {
            nspace: nspace.into(),
            ..self
        }
    }

    /// This name with another locator key; one that equals the name is dropped.
    #[must_use]
    pub fn with_key(self, key: impl Into<Vec<u8>>) -> Self {
        let mut key = key.into();
        if key == self.name {
            key.clear();
        }
        Self { key, ..self }
    }

    /// This name with another snap.
    #[must_use]
    pub fn with_snap(self, snap: u64) -> Self {
        Self { snap, ..self }
    }

    /// This name with another generation.
    #[must_use]
    pub fn with_generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// The shard, or [`NO_SHARD`].
    #[must_use]
    pub fn shard(&self) -> i8 {
        self.shard
    }

    /// The pool. Temporary objects of pool p are in pool -2 - p.
    #[must_use]
    pub fn pool(&self) -> i64 {
        self.pool
    }

    /// The placement hash.
    #[must_use]
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// The placement hash with its bits reversed, which is what orders names.
    #[must_use]
    pub fn reversed_hash(&self) -> u32 {
        self.hash.reverse_bits()
    }

    /// The namespace.
    #[must_use]
    pub fn nspace(&self) -> &[u8] {
        &self.nspace
    }

    /// The locator key; empty if there is none.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The name proper.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The locator key, or the name if there is none.
    #[must_use]
    pub fn effective_key(&self) -> &[u8] {
        if self.key.is_empty() {
            &self.name
        } else {
            &self.key
        }
    }

    /// The snap, [`NO_SNAP`] or [`SNAPDIR`].
    #[must_use]
    pub fn snap(&self) -> u64 {
        self.snap
    }

    /// The generation, or [`NO_GENERATION`].
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether this is the bound above every name.
    #[must_use]
    pub fn is_max(&self) -> bool {
        self.is_max
    }

    /// The byte string whose order is that of the names (see the head of the file).
    #[must_use]
    pub fn sort_key(&self) -> Vec<u8> {
        if self.is_max {
            return MAX_KEY.to_vec();
        }
        let effective = self.effective_key();
        let texts = self.nspace.len() + effective.len();
        let mut to = Vec::with_capacity(PREFIX_BYTES + texts + 5 + 16);
        to.extend_from_slice(&prefix(self.shard, self.pool, self.reversed_hash()));
        put_text(&mut to, &self.nspace);
        put_text(&mut to, effective);
        match self.name.as_slice().cmp(effective) {
            Ordering::Equal => to.push(b'='),
            Ordering::Less => to.push(b'<'),
            Ordering::Greater => to.push(b'>'),
        }
        if !self.key.is_empty() {
            put_text(&mut to, &self.name);
        }
        to.extend_from_slice(&self.snap.to_be_bytes());
        to.extend_from_slice(&self.generation.to_be_bytes());
        to
    }

    /// The name that has this sort key.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when no name has it: of all byte strings, exactly the results of
    /// [`ObjectName::sort_key`] are accepted.
    pub fn from_sort_key(key: &[u8]) -> Result<Self, Invalid> {
        if key == MAX_KEY {
            return Ok(Self::max());
        }
        let mut rest = key;
        if take::<1>(&mut rest)? != [0] {
            return Err(Invalid::Field("flag of a sort key"));
        }
        let [shard] = take(&mut rest)?;
        let pool = u64::from_be_bytes(take(&mut rest)?);
        let reversed = u32::from_be_bytes(take(&mut rest)?);
        let nspace = take_text(&mut rest)?;
        let effective = take_text(&mut rest)?;
        let (key, name) = match take(&mut rest)? {
            [b'='] => (Vec::new(), effective),
            [order @ (b'<' | b'>')] => {
                let name = take_text(&mut rest)?;
                let expected = if order == b'<' {
                    Ordering::Less
                } else {
                    Ordering::Greater
                };
                if effective.is_empty() || name.cmp(&effective) != expected {
                    return Err(Invalid::Field("name in a sort key"));
                }
                (effective, name)
            }
            _ => return Err(Invalid::Field("order in a sort key")),
        };
        let snap = u64::from_be_bytes(take(&mut rest)?);
        let generation = u64::from_be_bytes(take(&mut rest)?);
        if !rest.is_empty() {
            return Err(Invalid::Field("end of a sort key"));
        }
        Ok(Self {
            shard: (shard ^ 0x80).cast_signed(),
            pool: (pool ^ 1 << 63).cast_signed(),
            hash: reversed.reverse_bits(),
            nspace,
            key,
            name,
            snap,
            generation,
            is_max: false,
        })
    }

    /// The range of sort keys, from the first to before the second, of the objects of a
    /// shard and pool whose hash has `seed` as its low `bits` (all of them with 0 bits).
    ///
    /// Bits of the seed above `bits` are ignored, and more than 32 bits are 32.
    #[must_use]
    pub fn hash_range(shard: i8, pool: i64, bits: u32, seed: u32) -> (Vec<u8>, Vec<u8>) {
        let bits = bits.min(32);
        let seed = seed & low_bits(bits);
        let start = prefix(shard, pool, seed.reverse_bits());
        // The end is the next prefix, with the carry into pool, shard and flag. Without the
        // trailing zeros it is no more than any key above, the maximum's included.
        let mut number = [0; 16];
        number[2..].copy_from_slice(&start);
        let end = u128::from_be_bytes(number) + (1 << (32 - bits));
        let mut end = end.to_be_bytes()[2..].to_vec();
        while end.last() == Some(&0) {
            end.pop();
        }
        (start.to_vec(), end)
    }
}

/// A mask of the low `bits`, 32 at most.
pub(super) fn low_bits(bits: u32) -> u32 {
    1u32.checked_shl(bits).map_or(u32::MAX, |bit| bit - 1)
}

/// The reversed hash in a sort key, or in its compact form; 0 where there is none.
pub(super) fn reversed_hash_of(sort_key: &[u8]) -> u32 {
    let hash = sort_key.get(PREFIX_BYTES - 4..PREFIX_BYTES);
    hash.and_then(|hash| hash.first_chunk())
        .map_or(0, |hash| u32::from_be_bytes(*hash))
}

fn prefix(shard: i8, pool: i64, reversed_hash: u32) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    prefix[1] = shard.cast_unsigned() ^ 0x80;
    prefix[2..10].copy_from_slice(&(pool.cast_unsigned() ^ 1 << 63).to_be_bytes());
    prefix[10..].copy_from_slice(&reversed_hash.to_be_bytes());
    prefix
}

fn put_text(to: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        to.push(byte);
        if byte == 0 {
            to.push(0xff);
        }
    }
    to.extend_from_slice(&[0, 1]);
}

fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Invalid> {
    let (taken, rest) = from.split_first_chunk().ok_or(Invalid::Truncated)?;
    *from = rest;
    Ok(*taken)
}

fn take_text(from: &mut &[u8]) -> Result<Vec<u8>, Invalid> {
    let mut text = Vec::new();
    loop {
        let [byte] = take(from)?;
        if byte == 0 {
            match take(from)? {
                [1] => return Ok(text),
                [0xff] => {}
                _ => return Err(Invalid::Field("text in a sort key")),
            }
        }
        text.push(byte);
    }
}

impl Ord for ObjectName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.is_max
            .cmp(&other.is_max)
            .then_with(|| self.shard.cmp(&other.shard))
            .then_with(|| self.pool.cmp(&other.pool))
            .then_with(|| self.reversed_hash().cmp(&other.reversed_hash()))
            .then_with(|| self.nspace.cmp(&other.nspace))
            .then_with(|| self.effective_key().cmp(other.effective_key()))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.snap.cmp(&other.snap))
            .then_with(|| self.generation.cmp(&other.generation))
    }
}

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// For people: `shard#pool:reversed hash:namespace:key:name:snap#generation`, as Ceph does.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_max {
            return f.write_str("MAX");
        }
        if self.shard != NO_SHARD {
            write!(f, "{}", self.shard)?;
        }
        write!(
            f,
            "#{}:{:08x}:{}:{}:{}:",
            self.pool,
            self.reversed_hash(),
            self.nspace.escape_ascii(),
            self.key.escape_ascii(),
            self.name.escape_ascii()
        )?;
        match self.snap {
            NO_SNAP => f.write_str("head")?,
            SNAPDIR => f.write_str("snapdir")?,
            snap => write!(f, "{snap:x}")?,
        }
        f.write_str("#")?;
        if self.generation != NO_GENERATION {
            write!(f, "{:x}", self.generation)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
