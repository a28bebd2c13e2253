//! Models of freeing: a segment's header says that it is free only when what made its
//! records dead is durable (D9).

use super::*;

/// A writer makes the only record of a sealed segment dead, while the space thread empties
/// and frees the segment.
#[test]
fn loom_freed_after_what_killed_it_is_durable() {
    model("freeing", &["freed", "reused"], || {
        let tested = tested(6, 1);
        // A segment for each.
        tested.put(b"a", &[1; 160]);
        tested.put(b"b", &[2; 180]);
        tested.commit();
        let victim = 0;
        assert_eq!(tested.log().table().segment(victim).state(), State::Sealed);
        let space = {
            let tested = tested.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    tested.make_space();
                }
            })
        };
        tested.put(b"a", &[3; 160]);
        tested.commit();
        assert!(space.join().is_ok());
        while tested.make_space() {}
        for (segment, durable) in tested.tiny.device.freed() {
            assert_eq!(segment, victim);
            witness("freed");
            let Some(entry) = tested.entry(b"a") else {
                panic!("the key was put")
            };
            // A power cut while the header is written leaves the newer record.
            let key = tested.tiny.key_at(&durable, entry.address);
            assert_eq!(key.as_deref(), Some(b"a".as_slice()));
        }
        // The device checks that the segment's next header follows its durable free one.
        for key in [b"c", b"d", b"e", b"f"] {
            tested.put(key, &[4; 180]);
        }
        if tested.log().table().segment(victim).generation() > 1 {
            witness("reused");
        }
        tested.assert_recovers(&[], &[b"a", b"b"]);
    });
}
