//! Numbers for `policy.rs`. In a file of its own because the bench includes that one.

use super::policy::*;

const LIVE: u64 = 1 << 30;

#[test]
fn exponent_settles_at_the_interval() {
    for (interval, expected) in [
        (LIVE, 5),
        (LIVE / 32, 1),
        (LIVE / 128, 0),
        (1, 0),
        (8 * LIVE, 7),
        (u64::MAX, 7),
    ] {
        let mut exponent = first_exponent();
        let mut random = 0x9E37_79B9u32;
        for _ in 0..100 {
            exponent = next_exponent(exponent, interval, LIVE, random);
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        }
        assert_eq!(exponent, expected, "interval {interval}");
    }
}

#[test]
fn exponent_moves_a_quarter_on_average() {
    // 2.5 octaves are 2 classes: from 5 towards 3, the mean step is half a class.
    let steps = 1 << 12;
    let interval = (LIVE as f64 / 2f64.powf(2.5)) as u64;
    let sum: u32 = (0..steps)
        .map(|i| u32::from(next_exponent(5, interval, LIVE, i << 20)))
        .sum();
    let mean = f64::from(sum) / f64::from(steps);
    assert!((mean - 4.5).abs() < 0.03, "{mean}");
}

#[test]
fn survivors_only_move_up_and_only_when_old() {
    assert_eq!(survivor_exponent(5, LIVE, LIVE), 5);
    assert_eq!(survivor_exponent(5, 2 * LIVE, LIVE), 6);
    assert_eq!(survivor_exponent(7, u64::MAX, LIVE), 7);
    assert_eq!(survivor_exponent(0, LIVE, LIVE), 1);
    assert_eq!(survivor_exponent(6, 1, LIVE), 6);
}

#[test]
fn mean_write_time_weighs_bytes() {
    let mut time = WriteTime::default();
    time.add(1000, 300);
    time.add(2000, 100);
    assert_eq!(time.mean(), 1250);
    time.add(u64::MAX / 2, 400);
    assert!(time.mean() > u64::MAX / 5);
}

#[test]
fn victim_prefers_empty_then_old() {
    let candidate = |segment, live_bytes, age| Candidate {
        segment,
        live_bytes,
        age,
    };
    let young = candidate(1, 50, 10);
    let old = candidate(2, 50, 20);
    let empty = candidate(3, 0, 1);
    let full = candidate(4, 100, 1 << 40);
    assert_eq!(select_victims([young, old, full], 100, 1), [old]);
    assert_eq!(select_victims([young, old, full], 100, 3), [old, young]);
    assert_eq!(select_victims([young, old, empty], 100, 2), [empty, old]);
    assert_eq!(select_victims([full], 100, 1), []);
    assert_eq!(select_victims([], 100, 1), []);
}

#[test]
fn only_large_commits_are_spread() {
    assert!(!spreads_commits(4 << 10));
    assert!(spreads_commits(64 << 10));
}

#[test]
fn slow_commits_hold_segments_back_where_there_are_some() {
    let micros = std::time::Duration::from_micros;
    assert_eq!(slack_segments(micros(100), 800), 0);
    assert_eq!(slack_segments(micros(1000), 800), 6);
    assert_eq!(slack_segments(micros(60_000_000), 800), 8);
    assert_eq!(slack_segments(micros(60_000_000), 95), 0);
}

#[test]
fn survivors_mix_only_when_nothing_is_in_limbo() {
    assert_eq!(survivor_room(2, 0), SurvivorRoom::Open);
    assert_eq!(survivor_room(1, 1), SurvivorRoom::Commit);
    assert_eq!(survivor_room(1, 0), SurvivorRoom::Nearest);
    assert_eq!(survivor_room(0, 9), SurvivorRoom::Commit);
}
