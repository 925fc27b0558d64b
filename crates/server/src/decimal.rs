//! [`Extended`]: floats as INCRBYFLOAT and HINCRBYFLOAT of Redis reckon: 64 bits of precision, as the `long
//! double` of x86-64, and texts with 17 digits behind the point. So 0.1 + 0.2 is 0.3.
//!
//! Cost: big integers of at most some 40,000 bits, because texts are at most 5,119 bytes.

use num_bigint::{BigInt, BigUint, Sign};

use crate::collection::score;
use crate::reply::Fail;

/// The longest text that is read, bytes.
const TEXT_BYTES_MAX: usize = 5 << 10;
/// The greatest exponent of two of a finite number of 64 bits.
const POWER_MAX: i64 = 16_384 - 64;
/// The least exponent of a number that is not zero.
const POWER_MIN: i64 = -16_445 - 64;

/// A float with 64 bits of precision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    Infinite,
    /// The number times a power of two.
    Finite(BigInt, i64),
}

/// The float of an argument.
///
/// # Errors
/// If it is none.
pub(crate) fn argument(arg: &[u8]) -> Result<Extended, Fail> {
    parse(arg).ok_or_else(|| Fail::new("ERR value is not a valid float"))
}

/// That a sum is not finite.
pub(crate) fn not_finite() -> Fail {
    Fail::new("ERR increment would produce NaN or Infinity")
}

/// The float of a text.
pub(crate) fn parse(text: &[u8]) -> Option<Extended> {
    if text.len() >= TEXT_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        || digits.starts_with("0x")
        || digits.starts_with("0X")
    {
        // Infinity, hexadecimal, or no number.
        let value = score::parse(text.as_bytes())?;
        return Some(Extended::of(value));
    }
    let (digits, power) = match digits.split_once(['e', 'E']) {
        Some((digits, power)) => (digits, power.parse::<i64>().ok()?),
        None => (digits, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, part].concat();
    if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: BigUint = all.parse().ok()?;
    let power = power.checked_sub(i64::try_from(part.len()).ok()?)?;
    let sign = if is_negative { Sign::Minus } else { Sign::Plus };
    if number == BigUint::ZERO {
        return Some(Extended::Finite(BigInt::ZERO, 0));
    }
    // Beyond these the number is infinite, or zero.
    if !(-11_000..=6_000).contains(&power) {
        return None;
    }
    let ten = BigUint::from(10_u8).pow(u32::try_from(power.unsigned_abs()).ok()?);
    let parsed = match power >= 0 {
        true => rounded(&BigInt::from_biguint(sign, number * ten), 0, false),
        false => {
            // Enough bits of the quotient that its rounding is exact.
            let shift = 70 + i64::try_from(ten.bits()).ok()? - i64::try_from(number.bits()).ok()?;
            let shift = shift.max(0);
            let number = number << u64::try_from(shift).ok()?;
            let (quotient, rest) = (&number / &ten, &number % &ten);
            rounded(&BigInt::from_biguint(sign, quotient), -shift, rest != BigUint::ZERO)
        }
    };
    let is_out_of_range = match &parsed {
        Extended::Infinite => true,
        Extended::Finite(number, _) => *number == BigInt::ZERO,
    };
    (!is_out_of_range).then_some(parsed)
}

/// `number` times two to the `power`, and a little more if `has_rest`, in 64 bits, half to even.
fn rounded(number: &BigInt, power: i64, has_rest: bool) -> Extended {
    let magnitude = number.magnitude();
    let excess = i64::try_from(magnitude.bits()).unwrap_or(i64::MAX).saturating_sub(64).max(0);
    let shift = excess.cast_unsigned();
    let mut kept = magnitude >> shift;
    if excess > 0 {
        let cut = magnitude - (&kept << shift);
        let half = BigUint::from(1_u8) << (shift - 1);
        let is_up = match cut.cmp(&half) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => has_rest || kept.bit(0),
        };
        kept += u8::from(is_up);
    }
    let power = power + excess;
    let bits = i64::try_from(kept.bits()).unwrap_or(i64::MAX);
    if bits > 0 && power + bits - 64 > POWER_MAX {
        return Extended::Infinite;
    }
    if power < POWER_MIN {
        return Extended::Finite(BigInt::ZERO, 0);
    }
    Extended::Finite(BigInt::from_biguint(number.sign(), kept), power)
}

impl Extended {
    fn of(value: f64) -> Self {
        if value.is_infinite() {
            return Self::Infinite;
        }
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff).cast_signed();
        let fraction = bits & ((1 << 52) - 1);
        let (number, power) = match exponent {
            0 => (fraction, -1074),
            exponent => (fraction | 1 << 52, exponent - 1075),
        };
        let sign = if value < 0.0 { Sign::Minus } else { Sign::Plus };
        Self::Finite(BigInt::from_biguint(sign, number.into()), power)
    }

    pub(crate) fn is_infinite(&self) -> bool {
        *self == Self::Infinite
    }

    /// The sum; `None` if a part is infinite.
    pub(crate) fn add(self, other: Self) -> Option<Self> {
        let (Self::Finite(a, a_power), Self::Finite(b, b_power)) = (self, other) else {
            return None;
        };
        let power = a_power.min(b_power);
        let shifted = |number: BigInt, by: i64| number << by.cast_unsigned();
        let sum = shifted(a, a_power - power) + shifted(b, b_power - power);
        Some(rounded(&sum, power, false))
    }

    /// The text: at most 17 digits behind the point, no exponent, no trailing zeros.
    pub(crate) fn text(&self) -> String {
        let Self::Finite(number, power) = self else { return "inf".to_owned() };
        let scaled = number.magnitude() * BigUint::from(10_u8).pow(17);
        let scaled = match *power >= 0 {
            true => scaled << power.cast_unsigned(),
            false => {
                let shift = power.unsigned_abs();
                let kept = &scaled >> shift;
                let cut = &scaled - (&kept << shift);
                let half = BigUint::from(1_u8) << (shift - 1);
                let is_up = cut > half || cut == half && kept.bit(0);
                kept + u8::from(is_up)
            }
        };
        let digits = format!("{scaled:0>18}");
        let (whole, part) = digits.split_at(digits.len() - 17);
        let text = format!("{whole}.{part}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        match number.sign() == Sign::Minus && text != "0" {
            true => format!("-{text}"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The replies of redis-server 7.0.15 on x86-64.
    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("1", "0.25", "1.25"),
            ("3", "-1.1", "1.9"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("17179869184", "1.5", "17179869185.5"),
            ("1.23", "-1.23", "0"),
            ("-0", "0", "0"),
            ("1e-20", "0", "0"),
            ("0.00000000000000001", "0", "0.00000000000000001"),
            ("1e19", "1", "10000000000000000001"),
            ("1e20", "1", "100000000000000000000"),
        ] {
            let sum = parse(a.as_bytes()).unwrap().add(parse(b.as_bytes()).unwrap()).unwrap();
            assert_eq!(sum.text(), expected, "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", "abc", " 1", "1 ", "1.2.3", "--1", "e5", ".", "1e", "nan", "1e5000", "1e-9000"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(&[b'1'; TEXT_BYTES_MAX]), None);
        assert!(parse(b"inf").unwrap().is_infinite());
        let most = parse(b"1.18e4932").unwrap();
        assert!(most.clone().add(most).unwrap().is_infinite());
    }
}
