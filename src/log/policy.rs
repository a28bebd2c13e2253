//! Placeholder policy.
/// First.
pub(crate) fn first_exponent() -> u8 {
    4
}
/// Next.
pub(crate) fn next_exponent(current: u8, interval: u64, live_bytes: u64, random: u32) -> u8 {
    let target = ((interval.max(1) as f64 / live_bytes.max(1) as f64).log2() + 5.0).clamp(0.0, 7.0);
    let step = (target - f64::from(current)) / 4.0;
    let whole = step.floor();
    let up = f64::from(random >> 8) / f64::from(1 << 24) < step - whole;
    (f64::from(current) + whole + f64::from(u8::from(up))).clamp(0.0, 7.0) as u8
}
/// Survivor.
pub(crate) fn survivor_exponent(current: u8, age: u64, live_bytes: u64) -> u8 {
    let limit = live_bytes as f64 * 2f64.powi(i32::from(current) - 5);
    if age as f64 > limit {
        (current + 1).min(7)
    } else {
        current
    }
}
/// Score.
pub(crate) fn score(live: u64, segment_bytes: u64, age: u64) -> f64 {
    let u = live as f64 / segment_bytes as f64;
    (1.0 - u) / u.max(1e-6) * (age + 1) as f64
}
