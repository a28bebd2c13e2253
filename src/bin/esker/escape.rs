//! Keys are bytes; terminals want text. Printable ASCII stays, the rest becomes `\xNN`.

/// The key as one line of printable ASCII, unambiguous: a backslash becomes `\\`.
pub fn escape(key: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(byte as char),
            // Writing to a string cannot fail.
            _ => drop(write!(text, "\\x{byte:02x}")),
        }
    }
    text
}

/// The bytes an escaped key stands for.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut key = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'\\') => key.push(b'\\'),
            Some(b'x') => {
                let digit = |b: Option<u8>| b.and_then(|b| (b as char).to_digit(16));
                match (digit(bytes.next()), digit(bytes.next())) {
                    (Some(high), Some(low)) => key.push((high * 16 + low) as u8),
                    _ => return Err("`\\x` needs two hexadecimal digits".into()),
                }
            }
            _ => return Err("a backslash must be followed by `\\` or `xNN`".into()),
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_round_trip() {
        let key: Vec<u8> = (0..=255).collect();
        let text = escape(&key);
        assert!(text.is_ascii());
        assert!(!text.contains('\n'));
        assert_eq!(unescape(&text), Ok(key));
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in ["\\", "\\n", "\\x", "\\x1", "\\xg0"] {
            assert!(unescape(text).is_err(), "{text}");
        }
    }
}
