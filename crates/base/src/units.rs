//! Sizes and counts as text for people, such as `1.5 GiB` and `2 entries`.

use std::fmt;

use crate::{Error, Result};

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Parses a size, in bytes: a number, alone or followed by `B`, a binary unit (`KiB`, `MiB`, `GiB`, `TiB`)
/// or a decimal unit (`KB`, `MB`, `GB`, `TB`). A fraction such as `1.5GiB` is allowed.
///
/// # Errors
/// `Invalid` for any other text, and for a size that does not fit in 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let trimmed = text.trim();
    let refused = || {
        Error::invalid("size")
            .expected("a number and a unit, as in 512MiB")
            .got(format_args!("`{text}`"))
    };
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((trimmed.strip_suffix(name)?, *unit)))
        .unwrap_or((trimmed, 1));
    let number = number.trim();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(refused);
    }
    let fraction: f64 = number.parse().map_err(|_| refused())?;
    let bytes = fraction * unit as f64;
    if (0.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err(refused()) }
}

/// Formats a size in the largest binary unit that is not greater than it, with one decimal.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let (name, unit) = match bytes {
        0..0x400 => return format!("{bytes} B"),
        0x400..0x10_0000 => ("KiB", 1u64 << 10),
        0x10_0000..0x4000_0000 => ("MiB", 1 << 20),
        0x4000_0000..0x100_0000_0000 => ("GiB", 1 << 30),
        _ => ("TiB", 1 << 40),
    };
    format!("{:.1} {name}", bytes as f64 / unit as f64)
}

/// Formats a count with its noun: `1 entry`, `2 entries`. `noun` is in the singular and has a regular
/// plural.
#[must_use]
pub fn format_count<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let vowels = ['a', 'e', 'i', 'o', 'u'];
    match noun.strip_suffix('y') {
        _ if count == 1.into() => format!("1 {noun}"),
        Some(stem) if !stem.ends_with(vowels) => format!("{count} {stem}ies"),
        _ if noun.ends_with("ch") => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_bytes_accepts_binary_decimal_and_fractional_sizes_only() {
        for (text, bytes) in [
            ("512MiB", 512 << 20),
            ("1.5 GiB", 3 << 29),
            ("4096", 4096),
            ("64 B", 64),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "MiB", "-1", "1XB", "99999999999 TiB", "nan", "inf GiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(format_bytes(512 << 20), "512.0 MiB");
    }

    #[test]
    fn format_count_uses_the_plural_for_all_counts_but_one() {
        for (count, noun, text) in [
            (0_u64, "table", "0 tables"),
            (1, "table", "1 table"),
            (2, "key", "2 keys"),
            (1, "entry", "1 entry"),
            (3, "entry", "3 entries"),
            (4, "batch", "4 batches"),
        ] {
            assert_eq!(format_count(count, noun), text);
        }
    }
}
