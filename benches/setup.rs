//! What the criterion benches share: tiny or full, and numbers that look random.

use std::time::Duration;

use criterion::Criterion;

/// How large a bench is to be.
pub struct Setup {
    pub criterion: Criterion,
    pub tiny: bool,
}

impl Setup {
    /// Full under `cargo bench`; tiny, a second or two, with `-- --tiny` and under
    /// `cargo test`, which does not pass `--bench`.
    pub fn from_arguments() -> Self {
        let given = |name: &str| std::env::args().any(|argument| argument == name);
        let tiny = given("--tiny") || !given("--bench");
        let criterion = if tiny {
            Criterion::default()
                .sample_size(10)
                .nresamples(1000)
                .warm_up_time(Duration::from_millis(2))
                .measurement_time(Duration::from_millis(10))
        } else {
            Criterion::default().configure_from_args()
        };
        Self { criterion, tiny }
    }

    /// One of two sizes.
    pub fn pick<T>(&self, tiny: T, full: T) -> T {
        if self.tiny { tiny } else { full }
    }
}

/// Spreads the bits of a number (splitmix64).
pub fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
