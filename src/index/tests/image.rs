//! Checkpoint images: round trips, also around splits, and damage.

use super::*;
use crate::format::Invalid;

/// The image of each unit of a shard, after each of which `between` runs.
fn images(index: &Index, shard: usize, mut between: impl FnMut(usize)) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    let mut position = Some(ScanPosition::of_shard(shard));
    while let Some(at) = position {
        let mut image = Vec::new();
        position = index
            .lock(shard)
            .image_unit(at, 7 + images.len() as u64, &mut image);
        images.push(image);
        between(images.len());
    }
    images
}

fn load(index: &Index, shard: usize, images: &[Vec<u8>]) -> Result<Vec<Entry>, Invalid> {
    let mut entries = Vec::new();
    let mut guard = index.lock(shard);
    for image in images {
        let consumed = guard.load_unit(image, &mut |entry| entries.push(entry))?;
        assert_eq!(consumed, image.len());
    }
    guard.finish_load()?;
    Ok(entries)
}

#[test]
fn round_trip() {
    let index = Index::new();
    for key in 0..30_000 {
        let hash = hash_of(key, 7);
        index
            .lock(Index::shard_of(hash))
            .insert(hash, entry_of(key, 0))
            .unwrap();
    }
    let copy = Index::new();
    for shard in 0..SHARDS {
        let images = images(&index, shard, |_| ());
        let bytes: usize = images.iter().map(Vec::len).sum();
        let entries = load(&copy, shard, &images).unwrap();
        if entries.len() > 1000 {
            assert!(
                bytes < entries.len() * 27 / 2,
                "{bytes} for {}",
                entries.len()
            );
        }
    }
    assert_eq!(copy.len(), index.len());
    assert_eq!(scan(&copy).len(), 30_000);
    for key in 0..30_000 {
        let hash = hash_of(key, 7);
        assert_eq!(copy.get(hash), Some(entry_of(key, 0)));
        let mut shard = copy.lock(Index::shard_of(hash));
        let horizon = shard.horizon(hash);
        assert!(horizon >= 7);
        assert_eq!(
            shard.insert(hash, entry_of(key, 1)).unwrap(),
            Some(entry_of(key, 0))
        );
        // Grown and split units inherit it.
        let more = hash_of(key + 100_000, 8);
        drop(shard);
        copy.lock(0)
            .insert(more, entry_of(key + 100_000, 0))
            .unwrap();
        assert_eq!(copy.lock(Index::shard_of(hash)).horizon(hash), horizon);
    }
}

#[test]
fn images_around_splits_join() {
    let index = Index::new();
    for key in 0..20_000 {
        index
            .lock(0)
            .insert(hash_of(key, 8), entry_of(key, 0))
            .unwrap();
    }
    let images = images(&index, 0, |count| {
        let keys = 20_000 * count as u64..20_000 * (count as u64 + 1);
        if count < 4 {
            for key in keys {
                index
                    .lock(0)
                    .insert(hash_of(key, 8), entry_of(key, 0))
                    .unwrap();
            }
        }
    });
    let copy = Index::new();
    load(&copy, 0, &images).unwrap();
    for key in 0..20_000 {
        assert_eq!(copy.get(hash_of(key, 8)), Some(entry_of(key, 0)));
    }
    // One left out, twice, or at the end; and over what is there.
    for missing in [0, 3, images.len() - 1] {
        let mut images = images.clone();
        images.remove(missing);
        assert!(load(&Index::new(), 0, &images).is_err());
    }
    let mut twice = images.clone();
    twice.insert(1, images[0].clone());
    assert!(load(&Index::new(), 0, &twice).is_err());
    assert!(load(&Index::new(), 1, &images).is_err());
    assert!(load(&index, 0, &images).is_err());
    copy.lock(0).clear();
    assert_eq!(copy.len(), 0);
    load(&copy, 0, &images).unwrap();
}

