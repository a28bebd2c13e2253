//! Objects in a check: nothing is found in a store without damage, at any moment, and of
//! planted damage exactly what was planted.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::device::{CrashPolicy, Device, SimulatedDevice};
use esker::inspect::{self, CheckOptions, CheckReport, Severity, Structure};
use esker::{CollectionName, Error, ObjectName, ObjectStore, Options, Transaction};

use crate::common::{Random, seed};
use crate::history::repair;

pub const CID: CollectionName = CollectionName::Pg {
    pool: 3,
    seed: 0,
    shard: -1,
    temp: false,
};

/// Everything of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub header: Vec<u8>,
    pub omap: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub type Objects = BTreeMap<ObjectName, Contents>;

pub fn options() -> Options {
    Options::default().checkpoint_interval_bytes(2 << 20)
}

/// 160 segments of 128 KiB: cleaned soon.
pub fn device() -> Arc<SimulatedDevice> {
    Arc::new(SimulatedDevice::new(21 << 20, 512))
}

pub fn open(device: &Arc<SimulatedDevice>) -> ObjectStore {
    let device: Arc<dyn Device> = device.clone();
    ObjectStore::open_on(device, &options()).unwrap()
}

pub fn check(device: &Arc<SimulatedDevice>, deep: bool) -> CheckReport {
    let device: Arc<dyn Device> = device.clone();
    let options = CheckOptions::default().deep(deep);
    inspect::check_on(device, &options, &mut |_| {}).unwrap()
}

pub fn create(device: &Arc<SimulatedDevice>) -> ObjectStore {
    create_with(device, &options())
}

pub fn create_with(device: &Arc<SimulatedDevice>, options: &Options) -> ObjectStore {
    let store = ObjectStore::create_on(device.clone(), options).unwrap();
    let collection = store.create_new_collection(CID);
    let mut transaction = Transaction::new();
    transaction.create_collection(CID, 0);
    store
        .apply_transactions(&collection, &[transaction])
        .unwrap();
    store
}

pub fn contents(store: &ObjectStore) -> Objects {
    let collection = store.open_collection(&CID).unwrap();
    let page = store
        .collection_list(
            &collection,
            &ObjectName::min(),
            &ObjectName::max(),
            usize::MAX,
        )
        .unwrap();
    let all = page.objects.into_iter().map(|name| {
        let (header, omap) = store.omap_get(&collection, &name).unwrap();
        let contents = Contents {
            data: store.read(&collection, &name, 0, 0).unwrap(),
            attrs: store.getattrs(&collection, &name).unwrap(),
            header,
            omap,
        };
        (name, contents)
    });
    all.collect()
}

pub fn name(number: u64) -> Arc<ObjectName> {
    let hash = (number % 7) as u32;
    Arc::new(ObjectName::new(
        3,
        hash,
        format!("object{number:03}").as_str(),
    ))
}

/// Random transactions of every kind.
pub fn churn(store: &ObjectStore, random: &mut Random, steps: u64) {
    let collection = store.open_collection(&CID).unwrap();
    for _ in 0..steps {
        let mut transaction = Transaction::new();
        for _ in 0..1 + random.below(3) {
            step(&mut transaction, random);
        }
        let _ = store.apply_transactions(&collection, &[transaction]);
    }
}

fn step(transaction: &mut Transaction<'static>, random: &mut Random) {
    let object = name(random.below(40));
    let other = name(random.below(40));
    match random.below(16) {
        0 => drop(transaction.remove(CID, &object)),
        1 if object != other => {
            transaction.touch(CID, &object);
            transaction.clone_object(CID, &object, &other);
        }
        2 => drop(transaction.truncate(CID, &object, random.below(60_000))),
        3 => drop(transaction.zero(CID, &object, random.below(50_000), random.below(20_000))),
        4 if object != other => {
            transaction.remove(CID, &other);
            transaction.try_rename(CID, &object, &other);
        }
        5 => {
            transaction.touch(CID, &object);
            let value = random.bytes(1 + random.clone().below(300) as usize);
            transaction.setattr(CID, &object, b"attr".to_vec(), value);
        }
        6..=8 => {
            transaction.touch(CID, &object);
            let entries: Vec<_> = (0..1 + random.below(8))
                .map(|_| {
                    let key = format!("key{:03}", random.below(60)).into_bytes();
                    (key, random.bytes(random.clone().below(400) as usize))
                })
                .collect();
            transaction.omap_setkeys(CID, &object, entries);
        }
        9 => {
            transaction.touch(CID, &object);
            transaction.omap_rmkeyrange(CID, &object, b"key010".to_vec(), b"key030".to_vec());
        }
        10 if random.below(4) == 0 => drop(transaction.omap_clear(CID, &object)),
        11 if object != other => {
            transaction.touch(CID, &object);
            transaction.truncate(CID, &object, 40_000);
            let (from, to) = (random.below(20_000), random.below(20_000));
            transaction.clone_range(CID, &object, &other, from, random.below(20_000), to);
        }
        _ => {
            let data = random.bytes(1 + random.clone().below(16_000) as usize);
            transaction.write(CID, &object, random.below(40_000), [data]);
        }
    }
}

