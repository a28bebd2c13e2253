//! The conformance suite: one file for each group of operations, and what they share.
//!
//! A case is a function over a store that is empty at first. When it returns, the store is
//! checked and remounted, must hold the same as before, is emptied, and must then hold
//! nothing at all: [`finish`].

pub mod attrs;
pub mod clone;
pub mod data;
pub mod data_patterns;
pub mod lifecycle;
pub mod limits;
pub mod listing;
pub mod names;
pub mod omap;
pub mod omap_iterator;
pub mod order;
pub mod refused;
pub mod rename;
pub mod sharing;
pub mod space;
pub mod split_merge;

use std::sync::Arc;

use esker::{CollectionName, ObjectName, Result, Transaction};

use crate::contents::{assert_same, contents};
use crate::interface::ObjectInterface;

pub const META: CollectionName = CollectionName::Meta;
/// Pool of the objects in [`META`].
pub const META_POOL: i64 = -1;

pub const E2BIG: i32 = -7;
pub const EEXIST: i32 = -17;
pub const EINVAL: i32 = -22;
pub const ENODATA: i32 = -61;
pub const ENOENT: i32 = -2;
pub const ENOTEMPTY: i32 = -39;

/// Makes a test of every case, over a new store for each.
macro_rules! conformance_tests {
    ($module:ident, $store:expr) => {
        mod $module {
            tests_of! {
                $store;
                lifecycle: an_empty_store_mounts_again objects_survive_a_remount
                    overwrites_survive_a_remount every_part_survives_remounts
                    the_meta_collection_is_made_and_removed placement_groups_are_made_and_removed
                    many_collections_stand_side_by_side collection_hints_change_nothing
                    alloc_hints_change_nothing bits_are_set_and_kept
                    transactions_without_effect_commit a_list_of_transactions_is_one
                    a_transaction_spans_collections;
                data: whole_blocks_are_written_and_overwritten small_writes_of_one_block_land
                    an_object_goes_through_its_life writes_over_block_edges_keep_their_neighbours
                    reads_end_at_the_end data_in_pieces_is_joined
                    writes_without_data_leave_the_size zeros_of_no_length_leave_the_size
                    zeros_extend_the_object zeros_may_be_big truncation_ignores_absent_objects
                    truncated_bytes_are_gone holes_are_zeros
                    touch_and_create_change_nothing_of_an_object removal_ignores_absent_objects
                    a_new_object_has_nothing_of_the_old;
                data_patterns: many_small_writes one_block_is_written_again_and_again
                    a_front_that_is_skipped_is_zero small_unaligned_appends
                    appends_behind_an_overwritten_tail many_big_writes
                    mixed_sizes_fragment_an_object regions_join_in_any_order
                    fiemap_of_a_hole_is_empty_or_coarse fiemap_misses_no_data
                    an_object_of_many_extents readv_joins_ranges written_zeros_are_data
                    compressible_data_is_overwritten every_alignment_is_written
                    interleaved_passes_fill_an_object overwrites_give_their_space_back;
                attrs: attributes_of_absent_objects attributes_are_set_replaced_and_removed
                    the_last_setter_wins empty_values_are_values attributes_and_omap_are_apart
                    names_of_attributes_are_bytes attributes_at_random;
                omap: omaps_of_absent_objects an_object_without_omap_has_an_empty_one
                    keys_are_set_read_and_removed an_omap_grows_and_shrinks
                    clear_takes_keys_and_header the_header_is_set_apart ranges_are_half_open
                    ranges_and_keys_apply_in_order values_and_keys_of_all_sizes
                    omaps_of_objects_are_apart;
                omap_iterator: bounds_are_lower_and_upper iterators_walk_from_anywhere
                    several_iterators_at_once keys_sort_as_unsigned_bytes
                    a_large_omap_is_read_by_pages iterators_pass_over_removed_keys
                    an_iterator_reads_a_clone;
                clone: a_clone_has_every_part clones_are_independent a_clone_replaces_its_target
                    clones_without_a_source_are_refused clones_see_their_transaction
                    omaps_of_clones_are_apart clone_range_makes_the_range_the_same
                    clone_range_of_nothing_makes_the_target clone_range_past_the_end_is_refused
                    clone_range_copies_holes clone_range_of_a_hole_extends;
                sharing: a_shared_tail_is_zeroed_and_appended sharing_ends_block_by_block
                    the_last_reference_frees clones_of_clones_and_rollbacks
                    clone_ranges_at_random many_clones_of_many_objects;
                listing: an_empty_collection_lists_nothing a_list_is_sorted_and_complete
                    a_list_starts_and_ends_where_asked hashes_at_their_ends
                    groups_of_a_pool_list_their_own temporary_objects_come_first
                    shards_list_their_own removed_objects_are_not_listed
                    a_cursor_survives_removal emptiness_counts_what_is_there thousands_of_objects;
                order: names_of_one_hash two_hashes_are_kept_apart every_part_has_its_place
                    hashes_order_reversed pools_in_meta generations_are_objects_of_their_own;
                names: a_name_has_any_bytes long_names long_names_with_one_beginning
                    names_of_the_object_gateway every_part_tells_objects_apart
                    collections_tell_objects_apart;
                rename: a_rename_takes_every_part a_name_is_free_after_a_rename
                    heads_become_generations_in_a_chain objects_swap_names_in_one_transaction
                    renames_of_absent_objects_are_ignored renames_to_what_exists_are_refused
                    renames_stay_in_their_collection temporary_objects_are_renamed_into_place
                    clones_are_renamed;
                split_merge: groups_split_and_merge_few_bits groups_split_and_merge_many_bits
                    groups_split_and_merge_with_clones groups_split_and_merge_at_the_last_bits
                    groups_split_and_merge_when_large empty_halves skewed_groups_merge
                    a_group_splits_into_many a_split_is_one_of_its_transaction
                    a_half_is_removed_alone splits_and_merges_are_refused;
                refused: a_refused_transaction_has_no_effect
                    collections_that_exist_are_not_created absent_collections_are_refused
                    collections_with_objects_are_not_removed
                    objects_removed_in_the_transaction_do_not_count bounds_are_no_objects;
                limits: objects_end_below_4_gib names_have_bounds attributes_have_bounds
                    omaps_have_bounds;
                space: an_empty_store_has_its_space data_is_counted pools_are_counted_apart
                    omaps_are_counted removed_space_comes_back;
            }
        }
    };
}

