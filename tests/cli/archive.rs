//! `esker export --collection` and `esker import` of archives: every part of every object
//! comes back, and no damage gets past.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;

use esker::{Collection, CollectionName, ObjectName, ObjectStore, Options, Transaction};

use super::Place;

const POOL: CollectionName = CollectionName::Pg {
    pool: 1,
    seed: 0,
    shard: -1,
    temp: false,
};

/// Objects with all parts, holes, clones and weird names.
fn fill(store: &ObjectStore) {
    let collection = store.create_new_collection(POOL);
    let object = |hash, name: &[u8]| Arc::new(ObjectName::new(1, hash, name));
    let plain = object(1, b"plain");
    let clone = Arc::new(ObjectName::new(1, 1, "plain").with_snap(4));
    let holes = object(u32::MAX, b"holes");
    let weird = Arc::new(
        ObjectName::new(1, 7, (0..=255).collect::<Vec<u8>>())
            .with_nspace([0, 1, 255])
            .with_key("loc:#")
            .with_generation(9),
    );
    let temporary = Arc::new(ObjectName::new(-3, 5, "temp"));
    let mut t = Transaction::new();
    t.create_collection(POOL, 0);
    t.write(POOL, &plain, 0, [vec![1; 10_000]]);
    t.setattrs(
        POOL,
        &plain,
        [("_", vec![9; 293]), ("", vec![]), ("big", vec![3; 1 << 20])],
    );
    t.omap_setheader(POOL, &plain, "header");
    t.omap_setkeys(
        POOL,
        &plain,
        [
            (vec![], vec![5]),
            (vec![0, 255], vec![]),
            (vec![7; 999], vec![8; 99]),
        ],
    );
    t.clone_object(POOL, &plain, &clone);
    t.write(POOL, &plain, 4000, [vec![2; 5000]]);
    t.touch(POOL, &object(2, b"empty"));
    t.touch(POOL, &object(2, b""));
    t.write(POOL, &holes, 1 << 20, [vec![4; 5]]);
    t.write(POOL, &holes, 9 << 20, [vec![5; 3 << 20]]);
    t.truncate(POOL, &holes, 3 << 30);
    t.touch(POOL, &weird);
    t.setattr(POOL, &weird, [0, 1], [2]);
    t.write(POOL, &temporary, 0, ["x"]);
    store.apply_transactions(&collection, &[t]).unwrap();
    let mut t = Transaction::new();
    let keys = (0..3000).map(|i| (format!("key {i:06}"), vec![i as u8; i % 300]));
    t.touch(POOL, &object(3, b"omap"));
    t.omap_setkeys(POOL, &object(3, b"omap"), keys);
    store.apply_transactions(&collection, &[t]).unwrap();
    let mut t = Transaction::new();
    let meta = Arc::new(ObjectName::new(-1, 0, "osdmap.1"));
    t.create_collection(CollectionName::Meta, 0);
    t.write(CollectionName::Meta, &meta, 3, ["map"]);
    let collection = store.create_new_collection(CollectionName::Meta);
    store.apply_transactions(&collection, &[t]).unwrap();
}

fn same_object(a: (&ObjectStore, &Collection), b: (&ObjectStore, &Collection), name: &ObjectName) {
    let stats = [a, b].map(|(store, place)| store.stat(place, name).unwrap());
    assert_eq!(stats[0].size, stats[1].size, "{name}");
    assert_eq!(
        stats[0].stored_bytes, stats[1].stored_bytes,
        "{name}: holes"
    );
    let ranges = [a, b].map(|(store, place)| store.fiemap(place, name, 0, u64::MAX).unwrap());
    assert_eq!(ranges[0], ranges[1], "{name}");
    for range in &ranges[0] {
        let data = [a, b].map(|(store, c)| store.read(c, name, range.offset, range.len).unwrap());
        assert!(data[0] == data[1], "{name}: data");
    }
    let attributes = [a, b].map(|(store, place)| store.getattrs(place, name).unwrap());
    assert!(attributes[0] == attributes[1], "{name}: attributes");
    let omaps = [a, b].map(|(store, place)| store.omap_get(place, name).unwrap());
    assert!(omaps[0] == omaps[1], "{name}: omap");
}

fn open(place: &Place, name: &str) -> ObjectStore {
    ObjectStore::open(place.path().join(name), &Options::default()).unwrap()
}

