//! Keys drawn by the heat of their range: the model of Cao et al. (Characterizing, Modeling, and Benchmarking
//! RocksDB Key-Value Workloads at Facebook, FAST 2020).
//!
//! The key space is cut into equal ranges. The *i*-th hottest range has the weight a e^(b i) + c e^(d i), a
//! two-term exponential. Inside a range of *s* keys, the *x* hottest draw (x / s)^power of its accesses. The
//! seed places the ranges by heat, and the keys inside them. So there are many hot keys, near each other, as
//! a block cache sees them in production.

use base::{Error, Result, Rng};

use crate::Permutation;

/// The parameters of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeHeat {
    /// The number of ranges.
    pub ranges: u64,
    /// Factor and rate of the first term, *a* and *b*.
    pub first: (f64, f64),
    /// Factor and rate of the second term, *c* and *d*.
    pub second: (f64, f64),
    /// The exponent inside a range, above 0; 1 is uniform.
    pub power: f64,
}

impl RangeHeat {
    /// The parameters published for `ZippyDB`.
    pub const ZIPPYDB: Self =
        Self { ranges: 30, first: (14.18, -2.917), second: (0.0164, -0.08082), power: 0.3467 };

    /// The weight of the `rank`-th hottest range, from 1.
    fn weight(&self, rank: u64) -> f64 {
        let term = |(factor, rate): (f64, f64)| factor * (rate * rank as f64).exp();
        term(self.first) + term(self.second)
    }
}

/// Draws key numbers with replacement. Threads share it, each with its own random generator.
#[derive(Clone, Debug)]
pub struct KeyRanges {
    n: u64,
    power: f64,
    /// Cumulative probability of the ranges, the hottest first.
    upto: Vec<f64>,
    /// From the rank of a range by heat to its place in the key space.
    places: Permutation,
    seed: u64,
}

impl KeyRanges {
    /// A sampler of `0..n`.
    ///
    /// # Errors
    /// `Invalid` if `n` is below the number of ranges.
    pub fn new(heat: RangeHeat, n: u64, seed: u64) -> Result<Self> {
        if heat.ranges == 0 || n < heat.ranges {
            return Err(Error::invalid("number of keys in ranges")
                .expected(format_args!("at least {}", heat.ranges.max(1)))
                .got(n));
        }
        let total: f64 = (1..=heat.ranges).map(|rank| heat.weight(rank)).sum();
        let upto = (1..=heat.ranges).scan(0.0, |sum, rank| {
            *sum += heat.weight(rank) / total;
            Some(*sum)
        });
        let places = Permutation::new(heat.ranges, seed);
        Ok(Self { n, power: heat.power, upto: upto.collect(), places, seed })
    }

    /// Draws a key number.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let heat = rng.unit();
        // Rounding may leave the last sum just below 1.
        let rank = self.upto.partition_point(|upto| *upto <= heat).min(self.upto.len() - 1);
        let place = self.places.apply(rank as u64);
        let cut =
            |place: u64| (u128::from(self.n) * u128::from(place) / self.upto.len() as u128) as u64;
        let (first, size) = (cut(place), cut(place + 1) - cut(place));
        debug_assert!(size > 0, "every range has a key");
        let rank = (size as f64 * rng.unit().powf(1.0 / self.power)) as u64;
        let scattered = Permutation::new(size, self.seed.wrapping_add(place + 1));
        first + scattered.apply(rank.min(size - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares both laws with their formulas: ranges by chi-square, which with 29 degrees of freedom exceeds
    /// 85 once in a million runs; the hottest keys of a range to five standard deviations.
    #[test]
    fn draws_follow_the_formulas() {
        let heat = RangeHeat::ZIPPYDB;
        let (n, draws, seed) = (30_000, 300_000, 1);
        let keys = KeyRanges::new(heat, n, seed).unwrap();
        let mut rng = Rng::new(seed);
        let mut counts = vec![0u64; n as usize];
        for _ in 0..draws {
            counts[keys.draw(&mut rng) as usize] += 1;
        }
        let mut ranges: Vec<u64> = counts.chunks(1000).map(|range| range.iter().sum()).collect();
        let hottest = (0..30).max_by_key(|range| ranges[*range]).unwrap();
        let mut inside: Vec<u64> = counts[hottest * 1000..][..1000].to_vec();
        let hits = ranges[hottest] as f64;
        ranges.sort_unstable_by(|a, b| b.cmp(a));
        let weight = |i: f64| 14.18 * (-2.917 * i).exp() + 0.0164 * (-0.08082 * i).exp();
        let total: f64 = (1..=30).map(|i| weight(f64::from(i))).sum();
        let chi_square: f64 = (0..30)
            .map(|range| {
                let expected = draws as f64 * weight(range as f64 + 1.0) / total;
                (ranges[range] as f64 - expected).powi(2) / expected
            })
            .sum();
        assert!(chi_square < 85.0, "{chi_square}: {ranges:?}");
        inside.sort_unstable_by(|a, b| b.cmp(a));
        for hot in [1, 10, 100, 500] {
            let got = inside[..hot].iter().sum::<u64>() as f64 / hits;
            let expected = (hot as f64 / 1000.0).powf(0.3467);
            let slack = 5.0 * (expected * (1.0 - expected) / hits).sqrt();
            assert!((got - expected).abs() < slack + 0.002, "{hot}: {got} for {expected}");
        }
    }

    #[test]
    fn the_seed_places_the_hot_ranges_and_too_few_keys_are_refused() {
        let hottest = |seed| {
            let keys = KeyRanges::new(RangeHeat::ZIPPYDB, 3000, seed).unwrap();
            let mut rng = Rng::new(9);
            let mut counts = [0u64; 30];
            (0..10_000).for_each(|_| counts[keys.draw(&mut rng) as usize / 100] += 1);
            (0..30).max_by_key(|range| counts[*range]).unwrap()
        };
        assert!((1..9).any(|seed| hottest(seed) != hottest(0)));
        assert!(KeyRanges::new(RangeHeat::ZIPPYDB, 29, 0).is_err());
    }
}