#[test]
fn damage_is_refused_or_loads_as_an_image() {
    let index = Index::new();
    for key in 0..60 {
        index
            .lock(0)
            .insert(hash_of(key, 8), entry_of(key, 0))
            .unwrap();
    }
    let images = images(&index, 0, |_| ());
    let image = images.iter().max_by_key(|image| image.len()).unwrap();
    assert!(image.len() > 1000);
    // Positions come before it in order; make it the first.
    let first = ScanPosition::of_shard(0).bits().to_le_bytes();
    let mut image = image.clone();
    image[..8].copy_from_slice(&first);
    let index = Index::new();
    let try_load = |bytes: &[u8]| {
        let mut shard = index.lock(0);
        shard.clear();
        let result = shard.load_unit(bytes, &mut |_| ());
        assert!(result.is_err() || index.len() == 60);
        result
    };
    assert_eq!(try_load(&image), Ok(image.len()));
    for len in 0..image.len() {
        assert_eq!(try_load(&image[..len]), Err(Invalid::Truncated));
    }
    for bit in 0..image.len() * 8 {
        image[bit / 8] ^= 1 << (bit % 8);
        let result = try_load(&image);
        // The position, the upper depths, the count and the homes are all noticed.
        if bit < 64 || (136..160 + 8 * BUCKETS).contains(&bit) {
            assert!(result.is_err(), "bit {bit}");
        }
        image[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Everything one does with an index, on whatever was loaded: a full index is an answer, a
/// panic is not.
fn use_it(index: &Index, random: &mut Random) {
    let mut shard = index.lock(0);
    let hashes: Vec<KeyHash> = (0..12).map(|_| hash_of(random.next(), 8)).collect();
    let _ = shard.reserve_many(&hashes, u64::MAX);
    for (number, hash) in (0..).zip(&hashes) {
        let inserted = shard.insert(*hash, entry_of(number, 1));
        assert_eq!(shard.get(*hash).is_some(), inserted.is_ok());
        let _ = shard.replay(*hash, u64::MAX, |_| entry_of(number, 2));
        let _ = shard.get(*hash);
        if number % 3 == 0 {
            shard.remove(*hash);
        }
    }
    drop(shard);
    if random.below(64) == 0 {
        images(index, 0, |_| ());
        scan(index);
    }
}

/// Bytes behind a right checksum may still be anything: every bit of an image flipped, and
/// random bytes in its head and counts.
#[test]
fn a_changed_image_loads_and_works_or_is_refused() {
    let mut random = Random::from_environment();
    let filled = Index::new();
    for key in 0..150 {
        let inserted = filled.lock(0).insert(hash_of(key, 8), entry_of(key, 0));
        inserted.unwrap();
    }
    let images = images(&filled, 0, |_| ());
    assert_eq!(images.len(), 1);
    let image = &images[0];
    let index = Index::new();
    let mut worked = 0;
    let mut attempt = |bytes: &[u8], random: &mut Random| {
        let mut shard = index.lock(0);
        shard.clear();
        let loaded = shard.load_unit(bytes, &mut |_| ());
        drop(shard);
        if loaded.is_ok() {
            worked += 1;
            use_it(&index, random);
        }
    };
    for bit in 0..image.len() * 8 {
        let mut bytes = image.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        attempt(&bytes, &mut random);
    }
    for _ in 0..3000 {
        let mut bytes = image.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(20 + BUCKETS as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        attempt(&bytes, &mut random);
    }
    assert!(worked > 5000, "{worked} loaded");
}

/// Units of entries that no split separates: as many as there is room for in one bucket and
/// those it spills to, at every depth, so that the next insert there finds none.
#[test]
fn entries_that_nothing_separates_fill_the_index_and_no_more() {
    for depth in [0, 1, 9, DEPTH_MAX - 1, DEPTH_MAX] {
        for entries in [1, 16, 17, 60, 79, 80, 81, 255] {
            let mut image = Vec::new();
            image.extend_from_slice(&ScanPosition::of_shard(0).bits().to_le_bytes());
            image.extend_from_slice(&7_u64.to_le_bytes());
            image.extend_from_slice(&[depth as u8, 0]);
            image.extend_from_slice(&(entries as u16).to_le_bytes());
            let mut homes = [0; BUCKETS];
            homes[0] = entries as u8;
            image.extend_from_slice(&homes);
            image.extend(std::iter::repeat_n(0, usize::div_ceil(entries, 8)));
            for number in 0..entries as u64 {
                // The tag's high part stays 0 but for the bits that choose the other bucket.
                let tag = ((number % 4) << 21) | (number >> 2);
                let slot = entry::Slot::new(entry_of(number, 0), tag);
                image.extend_from_slice(&slot.word.to_le_bytes());
                image.extend_from_slice(&slot.high.to_le_bytes());
                image.push(slot.middle);
            }
            let index = Index::new();
            if index.lock(0).load_unit(&image, &mut |_| ()).is_err() {
                assert!(entries > 60, "{entries} at depth {depth}");
                continue;
            }
            let mut shard = index.lock(0);
            // 0 but for low bits of the tag: all in the first bucket of the first unit, and
            // with the same other bucket.
            let hashes: Vec<_> = (0..200).map(|at| KeyHash::from_bits(at << 60)).collect();
            let _ = shard.reserve_many(&hashes, u64::MAX);
            let mut full = 0;
            for (number, hash) in (0..).zip(&hashes) {
                full += u64::from(shard.insert(*hash, entry_of(1000 + number, 0)).is_err());
                let replayed = shard.replay(*hash, u64::MAX, |_| entry_of(number, 1));
                assert_eq!(shard.get(*hash).is_some(), replayed.is_ok());
            }
            assert!(full > 0, "200 hashes that only their last bits tell apart");
        }
    }
}
