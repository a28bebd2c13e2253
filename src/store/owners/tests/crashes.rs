//! Power cuts, damage and older roots.

use super::*;
use crate::device::CrashPolicy;

const FAMILIES: u64 = 100;
/// Most blocks of 512 bytes in an extent.
const LARGE: u64 = 40;

fn device(block_bytes: u32) -> SharedArc<SimulatedDevice> {
    let capacity = (72 << 10) + 64 * (128 << 10);
    SharedArc::new(SimulatedDevice::new(capacity, block_bytes))
}

/// A store that has been cleaned and checkpointed, and what is in it.
fn worn(block_bytes: u32, seed: u64) -> (SharedArc<SimulatedDevice>, Model) {
    let device = device(block_bytes);
    let tested = Tested::create(&device).unwrap();
    let mut random = Random(seed);
    let mut model = Model::new();
    let cleaned = || tested.log.counters.victims_cleaned.load(Ordering::Relaxed);
    let moved = || tested.owners.objects.relocated.load(Ordering::Relaxed);
    let mut number = 0;
    while cleaned() < 60 || moved() < 300 {
        number += 1;
        assert!(number < 20_000, "cleaned {} moved {}", cleaned(), moved());
        let some = transaction(&mut random, FAMILIES, LARGE);
        tested.run(&some, number % 3 == 0).unwrap();
        apply(&mut model, &some);
        if number % 2 == 0 {
            tested.log.commit_now().unwrap();
        }
        if number % 100 == 0 {
            tested.log.checkpoint_all(&tested.owners).unwrap();
        }
        while tested.make_space().unwrap() {}
    }
    tested.log.commit_now().unwrap();
    tested.check(&model);
    (device, model)
}

/// Works until the power fails or `count` transactions are made; the models that may be
/// found then, the first of which has all that was acknowledged.
fn work(
    device: &SharedArc<SimulatedDevice>,
    model: &Model,
    seed: u64,
    count: u64,
) -> (Vec<Model>, bool) {
    let mut models = vec![model.clone()];
    let Ok(tested) = Tested::open(device) else {
        assert!(device.is_cut());
        return (models, false);
    };
    let mut random = Random(seed);
    for number in 0..count {
        let some = transaction(&mut random, FAMILIES, LARGE);
        let mut next = models.last().unwrap().clone();
        apply(&mut next, &some);
        let mut step = || -> Result<()> {
            tested.run(&some, number % 2 == 0)?;
            models.push(next.clone());
            if number % 3 != 1 {
                tested.log.commit_now()?;
                models = vec![next.clone()];
            }
            if number == 9 {
                tested.log.checkpoint_all(&tested.owners)?;
            }
            while tested.make_space()? {}
            Ok(())
        };
        if step().is_err() {
            assert!(device.is_cut(), "only a cut device fails");
            return (models, false);
        }
    }
    (models, true)
}

/// Opens, which must work, and finds which of the models it is.
fn recovers(image: &SharedArc<SimulatedDevice>, models: &[Model], what: &str) -> Model {
    let tested = match Tested::open(image) {
        Ok(tested) => tested,
        Err(error) => panic!("{what}: {error:?}"),
    };
    let mut differences = Vec::new();
    for model in models {
        match tested.difference(model) {
            None => return model.clone(),
            Some(difference) => differences.push(difference),
        }
    }
    panic!("{what}: {differences:?}");
}

fn every_operation(block_bytes: u32, seed: u64) {
    let (base, model) = worn(block_bytes, seed);
    let mut n = 0;
    loop {
        let device = SharedArc::new(base.snapshot());
        device.set_op_limit(n);
        let (models, done) = work(&device, &model, seed + n / 5, 16);
        let policies = [
            CrashPolicy::Random { seed: seed + n },
            CrashPolicy::LoseAll,
            CrashPolicy::KeepAll,
        ];
        let turn = policies[(n % 3) as usize];
        for policy in [policies[0], turn] {
            let image = SharedArc::new(device.crash_image(policy));
            let what = format!("seed {seed}, cut at {n}, {policy:?}");
            let found = recovers(&SharedArc::new(image.snapshot()), &models, &what);
            // Again, during recovery or soon after.
            if n % 4 == 0 {
                image.set_op_limit(n / 4 % 37);
                let (models, _) = work(&image, &found, seed ^ n, 4);
                let again = CrashPolicy::Random { seed: seed ^ n };
                let image = SharedArc::new(image.crash_image(again));
                recovers(&image, &models, &format!("{what}, again"));
            }
        }
        if done {
            assert!(n > 100, "only {n} operations");
            return;
        }
        n += if n < 60 { 1 } else { 3 };
    }
}

#[test]
fn power_cuts_at_every_operation() {
    every_operation(512, 1);
}

#[test]
fn power_cuts_at_every_operation_with_large_blocks() {
    every_operation(4096, 2);
}

fn write(family: u64, tag: u64) -> Change {
    Change::Write {
        family,
        block: 0,
        bytes: 8192,
        tag,
    }
}

/// The place of a family's first extent.
fn place_of(tested: &Tested, family: u64) -> Place {
    let shard = tested.owners.objects.shard(family).lock();
    shard.families[&family][&0]
}

