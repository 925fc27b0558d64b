//! Random numbers. Every random choice of the engine comes from a seeded generator, so that a failed test
//! or simulation can be repeated from its seed.

/// A xoshiro256** generator (Blackman and Vigna, 2018), seeded by `SplitMix64`. Not cryptographically secure.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator that `seed` determines: equal seeds give equal sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// A generator, and its seed for the caller to print. The seed is the environment variable
    /// `TERRACE_SEED` if it is set to a number, else 64 bits from the operating system.
    #[must_use]
    pub fn from_env() -> (Self, u64) {
        let seed = std::env::var("TERRACE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| getrandom::u64().unwrap_or(0x7e55_ace0));
        (Self::new(seed), seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.0;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= t;
        *s3 = s3.rotate_left(45);
        result
    }

    /// A number below `bound`; 0 if `bound` is 0. Uses Lemire's multiply-and-shift without rejection, so
    /// the bias is at most `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let number = ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64;
        debug_assert!(number < bound || bound == 0, "a random number stays below its bound");
        number
    }

    /// A uniform number in `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability 1 / `n`; always true if `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            for (byte, random) in chunk.iter_mut().zip(word) {
                *byte = random;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences_within_bounds() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u64(), rng.below(10), rng.next_u64()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut rng = Rng::new(3);
        assert!((0..1000).all(|_| rng.below(7) < 7 && (0.0..1.0).contains(&rng.unit())));
        assert_eq!(rng.below(0), 0);
    }
}
