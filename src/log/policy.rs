//! The cleaning policy: which class a record belongs to, which segment to clean, and how
//! many segments to hold back. Pure arithmetic: no I/O, no locks, no state of its own.
//!
//! Time is the number of log bytes accepted from users since the store was made, never the
//! wall clock: an idle store does not age. One unit of "interval" is the time in which as
//! many bytes are written as are live, *one overwrite of everything*.
//!
//! Each index entry carries a 3-bit rewrite-interval exponent. Exponent [`CENTER`] says
//! "rewritten once per overwrite of everything"; each step is a factor of 2^(5/4). It
//! selects the head the record is written to, so that a segment holds records that die at
//! about the same time. `design/cleaning.md` has the arithmetic and the simulated write
//! amplification.

use std::time::Duration;

/// Rewrite-interval classes, one head segment each.
pub(crate) const CLASSES: usize = 8;

/// The exponent of a record rewritten once per overwrite of everything.
///
/// Five classes below catch the hot end: of a Zipf 0.99 over 2^18 keys, a quarter of the
/// writes goes to keys rewritten 16 times and more often. Two above catch the cold end,
/// whose coldest key is rewritten every 2^3.5 overwrites of everything.
pub(crate) const CENTER: u8 = 5;

/// log2 of the interval between neighbouring classes, as a fraction: 5/4 octaves.
///
/// Octaves leave the hottest class too wide, 3/2 octaves sort the warm ones too coarsely:
/// on Zipf 0.99 at u = 0.8 they cost 0.014 and 0.004 of write amplification.
const CLASS_OCTAVES: (i32, i32) = (5, 4);

/// The largest exponent.
pub(crate) const EXPONENT_MAX: u8 = CLASSES as u8 - 1;

/// Fractional bits of [`log2_fixed`].
const FRACTION_BITS: u32 = 8;

/// How far an exponent moves towards the interval just seen: 1 / 2^2.
///
/// The logarithm of one exponential interval has a standard deviation of 1.5 classes, so
/// the last interval alone sorts badly; an eighth is lost in the noise of rounding to
/// 3 bits.
const GAIN_SHIFT: u32 = 2;

/// log2 of a positive number with [`FRACTION_BITS`] fractional bits, the mantissa taken
/// linearly: at most 0.09 below the true value, which is a tenth of a class.
fn log2_fixed(value: u64) -> i32 {
    let value = value.max(1);
    let whole = 63 - value.leading_zeros();
    let mantissa = if whole >= FRACTION_BITS {
        value >> (whole - FRACTION_BITS)
    } else {
        value << (FRACTION_BITS - whole)
    };
    ((whole << FRACTION_BITS) + (mantissa as u32 - (1 << FRACTION_BITS))) as i32
}

/// The exponent that `interval` stands for, in fixed point and not clamped.
fn exponent_fixed(interval: u64, live_bytes: u64) -> i32 {
    let octaves = log2_fixed(interval) - log2_fixed(live_bytes);
    octaves * CLASS_OCTAVES.1 / CLASS_OCTAVES.0 + (i32::from(CENTER) << FRACTION_BITS)
}

/// The exponent of a record that overwrites one of exponent `current`.
///
/// `interval` is now minus the mean write time of the segment the old record sat in,
/// `live_bytes` what the whole store holds. The exponent moves a quarter of the way;
/// `random`, 32 uniform bits, decides the rounding, so that small differences add up over
/// many overwrites although only 3 bits are kept.
pub(crate) fn next_exponent(current: u8, interval: u64, live_bytes: u64, random: u32) -> u8 {
    let current = i32::from(current.min(EXPONENT_MAX)) << FRACTION_BITS;
    let limit = i32::from(EXPONENT_MAX) << FRACTION_BITS;
    let seen = exponent_fixed(interval, live_bytes).clamp(0, limit);
    // Rounded at GAIN_SHIFT more bits, so that the gain itself loses nothing.
    let target = (current << GAIN_SHIFT) + (seen - current);
    let bits = FRACTION_BITS + GAIN_SHIFT;
    let dither = (random >> (32 - bits)) as i32;
    ((target + dither) >> bits) as u8
}

/// The exponent of a key not seen before: once per overwrite of everything.
///
/// It is the exact mean when all keys are alike; a colder key moves up each time it
/// survives, a hotter one down each time it is overwritten.
pub(crate) fn first_exponent() -> u8 {
    CENTER
}

/// The exponent of a record the cleaner found live at `age`, now minus the mean write time
/// of the segment it sits in. A record older than its class rewrites moves one class up.
pub(crate) fn survivor_exponent(current: u8, age: u64, live_bytes: u64) -> u8 {
    let half = 1 << (FRACTION_BITS - 1);
    let bound = (i32::from(current) << FRACTION_BITS) + half;
    if current < EXPONENT_MAX && exponent_fixed(age, live_bytes) > bound {
        current + 1
    } else {
        current.min(EXPONENT_MAX)
    }
}

/// The head a record of `exponent` is written to, from 0 (hottest) to [`CLASSES`] - 1.
pub(crate) fn head_class(exponent: u8) -> usize {
    usize::from(exponent.min(EXPONENT_MAX))
}

/// Bytes of callers' records in a commit from which on they are spread over class heads.
///
/// In one stream a Zipf 0.99 costs 0.44 of the bytes written. Seven more frames cost 320 B
/// each, headers and padding, and writes that the device does beside one another.
const SPREAD_BYTES: u64 = 32 << 10;

