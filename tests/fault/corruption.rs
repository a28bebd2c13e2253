//! Damaged media: a bit flipped in every byte of every structure, structures zeroed, cut
//! short or overwritten. Opening and reading everything never panics and never returns
//! wrong data: each get is right or a typed error, and an open may be refused.
//!
//! One exception, which no log can avoid: the last group commit of a crashed store, damaged,
//! cannot be told from one that the power cut tore. Then the store is as before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::device::SimulatedDevice;
use esker::{Batch, Durability, Error, Options, Store};

use crate::common::{Model, Random, create, open, options, seed};
use crate::media::{Structure, structures};

struct Image {
    device: SimulatedDevice,
    model: Model,
    /// The state before the last group; the same as `model` after an orderly stop.
    before: Model,
    options: Options,
}

/// A small store that has two generations of images, tombstones, chunks, and log behind the
/// images.
fn image(crashed: bool, random: &mut Random) -> Image {
    let device = Arc::new(SimulatedDevice::new(9 << 20, 512));
    let options = options(Durability::Committed);
    let store = create(&device, &options).unwrap();
    let mut model = Model::new();
    let put = |store: &Store, model: &mut Model, number: u64, len: u64, random: &mut Random| {
        let key = format!("key {number}").into_bytes();
        let value = random.bytes(len as usize);
        store.put(&key, &value).unwrap();
        model.insert(key, value);
    };
    for number in 0..20 {
        put(&store, &mut model, number, random.below(60), random);
    }
    store.checkpoint().unwrap();
    for number in 10..30 {
        put(&store, &mut model, number, random.below(60), random);
    }
    store.delete(b"key 3").unwrap();
    model.remove(b"key 3".as_slice());
    store.checkpoint().unwrap();
    put(&store, &mut model, 40, 17_000, random);
    let mut batch = Batch::new();
    for number in 15..20 {
        let key = format!("key {number}").into_bytes();
        batch.delete(&key);
        model.remove(&key);
    }
    store.write(batch).unwrap();
    for number in 25..35 {
        put(&store, &mut model, number, random.below(60), random);
    }
    let mut before = model.clone();
    if crashed {
        store.delete(b"key 7").unwrap();
        model.remove(b"key 7".as_slice());
        let device = device.snapshot();
        drop(store);
        return Image {
            device,
            model,
            before,
            options,
        };
    }
    store.close().unwrap();
    before.clone_from(&model);
    Image {
        device: device.snapshot(),
        model,
        before,
        options,
    }
}

/// Flips in each kind of structure.
const FLIPS_A_KIND: u64 = 400;

/// What became of the opens and reads.
#[derive(Debug, Default)]
struct Tally {
    opened: u64,
    refused: u64,
    errors: u64,
}

fn typed(error: &Error, what: &dyn Fn() -> String) {
    let expected = matches!(
        error,
        Error::Corrupt { .. } | Error::Io { .. } | Error::NotFound { .. } | Error::Version { .. }
    );
    assert!(expected, "{}: {error}", what());
}

fn check(
    image: &Image,
    device: SimulatedDevice,
    may_lose_last: bool,
    write: bool,
    tally: &mut Tally,
    what: &dyn Fn() -> String,
) {
    let device = Arc::new(device);
    let options = image.options.clone().read_only(!write);
    let store = match open(&device, &options) {
        Ok(store) => store,
        Err(error) => {
            typed(&error, what);
            tally.refused += 1;
            return;
        }
    };
    tally.opened += 1;
    let lost_last = may_lose_last && matches!(store.get(b"key 7"), Ok(Some(_)));
    let model = if lost_last {
        &image.before
    } else {
        &image.model
    };
    for number in 0..45 {
        let key = format!("key {number}").into_bytes();
        match store.get(&key) {
            Ok(found) => assert_eq!(
                found.as_deref(),
                model.get(&key).map(Vec::as_slice),
                "{}: {key:?}",
                what()
            ),
            Err(error) => {
                typed(&error, what);
                tally.errors += 1;
            }
        }
    }
    let mut seen = BTreeMap::new();
    // A scan visits every bucket of an empty index: now and then is enough.
    let mut whole = tally.opened.is_multiple_of(8);
    for entry in store.scan().take(if whole { usize::MAX } else { 0 }) {
        match entry {
            Ok((key, value)) => {
                assert_eq!(model.get(&key).map(|v| &**v), Some(&*value), "{}", what());
                assert!(seen.insert(key, ()).is_none(), "{}", what());
            }
            Err(error) => {
                typed(&error, what);
                whole = false;
            }
        }
    }
    assert!(!whole || seen.len() == model.len(), "{}", what());
    if write {
        store.put(b"after", b"damage").unwrap();
        store.delete(b"key 1").unwrap();
        if let Err(error) = store.checkpoint() {
            typed(&error, what);
        }
    }
}

