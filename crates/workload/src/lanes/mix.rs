//! What a run does: the workloads of YCSB that point operations suffice for.

use std::fmt;
use std::str::FromStr;

use base::{Error, Result, Rng};
use serde::{Serialize, Serializer};

use crate::{Distribution, Sampler, ZIPFIAN_THETA};

/// The seed of the choice of hot keys.
const SEED: u64 = 7;

/// A workload of YCSB. Keys follow Zipf's law with YCSB's exponent, except where something else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Inserts of new keys.
    Load,
    /// Half reads, half updates.
    A,
    /// 95 reads in a hundred operations, the rest updates.
    B,
    /// Reads.
    C,
    /// 95 reads in a hundred operations, the newest keys the most frequent ones; the rest inserts.
    D,
    /// Half reads, half reads followed by an update of the same key, counted as one operation.
    F,
}

/// An operation that a mix draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    Insert,
    Update(u64),
    Read(u64),
    ReadModifyWrite(u64),
}

impl Mix {
    /// Every mix but the load.
    pub const MIXED: [Self; 5] = [Self::A, Self::B, Self::C, Self::D, Self::F];

    /// The name in reports and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::F => "f",
        }
    }

    /// Reads in a hundred operations.
    const fn reads_percent(self) -> u64 {
        match self {
            Self::Load => 0,
            Self::A | Self::F => 50,
            Self::B | Self::D => 95,
            Self::C => 100,
        }
    }

    /// Draws ranks of `keys` keys: of each key its number, or for [`Mix::D`] its distance from the newest.
    pub(super) fn sampler(self, keys: u64) -> Result<Sampler> {
        let distribution = match self {
            Self::D => Distribution::Latest,
            _ => Distribution::Zipfian { theta: ZIPFIAN_THETA },
        };
        Sampler::new(distribution, keys, SEED)
    }

    /// Draws an operation on the `keys` keys that are known by now, with the sampler of the `sampled` keys
    /// that the run began with.
    pub(super) fn draw(self, sampler: &Sampler, sampled: u64, keys: u64, rng: &mut Rng) -> Drawn {
        let is_read = rng.below(100) < self.reads_percent();
        if !is_read && matches!(self, Self::Load | Self::D) {
            return Drawn::Insert;
        }
        let key = sampler.draw(rng);
        match self {
            Self::D => Drawn::Read(key + keys.saturating_sub(sampled)),
            _ if is_read => Drawn::Read(key),
            Self::F => Drawn::ReadModifyWrite(key),
            _ => Drawn::Update(key),
        }
    }
}

impl FromStr for Mix {
    type Err = Error;

    /// Parses a name of [`Mix::MIXED`].
    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let found = Self::MIXED.into_iter().find(|mix| mix.name() == lower);
        let wrong = |expected: &str| Error::invalid("workload").expected(expected).got(text);
        found.ok_or_else(|| match lower.as_str() {
            "e" => wrong("a, b, c, d or f: E needs scans, which these stores do not have"),
            _ => wrong("a, b, c, d or f"),
        })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Mix {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of reads, updates, inserts and read-modify-writes in a thousand, and the share of the
    /// most frequent key.
    fn shares(mix: Mix) -> ([u64; 4], Option<u64>) {
        let (draws, known) = (20_000, 3000);
        let (sampler, mut rng) = (mix.sampler(1000).unwrap(), Rng::new(1));
        let (mut shares, mut keys) = ([0; 4], vec![0; known as usize]);
        for _ in 0..draws {
            let (kind, key) = match mix.draw(&sampler, 1000, known, &mut rng) {
                Drawn::Read(key) => (0, Some(key)),
                Drawn::Update(key) => (1, Some(key)),
                Drawn::Insert => (2, None),
                Drawn::ReadModifyWrite(key) => (3, Some(key)),
            };
            shares[kind] += 1;
            key.into_iter().for_each(|key| keys[key as usize] += 1);
        }
        let read = (0..known).filter(|key| keys[*key as usize] > 0);
        let hottest = read.max_by_key(|key| keys[*key as usize]);
        (shares.map(|share: u64| (share * 1000).div_ceil(draws)), hottest)
    }

    #[test]
    fn mixes_are_those_of_ycsb() {
        let near = |found: [u64; 4], expected: [u64; 4]| {
            found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= 15)
        };
        for (mix, expected) in [
            (Mix::Load, [0, 0, 1000, 0]),
            (Mix::A, [500, 500, 0, 0]),
            (Mix::B, [950, 50, 0, 0]),
            (Mix::C, [1000, 0, 0, 0]),
            (Mix::D, [950, 0, 50, 0]),
            (Mix::F, [500, 0, 0, 500]),
        ] {
            let (found, hottest) = shares(mix);
            assert!(near(found, expected), "{mix}: {found:?}");
            // The newest key is read the most.
            let is_newest = hottest == Some(2999);
            assert!(is_newest == (mix == Mix::D), "{mix}: {hottest:?}");
        }
    }

    #[test]
    fn scans_are_refused_by_name() {
        for mix in Mix::MIXED {
            assert_eq!(mix.name().parse::<Mix>().unwrap(), mix);
        }
        let refused = "E".parse::<Mix>().unwrap_err().to_string();
        assert!(refused.contains("needs scans"), "{refused}");
        assert!("load".parse::<Mix>().is_err());
    }
}
