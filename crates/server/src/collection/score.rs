//! Scores of sorted sets: their order as bytes, and their text as Redis reads and prints it.

use bytes::Bytes;

use crate::reply::Fail;

/// Bytes that sort as the scores do. Both zeros have the same.
pub(crate) fn order(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let sorted = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    sorted.to_be_bytes()
}

/// The score of the [`order`] `bytes`.
pub(crate) fn of_order(bytes: [u8; 8]) -> f64 {
    let sorted = u64::from_be_bytes(bytes);
    f64::from_bits(if sorted >> 63 == 1 { sorted & !(1 << 63) } else { !sorted })
}

/// The order directly above that of `score`.
pub(crate) fn order_after(score: f64) -> [u8; 8] {
    u64::from_be_bytes(order(score)).saturating_add(1).to_be_bytes()
}

/// The least place above those of all scores.
pub(crate) const END: [u8; 9] = [0xff; 9];

/// The payload of a score.
pub(crate) fn payload(score: f64) -> Bytes {
    // A negative zero would sort as another score than zero.
    Bytes::copy_from_slice(&(score + 0.0).to_bits().to_le_bytes())
}

/// The score of a payload.
pub(crate) fn score_of(payload: &[u8]) -> Result<f64, Fail> {
    let bytes: [u8; 8] =
        payload.try_into().map_err(|_| Fail::new("ERR the stored score is damaged"))?;
    Ok(f64::from_bits(u64::from_le_bytes(bytes)))
}

/// A number as `strtod` reads it, the whole argument: decimal, hexadecimal, `inf`, `infinity`; no NaN.
pub(crate) fn parse(arg: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(arg).ok()?;
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return hexadecimal(hex).map(|value| sign * value);
    }
    let value: f64 = digits.parse().ok()?;
    (!value.is_nan()).then_some(sign * value)
}

/// Hexadecimal digits, a point, an exponent of two.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, power) = match text.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + part.len() == 0 {
        return None;
    }
    let mut value = 0.0_f64;
    for digit in whole.chars().chain(part.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let shift = i32::try_from(part.len()).ok()?.checked_mul(-4)?;
    Some(value * 2.0_f64.powi(power.checked_add(shift)?))
}

/// As [`parse`], without numbers beyond the greatest and the least float; as `getDoubleFromObject` of Redis.
pub(crate) fn in_range(arg: &[u8]) -> Option<f64> {
    let value = parse(arg)?;
    let has = |range: std::ops::RangeInclusive<u8>| arg.iter().any(|byte| range.contains(byte));
    let is_beyond = match value {
        value if value.is_infinite() => has(b'0'..=b'9'),
        // Only the digits before an exponent make a number that is not zero.
        0.0 => {
            let is_hexadecimal = arg.iter().any(|byte| matches!(byte, b'x' | b'X'));
            let exponent: &[u8] = if is_hexadecimal { b"pP" } else { b"eE" };
            let mut digits = arg.iter().take_while(|byte| !exponent.contains(byte));
            digits.any(|byte| byte.is_ascii_hexdigit() && *byte != b'0')
        }
        _ => false,
    };
    (!is_beyond).then_some(value)
}

/// As [`in_range`].
///
/// # Errors
/// If the argument is no float.
pub(crate) fn float(arg: &[u8]) -> Result<f64, Fail> {
    in_range(arg).ok_or_else(|| Fail::new("ERR value is not a valid float"))
}

/// The text of C's `%.17g`.
pub(crate) fn text(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    let scientific = format!("{value:.16e}");
    let Some((digits, power)) = scientific.split_once('e') else { return scientific };
    let power: i32 = power.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !(-4..17).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(digits), power.unsigned_abs());
    }
    let decimals = usize::try_from(16 - power).unwrap_or(0);
    trim(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_sort_as_their_bytes() {
        let scores =
            [f64::NEG_INFINITY, -1e300, -1.5, -1e-300, 0.0, 1e-300, 1.5, 1e300, f64::INFINITY];
        for pair in scores.windows(2) {
            assert!(order(pair[0]) < order(pair[1]), "{pair:?}");
            assert!(order_after(pair[0]) <= order(pair[1]));
            assert_eq!(of_order(order(pair[0])).to_bits(), pair[0].to_bits());
        }
        assert_eq!(order(-0.0), order(0.0));
    }

    #[test]
    fn numbers_are_read_and_printed_as_c_does() {
        for (number, expected) in [
            (1.0, "1"),
            (3.1, "3.1000000000000001"),
            (-0.5, "-0.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1e300, "1.0000000000000001e+300"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(text(number), expected);
        }
        for (arg, expected) in [
            ("1.5", Some(1.5)),
            ("+inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("0x10", Some(16.0)),
            ("-0x1.8p1", Some(-3.0)),
            ("nan", None),
            ("", None),
            ("1 ", None),
            ("--1", None),
            ("0x", None),
        ] {
            assert_eq!(parse(arg.as_bytes()), expected, "{arg}");
            assert_eq!(in_range(arg.as_bytes()), expected, "{arg}");
        }
        for arg in ["1e400", "-1e400", "1e-400", "-0.001e-400", "0x1p-2000", "0x1p2000"] {
            assert_eq!(in_range(arg.as_bytes()), None, "{arg}");
        }
        for arg in ["0e5", "-0.0e-400", "0x0p-9", "0"] {
            assert_eq!(in_range(arg.as_bytes()), Some(0.0), "{arg}");
        }
        for arg in ["5e-324", "1.7e308"] {
            assert!(in_range(arg.as_bytes()).is_some(), "{arg}");
        }
    }
}
