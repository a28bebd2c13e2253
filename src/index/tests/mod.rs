//! Tests of the whole index, and its loom models.

#[cfg(loom)]
mod loom_buckets;
#[cfg(all(loom, crossbeam_loom))]
mod loom_epochs;
#[cfg(loom)]
mod loom_units;

#[cfg(not(loom))]
mod image;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod readers;
#[cfg(not(loom))]
mod sweep;

use super::*;

/// Runs a model with as many steps as growing a unit takes.
#[cfg(loom)]
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.check(f);
}

/// Runs a model with a single preemption, because it has too many steps for more.
#[cfg(loom)]
fn long_model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(1);
    builder.check(f);
}

/// The hash in a model's first shard with this bucket at depth 0 and this tag's high part.
#[cfg(loom)]
fn hash_at(bucket: u128, high: u128) -> KeyHash {
    assert!(bucket < BUCKETS as u128);
    let skip = 128 - SHARD_BITS - BUCKET_BITS;
    KeyHash::from_bits(bucket << skip | high << (skip - 32))
}

/// The entry at an address.
#[cfg(loom)]
fn entry_at(units: u64) -> Entry {
    Entry {
        address: Address::new(units),
        length: crate::format::LengthCode::from_bits(units as u16 & 0x7ff).unwrap(),
        exponent: (units & 7) as u8,
    }
}

/// Hashes that fill a unit of `slots` slots, in two buckets that a split separates.
#[cfg(loom)]
fn crowd(slots: u128) -> Vec<KeyHash> {
    let mut hashes = Vec::new();
    for bucket in 0..BUCKETS as u128 {
        for high in 0..slots {
            // Tags with different top bits, which a split takes.
            hashes.push(hash_at(bucket, high << 31 | 1));
        }
    }
    hashes
}

#[cfg(loom)]
fn index_with(hashes: &[KeyHash]) -> crate::sync::Arc<Index> {
    let index = Index::new();
    let mut shard = index.lock(0);
    for (units, &hash) in (1..).zip(hashes) {
        shard.insert(hash, entry_at(units)).unwrap();
    }
    drop(shard);
    crate::sync::Arc::new(index)
}

/// SplitMix64: small, and the same on every machine.
#[cfg(not(loom))]
pub(super) struct Random(u64);

#[cfg(not(loom))]
impl Random {
    /// From `ESKER_SEED` or a fixed seed, which is printed either way.
    pub(super) fn from_environment() -> Self {
        let seed = std::env::var("ESKER_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(1);
        println!("ESKER_SEED={seed}");
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(not(loom))]
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The hash of a number, of which the top `fixed` bits are 0: these crowd into one range of
/// the index, so that few keys make deep splits.
#[cfg(not(loom))]
fn hash_of(key: u64, fixed: u32) -> KeyHash {
    let bits = u128::from(mix(key)) << 64 | u128::from(mix(!key));
    KeyHash::from_bits(bits >> fixed)
}

/// An entry that says which number it is for, in `version`.
#[cfg(not(loom))]
fn entry_of(key: u64, version: u64) -> Entry {
    Entry {
        address: Address::new(1 + (key << 12 | version & 0xfff)),
        length: crate::format::LengthCode::from_bits((mix(key ^ version) & 0x7ff) as u16).unwrap(),
        exponent: (mix(version) & 7) as u8,
    }
}

/// The number an entry is for.
#[cfg(not(loom))]
fn key_of(entry: Entry) -> u64 {
    (entry.address.units() - 1) >> 12
}

/// Every entry of the index, by scanning.
#[cfg(not(loom))]
fn scan(index: &Index) -> Vec<Entry> {
    let mut out = Vec::new();
    let mut position = Some(ScanPosition::START);
    while let Some(at) = position {
        position = index.scan_bucket(at, &mut out);
        assert!(position.is_none_or(|next| next > at));
    }
    out
}
