//! The least write amplification of a log with known, independent rewrite rates.
//!
//! Each group of equal rate gets its own log at utilization u_i; one group costs
//! `1 / (1 - p)`, `p = exp(-(1 - p) / u)`. The space is shared so that every group gains
//! the same from one more byte (Lagrange).

/// Write amplification of one group at utilization `u`: FIFO, equal to greedy for many
/// records a segment.
fn one_group(u: f64) -> f64 {
    let mut p = 0.0f64;
    for _ in 0..10_000 {
        let next = (-(1.0 - p) / u).exp();
        if (next - p).abs() < 1e-13 {
            break;
        }
        p = next;
    }
    1.0 / (1.0 - p)
}

/// The limit over (share of writes, share of data) `groups` at utilization `u`.
pub fn write_amplification(groups: &[(f64, f64)], u: f64) -> f64 {
    // Cost and gain of each utilization are tabled once: the solver asks for thousands.
    const STEPS: usize = 4000;
    let at = |i: usize| 0.01 + 0.989 * i as f64 / STEPS as f64;
    let cost: Vec<f64> = (0..=STEPS).map(|i| one_group(at(i))).collect();
    let gain: Vec<f64> = (0..STEPS)
        .map(|i| (cost[i + 1] - cost[i]) / (at(i + 1) - at(i)) * at(i) * at(i))
        .collect();
    let share = |multiplier: f64| -> Vec<usize> {
        let step = |f: f64, d: f64| gain.partition_point(|g| f * g / d < multiplier);
        groups
            .iter()
            .map(|&(f, d)| step(f, d).min(STEPS - 1))
            .collect()
    };
    let space = |steps: &[usize]| -> f64 {
        let each = groups.iter().zip(steps).map(|(&(_, d), &i)| d / at(i));
        each.sum()
    };
    let (mut low, mut high) = (1e-9f64, 1e9f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        // A larger multiplier accepts fuller groups, which take less space.
        if space(&share(middle)) > 1.0 / u {
            low = middle;
        } else {
            high = middle;
        }
    }
    let steps = share(high);
    groups
        .iter()
        .zip(&steps)
        .map(|(&(f, _), &i)| f * cost[i])
        .sum()
}