fn last_group(structures: &[Structure]) -> u64 {
    structures
        .iter()
        .map(|structure| structure.group)
        .max()
        .unwrap_or(0)
}

fn every_byte(crashed: bool) {
    let mut random = Random::new(seed());
    let image = image(crashed, &mut random);
    let structures = structures(&image.device);
    let last = last_group(&structures);
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, Vec<&Structure>> = BTreeMap::new();
    for structure in &structures {
        kinds.entry(structure.what).or_default().push(structure);
    }
    for (kind, members) in kinds {
        let tally = tallies.entry(kind).or_default();
        // Every byte of every kind, in turn on each of its members; each member some bytes.
        let longest = members.iter().map(|member| member.bytes).max().unwrap_or(0);
        let flips = (2 * longest)
            .max(4 * members.len() as u64)
            .min(FLIPS_A_KIND);
        for flip in 0..flips {
            let structure = members[(flip % members.len() as u64) as usize];
            let at = (flip * longest / flips.min(longest) + flip / longest) % structure.bytes;
            let bit = random.below(8);
            let device = image.device.snapshot();
            device.flip_bit(structure.offset + at, bit);
            let may_lose = crashed && structure.group >= last;
            let what = || format!("{structure:?}, byte {at}, bit {bit}");
            check(
                &image,
                device,
                may_lose,
                random.below(16) == 0,
                tally,
                &what,
            );
        }
    }
    for (what, tally) in tallies {
        println!("{what}: {tally:?}");
    }
}

#[test]
fn a_bit_of_every_byte_after_a_stop() {
    every_byte(false);
}

#[test]
fn a_bit_of_every_byte_after_a_crash() {
    every_byte(true);
}

/// Zeroed, cut short, filled with garbage, or replaced by a neighbour of its kind.
#[test]
fn whole_structures_damaged() {
    let mut random = Random::new(seed());
    for crashed in [false, true] {
        let image = image(crashed, &mut random);
        let structures = structures(&image.device);
        let last = last_group(&structures);
        let mut tally = Tally::default();
        for structure in &structures {
            let like: Vec<_> = structures
                .iter()
                .filter(|other| other.what == structure.what)
                .collect();
            for way in 0..4 {
                if structure.what == "segment header" && random.below(4) > 0 {
                    continue;
                }
                let device = image.device.snapshot();
                let bytes = structure.bytes as usize;
                let cut = random.below(structure.bytes) as usize;
                let other = like[random.below(like.len() as u64) as usize];
                let copy = image.device.read_raw(other.offset, bytes);
                device.corrupt(structure.offset, bytes, |media| match way {
                    0 => media.fill(0),
                    1 => media[cut..].fill(0),
                    2 => media.copy_from_slice(&random.bytes(bytes)),
                    _ => media.copy_from_slice(&copy),
                });
                let may_lose = crashed && structure.group >= last;
                let what = || format!("{structure:?}, way {way}, cut {cut}, {other:?}");
                check(&image, device, may_lose, way == 1, &mut tally, &what);
            }
        }
        println!("crashed: {crashed}: {tally:?}");
    }
}

/// A file that lost its end, or is not a store at all.
#[test]
fn truncated_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let options = options(Durability::Committed).capacity(9 << 20);
    let store = Store::create(&path, &options).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    for len in [
        0,
        1,
        511,
        4096,
        8192,
        65_536,
        1 << 20,
        (9 << 20) - 8192,
        (9 << 20) - 1,
    ] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = Store::open(&path, &options).err();
        let error = error.unwrap_or_else(|| panic!("opened with {len} bytes"));
        typed(&error, &|| format!("{len} bytes"));
    }
    std::fs::write(&path, &whole).unwrap();
    let store = Store::open(&path, &options).unwrap();
    assert_eq!(
        store.get(b"key").unwrap().as_deref(),
        Some(b"value".as_slice())
    );
}
