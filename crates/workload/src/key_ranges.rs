//! Keys by the heat of their range: the model of Cao et al. (Characterizing, Modeling, and
//! Benchmarking RocksDB Key-Value Workloads at Facebook, FAST 2020).
//!
//! The key space is cut into equal ranges. The *i*-th hottest is asked for with a weight of
//! a e^(b i) + c e^(d i), a two-term exponential; inside a range, the *x* hottest of its *s* keys draw
//! (x / s)^power of the range's accesses. Which range is how hot, and which key in it, follows
//! from the seed. So hot keys are many, and near each other: what a block cache sees of production.

use base::{Error, Result, Rng};

use crate::Permutation;

/// The two terms of a range's weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeHeat {
    /// Ranges.
    pub ranges: u64,
    /// The first term's factor and rate.
    pub first: (f64, f64),
    /// The second term's.
    pub second: (f64, f64),
    /// The exponent inside a range, over 0; 1 is even.
    pub power: f64,
}

impl RangeHeat {
    /// The figures published for `ZippyDB`.
    pub const ZIPPYDB: Self =
        Self { ranges: 30, first: (14.18, -2.917), second: (0.0164, -0.08082), power: 0.3467 };

    /// The weight of the `rank`-th hottest range, from 1.
    fn weight(&self, rank: u64) -> f64 {
        let term = |(factor, rate): (f64, f64)| factor * (rate * rank as f64).exp();
        term(self.first) + term(self.second)
    }
}

/// Draws key numbers, with replacement. Shared by threads, each with its own generator.
#[derive(Clone, Debug)]
pub struct KeyRanges {
    n: u64,
    power: f64,
    /// For each range by heat, the chance of it or a hotter one.
    upto: Vec<f64>,
    /// Where ranges lie, by heat.
    places: Permutation,
    seed: u64,
}

impl KeyRanges {
    /// Draws from `0..n`.
    ///
    /// # Errors
    /// `Invalid` where `n` is below the number of ranges.
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

    /// The next key number.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let heat = rng.unit();
        // Rounding may leave the last sum just below 1.
        let rank = self.upto.partition_point(|upto| *upto <= heat).min(self.upto.len() - 1);
        let place = self.places.apply(rank as u64);
        let cut =
            |place: u64| (u128::from(self.n) * u128::from(place) / self.upto.len() as u128) as u64;
        let (first, size) = (cut(place), cut(place + 1) - cut(place));
        let rank = (size as f64 * rng.unit().powf(1.0 / self.power)) as u64;
        let scattered = Permutation::new(size, self.seed.wrapping_add(place + 1));
        first + scattered.apply(rank.min(size - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both laws against their formulas: ranges by chi-square, which with 29 degrees of freedom
    /// passes 85 once in a million runs; the hottest part of a range to five standard deviations.
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
    fn the_seed_places_the_heat_and_few_keys_are_refused() {
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
