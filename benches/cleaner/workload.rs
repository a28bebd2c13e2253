//! Key choosers: uniform, true Zipf (alias table), hot set, moving hot set; and the rates
//! they draw with, for the limit. Seeded, so that a run repeats exactly.

/// SplitMix64: 64 good bits a step and no dependency.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What is overwritten how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    Uniform,
    /// Rank i drawn with probability proportional to i^-alpha.
    Zipf(f64),
    /// This share of the keys gets this share of the writes.
    Hot(f64, f64),
    /// As `Hot`, the set moving by a twentieth of the keys every overwrite.
    Moving(f64, f64),
}

impl Load {
    pub fn name(self) -> String {
        match self {
            Self::Uniform => "uniform".into(),
            Self::Zipf(alpha) => format!("zipf {alpha}"),
            Self::Hot(keys, writes) => format!("hot {keys}:{writes}"),
            Self::Moving(keys, writes) => format!("moving {keys}:{writes}"),
        }
    }

    /// Groups of equal rate as (share of writes, share of data); Zipf in eighth octaves.
    pub fn groups(self, keys: usize) -> Vec<(f64, f64)> {
        match self {
            Self::Uniform => vec![(1.0, 1.0)],
            Self::Hot(k, w) | Self::Moving(k, w) => vec![(w, k), (1.0 - w, 1.0 - k)],
            Self::Zipf(alpha) => {
                let mut groups: Vec<(f64, f64)> = Vec::new();
                for rank in 1..=keys {
                    let group = ((rank as f64).log2() * 8.0) as usize;
                    groups.resize(groups.len().max(group + 1), (0.0, 0.0));
                    groups[group].0 += (rank as f64).powf(-alpha);
                    groups[group].1 += 1.0 / keys as f64;
                }
                let total: f64 = groups.iter().map(|g| g.0).sum();
                groups.retain(|g| g.1 > 0.0);
                groups.iter().map(|g| (g.0 / total, g.1)).collect()
            }
        }
    }
}

/// Draws keys of a load.
pub struct Chooser {
    load: Load,
    keys: u64,
    drawn: u64,
    /// Walker's alias table: acceptance probability and the other outcome.
    alias: Vec<(f64, u32)>,
    /// Rank to key, shuffled, so that ranks and load order are unrelated.
    order: Vec<u32>,
}

impl Chooser {
    pub fn new(load: Load, keys: usize, random: &mut Random) -> Self {
        let mut order: Vec<u32> = (0..keys as u32).collect();
        for i in (1..keys).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let alias = match load {
            Load::Zipf(alpha) => alias_table(keys, alpha),
            _ => Vec::new(),
        };
        Self {
            load,
            keys: keys as u64,
            drawn: 0,
            alias,
            order,
        }
    }

    pub fn draw(&mut self, random: &mut Random) -> usize {
        self.drawn += 1;
        let rank = match self.load {
            Load::Uniform => random.below(self.keys),
            Load::Zipf(_) => {
                let rank = random.below(self.keys);
                let (accept, other) = self.alias[rank as usize];
                if random.unit() < accept {
                    rank
                } else {
                    u64::from(other)
                }
            }
            Load::Hot(keys, writes) => self.hot(keys, writes, random),
            Load::Moving(keys, writes) => {
                let moves = self.drawn / self.keys;
                (self.hot(keys, writes, random) + moves * (self.keys / 20)) % self.keys
            }
        };
        self.order[rank as usize] as usize
    }

    fn hot(&self, keys: f64, writes: f64, random: &mut Random) -> u64 {
        let hot = (keys * self.keys as f64) as u64;
        if random.unit() < writes {
            random.below(hot)
        } else {
            hot + random.below(self.keys - hot)
        }
    }
}

fn alias_table(keys: usize, alpha: f64) -> Vec<(f64, u32)> {
    let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-alpha)).collect();
    let scale = keys as f64 / weights.iter().sum::<f64>();
    let mut table: Vec<(f64, u32)> = weights.iter().map(|w| (w * scale, 0)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..keys).partition(|&i| table[i].0 < 1.0);
    while let (Some(&l), Some(s)) = (large.last(), small.pop()) {
        table[s].1 = l as u32;
        table[l].0 -= 1.0 - table[s].0;
        if table[l].0 < 1.0 {
            large.pop();
            small.push(l);
        }
    }
    // What is left is 1 up to rounding.
    for i in small.into_iter().chain(large) {
        table[i].0 = 1.0;
    }
    table
}