macro_rules! tests_of {
    ($store:expr; $($group:ident: $($case:ident)+;)+) => {$(
        mod $group {
            #[allow(unused_imports, reason = "what makes a store may be anywhere")]
            use crate::*;
            $(
                #[test]
                fn $case() {
                    let mut store = $store;
                    $crate::conformance::$group::$case(&mut store);
                    $crate::conformance::finish(&mut store);
                }
            )+
        }
    )+};
}

/// What every case ends with.
pub fn finish(store: &mut dyn ObjectInterface) {
    assert_eq!(store.check(), 0, "errors found by the check");
    let before = contents(store);
    store.remount();
    assert_same(&contents(store), &before, "after a remount");
    for (&collection, contents) in &before {
        assert!(store.open_collection(collection));
        let mut tx = Transaction::new();
        for object in contents.objects.keys() {
            tx.remove(collection, &Arc::new(object.clone()));
        }
        tx.remove_collection(collection);
        store.queue_transactions(collection, vec![tx]).unwrap();
    }
    assert_eq!(store.list_collections(), []);
    let statfs = store.statfs();
    assert_eq!(statfs.data_stored, 0, "{statfs:?}");
    assert_eq!(statfs.allocated, 0, "{statfs:?}");
    assert_eq!(statfs.omap_allocated, 0, "{statfs:?}");
    assert_eq!(
        store.check(),
        0,
        "errors found by the check of an empty store"
    );
}

/// A head object of [`META`].
pub fn meta(name: impl Into<Vec<u8>>) -> Arc<ObjectName> {
    Arc::new(ObjectName::new(META_POOL, 0, name))
}

