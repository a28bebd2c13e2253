//! Everything a store holds, taken through its interface, and compared.
//!
//! Taking it checks that the calls agree with one another: listing by pages and as a whole,
//! size and data, extents and data, the omap's keys, values and iterators.

use std::collections::BTreeMap;

use esker::{CollectionName, ObjectName};

use crate::interface::{Bytes, Entries, ObjectInterface};

const BLOCK: u64 = 4096;
/// Objects up to this size are read as a whole, larger ones by their extents.
const READ_WHOLE: u64 = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectContents {
    pub size: u64,
    /// Blocks that are other than zero.
    pub blocks: BTreeMap<u64, Bytes>,
    pub attrs: Entries,
    pub header: Bytes,
    pub omap: Entries,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionContents {
    pub bits: u32,
    pub objects: BTreeMap<ObjectName, ObjectContents>,
}

pub type Contents = BTreeMap<CollectionName, CollectionContents>;

pub fn contents(store: &dyn ObjectInterface) -> Contents {
    let mut collections = store.list_collections();
    collections.sort();
    let listed = collections.len();
    let contents: Contents = collections
        .into_iter()
        .map(|name| (name, collection_contents(store, name)))
        .collect();
    assert_eq!(contents.len(), listed, "a collection is listed twice");
    contents
}

fn collection_contents(
    store: &dyn ObjectInterface,
    collection: CollectionName,
) -> CollectionContents {
    assert!(store.collection_exists(collection), "{collection}");
    let (all, next) = store
        .collection_list(
            collection,
            &ObjectName::min(),
            &ObjectName::max(),
            usize::MAX,
        )
        .unwrap();
    assert!(next.is_max(), "{collection}: the list ends at {next}");
    assert!(all.is_sorted_by(|a, b| a < b), "{collection}: {all:?}");
    assert_eq!(pages(store, collection, all.len() / 3 + 1), all);
    assert_eq!(store.collection_empty(collection).unwrap(), all.is_empty());
    let objects = all.into_iter().map(|name| {
        let contents = object_contents(store, collection, &name);
        (name, contents)
    });
    CollectionContents {
        bits: store.collection_bits(collection).unwrap(),
        objects: objects.collect(),
    }
}

/// All objects of a collection, listed by pages.
pub fn pages(
    store: &dyn ObjectInterface,
    collection: CollectionName,
    max: usize,
) -> Vec<ObjectName> {
    let mut listed = Vec::new();
    let mut start = ObjectName::min();
    while !start.is_max() {
        let (page, next) = store
            .collection_list(collection, &start, &ObjectName::max(), max)
            .unwrap();
        assert!(
            page.len() == max || next.is_max(),
            "a short page in between"
        );
        assert!(page.iter().all(|name| *name >= start && *name < next));
        listed.extend(page);
        start = next;
    }
    listed
}

pub fn object_contents(
    store: &dyn ObjectInterface,
    collection: CollectionName,
    object: &ObjectName,
) -> ObjectContents {
    assert!(store.exists(collection, object), "{collection} {object}");
    let stat = store.stat(collection, object).unwrap();
    assert!(stat.blocks * stat.block_bytes >= stat.size);
    let (header, omap) = store.omap_get(collection, object).unwrap();
    assert_eq!(store.omap_get_header(collection, object).unwrap(), header);
    let keys = store.omap_get_keys(collection, object).unwrap();
    assert!(keys.iter().eq(omap.keys()), "{object}: keys of the omap");
    assert_eq!(iterated(store, collection, object), omap, "{object}");
    let attrs = store.getattrs(collection, object).unwrap();
    for (attr, value) in attrs.iter().take(2) {
        assert_eq!(store.getattr(collection, object, attr).unwrap(), *value);
    }
    ObjectContents {
        size: stat.size,
        blocks: blocks(store, collection, object, stat.size),
        attrs,
        header,
        omap,
    }
}

fn iterated(
    store: &dyn ObjectInterface,
    collection: CollectionName,
    object: &ObjectName,
) -> Entries {
    let mut entries = Entries::new();
    let mut iterator = store.omap_iterator(collection, object).unwrap();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        let key = iterator.key();
        assert!(entries.last_key_value().is_none_or(|(last, _)| *last < key));
        entries.insert(key, iterator.value());
        iterator.next().unwrap();
    }
    entries
}

/// The blocks that are not all zero. Extents must cover them.
fn blocks(
    store: &dyn ObjectInterface,
    collection: CollectionName,
    object: &ObjectName,
    size: u64,
) -> BTreeMap<u64, Bytes> {
    let extents = store.fiemap(collection, object, 0, size).unwrap();
    assert!(
        extents.is_sorted_by(|a, b| a.0 + a.1 <= b.0),
        "{object}: {extents:?}"
    );
    let mut blocks = BTreeMap::new();
    let mut take = |base: u64, bytes: &[u8]| {
        let mut offset = base;
        for bytes in bytes.chunks(BLOCK as usize) {
            if bytes.iter().any(|&byte| byte != 0) {
                blocks.insert(offset / BLOCK, bytes.to_vec());
            }
            offset += BLOCK;
        }
    };
    if size <= READ_WHOLE {
        let whole = store.read(collection, object, 0, 0).unwrap();
        assert_eq!(whole.len() as u64, size, "{object}");
        take(0, &whole);
        let mut hidden = whole;
        for &(offset, len) in &extents {
            let end = (offset + len).min(size) as usize;
            hidden[(offset as usize).min(end)..end].fill(0);
        }
        assert!(
            hidden.iter().all(|&byte| byte == 0),
            "{object}: data outside of the extents"
        );
    } else {
        for &(offset, len) in &extents {
            let start = offset / BLOCK * BLOCK;
            let end = (offset + len).next_multiple_of(BLOCK).min(size);
            take(
                start,
                &store.read(collection, object, start, end - start).unwrap(),
            );
        }
    }
    blocks
}

/// Every difference is a panic that names the object and the part.
pub fn assert_same(found: &Contents, expected: &Contents, when: &str) {
    let names = |contents: &Contents| contents.keys().copied().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{when}: collections");
    for (name, expected) in expected {
        let found = &found[name];
        assert_eq!(found.bits, expected.bits, "{when}: bits of {name}");
        let names = |contents: &CollectionContents| {
            let names = contents.objects.keys();
            names.cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(found), names(expected), "{when}: objects of {name}");
        for (object, expected) in &expected.objects {
            let found = &found.objects[object];
            let place = format!("{when}: {name} {object}");
            assert_eq!(found.size, expected.size, "{place}: size");
            assert_eq!(found.attrs, expected.attrs, "{place}: attributes");
            assert_eq!(found.header, expected.header, "{place}: omap header");
            assert_eq!(found.omap, expected.omap, "{place}: omap");
            let blocks = found.blocks.keys().chain(expected.blocks.keys());
            for block in blocks {
                let same = found.blocks.get(block) == expected.blocks.get(block);
                assert!(same, "{place}: data of block {block}");
            }
        }
    }
}
