//! Built-in merge operators: counter, maximum, minimum and append. The saturating counter is in
//! `saturating_add`.
//!
//! Values and operands of the number operators are eight bytes, little-endian; other lengths are refused when
//! they are written. All built-in operators combine, so after each flush or merge a key has at most one
//! operand, unless the sum of some operands is no signed 64-bit number.

use base::limits::VALUE_BYTES_MAX;

use crate::operator::MergeOperator;

/// Adds signed 64-bit numbers. A missing base counts as 0.
///
/// A sum that is no signed 64-bit number is an error of its key: reads of the key fail and name it, until
/// other operands bring the sum back into the range, or the key is put or deleted. The order of the operands
/// does not matter. [`I64AddSaturating`](crate::I64AddSaturating) stops at the ends of the range instead.
#[derive(Clone, Copy, Debug)]
pub struct I64Add;

/// Appends the operands to the base, which is empty if missing. Results longer than the value limit are
/// refused.
#[derive(Clone, Copy, Debug)]
pub struct Append;

/// Keeps the largest unsigned 64-bit number.
#[derive(Clone, Copy, Debug)]
pub struct U64Max;

/// Keeps the smallest unsigned 64-bit number.
#[derive(Clone, Copy, Debug)]
pub struct U64Min;

impl I64Add {
    /// The operator's stored name.
    pub const NAME: &'static str = "terrace.i64-add.1";
}

impl Append {
    /// The operator's stored name.
    pub const NAME: &'static str = "terrace.append.1";
}

impl U64Max {
    /// The operator's stored name.
    pub const NAME: &'static str = "terrace.u64-max.1";
}

impl U64Min {
    /// The operator's stored name.
    pub const NAME: &'static str = "terrace.u64-min.1";
}

impl MergeOperator for I64Add {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        // A sum of 2^20 operands of 64 bits, more than a read merges, is far from 128 bits.
        let number = |bytes| i128::from(i64::from_le_bytes(bytes));
        let sum = fold(base, operands, number, i128::saturating_add)?;
        i64::try_from(sum).ok().map(|sum| sum.to_le_bytes().into())
    }

    fn validate(&self, operand: &[u8]) -> Result<(), String> {
        eight_bytes(operand)
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands)
    }
}

impl MergeOperator for U64Max {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        fold(base, operands, u64::from_le_bytes, u64::max).map(|it| it.to_le_bytes().into())
    }

    fn validate(&self, operand: &[u8]) -> Result<(), String> {
        eight_bytes(operand)
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands)
    }
}

impl MergeOperator for U64Min {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        fold(base, operands, u64::from_le_bytes, u64::min).map(|it| it.to_le_bytes().into())
    }

    fn validate(&self, operand: &[u8]) -> Result<(), String> {
        eight_bytes(operand)
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands)
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let parts = || base.iter().chain(operands);
        let bytes = parts().map(|part| part.len()).sum::<usize>();
        (bytes <= VALUE_BYTES_MAX).then(|| parts().copied().collect::<Vec<_>>().concat())
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands)
    }
}

/// Refuses an operand that is no number.
pub(crate) fn eight_bytes(operand: &[u8]) -> Result<(), String> {
    if operand.len() == 8 {
        return Ok(());
    }
    Err("a number of eight bytes, little-endian".to_owned())
}

/// Folds base and operands with `with`. `None` if one is not eight bytes, or there are none.
fn fold<T>(
    base: Option<&[u8]>,
    operands: &[&[u8]],
    decode: impl Fn([u8; 8]) -> T,
    with: impl Fn(T, T) -> T,
) -> Option<T> {
    let mut result = None;
    for bytes in base.iter().chain(operands) {
        let next = decode((*bytes).try_into().ok()?);
        result = Some(match result {
            None => next,
            Some(before) => with(before, next),
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operator: &dyn MergeOperator, base: Option<&[u8]>, operands: &[&[u8]], want: &[u8]) {
        assert_eq!(operator.merge(b"k", base, operands).as_deref(), Some(want), "{operator:?}");
        // Combining any sub-sequence first gives the same result.
        for from in 0..operands.len() {
            for to in from + 1..=operands.len() {
                let combined = operator.combine(b"k", &operands[from..to]).unwrap();
                let mut fewer = operands.to_vec();
                fewer.splice(from..to, [combined.as_slice()]);
                assert_eq!(operator.merge(b"k", base, &fewer).as_deref(), Some(want));
            }
        }
    }

    #[test]
    fn number_operators_add_and_compare() {
        let [one, two, minus] = [1i64, 2, -9].map(i64::to_le_bytes);
        check(&I64Add, None, &[&one, &two, &minus], &(-6i64).to_le_bytes());
        check(&I64Add, Some(&one), &[&two], &3i64.to_le_bytes());
        let most = i64::MAX.to_le_bytes();
        // An overflow is refused; operands that bring the sum back make it readable again, in any grouping.
        assert_eq!(I64Add.merge(b"k", Some(&most), &[&one]), None);
        assert_eq!(I64Add.combine(b"k", &[&most, &one]), None);
        let back = I64Add.merge(b"k", Some(&most), &[&one, &minus]);
        assert_eq!(back, Some((i64::MAX - 8).to_le_bytes().to_vec()));
        let [a, b, c] = [7u64, u64::MAX, 300].map(u64::to_le_bytes);
        check(&U64Max, Some(&a), &[&b, &c], &b);
        check(&U64Min, Some(&c), &[&b, &a], &a);
        check(&U64Min, None, &[&b, &c], &c);
        assert_eq!(I64Add.merge(b"k", Some(b"text"), &[&one]), None);
        assert_eq!(U64Max.merge(b"k", None, &[b"123456789"]), None);
        for operator in [&I64Add as &dyn MergeOperator, &U64Max, &U64Min] {
            assert!(operator.validate(&one).is_ok());
            for operand in [&b"xyz"[..], b"", b"123456789"] {
                assert!(operator.validate(operand).unwrap_err().contains("eight"), "{operator:?}");
            }
        }
    }

    #[test]
    fn append_keeps_the_order_of_operands() {
        check(&Append, Some(b"a"), &[b"b", b"", b"c"], b"abc");
        check(&Append, None, &[b"b", b"c"], b"bc");
        let long = vec![0; VALUE_BYTES_MAX];
        assert_eq!(Append.merge(b"k", Some(&long), &[b"x"]), None);
    }
}
