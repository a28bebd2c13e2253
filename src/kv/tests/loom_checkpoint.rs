//! Models of images against writers: an image has exactly what is below its horizon.

use super::*;

/// Takes an image while `write` runs, and recovers from it.
fn image_against(setup: fn(&Tested), write: fn(&Tested)) {
    let tested = tested(4, 3);
    setup(&tested);
    let writer = {
        let tested = tested.clone();
        thread::spawn(move || write(&tested))
    };
    let mut image = Vec::new();
    let horizon = || tested.log().appender().next_seqno();
    let lowest = tested.kv.image(0, &horizon, &mut |unit| {
        image.extend_from_slice(unit);
        Ok(())
    });
    let before = tested.log().appender().next_seqno();
    assert!(lowest.is_ok_and(|lowest| lowest <= before));
    assert!(writer.join().is_ok());
    let after = tested.log().appender().next_seqno();
    witness(if before == after {
        "all in"
    } else {
        "replayed"
    });
    tested.assert_recovers(&image, &[b"k"]);
}

/// An image against an overwrite.
#[test]
fn loom_image_against_put() {
    model("image against put", &["all in", "replayed"], || {
        image_against(
            |tested| tested.put(b"k", b"old"),
            |tested| tested.put(b"k", b"new"),
        );
    });
}

/// An image against a delete: it does not come back.
#[test]
fn loom_image_against_delete() {
    model("image against delete", &["all in", "replayed"], || {
        image_against(
            |tested| tested.put(b"k", b"old"),
            |tested| tested.delete(b"k"),
        );
    });
}

/// An image against a relocation.
#[test]
fn loom_image_against_relocation() {
    model("image against relocation", &["all in", "replayed"], || {
        image_against(
            |tested| tested.put(b"k", b"old"),
            |tested| {
                let Some(entry) = tested.entry(b"k") else {
                    panic!("the key was put")
                };
                let position = Position {
                    address: entry.address,
                    seqno: 1,
                    head: 0,
                    payload: None,
                };
                tested.relocate(Kind::Put, b"k", b"old", position);
            },
        );
    });
}
