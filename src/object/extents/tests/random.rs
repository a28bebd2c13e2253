//! Random steps against the model, one object and families of up to eight.

use fastrand::Rng;

use super::model::Family;

/// Runs `steps` random steps of each of some seeds, or of the one in `ESKER_SEED`.
fn run(seeds: std::ops::Range<u64>, members_max: usize, blocks: u32, large: u32, steps: u32) {
    let given = std::env::var("ESKER_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    for seed in given.map_or(seeds, |seed| seed..seed + 1) {
        println!("ESKER_SEED={seed}");
        let mut rng = Rng::with_seed(seed);
        let mut family = Family::new(8 << (seed % 5), blocks);
        for _ in 0..steps {
            family.step(&mut rng, members_max, large);
            family.check(&mut rng);
        }
    }
}

#[test]
fn one_object_of_small_extents_is_as_the_model() {
    run(0..10, 1, 300, 3, 1200);
}

#[test]
fn one_object_of_large_extents_is_as_the_model() {
    run(10..20, 1, 1200, 700, 300);
}

#[test]
fn a_family_of_small_extents_is_as_the_model() {
    run(20..30, 8, 200, 4, 800);
}

#[test]
fn a_family_of_large_extents_is_as_the_model() {
    run(30..40, 8, 600, 300, 300);
}
