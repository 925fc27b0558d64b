//! A permutation of `0..n` that needs no memory. It draws without replacement, and scatters the hot ranks of
//! a skewed distribution over all keys.

/// A fixed, seeded bijection of `0..n` onto itself.
///
/// Four Feistel rounds permute the smallest power of two of even width that holds `n`. A result outside
/// `0..n` is permuted again until it lies inside (cycle walking), which keeps the map a bijection and takes
/// fewer than four iterations on average.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    round_keys: [u64; 4],
}

impl Permutation {
    /// The permutation of `0..len` for `seed`.
    #[must_use]
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut rng = base::Rng::new(seed);
        Self {
            len,
            half_bits: bits.div_ceil(2).max(1),
            round_keys: std::array::from_fn(|_| rng.next_u64()),
        }
    }

    /// The image of `index`, which is taken modulo the length.
    #[inline]
    #[must_use]
    pub fn apply(&self, index: u64) -> u64 {
        if self.len < 2 {
            return 0;
        }
        let mut index = index % self.len;
        // Ends: the rounds are a bijection, so the walk returns to its start, which lies inside.
        loop {
            index = self.rounds(index);
            if index < self.len {
                return index;
            }
        }
    }

    /// The index with the image `place`.
    #[inline]
    #[must_use]
    pub fn invert(&self, place: u64) -> u64 {
        if self.len < 2 {
            return 0;
        }
        let mut place = place % self.len;
        // Ends like `apply`: it walks back along the same cycle.
        loop {
            place = self.rounds_back(place);
            if place < self.len {
                return place;
            }
        }
    }

    #[inline]
    fn rounds(&self, index: u64) -> u64 {
        let mask = u64::MAX >> (u64::BITS - self.half_bits);
        let (mut left, mut right) = (index >> self.half_bits, index & mask);
        for key in self.round_keys {
            (left, right) = (right, left ^ (mix(right, key) & mask));
        }
        left << self.half_bits | right
    }

    #[inline]
    fn rounds_back(&self, place: u64) -> u64 {
        let mask = u64::MAX >> (u64::BITS - self.half_bits);
        let (mut left, mut right) = (place >> self.half_bits, place & mask);
        for key in self.round_keys.into_iter().rev() {
            (left, right) = (right ^ (mix(left, key) & mask), left);
        }
        left << self.half_bits | right
    }
}

#[inline]
const fn mix(half: u64, key: u64) -> u64 {
    let mixed = (half ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apply_is_a_bijection_and_invert_its_inverse() {
        for len in [1, 2, 3, 10, 64, 1000, 4097, 100_000] {
            let permutation = Permutation::new(len, 5);
            let mut seen = vec![false; len as usize];
            for index in 0..len {
                let at = permutation.apply(index) as usize;
                assert!(!std::mem::replace(&mut seen[at], true), "{at} of {len} came twice");
                assert_eq!(permutation.invert(at as u64), index, "of {len}");
            }
        }
        assert_eq!(Permutation::new(0, 1).apply(9), 0);
        assert!(Permutation::new(u64::MAX, 1).apply(12_345) < u64::MAX);
    }

    /// Hardly any two neighbours stay close.
    #[test]
    fn neighbours_are_scattered() {
        let permutation = Permutation::new(1_000_000, 11);
        let close = (0..10_000u64)
            .filter(|index| {
                permutation.apply(*index).abs_diff(permutation.apply(index + 1)) < 10_000
            })
            .count();
        // Two independent places are this close with a probability of 2 %.
        assert!((100..300).contains(&close), "{close} of 10000 neighbours stay near");
    }
}
