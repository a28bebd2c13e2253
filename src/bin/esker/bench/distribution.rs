//! Which keys are used how often: uniform, Zipf, or a hot fraction.
//!
//! Zipf is the true one, sampled by rejection-inversion (Hoermann and Derflinger 1996) in
//! constant space for any exponent, and ranks are spread over the key space by a
//! permutation. Hashing ranks into the key space instead, as fio does, leaves more than a
//! third of the keys unused and merges others, so it measures another distribution.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// A distribution over keys, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Distribution {
    /// Every key equally often.
    Uniform,
    /// The key of rank k in proportion to `k^-exponent`.
    Zipf(f64),
    /// A fraction of the keys gets a fraction of the operations, uniformly within each part.
    Hot {
        /// Fraction of the keys that is hot.
        keys: f64,
        /// Fraction of the operations they get.
        share: f64,
    },
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite());
        match parts.as_slice() {
            ["uniform"] => Ok(Self::Uniform),
            ["zipf", exponent] => match number(exponent) {
                Some(exponent) if (0.0..=8.0).contains(&exponent) => Ok(Self::Zipf(exponent)),
                _ => Err("the exponent of zipf:A must be from 0 to 8, as in zipf:0.99".into()),
            },
            ["hot", keys, share] => match (number(keys), number(share)) {
                (Some(keys), Some(share))
                    if keys > 0.0 && keys < 1.0 && (0.0..=1.0).contains(&share) =>
                {
                    Ok(Self::Hot { keys, share })
                }
                _ => Err(
                    "hot:F:P needs 0 < F < 1 of the keys and 0 <= P <= 1 of the \
                          operations, as in hot:0.1:0.9"
                        .into(),
                ),
            },
            _ => Err("use uniform, zipf:A or hot:F:P".into()),
        }
    }
}

impl TryFrom<String> for Distribution {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> Self {
        distribution.to_string()
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Self::Hot { keys, share } => write!(f, "hot:{keys}:{share}"),
        }
    }
}

/// Draws keys from a distribution over `0..count`.
#[derive(Debug, Clone)]
pub struct Sampler {
    ranks: Ranks,
    spread: Permutation,
}

#[derive(Debug, Clone)]
enum Ranks {
    Uniform { count: u64 },
    Zipf(Zipf),
    Hot { hot: u64, count: u64, share: f64 },
}

impl Sampler {
    /// A sampler over the keys `0..count`; `seed` decides which keys are the hot ones.
    pub fn new(distribution: Distribution, count: u64, seed: u64) -> Self {
        assert!(count > 0, "a distribution needs a key");
        let ranks = match distribution {
            Distribution::Uniform => Ranks::Uniform { count },
            Distribution::Zipf(exponent) => Ranks::Zipf(Zipf::new(count, exponent)),
            Distribution::Hot { keys, share } => Ranks::Hot {
                hot: ((count as f64 * keys).round() as u64).clamp(1, count),
                count,
                share,
            },
        };
        Self {
            ranks,
            spread: Permutation::new(count, seed),
        }
    }

    /// The next key.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let rank = match &self.ranks {
            // Equal shares need no spreading.
            Ranks::Uniform { count } => return rng.u64(..count),
            Ranks::Zipf(zipf) => zipf.draw(rng) - 1,
            Ranks::Hot { hot, count, share } => {
                if hot == count || rng.f64() < *share {
                    rng.u64(..hot)
                } else {
                    rng.u64(hot..count)
                }
            }
        };
        self.spread.at(rank)
    }
}

/// Zipf by rejection-inversion: constant space, about one draw in a few rejected.
#[derive(Debug, Clone)]
struct Zipf {
    count: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    /// Below this distance from the rank a draw is accepted without a further look.
    shortcut: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self {
            count: count as f64,
            exponent,
            integral_first: 0.0,
            integral_last: 0.0,
            shortcut: 0.0,
        };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank from 1.
    fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.integral_last + rng.f64() * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(u);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.shortcut || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to `x`; smooth across exponent 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        let quotient = if t.abs() > 1e-8 {
            t.exp_m1() / t
        } else {
            1.0 + t / 2.0
        };
        quotient * log
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        // Rounding can carry the argument just past the pole of the logarithm.
        let t = (y * (1.0 - self.exponent)).max(-1.0);
        let quotient = if t.abs() > 1e-8 {
            t.ln_1p() / t
        } else {
            1.0 - t / 2.0
        };
        (quotient * y).exp()
    }
}

