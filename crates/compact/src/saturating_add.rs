//! The saturating counter: a merge operator that stops at the ends of the range instead of failing.
//!
//! Each operand moves the value, and the value stops at either end, operand by operand. So the order of the
//! operands matters, and several operands are not equal to their sum: after an end was reached, later
//! operands count from there. A combination of operands is therefore a shift and the bounds that the result
//! is clamped to; such shifts are closed under combination. A combined operand has 32 bytes, all
//! little-endian: the shift (i128), the least and the greatest result (i64 each).

use crate::builtin::eight_bytes;
use crate::operator::MergeOperator;

/// Adds signed 64-bit numbers, and stops at the least and the greatest one. A missing base counts as 0.
///
/// [`I64Add`](crate::I64Add) makes an overflow an error instead.
#[derive(Clone, Copy, Debug)]
pub struct I64AddSaturating;

/// Bytes of a combined operand.
const COMBINED_BYTES: usize = 32;

/// A larger shift moves every value to the same end.
const SHIFT_MAX: i128 = 1 << 64;

/// The effect of one or more operands on a value: it is shifted, then clamped.
#[derive(Clone, Copy, Debug)]
struct ClampedShift {
    shift: i128,
    least: i64,
    greatest: i64,
}

impl ClampedShift {
    /// Decodes an operand: a number, or a combined operand.
    fn decode(operand: &[u8]) -> Option<Self> {
        if let Ok(number) = operand.try_into() {
            let shift = i128::from(i64::from_le_bytes(number));
            return Some(Self { shift, least: i64::MIN, greatest: i64::MAX });
        }
        if operand.len() != COMBINED_BYTES {
            return None;
        }
        let (shift, rest) = operand.split_first_chunk::<16>()?;
        let (least, rest) = rest.split_first_chunk::<8>()?;
        let decoded = Self {
            shift: i128::from_le_bytes(*shift),
            least: i64::from_le_bytes(*least),
            greatest: i64::from_le_bytes(rest.try_into().ok()?),
        };
        let is_valid = decoded.least <= decoded.greatest
            && decoded.shift.unsigned_abs() <= SHIFT_MAX.unsigned_abs();
        is_valid.then_some(decoded)
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = self.shift.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.least.to_le_bytes());
        bytes.extend_from_slice(&self.greatest.to_le_bytes());
        bytes
    }

    /// The value that this makes of `value`.
    fn apply(self, value: i64) -> i64 {
        let shifted = i128::from(value).saturating_add(self.shift);
        // The clamped number is between two signed 64-bit numbers, so the conversion cannot fail.
        let clamped = shifted.clamp(i128::from(self.least), i128::from(self.greatest));
        i64::try_from(clamped).unwrap_or(self.greatest)
    }

    /// The effect of this, and then of `next`.
    fn then(self, next: Self) -> Self {
        Self {
            shift: self.shift.saturating_add(next.shift).clamp(-SHIFT_MAX, SHIFT_MAX),
            least: next.apply(self.least),
            greatest: next.apply(self.greatest),
        }
    }
}

impl I64AddSaturating {
    /// The operator's stored name.
    pub const NAME: &'static str = "terrace.i64-add-saturating.1";
}

impl MergeOperator for I64AddSaturating {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let mut value = match base {
            Some(base) => i64::from_le_bytes(base.try_into().ok()?),
            None => 0,
        };
        for operand in operands {
            value = ClampedShift::decode(operand)?.apply(value);
        }
        Some(value.to_le_bytes().into())
    }

    fn combine(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let mut combined: Option<ClampedShift> = None;
        for operand in operands {
            let next = ClampedShift::decode(operand)?;
            combined = Some(combined.map_or(next, |before| before.then(next)));
        }
        combined.map(ClampedShift::encode)
    }

    fn validate(&self, operand: &[u8]) -> Result<(), String> {
        eight_bytes(operand)
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    /// Adds one by one, as the operator promises.
    fn model(base: i64, operands: &[i64]) -> i64 {
        operands.iter().fold(base, |value, operand| value.saturating_add(*operand))
    }

    fn number(rng: &mut Rng) -> i64 {
        match rng.below(4) {
            0 => i64::MAX - rng.below(3) as i64,
            1 => i64::MIN + rng.below(3) as i64,
            2 => rng.below(7) as i64 - 3,
            _ => rng.next_u64() as i64,
        }
    }

    #[test]
    fn any_grouping_of_operands_gives_the_sum_that_stops_at_the_ends() {
        let (mut rng, seed) = Rng::from_env();
        for _ in 0..20_000 {
            let base = number(&mut rng);
            let numbers: Vec<_> = (0..1 + rng.below(6)).map(|_| number(&mut rng)).collect();
            let mut operands: Vec<Vec<u8>> =
                numbers.iter().map(|number| number.to_le_bytes().to_vec()).collect();
            for _ in 0..rng.below(4) {
                let from = rng.below(operands.len() as u64) as usize;
                let to = from + 1 + rng.below((operands.len() - from) as u64) as usize;
                let group: Vec<&[u8]> = operands[from..to].iter().map(|it| &**it).collect();
                let combined = I64AddSaturating.combine(b"k", &group).unwrap();
                operands.splice(from..to, [combined]);
            }
            let list: Vec<&[u8]> = operands.iter().map(|it| &**it).collect();
            let merged = I64AddSaturating.merge(b"k", Some(&base.to_le_bytes()), &list);
            assert_eq!(
                merged.unwrap(),
                model(base, &numbers).to_le_bytes(),
                "seed {seed}: {base} {numbers:?}"
            );
        }
    }

    #[test]
    fn malformed_operands_are_refused() {
        let one = 1i64.to_le_bytes();
        assert_eq!(I64AddSaturating.merge(b"k", None, &[&one]), Some(one.to_vec()));
        assert_eq!(I64AddSaturating.merge(b"k", Some(b"text"), &[&one]), None);
        assert_eq!(I64AddSaturating.merge(b"k", None, &[b"xyz"]), None);
        let mut reversed = ClampedShift { shift: 0, least: 1, greatest: 0 }.encode();
        assert_eq!(I64AddSaturating.merge(b"k", None, &[&reversed]), None);
        reversed[..16].copy_from_slice(&i128::MIN.to_le_bytes());
        assert_eq!(I64AddSaturating.combine(b"k", &[&reversed]), None);
        assert!(I64AddSaturating.validate(&one).is_ok());
        assert!(I64AddSaturating.validate(&reversed).is_err());
    }
}
