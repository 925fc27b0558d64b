//! A payload in pieces: content from several places is written without being joined first.

/// Up to three byte strings, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a>([&'a [u8]; 3]);

impl<'a> Pieces<'a> {
    pub(crate) const fn new(first: &'a [u8], second: &'a [u8], third: &'a [u8]) -> Self {
        Self([first, second, third])
    }

    /// Length of all pieces together.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }

    /// All pieces joined.
    #[cfg(test)]
    pub(crate) fn joined(&self) -> Vec<u8> {
        self.0.concat()
    }

    /// The `len` bytes from offset `at`, or fewer if there are fewer. Borrowed if one piece contains
    /// them; otherwise copied to `joined`, whose content they replace.
    pub(crate) fn range<'b>(&self, at: usize, len: usize, joined: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        joined.clear();
        let mut skip = at;
        for piece in self.0 {
            let rest = piece.get(skip.min(piece.len())..).unwrap_or_default();
            skip = skip.saturating_sub(piece.len());
            if let Some(whole) = rest.get(..len).filter(|_| joined.is_empty()) {
                return whole;
            }
            let wanted = (len - joined.len()).min(rest.len());
            joined.extend_from_slice(rest.get(..wanted).unwrap_or_default());
        }
        base::invariant!(joined.len() == len, "a part of a payload lies within it");
        joined
    }
}

impl<'a> From<&'a [u8]> for Pieces<'a> {
    fn from(piece: &'a [u8]) -> Self {
        Self([piece, &[], &[]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_does_not_depend_on_the_piece_boundaries() {
        let whole: Vec<u8> = (0..100).collect();
        for first in 0..100 {
            for second in first..100 {
                let (a, rest) = whole.split_at(first);
                let (b, c) = rest.split_at(second - first);
                let pieces = Pieces::new(a, b, c);
                assert_eq!(pieces.len(), 100);
                for (at, len) in [(0, 100), (0, 0), (3, 40), (50, 50), (99, 1)] {
                    let mut joined = vec![1; 7];
                    assert_eq!(pieces.range(at, len, &mut joined), &whole[at..at + len]);
                }
            }
        }
    }
}