/// Payload of the last group that does not verify takes the whole group with it; that of
/// earlier groups is not read by recovery.
#[test]
fn torn_payload_of_the_last_group_is_dropped() {
    let device = device(512);
    let tested = Tested::create(&device).unwrap();
    let mut model = Model::new();
    let mut before = Model::new();
    for tag in 1..4 {
        let removes = Change::Remove { family: 99 };
        let some = [write(tag, tag), removes, write(tag + 10, tag)];
        before = model.clone();
        tested.run(&some, tag == 2).unwrap();
        apply(&mut model, &some);
        tested.log.commit_now().unwrap();
    }
    let geometry = *tested.log.geometry();
    let flip = |family| {
        let image = SharedArc::new(device.crash_image(CrashPolicy::KeepAll));
        let place = place_of(&tested, family);
        image.flip_bit(geometry.device_offset(place.address) + 5000, 3);
        image
    };
    let before = [before];
    recovers(&flip(3), &before, "the last group's first payload");
    recovers(&flip(13), &before, "the last group's second payload");
    let opened = Tested::open(&flip(2)).unwrap();
    let difference = opened.difference(&model);
    assert_eq!(difference.as_deref(), Some("2 0: other bytes"));
}

/// A frame torn in front of another one of the same last group is no damage; with a later
/// group it is.
#[test]
fn a_torn_frame_before_another_of_its_group_is_dropped() {
    let device = device(512);
    let tested = Tested::create(&device).unwrap();
    let mut model = Model::new();
    let commit = |model: &mut Model, tags: &[u64]| {
        for tag in tags {
            let some = [write(*tag, *tag)];
            tested.run(&some, false).unwrap();
            apply(model, &some);
            // Each in its own frame.
            let some = [Change::Omap {
                family: *tag,
                key: 1,
                bytes: 700,
                tag: *tag,
            }];
            tested.run(&some, false).unwrap();
            apply(model, &some);
        }
        tested.log.commit_now().unwrap();
    };
    commit(&mut model, &[1]);
    let before = model.clone();
    commit(&mut model, &[2, 3, 4]);
    let geometry = *tested.log.geometry();
    let at = geometry.device_offset(place_of(&tested, 2).address) - 512;
    let torn = SharedArc::new(device.crash_image(CrashPolicy::KeepAll));
    torn.erase(at, 512);
    recovers(&torn, std::slice::from_ref(&before), "torn");
    // What recovery accepted, and the cut, are durable; more may follow.
    let opened = Tested::open(&torn).unwrap();
    opened.run(&[write(5, 5)], false).unwrap();
    opened.log.commit_now().unwrap();
    let mut after = before;
    apply(&mut after, &[write(5, 5)]);
    let again = SharedArc::new(torn.crash_image(CrashPolicy::LoseAll));
    recovers(&again, &[after], "after more");
    commit(&mut model, &[6]);
    let damaged = SharedArc::new(device.crash_image(CrashPolicy::KeepAll));
    damaged.erase(at, 512);
    let opened = Tested::open(&damaged).map(drop);
    assert!(matches!(opened, Err(Error::Corrupt { .. })));
}

/// A store with key-value records only gets an owner of objects; one with objects is not
/// opened without.
#[test]
fn a_root_with_fewer_partitions_loads() {
    let device = device(512);
    let tested = Tested::create(&device).unwrap();
    let geometry = *tested.log.geometry();
    let (log, kv) = (&tested.log, &tested.owners.kv);
    for number in 0..50_u8 {
        kv.put(log, &[number], &[number; 300]).unwrap();
        if number % 20 == 9 {
            log.checkpoint_all(kv).unwrap();
        }
    }
    log.commit_now().unwrap();
    let image = SharedArc::new(device.crash_image(CrashPolicy::LoseAll));
    let tested = Tested::open(&image).unwrap();
    let some = [write(1, 1), write(2, 2), Change::Remove { family: 1 }];
    tested.run(&some, false).unwrap();
    tested.log.commit_now().unwrap();
    let look = |image: &SharedArc<SimulatedDevice>| {
        let tested = Tested::open(image).unwrap();
        let shards = tested.owners.objects.shards.iter();
        let families: usize = shards.map(|shard| shard.lock().families.len()).sum();
        assert_eq!(families, 1);
        assert_eq!(tested.bytes_at(place_of(&tested, 2)), data(2, 8192));
        for number in 0..50_u8 {
            let found = tested.owners.kv.get(&tested.log, &[number]).unwrap();
            assert_eq!(found.as_deref(), Some([number; 300].as_slice()));
        }
        tested
    };
    let image = SharedArc::new(image.crash_image(CrashPolicy::LoseAll));
    let tested = look(&image);
    for _ in 0..2 {
        tested.log.checkpoint_all(&tested.owners).unwrap();
        look(&SharedArc::new(image.crash_image(CrashPolicy::LoseAll)));
    }
    tested.log.close(&tested.owners).unwrap();
    look(&SharedArc::new(image.snapshot()));
    let kv = KeyValue::new(&geometry, 0, None, Durability::Committed);
    let superblocks = find_superblock(&*image).unwrap();
    let opened = open_log(image.clone(), superblocks, options(), &kv).map(drop);
    assert!(matches!(opened, Err(Error::Corrupt { .. })));
}
