//! Zipf's law by rejection-inversion (Hörmann and Derflinger, 1996): exact for any exponent above zero, with
//! constant setup and about 1.5 draws per sample however large `n` is.
//!
//! The integral of x^-exponent bounds the sum over ranks. A uniform draw under the integral is inverted to a
//! real x and rounded to the nearest rank. The draw is rejected if it fell into the sliver by which the
//! integral exceeds the mass of that rank.

use base::{Error, Result, Rng};

/// A distribution of ranks `0..n`: rank *k* has a probability proportional to 1 / (k + 1)^exponent.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    n: u64,
    exponent: f64,
    /// The integral up to the middle between ranks 1 and 2, minus the mass of rank 1.
    low: f64,
    /// The integral up to half a rank past the last.
    high: f64,
    /// A rank at most this far above x is accepted without computing the integral.
    sure: f64,
}

impl Zipf {
    /// The law over `n` ranks.
    ///
    /// # Errors
    /// `Invalid` if `n` is zero or `exponent` is not in `0.0 < exponent <= 10.0`.
    pub fn new(n: u64, exponent: f64) -> Result<Self> {
        if n == 0 {
            return Err(Error::invalid("zipfian over no keys"));
        }
        if !(exponent > 0.0 && exponent <= 10.0) {
            return Err(Error::invalid("zipfian exponent")
                .expected("0 < theta <= 10")
                .got(exponent));
        }
        let mut zipf = Self { n, exponent, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(n as f64 + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.mass(2.0));
        Ok(zipf)
    }

    /// Draws a rank; 0 is the most frequent.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        // At least two draws in three are accepted, so the loop never reaches its bound.
        for _ in 0..128 {
            let area = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.n as f64);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.mass(rank) {
                debug_assert!(rank >= 1.0 && rank <= self.n as f64, "a rank is one of 1..=n");
                return rank as u64 - 1;
            }
        }
        0
    }

    fn mass(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of t^-exponent from 1 to x. Correct also at and near exponent 1, for which the closed
    /// form divides zero by zero.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        log * if scaled.abs() > 1e-8 { scaled.exp_m1() / scaled } else { 1.0 + scaled / 2.0 }
    }

    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let log = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (area * log).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of draws that draw their rank for the first time, and the share of draws of the most
    /// frequent ranks. The benchmark cases rely on both shares for their caches to be full.
    #[test]
    fn shares_of_first_draws_and_of_the_most_frequent_ranks() {
        let (n, few) = (20_000_000, 976_000);
        let zipf = Zipf::new(n, 0.99).unwrap();
        let (mut rng, mut seen, mut of_few) = (Rng::new(7), vec![false; n as usize], 0);
        let (mut first, mut shares) = (0, vec![]);
        for draw in 1..=14_000_000u64 {
            let rank = zipf.draw(&mut rng);
            of_few += u64::from(rank < few);
            first += u32::from(!std::mem::replace(&mut seen[rank as usize], true));
            if draw % 200_000 == 0 {
                shares.push((draw, f64::from(std::mem::take(&mut first)) / 200_000.0));
            }
        }
        let near = |at: u64| shares.iter().find(|(draw, _)| *draw == at).unwrap().1;
        for (at, share) in
            [(3_000_000, 0.25), (5_000_000, 0.22), (10_000_000, 0.18), (14_000_000, 0.16)]
        {
            assert!((near(at) - share).abs() < 0.01, "{at}: {} {share}", near(at));
        }
        let early: f64 = shares[..6].iter().map(|(_, share)| share).sum();
        assert!((early / 6.0 - 0.37).abs() < 0.01, "of the first 1.2 M: {}", early / 6.0);
        assert!((of_few as f64 / 14e6 - 0.814).abs() < 0.002, "{of_few}");
    }

    /// Compares counts of ranks with the law. With 49 degrees of freedom, chi-square exceeds 110 once in a
    /// million runs.
    #[test]
    fn ranks_follow_the_law() {
        for (exponent, seed) in
            [(0.5, 1), (0.99, 2), (1.0, 3), (1.0 + 1e-10, 4), (1.2, 5), (3.0, 6)]
        {
            let (n, draws) = (50, 200_000);
            let zipf = Zipf::new(n, exponent).unwrap();
            let mut rng = Rng::new(seed);
            let mut counts = vec![0u64; n as usize];
            for _ in 0..draws {
                counts[zipf.draw(&mut rng) as usize] += 1;
            }
            let total: f64 = (1..=n).map(|rank| (rank as f64).powf(-exponent)).sum();
            let mut chi_square = 0.0;
            for (rank, count) in counts.iter().enumerate() {
                let expected = draws as f64 * ((rank + 1) as f64).powf(-exponent) / total;
                chi_square += (*count as f64 - expected).powi(2) / expected;
            }
            assert!(chi_square < 110.0, "exponent {exponent}: chi-square {chi_square:.1}");
        }
    }

    /// Over 20 million keys at exponent 0.99, the first ranks have the mass that the harmonic sum gives.
    #[test]
    fn the_first_ranks_of_many_have_their_mass() {
        let (n, draws) = (20_000_000u64, 1_000_000);
        let harmonic = |upto: u64| (1..=upto).map(|rank| (rank as f64).powf(-0.99)).sum::<f64>();
        let total = harmonic(n);
        let zipf = Zipf::new(n, 0.99).unwrap();
        let mut rng = Rng::new(7);
        let ranks: Vec<u64> = (0..draws).map(|_| zipf.draw(&mut rng)).collect();
        assert!(ranks.iter().all(|rank| *rank < n));
        for head in [1, 10, 1000, 1_000_000] {
            let got = ranks.iter().filter(|rank| **rank < head).count() as f64 / draws as f64;
            let expected = harmonic(head) / total;
            // Five standard deviations.
            let slack = 5.0 * (expected * (1.0 - expected) / draws as f64).sqrt();
            assert!((got - expected).abs() < slack, "first {head}: {got:.4} for {expected:.4}");
        }
    }

    #[test]
    fn one_rank_is_accepted_and_bad_parameters_are_refused() {
        let mut rng = Rng::new(1);
        assert_eq!(Zipf::new(1, 0.99).unwrap().draw(&mut rng), 0);
        assert!(Zipf::new(0, 0.99).is_err());
        for exponent in [0.0, -1.0, 11.0, f64::NAN] {
            assert!(Zipf::new(10, exponent).is_err(), "{exponent}");
        }
    }
}