/// Two stores have the same objects.
fn same(a: &ObjectStore, b: &ObjectStore) {
    assert_eq!(a.list_collections(), b.list_collections());
    for name in a.list_collections() {
        let [of_a, of_b] = [a, b].map(|store| store.open_collection(&name).unwrap());
        assert_eq!(
            a.collection_bits(&of_a).unwrap(),
            b.collection_bits(&of_b).unwrap()
        );
        let pages = [(a, &of_a), (b, &of_b)].map(|(store, place)| {
            let page = store.collection_list(place, &ObjectName::min(), &ObjectName::max(), 1000);
            page.unwrap().objects
        });
        assert_eq!(pages[0], pages[1]);
        for object in &pages[0] {
            same_object((a, &of_a), (b, &of_b), object);
        }
    }
}

fn with_objects() -> Place {
    let place = Place::with_store();
    let store = open(&place, "s.esker");
    fill(&store);
    store.close().unwrap();
    place
}

#[test]
fn every_part_of_every_object_survives() {
    let place = with_objects();
    let said = place.text(&["export", "s.esker", "all.arc", "--all-collections"]);
    assert!(
        said.starts_with("exported 9 objects of 2 collections"),
        "{said}"
    );
    place.succeed(&["mkfs", "t.esker", "--capacity", "1G"]);
    let said = place.text(&["import", "t.esker", "all.arc"]);
    assert!(
        said.starts_with("imported 9 objects of 2 collections"),
        "{said}"
    );
    same(&open(&place, "s.esker"), &open(&place, "t.esker"));

    // The same bytes from the copy, through a pipe; and in once more, over what is there.
    let again = place.succeed(&["export", "t.esker", "-", "--all-collections"]);
    let archive = fs::read(place.path().join("all.arc")).unwrap();
    assert!(again == archive, "exports are reproducible");
    let error = place.fail(1, &["import", "t.esker", "all.arc"]);
    assert!(error.contains("--overwrite"), "{error}");
    place.put_from_stdin(
        &["object", "put", "t.esker", "1.0", "plain", "--hash", "1"],
        b"other",
    );
    place.put_from_stdin(&["import", "t.esker", "-", "--overwrite"], &archive);
    same(&open(&place, "s.esker"), &open(&place, "t.esker"));

    let error = place.fail(1, &["export", "s.esker", "all.arc", "--collection", "1.0"]);
    assert!(error.contains("--force"), "{error}");
    place.succeed(&[
        "export",
        "s.esker",
        "all.arc",
        "--collection",
        "1.0",
        "--force",
    ]);
    place.fail(1, &["export", "s.esker", "x.arc", "--collection", "8.0"]);
    assert!(!place.path().join("x.arc").exists());
}

#[test]
fn damaged_and_truncated_archives_are_refused() {
    let place = Place::with_store();
    place.succeed(&["collection", "create", "s.esker", "1.0"]);
    for name in ["a", "b"] {
        place.put_from_stdin(&["object", "put", "s.esker", "1.0", name], b"some data");
        place.succeed(&["object", "setattr", "s.esker", "1.0", name, "k", "v"]);
    }
    let archive = place.succeed(&["export", "s.esker", "-", "--collection", "1.0"]);
    place.succeed(&["mkfs", "t.esker", "--capacity", "64M"]);
    let path = place.path().join("bad.arc");
    let mut bad: Vec<Vec<u8>> = (0..archive.len())
        .step_by(13)
        .map(|len| archive[..len].to_vec())
        .collect();
    for at in (0..archive.len()).step_by(7) {
        let mut flipped = archive.clone();
        flipped[at] ^= 1 << (at % 8);
        bad.push(flipped);
    }
    bad.push([&archive[..], b"more"].concat());
    bad.push(vec![0xff; 10_000]);
    for bytes in &bad {
        fs::write(&path, bytes).unwrap();
        let error = place.fail(1, &["import", "t.esker", "bad.arc"]);
        assert!(
            error.contains("bad.arc") && error.contains("byte"),
            "{error}"
        );
        assert!(error.contains("nothing was changed"), "{error}");
    }
    assert_eq!(place.text(&["collection", "ls", "t.esker"]), "");

    // From a pipe the frames before the damage are there, whole.
    let mut child = place
        .command(&["import", "t.esker", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let half = &archive[..archive.len() - 60];
    child.stdin.take().unwrap().write_all(half).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("what came before it is imported"), "{error}");
    assert_eq!(place.text(&["collection", "ls", "t.esker"]), "1.0_head\n");
    place.succeed(&["mkfs", "u.esker", "--capacity", "64M"]);
    fs::write(&path, &archive).unwrap();
    place.succeed(&["import", "u.esker", "bad.arc"]);
    assert_eq!(
        place
            .text(&["object", "ls", "u.esker", "1.0"])
            .lines()
            .count(),
        2
    );
}
