//! Listing the objects of a collection in the order of their names.

use super::registry::Slot;
use super::table::Space;
use super::{CollectionName, ObjectName};

/// Ranges of sort keys, each from the first to before the second, in order, that hold the
/// objects of a collection: in a placement group those of its pool's temporary objects and
/// of the pool; in `meta` everything.
pub(crate) fn ranges(name: &CollectionName, bits: u32, _space: &Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    match *name {
        CollectionName::Meta => {
            vec![(ObjectName::min().sort_key(), ObjectName::max().sort_key())]
        }
        CollectionName::Pg {
            pool, seed, shard, ..
        } => {
            let temporary = (-2_i64).checked_sub(pool);
            let pools = temporary.into_iter().chain([pool]);
            let mut ranges: Vec<_> = pools
                .map(|pool| ObjectName::hash_range(shard, pool, bits, seed))
                .collect();
            ranges.sort();
            ranges
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The objects, in order.
    pub objects: Vec<ObjectName>,
    /// Where the next page starts: the first object not listed, or the end of the range.
    pub next: ObjectName,
}

/// At most `max` objects of a collection from `start` to before `end`.
pub(crate) fn list(slot: &Slot, start: &ObjectName, end: &ObjectName, max: usize) -> Page {
    let mut page = Page {
        objects: Vec::new(),
        next: end.clone(),
    };
    if start.is_max() || start >= end {
        return page;
    }
    let (start_key, end_key) = (start.sort_key(), end.sort_key());
    let names = slot.space.names.read();
    for (first, last) in ranges(&slot.name, slot.bits(), &slot.space) {
        let first = first.max(start_key.clone());
        let last = last.min(end_key.clone());
        if first >= last {
            continue;
        }
        let mut is_full = false;
        names.visit(&first, &last, &mut |name, _| {
            let Ok(object) = ObjectName::from_sort_key(name) else {
                return true;
            };
            is_full = page.objects.len() == max;
            if is_full {
                page.next = object;
            } else {
                page.objects.push(object);
            }
            !is_full
        });
        if is_full {
            return page;
        }
    }
    page
}
