//! Damage that only the inside can plant: wrong counts, and records that nobody knows of.

use crate::Options;
use crate::device::SimulatedDevice;
use crate::format::{COMMIT_STREAM, Kind, RecordFields, content_hash, record_length};
use crate::log::{NewRecord, Purpose};
use crate::object::{CollectionName, ObjectId, ObjectName, OmapRecord, Transaction};
use crate::store::ObjectStore;
use crate::sync::{Ordering, SharedArc};

use super::report::Structure;

fn store() -> (SharedArc<SimulatedDevice>, ObjectStore, ObjectId) {
    let device = SharedArc::new(SimulatedDevice::new(21 << 20, 512));
    let store = ObjectStore::create_on(device.clone(), &Options::default()).unwrap();
    let cid = CollectionName::pg(1, 0);
    let collection = store.create_new_collection(cid);
    let name = |text: &str| SharedArc::new(ObjectName::new(1, 5, text));
    let mut transaction = Transaction::new();
    transaction.create_collection(cid, 0);
    transaction.write(cid, &name("a"), 0, [vec![3; 20_000]]);
    transaction.clone_object(cid, &name("a"), &name("b"));
    transaction.write(cid, &name("b"), 4096, [vec![4; 4096]]);
    transaction.omap_setkeys(cid, &name("a"), [(b"k".to_vec(), b"v".to_vec())]);
    let applied = store.apply_transactions(&collection, &[transaction]);
    applied.unwrap();
    assert_eq!(store.check(true).errors, 0);
    let space = store.store().parts().1.objects.table.spaces();
    let id = space[0].find(&name("a").sort_key()).unwrap();
    (device, store, id)
}

fn structures(store: &ObjectStore) -> Vec<Structure> {
    let report = store.check(true);
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|found| found.structure)
        .collect();
    assert_eq!(
        report.errors,
        found.len() as u64,
        "{}",
        report.lines().join("\n")
    );
    found
}

#[test]
fn a_wrong_reference_count_is_found_and_gone_after_an_open() {
    let (device, store, id) = store();
    store.store().parts().1.objects.miscount(id);
    assert_eq!(structures(&store), [Structure::References]);
    drop(store);
    let store = ObjectStore::open_on(device, &Options::default()).unwrap();
    assert_eq!(structures(&store), []);
}

#[test]
fn wrong_statistics_and_live_bytes_are_found() {
    let (_device, store, _) = store();
    let (log, owners) = store.store().parts();
    let space = owners.objects.table.spaces().remove(0);
    for counter in [
        &space.usage.objects,
        &space.usage.stored_bytes,
        &space.usage.allocated_bytes,
        &space.usage.omap_bytes,
        &space.usage.omap_keys,
        &space.usage.extent_memory_bytes,
        &space.usage.memory_bytes,
    ] {
        counter.fetch_add(1, Ordering::Relaxed);
        assert_eq!(structures(&store), [Structure::Statistics]);
        counter.fetch_sub(1, Ordering::Relaxed);
    }
    let (segment, _) = log
        .table()
        .iter()
        .find(|(_, it)| it.live_bytes() > 0)
        .unwrap();
    log.table().segment(segment).add_live(8);
    assert_eq!(structures(&store), [Structure::LiveBytes]);
    log.table().segment(segment).add_live(-8);
    assert_eq!(structures(&store), []);
}

#[test]
fn a_name_that_leads_elsewhere_is_found() {
    let (_device, store, id) = store();
    let space = store.store().parts().1.objects.table.spaces().remove(0);
    let mut name = Vec::new();
    space.names.read().each(&mut |key, found| {
        if found == id {
            name = key.to_vec();
        }
    });
    space.names.write().remove(&name);
    assert_eq!(structures(&store), [Structure::Name]);
    let other = ObjectId { member: 9, ..id };
    space.names.write().insert(&name, other);
    assert_eq!(structures(&store), [Structure::Name, Structure::Name]);
    // Closing writes an image, which needs every object's name.
    space.names.write().insert(&name, id);
}

/// Appends an omap value behind the objects' back.
fn append_stray(store: &ObjectStore, id: ObjectId) {
    let (log, _) = store.store().parts();
    let (key, value) = (OmapRecord::whole(id, b"stray").encode(), [7; 50]);
    let unit = log.geometry().unit_bytes;
    let record = NewRecord {
        fields: RecordFields {
            kind: Kind::OmapValue,
            relocated: false,
            key: &key,
            value: &value,
            content: content_hash(&key, &value),
        },
        length: record_length(Kind::OmapValue, key.len(), value.len(), unit).unwrap(),
        head: COMMIT_STREAM,
        purpose: Purpose::User,
        clock: None,
        payload: None,
    };
    let mut appender = log.appender();
    appender.append(&record).ok().unwrap();
    log.join_group(&mut appender);
}

#[test]
fn stray_records_are_found() {
    // Of an object that is there: it is newer than the object is. The log counts it as live.
    let (device, one, id) = store();
    append_stray(&one, id);
    assert_eq!(structures(&one), [Structure::Stray, Structure::LiveBytes]);
    drop((one, device));
    // Of one that never was.
    let (device, one, id) = store();
    let family = id.family + 1000;
    append_stray(&one, ObjectId { family, member: 0 });
    assert_eq!(structures(&one), [Structure::LiveBytes, Structure::Stray]);
    drop((one, device));
}
