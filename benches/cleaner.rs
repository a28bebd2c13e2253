//! Question: how many bytes reach the device per user byte, everything counted, and which
//! parameters matter? Simulates the production policy (`src/log/policy.rs`).
//!
//! `cargo bench --bench cleaner` prints the tables of `design/cleaning.md` (about half an
//! hour on one core); `-- goals`, `-- placement`, `-- small` or `-- sensitivity` one of
//! them; `-- --tiny` (and `cargo test --benches`) a small case in seconds, with a check.

#[path = "cleaner/limit.rs"]
mod limit;
#[allow(dead_code, reason = "the model has no clock and one kind of commit")]
#[path = "../src/log/policy.rs"]
mod policy;
#[path = "cleaner/simulation.rs"]
mod simulation;
#[path = "cleaner/workload.rs"]
mod workload;

use simulation::{Choice, Config, Outcome, Placement};
use workload::Load;

const KEYS: usize = 1 << 18;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    // `cargo bench` passes --bench; without it this is `cargo test`.
    if given("--tiny") || !given("--bench") {
        tiny();
        return;
    }
    let tables: [(&str, fn()); 4] = [
        ("goals", goals),
        ("placement", placement),
        ("small", small),
        ("sensitivity", sensitivity),
    ];
    let all = !tables.iter().any(|(name, _)| given(name));
    for (name, table) in tables {
        if all || given(name) {
            println!("# {name}");
            table();
        }
    }
}

fn report(what: &str, config: &Config) -> Outcome {
    let outcome = config.run();
    println!(
        "{what:56} WA {:.3}  records {:.3}  padding {:4.2}%  checkpoint {:4.2}%  forced {:.2}",
        outcome.write_amplification,
        outcome.records,
        outcome.padding * 100.0,
        outcome.checkpoint * 100.0,
        outcome.forced,
    );
    outcome
}

/// The targets of the goals, 4 KiB values, buffered mode.
fn goals() {
    let cases = [
        (Load::Uniform, 0.8, 2.90),
        (Load::Zipf(0.99), 0.8, 1.72),
        (Load::Hot(0.1, 0.9), 0.8, 1.60),
        (Load::Uniform, 0.9, f64::NAN),
        (Load::Zipf(0.99), 0.9, 2.80),
        (Load::Hot(0.2, 0.8), 0.9, 4.30),
        (Load::Hot(0.1, 0.9), 0.9, f64::NAN),
        (Load::Moving(0.1, 0.9), 0.8, f64::NAN),
    ];
    for (load, u, target) in cases {
        let config = Config::standard(load, KEYS, u);
        let effective = config.effective_utilization();
        let limit = limit::write_amplification(&load.groups(KEYS), u);
        let near = limit::write_amplification(&load.groups(KEYS), effective);
        let name = load.name();
        let what = format!("{name} u={u} ({effective:.3}) limit {limit:.2} ({near:.2})");
        report(&format!("{what} target {target:.2}"), &config);
    }
}

/// Shared heads against one commit stream against one head.
fn placement() {
    for load in [Load::Uniform, Load::Zipf(0.99), Load::Hot(0.1, 0.9)] {
        for (placement, choice) in [
            (Placement::Shared, Choice::Policy),
            (Placement::Front, Choice::Policy),
            (Placement::Shared, Choice::Greedy),
            (Placement::OneHead, Choice::Greedy),
        ] {
            let mut config = Config::standard(load, KEYS, 0.8);
            config.placement = placement;
            config.choice = choice;
            report(
                &format!("{} {placement:?} {choice:?}", load.name()),
                &config,
            );
        }
    }
}

/// 100 B values, 24 B keys, live record bytes 0.7 of what reserve and checkpoints leave.
fn small() {
    for load in [Load::Uniform, Load::Zipf(0.99)] {
        let mut config = Config::sized(load, 2_000_000, 24, 100, |config| {
            let records = config.record_bytes() as f64 * config.keys as f64 / 0.7;
            let images = 2.0 * (1.0 + 1.0 / 64.0) * config.image_bytes() as f64;
            records + images + (config.reserve_segments() * config.segment_bytes) as f64
        });
        for placement in [Placement::Shared, Placement::Front] {
            config.placement = placement;
            report(
                &format!("{} 100 B {placement:?} target 2.50", load.name()),
                &config,
            );
        }
    }
}

/// One parameter changed at a time.
fn sensitivity() {
    type Change = fn(&mut Config);
    let changes: [(&str, Change); 13] = [
        ("defaults", |_| {}),
        ("group 64 KiB", |c| c.group_bytes = 64 << 10),
        ("group 256 KiB", |c| c.group_bytes = 256 << 10),
        ("group 4 MiB", |c| c.group_bytes = 4 << 20),
        ("limbo 1 commit", |c| c.limbo_commits = 1),
        ("limbo 3 commits", |c| c.limbo_commits = 3),
        ("threshold 8", |c| c.threshold_segments = Some(8)),
        ("threshold 24", |c| c.threshold_segments = Some(24)),
        ("threshold 48", |c| c.threshold_segments = Some(48)),
        ("segment 512 KiB", |c| c.segment_bytes = 512 << 10),
        ("segment 1 MiB", |c| c.segment_bytes = 1 << 20),
        ("checkpoint interval 128 MiB", |c| {
            c.checkpoint_interval_bytes = 128 << 20
        }),
        ("checkpoint interval 2 GiB", |c| {
            c.checkpoint_interval_bytes = 2 << 30
        }),
    ];
    for load in [Load::Uniform, Load::Zipf(0.99)] {
        for (name, change) in changes {
            let mut config = Config::standard(load, KEYS, 0.8);
            change(&mut config);
            report(&format!("{} {name}", load.name()), &config);
        }
    }
}

/// Small enough for every test run; checks the sense of the policy, not its last percent.
fn tiny() {
    let keys = 1 << 14;
    let tiny = |load, placement, choice| {
        let mut config = Config::standard(load, keys, 0.7);
        config.segment_bytes = 64 << 10;
        config.group_bytes = 64 << 10;
        config.placement = placement;
        config.choice = choice;
        config.overwrites_before = 4;
        config.overwrites_measured = 2;
        report(
            &format!("{} {placement:?} {choice:?}", load.name()),
            &config,
        )
    };
    let load = Load::Zipf(0.99);
    let ours = tiny(load, Placement::Shared, Choice::Policy);
    let front = tiny(load, Placement::Front, Choice::Policy);
    let greedy = tiny(load, Placement::OneHead, Choice::Greedy);
    assert!(ours.write_amplification < 0.75 * greedy.write_amplification);
    assert!(front.write_amplification < 0.9 * greedy.write_amplification);
    let limit = limit::write_amplification(&Load::Uniform.groups(keys), 0.7);
    let uniform = tiny(Load::Uniform, Placement::Shared, Choice::Policy);
    println!("limit {limit:.3}");
    assert!(uniform.records > 1.0 && uniform.write_amplification < 1.35 * limit);
}