fn assert_clean(report: &CheckReport) {
    let lines = report.lines().join("\n");
    assert_eq!((report.errors, report.warnings), (0, 0), "{lines}");
}

#[test]
fn a_store_with_objects_in_any_state_is_clean() {
    let mut random = Random::new(seed());
    let device = device();
    let store = create(&device);
    assert_clean(&store.check(true));
    for round in 0..8 {
        churn(&store, &mut random, 150);
        store
            .store()
            .put(&random.bytes(8), &random.bytes(3000))
            .unwrap();
        assert_clean(&store.check(round % 2 == 0));
        let image = Arc::new(device.crash_image(CrashPolicy::Random { seed: round }));
        let report = check(&image, round % 2 == 1);
        assert_eq!(report.errors, 0, "{}", report.lines().join("\n"));
        let before = contents(&store);
        let crashed = open(&image);
        assert!(
            contents(&crashed) == before,
            "acknowledged state after a crash"
        );
        assert_clean(&crashed.check(true));
        drop(crashed);
        assert_clean(&check(&image, true));
    }
    let stats = store.store().stats();
    assert!(
        stats.victims_cleaned > 0 && stats.checkpoints_taken > 0,
        "{stats:#?}"
    );
    let before = contents(&store);
    store.close().unwrap();
    let report = check(&device, true);
    assert_clean(&report);
    assert_eq!(report.objects, before.len() as u64);
    assert!(contents(&open(&device)) == before);
    let mut text = Vec::new();
    let dump = inspect::DumpOptions::default().records(true);
    inspect::dump_on(device.clone(), &dump, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let live = text.lines().filter(|line| line.contains(", live: "));
    assert_eq!(live.count() as u64, report.live_records);
}

/// Without `deep` the data of objects is not read.
#[test]
fn a_shallow_check_does_not_read_payload() {
    let device = Arc::new(SimulatedDevice::new(64 << 20, 512));
    let store = create(&device);
    let collection = store.open_collection(&CID).unwrap();
    for number in 0..8 {
        let mut transaction = Transaction::new();
        transaction.write(CID, &name(number), 0, [vec![7; 2 << 20]]);
        store
            .apply_transactions(&collection, &[transaction])
            .unwrap();
    }
    let read = |deep| {
        let before = device.counters().read_bytes;
        assert_clean(&store.check(deep));
        device.counters().read_bytes - before
    };
    let (shallow, deep) = (read(false), read(true));
    assert!(deep > 16 << 20, "{deep}");
    assert!(shallow < deep / 2, "{shallow} {deep}");
}

fn find(device: &SimulatedDevice, wanted: &[u8]) -> Vec<u64> {
    let all = device.read_raw(0, device.capacity() as usize);
    let found = (0..all.len())
        .step_by(8)
        .filter(|at| all[*at..].starts_with(wanted));
    found.map(|at| at as u64).collect()
}

/// A store with known data, omap values and a clone, and where block 3 of the data is.
fn planted() -> (Arc<SimulatedDevice>, Vec<u8>, u64) {
    let device = device();
    let store = create(&device);
    let collection = store.open_collection(&CID).unwrap();
    let mut random = Random::new(77);
    let data = random.bytes(6 * 4096);
    let mut transaction = Transaction::new();
    transaction.write(CID, &name(1), 0, [data.clone()]);
    transaction.clone_object(CID, &name(1), &name(2));
    transaction.omap_setkeys(CID, &name(1), [(b"one".to_vec(), vec![1; 100])]);
    transaction.omap_setkeys(
        CID,
        &name(1),
        [(b"two".to_vec(), b"second value ".repeat(9))],
    );
    store
        .apply_transactions(&collection, &[transaction])
        .unwrap();
    let mut transaction = Transaction::new();
    transaction.write(CID, &name(2), 0, [random.bytes(4096)]);
    store
        .apply_transactions(&collection, &[transaction])
        .unwrap();
    assert_clean(&store.check(true));
    store.close().unwrap();
    let found = find(&device, &data[3 * 4096..3 * 4096 + 64]);
    assert_eq!(found.len(), 1);
    (device, data, found[0])
}

fn errors(report: &CheckReport) -> Vec<(Structure, &str)> {
    let errors = report.findings.iter();
    let errors = errors.filter(|finding| finding.severity == Severity::Error);
    errors
        .map(|finding| (finding.structure, &*finding.detail))
        .collect()
}

#[test]
fn a_flipped_bit_in_shared_payload_is_found_for_every_object_that_has_it() {
    let (device, data, at) = planted();
    device.flip_bit(at + 5, 2);
    assert_clean(&check(&device, false));
    let report = check(&device, true);
    let found = errors(&report);
    assert_eq!(found.len(), 2, "{}", report.lines().join("\n"));
    for ((structure, detail), object) in found.iter().zip(["object001", "object002"]) {
        assert_eq!(*structure, Structure::Payload);
        assert!(
            detail.contains("block 3 of") && detail.contains(object),
            "{detail}"
        );
    }
    assert_eq!(report.findings[0].offset, at);
    let store = open(&device);
    assert_eq!(errors(&store.check(true)).len(), 2);
    assert_eq!(store.check(false).errors, 0);
    let collection = store.open_collection(&CID).unwrap();
    let read = |object: u64, block: u64| store.read(&collection, &name(object), block * 4096, 4096);
    assert!(matches!(read(1, 3), Err(Error::Corrupt { .. })));
    assert_eq!(read(2, 4).unwrap(), &data[4 * 4096..5 * 4096]);
    store.close().unwrap();
    // It cannot be repaired, only named; what overwrites it is its end.
    let image = Arc::new(device.snapshot());
    let report = {
        let device: Arc<dyn Device> = image.clone();
        let options = CheckOptions::default().deep(true).repair(true);
        inspect::check_on(device, &options, &mut |_| {}).unwrap()
    };
    assert_eq!((report.errors, report.errors_before_repair), (2, 2));
    let store = open(&image);
    let collection = store.open_collection(&CID).unwrap();
    let mut transaction = Transaction::new();
    for object in [1, 2] {
        transaction.write(CID, &name(object), 3 * 4096, [vec![1; 4096]]);
    }
    store
        .apply_transactions(&collection, &[transaction])
        .unwrap();
    let report = store.check(true);
    assert_eq!(
        (report.errors, report.warnings),
        (0, 1),
        "{}",
        report.lines().join("\n")
    );
}

#[test]
fn payload_that_is_dead_may_be_damaged() {
    let (device, data, _) = planted();
    let store = open(&device);
    let collection = store.open_collection(&CID).unwrap();
    let mut transaction = Transaction::new();
    transaction.write(CID, &name(1), 0, [vec![5; 4096]]);
    store
        .apply_transactions(&collection, &[transaction])
        .unwrap();
    store.close().unwrap();
    let at = find(&device, &data[..64])[0];
    device.flip_bit(at + 1, 1);
    let report = check(&device, true);
    assert_eq!(
        (report.errors, report.warnings),
        (0, 1),
        "{}",
        report.lines().join("\n")
    );
}

#[test]
fn a_flipped_bit_in_an_omap_value_is_found() {
    let (device, _, _) = planted();
    let at = find_unaligned(&device, b"second value second");
    device.flip_bit(at, 3);
    for deep in [false, true] {
        let report = check(&device, deep);
        let found = errors(&report);
        assert_eq!(found.len(), 1, "{}", report.lines().join("\n"));
        assert_eq!(found[0].0, Structure::OmapValue);
        assert!(found[0].1.contains("\"two\"") && found[0].1.contains("object001"));
    }
    let report = repair(&device);
    assert_eq!(report.errors, 1, "{}", report.lines().join("\n"));
    let store = open(&device);
    let found = store.check(false);
    assert_eq!(errors(&found).len(), 1, "{}", found.lines().join("\n"));
    let collection = store.open_collection(&CID).unwrap();
    let get = |key: &'static [u8]| store.omap_get_values(&collection, &name(1), [key]);
    assert!(matches!(get(b"two"), Err(Error::Corrupt { .. })));
    assert_eq!(get(b"one").unwrap().len(), 1);
}

fn find_unaligned(device: &SimulatedDevice, wanted: &[u8]) -> u64 {
    let all = device.read_raw(0, device.capacity() as usize);
    let found = all
        .windows(wanted.len())
        .position(|window| window == wanted);
    found.unwrap() as u64
}

/// The record of an extent is lost, its payload is not: the data can still be read, and the
/// check says that it has lost its record.
#[test]
fn a_lost_extent_record_is_found() {
    let (device, data, _) = planted();
    // The checksum of block 3 is in the record alone.
    let sum = esker::format::payload_checksum(&data[3 * 4096..4 * 4096]).to_le_bytes();
    let next = esker::format::payload_checksum(&data[4 * 4096..5 * 4096]).to_le_bytes();
    let sums = [sum, next].concat();
    let all = device.read_raw(0, device.capacity() as usize);
    let places = all
        .windows(8)
        .enumerate()
        .filter(|(_, window)| *window == sums);
    // The others are those of images.
    let mut found = 0;
    for (at, _) in places {
        let image = Arc::new(device.snapshot());
        image.flip_bit(at as u64, 0);
        let report = check(&image, true);
        let extents: Vec<_> = errors(&report)
            .into_iter()
            .filter(|(structure, _)| *structure == Structure::Extent)
            .map(|(_, detail)| detail.to_owned())
            .collect();
        if extents.is_empty() {
            assert_eq!(report.errors, 1, "{}", report.lines().join("\n"));
            continue;
        }
        found += 1;
        assert_eq!(extents.len(), 2, "{extents:#?}");
        assert!(
            extents.iter().any(|line| line.contains("blocks 0 to 5")),
            "{extents:#?}"
        );
        assert!(
            extents.iter().any(|line| line.contains("blocks 1 to 5")),
            "{extents:#?}"
        );
        assert_eq!(contents(&open(&image))[&*name(1)].data, data);
    }
    assert_eq!(found, 1);
}