/// A head object of a pool.
pub fn head(pool: i64, hash: u32, name: impl Into<Vec<u8>>) -> Arc<ObjectName> {
    Arc::new(ObjectName::new(pool, hash, name))
}

/// Creates a collection with its bits.
pub fn create(store: &mut dyn ObjectInterface, collection: CollectionName, bits: u32) {
    assert!(!store.open_collection(collection));
    store.create_new_collection(collection);
    apply(store, collection, |tx| {
        tx.create_collection(collection, bits)
    });
}

/// Runs a transaction; every other one is built by appending it to an empty one.
pub fn submit<'a>(
    store: &mut dyn ObjectInterface,
    collection: CollectionName,
    build: impl for<'t> FnOnce(&'t mut Transaction<'a>) -> &'t mut Transaction<'a>,
) -> Result<()> {
    let mut tx = Transaction::new();
    build(&mut tx);
    if tx.ops().len() % 2 == 0 {
        let mut whole = Transaction::new();
        whole.append(tx);
        tx = whole;
    }
    store.queue_transactions(collection, vec![tx])
}

/// Runs a transaction that succeeds.
pub fn apply<'a>(
    store: &mut dyn ObjectInterface,
    collection: CollectionName,
    build: impl for<'t> FnOnce(&'t mut Transaction<'a>) -> &'t mut Transaction<'a>,
) {
    submit(store, collection, build).unwrap();
}

/// Runs a transaction that is refused with this error and changes nothing.
pub fn refuse<'a>(
    store: &mut dyn ObjectInterface,
    collection: CollectionName,
    errno: i32,
    build: impl for<'t> FnOnce(&'t mut Transaction<'a>) -> &'t mut Transaction<'a>,
) {
    let before = contents(store);
    let refused = submit(store, collection, build);
    assert_errno(refused, errno);
    assert_same(&contents(store), &before, "after a refused transaction");
}

#[track_caller]
pub fn assert_errno<T: std::fmt::Debug>(result: Result<T>, errno: i32) {
    match result {
        Ok(value) => panic!("expected error {errno}, got {value:?}"),
        Err(error) => assert_eq!(error.errno(), errno, "{error}"),
    }
}

/// The object has exactly these bytes, read in several ways.
#[track_caller]
pub fn assert_data(
    store: &dyn ObjectInterface,
    collection: CollectionName,
    object: &ObjectName,
    expected: &[u8],
) {
    let len = expected.len() as u64;
    assert_eq!(store.stat(collection, object).unwrap().size, len, "size");
    let read = |offset, len| store.read(collection, object, offset, len).unwrap();
    for found in [read(0, 0), read(0, len.max(1)), read(0, len + 12345)] {
        assert_bytes(&found, expected);
    }
    for offset in [1, len / 3, len.saturating_sub(1)] {
        let offset = offset.clamp(1, len.max(1));
        let rest = expected.get(offset as usize..).unwrap_or_default();
        assert_bytes(&read(offset, len), rest);
        assert_bytes(&read(offset, 5), &rest[..rest.len().min(5)]);
    }
    assert!(read(len + 1, 10).is_empty(), "bytes past the end");
}

/// As `assert_eq`, but says where they differ instead of printing them.
#[track_caller]
pub fn assert_bytes(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "length");
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differ {
        panic!("byte {at}: found {}, expected {}", found[at], expected[at]);
    }
}

/// Bytes that tell where they are from: no two 8-byte words of two seeds agree.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    crate::common::Random::new(seed).bytes(len)
}

/// What a write does to the bytes that are expected.
pub fn put(expected: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    if expected.len() < offset + bytes.len() {
        expected.resize(offset + bytes.len(), 0);
    }
    expected[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Writes, and to the bytes that are expected, too.
pub fn write(
    store: &mut dyn ObjectInterface,
    collection: CollectionName,
    object: &Arc<ObjectName>,
    expected: &mut Vec<u8>,
    offset: usize,
    bytes: &[u8],
) {
    apply(store, collection, |tx| {
        tx.write(collection, object, offset as u64, [bytes])
    });
    put(expected, offset, bytes);
}
