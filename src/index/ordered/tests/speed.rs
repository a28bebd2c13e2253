//! How long operations take on small and large maps: run by hand, in release.

use super::*;
use std::hint::black_box;
use std::time::Instant;

const OPERATIONS: usize = 400_000;

/// Nanoseconds of an operation on each of the keys.
fn time(keys: &[[u8; 31]], mut operation: impl FnMut(&[u8])) -> f64 {
    let start = Instant::now();
    for key in keys {
        operation(key);
    }
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}

/// Times operations on random keys of a map of `count`: get, update, remove and insert again,
/// insert between.
fn times(count: u64, random: &mut Random) -> [f64; 5] {
    let mut map = map_of(
        shuffled(count, random)
            .into_iter()
            .map(|number| number * 10),
    );
    let mut keys = |offset| -> Vec<[u8; 31]> {
        let mut key = |_| log_key(random.below(count) * 10 + offset);
        (0..OPERATIONS)
            .map(|at| key(at).try_into().unwrap())
            .collect()
    };
    let (present, absent) = (keys(0), keys(5));
    let get = time(&present, |key| {
        black_box(map.get(key));
    });
    let update = time(&present, |key| {
        black_box(map.update(key, 1, 1));
    });
    // In runs of 64, so that the map stays as large as it is.
    let (mut remove, mut insert) = (0.0, 0.0);
    for keys in present.chunks(64) {
        remove += time(keys, |key| {
            black_box(map.remove(key));
        });
        insert += time(keys, |key| {
            black_box(map.insert(key, 1));
        });
    }
    let runs = present.chunks(64).len() as f64;
    let next = time(&absent, |key| {
        black_box(map.first_after(key));
    });
    [get, update, remove / runs, insert / runs, next]
}

#[test]
#[ignore = "measures time"]
fn a_large_map_is_about_as_fast_as_a_small_one() {
    let mut random = Random::from_environment();
    println!(
        "{:>9}  get  update  remove  insert  first_after (ns)",
        "keys"
    );
    for count in [1000, 10_000, 100_000, 1_000_000] {
        let best = (0..3)
            .map(|_| times(count, &mut random))
            .reduce(|a, b| std::array::from_fn(|at| a[at].min(b[at])));
        let [get, update, remove, insert, next] = best.unwrap();
        println!("{count:>9} {get:4.0} {update:7.0} {remove:7.0} {insert:7.0} {next:12.0}");
    }
    let start = Instant::now();
    let mut map = map_of(0..1_000_000);
    println!(
        "in order {:.0} ns each, keys made",
        start.elapsed().as_nanos() as f64 / 1e6
    );
    let start = Instant::now();
    let snapshot = map.snapshot();
    println!("snapshot {:?}", start.elapsed());
    let (first, last) = (log_key(1000), log_key(999_000));
    let start = Instant::now();
    let removed = map.remove_range(Bound::Included(&first), Bound::Included(&last));
    println!(
        "removal of {} while shared {:?}",
        removed.len(),
        start.elapsed()
    );
    drop(snapshot);
    let (first, last) = (log_key(5000), log_key(5100));
    let mut map = removed;
    let start = Instant::now();
    let removed = map.remove_range(Bound::Included(&first), Bound::Excluded(&last));
    println!("removal of {} {:?}", removed.len(), start.elapsed());
}