/// A permutation of `0..count` in constant space: a four-round Feistel network over the next
/// even power of two, walked until it lands inside.
#[derive(Debug, Clone)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// The permutation of `0..count` that `seed` names.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let mut rng = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        Self {
            count,
            half_bits: bits.div_ceil(2).max(1),
            keys: [(); 4].map(|()| rng.u64(..)),
        }
    }

    /// Where `position` goes.
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.count);
        let mask = (1_u64 << self.half_bits) - 1;
        let mut value = position;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                let mixed = (right ^ key).wrapping_mul(0xff51_afd7_ed55_8ccd);
                (left, right) = (right, left ^ ((mixed ^ (mixed >> 33)) & mask));
            }
            value = left << self.half_bits | right;
            // A permutation of the larger range: the walk comes back inside, after fewer
            // than four steps on average.
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(distribution: Distribution, count: u64, draws: u64) -> Vec<f64> {
        let sampler = Sampler::new(distribution, count, 7);
        let mut rng = Rng::with_seed(11);
        let mut hits = vec![0_u64; count as usize];
        for _ in 0..draws {
            hits[sampler.draw(&mut rng) as usize] += 1;
        }
        let mut shares: Vec<f64> = hits.iter().map(|&h| h as f64 / draws as f64).collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        shares
    }

    #[test]
    fn zipf_follows_theory() {
        for exponent in [0.5, 0.99, 1.0, 1.2, 2.0] {
            let (count, draws) = (1000, 1_000_000);
            let shares = frequencies(Distribution::Zipf(exponent), count, draws);
            let norm: f64 = (1..=count).map(|k| (k as f64).powf(-exponent)).sum();
            for rank in [1_u64, 2, 3, 10, 30] {
                let expected = (rank as f64).powf(-exponent) / norm;
                // Six standard deviations, and a little for sorting by observed count.
                let slack = 6.0 * (expected / draws as f64).sqrt() + expected * 0.03;
                let seen = shares[rank as usize - 1];
                assert!(
                    (seen - expected).abs() < slack,
                    "{exponent} {rank}: {seen} {expected}"
                );
            }
            let head: f64 = shares[..100].iter().sum();
            let expected: f64 = (1..=100).map(|k| (k as f64).powf(-exponent)).sum::<f64>() / norm;
            assert!(
                (head - expected).abs() < 0.01,
                "{exponent}: {head} {expected}"
            );
        }
    }

    #[test]
    fn zipf_zero_is_uniform_and_one_key_works() {
        let shares = frequencies(Distribution::Zipf(0.0), 100, 200_000);
        assert!(shares[0] < 0.012 && shares[99] > 0.008);
        assert_eq!(frequencies(Distribution::Zipf(0.99), 1, 100), [1.0]);
    }

    #[test]
    fn hot_fraction_gets_its_share() {
        let shares = frequencies(
            Distribution::Hot {
                keys: 0.1,
                share: 0.9,
            },
            1000,
            500_000,
        );
        let head: f64 = shares[..100].iter().sum();
        assert!((head - 0.9).abs() < 0.005, "{head}");
        assert!(shares[999] > 0.0);
    }

    #[test]
    fn uniform_reaches_every_key() {
        let shares = frequencies(Distribution::Uniform, 100, 100_000);
        assert!(shares[0] < 0.0125 && shares[99] > 0.0075);
    }

    #[test]
    fn permutations_are_permutations() {
        for count in [1, 2, 3, 5, 64, 65, 1000, 4097] {
            let permutation = Permutation::new(count, 3);
            let mut seen = vec![false; count as usize];
            for position in 0..count {
                seen[permutation.at(position) as usize] = true;
            }
            assert!(seen.into_iter().all(|s| s), "{count}");
        }
    }

    #[test]
    fn names_parse_and_print() {
        for text in ["uniform", "zipf:0.99", "hot:0.1:0.9"] {
            assert_eq!(
                text.parse::<Distribution>().map(String::from),
                Ok(text.to_owned())
            );
        }
        for text in [
            "", "zipf", "zipf:-1", "zipf:x", "zipf:nan", "hot:0:1", "hot:1:2", "hot:.1",
        ] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }
}
