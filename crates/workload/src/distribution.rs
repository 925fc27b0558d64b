//! Distributions of the keys that a run accesses.

use std::fmt;
use std::str::FromStr;

use base::{Error, Result, Rng};

use crate::{Permutation, Zipf};

/// YCSB's default exponent of the zipfian distribution.
pub const ZIPFIAN_THETA: f64 = 0.99;

/// The probability of each of *n* keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// All keys equally likely.
    #[default]
    Uniform,
    /// By Zipf's law, with the hot keys scattered over the whole range.
    Zipfian {
        /// The exponent.
        theta: f64,
    },
    /// By Zipf's law, with the highest number hottest: the last keys of a fill in order.
    Latest,
}

impl FromStr for Distribution {
    type Err = Error;

    /// Parses `uniform`, `zipfian`, `zipfian:THETA` or `latest`.
    fn from_str(text: &str) -> Result<Self> {
        let theta = |text: &str| text.parse().ok().filter(|theta| Zipf::new(1, *theta).is_ok());
        match text.split_once(':') {
            None if text == "uniform" => Some(Self::Uniform),
            None if text == "zipfian" => Some(Self::Zipfian { theta: ZIPFIAN_THETA }),
            None if text == "latest" => Some(Self::Latest),
            Some(("zipfian", rest)) => theta(rest).map(|theta| Self::Zipfian { theta }),
            _ => None,
        }
        .ok_or_else(|| {
            Error::invalid("distribution")
                .expected("uniform, zipfian, zipfian:THETA with 0 < THETA <= 10, or latest")
                .got(format_args!("`{text}`"))
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipfian { theta } => write!(f, "zipfian:{theta}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// Draws key numbers with replacement. Threads share it, each with its own random generator.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    n: u64,
    law: Law,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    Uniform,
    Scattered(Zipf, Permutation),
    Latest(Zipf),
}

impl Sampler {
    /// A sampler of `0..n`. `seed` chooses the hot keys.
    ///
    /// # Errors
    /// `Invalid` if `n` is zero or the exponent is out of range.
    pub fn new(distribution: Distribution, n: u64, seed: u64) -> Result<Self> {
        if n == 0 {
            return Err(Error::invalid("number of keys to draw from")
                .expected("at least 1")
                .got(0));
        }
        let law = match distribution {
            Distribution::Uniform => Law::Uniform,
            Distribution::Zipfian { theta } => {
                Law::Scattered(Zipf::new(n, theta)?, Permutation::new(n, seed))
            }
            Distribution::Latest => Law::Latest(Zipf::new(n, ZIPFIAN_THETA)?),
        };
        Ok(Self { n, law })
    }

    /// Draws a key number.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.law {
            Law::Uniform => rng.below(self.n),
            Law::Scattered(zipf, permutation) => permutation.apply(zipf.draw(rng)),
            Law::Latest(zipf) => self.n - 1 - zipf.draw(rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, n: u64, draws: u64, seed: u64) -> Vec<u64> {
        let sampler = Sampler::new(distribution, n, seed).unwrap();
        let mut rng = Rng::new(seed);
        let mut counts = vec![0; n as usize];
        for _ in 0..draws {
            counts[sampler.draw(&mut rng) as usize] += 1;
        }
        counts
    }

    /// With 99 degrees of freedom, chi-square exceeds 180 in less than one of a million runs.
    #[test]
    fn uniform_is_even() {
        let expected = 2000.0;
        let chi_square: f64 = counts(Distribution::Uniform, 100, 200_000, 3)
            .iter()
            .map(|count| (*count as f64 - expected).powi(2) / expected)
            .sum();
        assert!(chi_square < 180.0, "{chi_square}");
    }

    /// Scattering moves the hot keys and changes no frequency.
    #[test]
    fn the_seed_scatters_the_zipfian_hot_keys() {
        let zipfian = Distribution::Zipfian { theta: ZIPFIAN_THETA };
        let (n, draws) = (1000, 200_000);
        let one = counts(zipfian, n, draws, 1);
        let two = counts(zipfian, n, draws, 2);
        let hottest = |counts: &[u64]| (0..counts.len()).max_by_key(|at| counts[*at]).unwrap();
        assert_ne!(hottest(&one), hottest(&two), "the seed chooses the hot key");
        let total: f64 = (1..=n).map(|rank| (rank as f64).powf(-ZIPFIAN_THETA)).sum();
        for counts in [&one, &two] {
            let top = counts[hottest(counts)] as f64 / draws as f64;
            assert!((top - 1.0 / total).abs() < 0.01, "{top} for {}", 1.0 / total);
        }
    }

    #[test]
    fn latest_prefers_the_highest() {
        let counts = counts(Distribution::Latest, 1000, 100_000, 4);
        assert!(counts[999] > counts[990] && counts[990] > counts[500], "{counts:?}");
        assert_eq!(counts.iter().max(), counts.last());
    }

    #[test]
    fn distributions_parse_as_they_display() {
        for text in ["uniform", "zipfian", "zipfian:1.2", "latest"] {
            let distribution: Distribution = text.parse().unwrap();
            assert_eq!(distribution.to_string().parse::<Distribution>().unwrap(), distribution);
        }
        for text in ["", "zipf", "zipfian:", "zipfian:0", "zipfian:x", "latest:1", "Uniform"] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }
}
