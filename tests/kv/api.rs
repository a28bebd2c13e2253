//! What each call promises, one test a promise.

use esker::{Batch, Durability, Error, Store};

use crate::common::{create, open, options, small_device};

#[test]
fn put_get_delete_survive_reopen() {
    for durability in [Durability::Committed, Durability::Buffered] {
        let device = small_device();
        let store = create(&device, &options(durability)).unwrap();
        assert_eq!(store.get(b"a").unwrap(), None);
        store.put(b"a", b"1").unwrap();
        store.put(b"b", b"").unwrap();
        store.put(b"", b"empty key").unwrap();
        assert_eq!(store.get(b"a").unwrap().as_deref(), Some(b"1".as_slice()));
        assert_eq!(store.get(b"b").unwrap().as_deref(), Some(b"".as_slice()));
        assert!(store.delete(b"a").unwrap());
        assert!(!store.delete(b"a").unwrap());
        assert!(!store.contains(b"a").unwrap());
        store.close().unwrap();
        let store = open(&device, &options(durability)).unwrap();
        assert_eq!(store.get(b"a").unwrap(), None);
        assert_eq!(store.get(b"b").unwrap().as_deref(), Some(b"".as_slice()));
        assert_eq!(
            store.get(b"").unwrap().as_deref(),
            Some(b"empty key".as_slice())
        );
    }
}

#[test]
fn sizes_at_and_over_their_bounds() {
    let device =
        std::sync::Arc::new(esker::device::SimulatedDevice::new(512 << 20, 512).without_crashes());
    let store = create(&device, &options(Durability::Buffered)).unwrap();
    let key = vec![7; 64 << 10];
    let value = vec![9; 64 << 20];
    store.put(&key, &value).unwrap();
    assert_eq!(store.get(&key).unwrap().as_deref(), Some(value.as_slice()));
    assert!(matches!(
        store.put(&vec![7; (64 << 10) + 1], b""),
        Err(Error::TooLarge { what: "key", .. })
    ));
    assert!(matches!(
        store.put(b"k", &vec![0; (64 << 20) + 1]),
        Err(Error::TooLarge { what: "value", .. })
    ));
    assert!(matches!(
        store.get(&vec![7; (64 << 10) + 1]),
        Err(Error::TooLarge { .. })
    ));
    let mut batch = Batch::new();
    batch.put(b"1", &value).put(b"2", &value).put(b"3", b"over");
    assert!(matches!(
        store.write(batch),
        Err(Error::TooLarge { what: "batch", .. })
    ));
    assert_eq!(store.get(b"1").unwrap(), None);
    let mut batch = Batch::new();
    batch
        .put(b"1", &value[1..])
        .delete(&key)
        .put(b"3", b"three");
    store.write(batch).unwrap();
    assert_eq!(store.get(b"1").unwrap().unwrap().len(), value.len() - 1);
    assert_eq!(store.get(&key).unwrap(), None);
    store.close().unwrap();
    let store = open(&device, &options(Durability::Buffered)).unwrap();
    assert_eq!(store.get(b"1").unwrap().unwrap().len(), value.len() - 1);
    assert_eq!(
        store.get(b"3").unwrap().as_deref(),
        Some(b"three".as_slice())
    );
    assert_eq!(store.scan().count(), 2);
}

#[test]
fn later_ops_of_a_batch_see_earlier_ones() {
    let device = small_device();
    let store = create(&device, &options(Durability::Committed)).unwrap();
    let large = vec![3; 100_000];
    let mut batch = Batch::new();
    batch
        .put(b"k", b"first")
        .delete(b"k")
        .put(b"k", &large)
        .put(b"k", b"last")
        .put(b"j", &large)
        .delete(b"j");
    store.write(batch).unwrap();
    assert_eq!(
        store.get(b"k").unwrap().as_deref(),
        Some(b"last".as_slice())
    );
    assert_eq!(store.get(b"j").unwrap(), None);
    assert_eq!(store.stats().entries, 1, "no chunk is left over");
    store.write(Batch::new()).unwrap();
}

#[test]
fn create_refuses_bad_sizes_and_an_existing_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let base = options(Durability::Committed);
    for bad in [
        base.clone().capacity(1 << 20),
        base.clone().capacity(64 << 20).segment_bytes(100_000),
        base.clone(),
    ] {
        assert!(matches!(
            Store::create(&path, &bad),
            Err(Error::InvalidArgument(_))
        ));
        assert!(!path.exists());
    }
    let good = base.clone().capacity(64 << 20);
    let store = Store::create(&path, &good).unwrap();
    assert!(matches!(Store::open(&path, &base), Err(Error::InUse)));
    store.put(b"kept", b"yes").unwrap();
    drop(store);
    assert!(matches!(
        Store::create(&path, &good),
        Err(Error::Exists { .. })
    ));
    let store = Store::open(&path, &base.clone().read_only(true)).unwrap();
    assert_eq!(
        store.get(b"kept").unwrap().as_deref(),
        Some(b"yes".as_slice())
    );
    assert!(matches!(store.put(b"k", b"v"), Err(Error::ReadOnly)));
    assert!(matches!(store.delete(b"k"), Err(Error::ReadOnly)));
    drop(store);
    assert!(matches!(
        Store::open(directory.path().join("none"), &base),
        Err(Error::NotFound { .. })
    ));
}
