//! Models of callers against each other: the index changes in the order of seqnos.

use super::*;

/// Two writers of one key: the one with the later seqno is the one the index has, so that
/// replay ends in the same.
#[test]
fn loom_two_writers_of_a_key() {
    let places = ["one is last", "two is last"];
    model("two writers of a key", &places, || {
        let tested = tested(2, 3);
        let other = {
            let tested = tested.clone();
            thread::spawn(move || tested.put(b"k", b"one"))
        };
        tested.put(b"k", b"two");
        assert!(other.join().is_ok());
        match tested.get(b"k").as_deref() {
            Some(b"one") => witness("one is last"),
            Some(b"two") => witness("two is last"),
            other => panic!("{other:?}"),
        }
        tested.assert_recovers(&[], &[b"k"]);
        assert_eq!(tested.kv.entries(), 1);
    });
}

/// A put against a delete of one key.
#[test]
fn loom_put_against_delete() {
    model("put against delete", &["there", "gone"], || {
        let tested = tested(2, 3);
        tested.put(b"k", b"old");
        let other = {
            let tested = tested.clone();
            thread::spawn(move || tested.delete(b"k"))
        };
        tested.put(b"k", b"new");
        assert!(other.join().is_ok());
        match tested.get(b"k").as_deref() {
            Some(b"new") => witness("there"),
            None => witness("gone"),
            other => panic!("{other:?}"),
        }
        tested.assert_recovers(&[], &[b"k"]);
    });
}

/// A reader of a key that is written and committed: it finds the old value or the new one,
/// pending or on the device, and never fails.
#[test]
fn loom_get_against_put_and_commit() {
    model("get against put and commit", &["old", "new"], || {
        let tested = tested(2, 3);
        tested.put(b"k", b"old");
        tested.commit();
        let other = {
            let tested = tested.clone();
            thread::spawn(move || {
                tested.put(b"k", b"new");
                tested.commit();
            })
        };
        match tested.get(b"k").as_deref() {
            Some(b"old") => witness("old"),
            Some(b"new") => witness("new"),
            other => panic!("{other:?}"),
        }
        assert!(other.join().is_ok());
        assert_eq!(tested.get(b"k").as_deref(), Some(b"new".as_slice()));
    });
}
