//! How long operations take on small and large maps: run by hand, in release.

use super::*;
use std::hint::black_box;
use std::time::Instant;

/// Operations measured together: few, so that other processes disturb few of the runs.
const RUN: usize = 64;
const RUNS: usize = 6000;

/// Adds the nanoseconds of an operation on each of the keys to `runs`.
fn time(runs: &mut Vec<f64>, keys: &[[u8; 31]], mut operation: impl FnMut(&[u8])) {
    let start = Instant::now();
    for key in keys {
        operation(key);
    }
    runs.push(start.elapsed().as_nanos() as f64 / keys.len() as f64);
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Times operations on random keys of a map of `count`: get, update, remove, insert again, and
/// the next after an absent key.
fn times(count: u64, random: &mut Random) -> [f64; 5] {
    let numbers = shuffled(count, random);
    let mut map = map_of(numbers.into_iter().map(|number| number * 10));
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..RUNS {
        let mut keys = |offset| -> Vec<[u8; 31]> {
            let keys = (0..RUN).map(|_| log_key(random.below(count) * 10 + offset));
            keys.map(|key| key.try_into().unwrap()).collect()
        };
        time(&mut times[0], &keys(0), |key| {
            black_box(map.get(key));
        });
        time(&mut times[1], &keys(0), |key| {
            black_box(map.update(key, 1, 1));
        });
        // The map stays as large as it is.
        let gone = keys(0);
        time(&mut times[2], &gone, |key| {
            black_box(map.remove(key));
        });
        time(&mut times[3], &gone, |key| {
            black_box(map.insert(key, 1));
        });
        time(&mut times[4], &keys(5), |key| {
            black_box(map.first_after(key));
        });
    }
    times.map(median)
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
        let [get, update, remove, insert, next] = times(count, &mut random);
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
