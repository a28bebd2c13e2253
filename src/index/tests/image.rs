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
            .insert(hash, entry_of(key, 0));
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
        assert_eq!(shard.insert(hash, entry_of(key, 1)), Some(entry_of(key, 0)));
        // Grown and split units inherit it.
        let more = hash_of(key + 100_000, 8);
        drop(shard);
        copy.lock(0).insert(more, entry_of(key + 100_000, 0));
        assert_eq!(copy.lock(Index::shard_of(hash)).horizon(hash), horizon);
    }
}

#[test]
fn images_around_splits_join() {
    let index = Index::new();
    for key in 0..20_000 {
        index.lock(0).insert(hash_of(key, 8), entry_of(key, 0));
    }
    let images = images(&index, 0, |count| {
        let keys = 20_000 * count as u64..20_000 * (count as u64 + 1);
        if count < 4 {
            for key in keys {
                index.lock(0).insert(hash_of(key, 8), entry_of(key, 0));
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
        index.lock(0).insert(hash_of(key, 8), entry_of(key, 0));
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
