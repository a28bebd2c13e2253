//! Sizes and counts as people write them: `4K`, `1GiB`, `2^18`; and back.

/// Parses a size in bytes: digits, then K, M, G, T with or without `iB` (1024-based) or
/// `KB`, `MB`, `GB`, `TB` (1000-based); a fraction such as `1.5G` is allowed.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let factor = match suffix.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1_u64 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => {
            return Err(format!(
                "unknown size suffix `{other}`; use K, M, G, T or KB, MB .."
            ));
        }
    };
    scale(number, factor)
}

/// Parses a count: plain digits, `2^18`, or digits with k, M, G (1000-based).
pub fn parse_count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if let Some((base, exponent)) = text.split_once('^') {
        let base: u64 = base
            .parse()
            .map_err(|_| format!("`{text}` is not a count"))?;
        let exponent: u32 = exponent
            .parse()
            .map_err(|_| format!("`{text}` is not a count"))?;
        return base
            .checked_pow(exponent)
            .ok_or_else(|| format!("`{text}` is too large"));
    }
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let factor = match suffix.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        other => {
            return Err(format!(
                "unknown count suffix `{other}`; use k, M, G or 2^18"
            ));
        }
    };
    scale(number, factor)
}

fn scale(number: &str, factor: u64) -> Result<u64, String> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(factor)
            .ok_or_else(|| format!("`{number}` is too large"));
    }
    let value: f64 = number
        .parse()
        .map_err(|_| "expected a number such as 4096 or 4K".to_owned())?;
    let scaled = value * factor as f64;
    if scaled >= u64::MAX as f64 {
        return Err(format!("`{number}` is too large"));
    }
    if scaled.fract() != 0.0 && factor == 1 {
        return Err(format!("`{number}` is not a whole number"));
    }
    Ok(scaled as u64)
}

/// A size with a 1024-based unit, three figures or so: `1.25 GiB`.
pub fn format_size(bytes: u64) -> String {
    format_size_f64(bytes as f64)
}

/// As [`format_size`], for rates and quotients.
pub fn format_size_f64(bytes: f64) -> String {
    let mut value = bytes;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{value:.0} B")
    } else if value < 10.0 {
        format!("{value:.2} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// A count with thousands separated by commas.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_with_every_suffix() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4K", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4KB", 4000),
            ("1.5M", 3 << 19),
            ("1G", 1 << 30),
            ("1GiB", 1 << 30),
            ("16 TiB", 16 << 40),
            ("7b", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for text in [
            "",
            "K",
            "-1",
            "4X",
            "1.5",
            "99999999T",
            "1e9",
            "0x10",
            "1 2",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_parse() {
        assert_eq!(parse_count("2^18"), Ok(1 << 18));
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000));
        assert!(parse_count("2^64").is_err());
        assert!(parse_count("many").is_err());
    }

    #[test]
    fn sizes_format() {
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_size(1536), "1.50 KiB");
        assert_eq!(format_size(64 << 20), "64.0 MiB");
        assert_eq!(format_count(1_234_567), "1,234,567");
        assert_eq!(format_count(999), "999");
    }
}
