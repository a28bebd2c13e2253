//! Models of the map of extents: what the cleaner publishes against readers and writers.

use super::*;

const PG: i64 = 1;

/// Relocates the object's extent while `act` runs; the object then has the data expected.
fn relocate_against(act: fn(&Tested), expected: Option<u8>) {
    let tested = with_objects(&[pg(PG)]);
    let extent = tested.extent(pg(PG));
    let cleaner = {
        let (tested, extent) = (tested.clone(), extent.clone());
        thread::spawn(move || tested.relocate(&extent, &[1; BYTES]))
    };
    act(&tested);
    match cleaner.join() {
        Ok(Relocation::Moved) => witness("moved"),
        Ok(Relocation::Dead) => witness("dead"),
        Err(_) => panic!("the cleaner panicked"),
    }
    assert_eq!(tested.read(pg(PG)), expected);
    tested.assert_recovers(&[pg(PG)]);
    assert_eq!(tested.read(pg(PG)), expected);
}

/// A relocation against a reader: it reads the data at the old place or at the new one.
#[test]
fn loom_object_relocation_against_read() {
    model("object relocation against read", &["moved"], || {
        relocate_against(
            |tested| {
                let before = tested.extent(pg(PG)).1;
                assert_eq!(tested.read(pg(PG)), Some(1));
                let after = tested.extent(pg(PG)).1;
                witness(if before == after {
                    "at one place"
                } else {
                    "moved meanwhile"
                });
            },
            Some(1),
        );
    });
}

/// A relocation against an overwrite: the overwrite stays, also in a replay.
#[test]
fn loom_object_relocation_against_write() {
    model(
        "object relocation against write",
        &["moved", "dead"],
        || {
            relocate_against(
                |tested| {
                    tested.apply(pg(PG), |tx| {
                        tx.write(pg(PG), &name(pg(PG)), 0, [vec![2; BYTES]]);
                    });
                },
                Some(2),
            );
        },
    );
}

/// A relocation against a removal: nothing comes back, and nothing is left.
#[test]
fn loom_object_relocation_against_remove() {
    model(
        "object relocation against remove",
        &["moved", "dead"],
        || {
            relocate_against(
                |tested| {
                    tested.apply(pg(PG), |tx| {
                        tx.remove(pg(PG), &name(pg(PG)));
                    });
                    assert_eq!(tested.log().table().live_total(), 0);
                },
                None,
            );
        },
    );
}

/// A relocation against a clone: both have the data where it is.
#[test]
fn loom_object_relocation_against_clone() {
    model("object relocation against clone", &["moved"], || {
        relocate_against(
            |tested| {
                let clone = SharedArc::new((*name(pg(PG))).clone().with_snap(1));
                tested.apply(pg(PG), |tx| {
                    tx.clone_object(pg(PG), &name(pg(PG)), &clone);
                });
            },
            Some(1),
        );
    });
}

/// A reader against a writer that removes the object and makes it again as one: the reader
/// finds the old one or the new one, and never none.
#[test]
fn loom_object_read_against_recreate() {
    let places = ["old", "new"];
    model("object read against recreate", &places, || {
        let tested = with_objects(&[pg(PG)]);
        let writer = {
            let tested = tested.clone();
            thread::spawn(move || {
                tested.apply(pg(PG), |tx| {
                    tx.remove(pg(PG), &name(pg(PG)));
                    tx.write(pg(PG), &name(pg(PG)), 0, [vec![2; BYTES]]);
                });
                tested.commit();
            })
        };
        match tested.read(pg(PG)) {
            Some(1) => witness("old"),
            Some(2) => witness("new"),
            other => panic!("{other:?}"),
        }
        assert!(writer.join().is_ok());
        assert_eq!(tested.read(pg(PG)), Some(2));
        tested.assert_recovers(&[pg(PG)]);
    });
}