/// Whether committed writes go to the heads of their classes, when commits have lately had
/// so many bytes of them; else they go to one stream.
pub(crate) fn spreads_commits(commit_bytes: u64) -> bool {
    commit_bytes >= SPREAD_BYTES
}

/// Free segments at and below which a full class head does not get a new one at once.
const SHORT_SEGMENTS: u64 = 1;

/// What to do with a survivor whose head is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SurvivorRoom {
    /// Open a segment for its class.
    Open,
    /// End the group early, which brings victims out of limbo, and ask again.
    Commit,
    /// Write it to the nearest class whose head has room; open one only if none has.
    Nearest,
}

/// How to find room for a survivor whose head is full.
///
/// The class is a hint, space is not: survivors may share a head when nothing else is
/// left, so no free segment has to be held back for each class. But mixing them is costly
/// (Zipf 0.99 at u = 0.9: 3.5 instead of 2.9), a group ended early is not (half a block
/// and a frame header for each head it touched).
pub(crate) fn survivor_room(free_segments: u64, limbo_segments: u64) -> SurvivorRoom {
    if free_segments > SHORT_SEGMENTS {
        SurvivorRoom::Open
    } else if limbo_segments > 0 {
        SurvivorRoom::Commit
    } else {
        SurvivorRoom::Nearest
    }
}

/// The running mean of the write times of what a segment holds: 16 bytes a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WriteTime {
    mean: u64,
    bytes: u64,
}

impl WriteTime {
    /// Counts a record of `bytes` first written at `time`: now for a user's record, the
    /// victim's mean for a survivor.
    pub(crate) fn add(&mut self, time: u64, bytes: u64) {
        self.bytes += bytes;
        if self.bytes == 0 {
            return;
        }
        // As a signed step from the old mean, so that nothing overflows at any clock.
        let step =
            (i128::from(time) - i128::from(self.mean)) * i128::from(bytes) / i128::from(self.bytes);
        self.mean = self.mean.wrapping_add_signed(step as i64);
    }

    /// The mean write time; 0 for an empty segment.
    pub(crate) fn mean(self) -> u64 {
        self.mean
    }
}

/// A sealed segment that may be cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Segment number.
    pub(crate) segment: u32,
    /// Bytes of live records in it.
    pub(crate) live_bytes: u64,
    /// Time since it was sealed.
    pub(crate) age: u64,
}

/// How much a segment deserves to be cleaned: `(1 - u) / u * age`, `u` the live share.
///
/// `(1 - u) / u` is space gained over bytes copied. Age, counted since the segment was
/// *sealed*, stands for how slowly what is left will die: of two segments with the same
/// live share, the older one loses less by being cleaned now. An empty segment is free
/// to take and comes first; a full one gains nothing and scores 0.
pub(crate) fn score(live_bytes: u64, segment_bytes: u64, age: u64) -> f64 {
    if live_bytes == 0 {
        return f64::INFINITY;
    }
    let dead = segment_bytes.saturating_sub(live_bytes) as f64;
    dead / live_bytes as f64 * (age as f64 + 1.0)
}

/// The candidates to clean next, best first, at most `most` of them; none of those that
/// would give no space back.
///
/// A linear scan: a store has 512 to about 8,192 segments, so this is some 10 us for a few
/// victims of 256 KiB or more, and needs no structure that has to follow every overwrite.
pub(crate) fn select_victims(
    candidates: impl IntoIterator<Item = Candidate>,
    segment_bytes: u64,
    most: usize,
) -> Vec<Candidate> {
    let mut best: Vec<(f64, Candidate)> = Vec::with_capacity(most + 1);
    let mut bound = 0.0;
    for candidate in candidates {
        let score = score(candidate.live_bytes, segment_bytes, candidate.age);
        if score > bound {
            let place = best.partition_point(|(other, _)| *other >= score);
            best.insert(place, (score, candidate));
            best.truncate(most);
            if let Some((worst, _)) = best.get(most - 1) {
                bound = *worst;
            }
        }
    }
    best.into_iter().map(|(_, candidate)| candidate).collect()
}

/// A commit that takes longer by this holds one more segment back.
const COMMIT_STEP: Duration = Duration::from_micros(150);
/// Most segments held back because commits are slow, and the share of the store's spare
/// segments they may be: 8 segments of 5,000 cost 0.6% on uniform, of which the larger groups
/// give half back.
const SLACK_MAX: u64 = 8;
const SLACK_SHARE: u64 = 96;

/// Segments held back besides the reserve while commits take `commit`: what the cleaner
/// fills while victims wait for two commits. With a fast device it is none.
pub(crate) fn slack_segments(commit: Duration, spare_segments: u64) -> u64 {
    let steps = commit.as_nanos() / COMMIT_STEP.as_nanos();
    u64::try_from(steps)
        .unwrap_or(SLACK_MAX)
        .min(SLACK_MAX)
        .min(spare_segments / SLACK_SHARE)
}

/// Free segments, those in limbo included, below which the cleaner works.
///
/// Four above the reserve. More costs write amplification at once (4 segments of 5,000 are
/// 0.3% on uniform); what a large group would consume while victims wait in limbo is found
/// by ending the group early ([`survivor_room`]).
pub(crate) fn cleaning_threshold_segments(reserve_segments: u64) -> u64 {
    reserve_segments + 4
}
