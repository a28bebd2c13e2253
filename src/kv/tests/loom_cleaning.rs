//! Models of the cleaner against callers: a relocation never loses or revives anything, and
//! a record that is not in the index yet is not taken for dead.

use super::*;

/// A key's record, as the cleaner found it.
fn position_of(tested: &Tested, key: &[u8], seqno: Seqno) -> Position {
    match tested.entry(key) {
        Some(entry) => Position {
            address: entry.address,
            seqno,
            head: 0,
            payload: None,
        },
        None => panic!("the key was put"),
    }
}

/// Relocates the record of `k` while `write` runs, and checks the index by a replay.
fn relocate_against(write: fn(&Tested), expected: Option<&'static [u8]>) {
    let tested = tested(4, 3);
    tested.put(b"k", b"old");
    let position = position_of(&tested, b"k", 1);
    let cleaner = {
        let tested = tested.clone();
        thread::spawn(move || tested.relocate(Kind::Put, b"k", b"old", position))
    };
    write(&tested);
    match cleaner.join() {
        Ok(Relocation::Moved) => witness("moved"),
        Ok(Relocation::Dead) => witness("dead"),
        Err(_) => panic!("the cleaner panicked"),
    }
    assert_eq!(tested.get(b"k").as_deref(), expected);
    tested.assert_recovers(&[], &[b"k"]);
}

/// A relocation against an overwrite: the overwrite stays.
#[test]
fn loom_relocation_against_put() {
    model("relocation against put", &["moved", "dead"], || {
        relocate_against(|tested| tested.put(b"k", b"new"), Some(b"new"));
    });
}

/// A relocation against a delete: nothing comes back.
#[test]
fn loom_relocation_against_delete_of_the_key() {
    model("relocation against delete", &["moved", "dead"], || {
        relocate_against(|tested| tested.delete(b"k"), None);
    });
}

/// A relocation of a tombstone against a put: the put stays, also in a replay.
#[test]
fn loom_relocated_tombstone_against_put() {
    model("relocated tombstone", &["moved", "dead"], || {
        let tested = tested(4, 3);
        tested.put(b"k", b"old");
        let position = position_of(&tested, b"k", 2);
        tested.delete(b"k");
        let cleaner = {
            let tested = tested.clone();
            thread::spawn(move || tested.relocate(Kind::Delete, b"k", b"", position))
        };
        tested.put(b"k", b"new");
        match cleaner.join() {
            Ok(Relocation::Moved) => witness("moved"),
            Ok(Relocation::Dead) => witness("dead"),
            Err(_) => panic!("the cleaner panicked"),
        }
        assert_eq!(tested.get(b"k").as_deref(), Some(b"new".as_slice()));
        tested.assert_recovers(&[], &[b"k"]);
    });
}

/// A segment whose only record is not in the index yet, because its writer is between
/// append and insert, is sealed and written: it does not look empty (C4).
#[test]
fn loom_record_before_its_insert_is_live() {
    model("record before its insert", &["sealed", "open"], || {
        let tested = tested(6, 1);
        let (mine, theirs) = (tested.key_in(0, 0), tested.key_in(1, 0));
        let other = {
            let (tested, theirs) = (tested.clone(), theirs.clone());
            thread::spawn(move || tested.put(&theirs, &[1; 160]))
        };
        // Too long for the same segment.
        tested.put(&mine, &[2; 180]);
        tested.commit();
        while tested.make_space() {}
        assert!(other.join().is_ok());
        match tested.state_of(&theirs) {
            Some(State::Sealed) => witness("sealed"),
            Some(State::Open) => witness("open"),
            state => panic!("a live record in a segment that is {state:?}"),
        }
        assert_eq!(tested.get(&theirs), Some(vec![1; 160]));
        tested.assert_recovers(&[], &[&mine, &theirs]);
    });
}

/// The same segment chosen as a victim: its record is relocated after its insert.
#[test]
fn loom_victim_with_a_record_before_its_insert() {
    model("victim with a record", &["moved", "stayed"], || {
        let tested = tested(3, 1);
        let (mine, theirs) = (tested.key_in(0, 0), tested.key_in(1, 0));
        let other = {
            let (tested, theirs) = (tested.clone(), theirs.clone());
            thread::spawn(move || tested.put(&theirs, &[1; 160]))
        };
        tested.put(&mine, &[2; 180]);
        tested.commit();
        // One free segment: something is cleaned.
        tested.make_space();
        assert!(other.join().is_ok());
        let cleaned = tested.log().table().count(State::Emptied);
        witness(if cleaned > 0 { "moved" } else { "stayed" });
        let state = tested.state_of(&theirs);
        assert!(
            matches!(state, Some(State::Sealed | State::Open)),
            "{state:?}"
        );
        assert_eq!(tested.get(&theirs), Some(vec![1; 160]));
        tested.assert_recovers(&[], &[&mine, &theirs]);
    });
}

/// The space thread looks for a victim while segments are sealed and written: it takes none
/// whose frames are not on the device yet, and so never gives up on one (C6).
#[test]
fn loom_victims_are_written() {
    model("victims are written", &["a victim", "no victim"], || {
        let tested = tested(4, 1);
        // Each takes a segment; all are pending.
        for key in [b"a", b"b", b"c"] {
            tested.put(key, &[1; 180]);
        }
        let other = {
            let tested = tested.clone();
            thread::spawn(move || {
                tested.put(b"d", &[1; 180]);
                tested.commit();
            })
        };
        match tested.log().make_space(&*tested.kv, &mut tested.effort()) {
            Ok(_) => witness("no victim"),
            // There was one, and no room for its record.
            Err(Error::NoSpace { .. }) => witness("a victim"),
            Err(error) => panic!("{error}"),
        }
        assert!(other.join().is_ok());
        for (id, segment) in tested.log().table().iter() {
            assert!(!segment.is_quarantined(), "gave up on segment {id}");
        }
        for key in [b"a", b"b", b"c", b"d"] {
            assert_eq!(tested.get(key), Some(vec![1; 180]));
        }
        tested.assert_recovers(&[], &[b"a", b"b", b"c", b"d"]);
    });
}
