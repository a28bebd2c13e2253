//! First signs of life of the object store; the conformance suite comes with tests/object.
use std::sync::Arc;

use esker::device::SimulatedDevice;
use esker::{CollectionName, ObjectName, ObjectStore, Options, Transaction};

#[test]
fn objects_survive_reopen() {
    let device = Arc::new(SimulatedDevice::new(64 << 20, 512));
    let options = Options::default();
    let store = ObjectStore::create_on(device.clone(), &options).unwrap();
    let cid = CollectionName::pg(1, 0);
    let collection = store.create_new_collection(cid);
    let a = Arc::new(ObjectName::new(1, 0x1234, "a"));
    let b = Arc::new(ObjectName::new(1, 0x1234, "b"));
    let mut t = Transaction::new();
    t.create_collection(cid, 0);
    t.write(cid, &a, 100, [vec![7u8; 10_000]]);
    t.setattr(cid, &a, b"_".as_slice(), b"info".as_slice());
    t.clone_object(cid, &a, &b);
    t.write(cid, &a, 0, [vec![9u8; 4096]]);
    t.omap_setkeys(
        cid,
        &a,
        [(b"k1".as_slice(), b"v1".as_slice()), (b"k2", b"v2")],
    );
    store.apply_transactions(&collection, &[t]).unwrap();
    let check = |store: &ObjectStore| {
        let collection = store.open_collection(&cid).unwrap();
        let mut want = vec![9u8; 4096];
        want.resize(10_100, 7);
        assert_eq!(store.read(&collection, &a, 0, 0).unwrap(), want);
        let mut want = vec![0u8; 100];
        want.resize(10_100, 7);
        assert_eq!(store.read(&collection, &b, 0, 0).unwrap(), want);
        assert_eq!(store.getattr(&collection, &b, b"_").unwrap(), b"info");
        let (_, values) = store.omap_get(&collection, &a).unwrap();
        assert_eq!(values.len(), 2);
        let page = store
            .collection_list(&collection, &ObjectName::min(), &ObjectName::max(), 10)
            .unwrap();
        assert_eq!(page.objects.len(), 2);
    };
    check(&store);
    let before = store.statfs();
    drop(store);
    let store = ObjectStore::open_on(device.clone(), &options).unwrap();
    check(&store);
    let after = store.statfs();
    assert_eq!(
        (before.allocated, before.data_stored, before.omap_allocated),
        (after.allocated, after.data_stored, after.omap_allocated)
    );
}
