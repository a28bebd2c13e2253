//! Models of transactions over two collections.

use super::*;

/// Two transactions over the same two collections, named in opposite orders: neither waits
/// for the other for ever, and one is before the other in both collections.
#[test]
fn loom_transactions_over_two_collections() {
    let places = ["mine last", "theirs last"];
    model("transactions over two collections", &places, || {
        let tested = with_objects(&[pg(1), pg(2)]);
        let mark = |tested: &Tested, first: i64, second: i64, value: &'static str| {
            tested.apply(pg(first), |tx| {
                tx.setattr(pg(first), &name(pg(first)), "v", value);
                tx.setattr(pg(second), &name(pg(second)), "v", value);
            })
        };
        let other = {
            let tested = tested.clone();
            thread::spawn(move || mark(&tested, 2, 1, "theirs"))
        };
        let mine = mark(&tested, 1, 2, "mine");
        let Ok(theirs) = other.join() else {
            panic!("the other panicked")
        };
        let last = if mine > theirs { "mine" } else { "theirs" };
        witness(if mine > theirs {
            "mine last"
        } else {
            "theirs last"
        });
        for collection in [pg(1), pg(2)] {
            let Some(id) = tested.id(collection) else {
                panic!("the object is there")
            };
            let shard = tested.objects.table.read(id.family);
            let value = shard.get(id).and_then(|node| node.attributes.get(b"v"));
            assert_eq!(value, Some(last.as_bytes()), "{collection}");
        }
        tested.assert_recovers(&[pg(1), pg(2)]);
    });
}
