//! Draws the keys of a mixed workload, from a store that grows during the run.

use base::{Result, Rng};

use super::mix::{Heat, Mix};
use super::{Kind, Options};
use crate::{Distribution, KeyRanges, Sampler, ZIPFIAN_THETA, Zipf};

/// The most draws until one gives a key that already exists.
const DRAWS_MAX: usize = 64;

/// Draws key numbers. Shared by threads, each with its own generator.
#[derive(Clone, Debug)]
pub(super) enum Chooser {
    /// From the keys that are expected at the end of the run.
    Drawn(Sampler),
    Latest,
    Ranges(KeyRanges),
}

impl Chooser {
    /// A chooser for a store of `end` keys. The distribution of the options overrides that of the mix.
    pub(super) fn new(mix: &Mix, options: &Options, end: u64) -> Result<Self> {
        let heat = match options.distribution {
            None => mix.heat,
            Some(Distribution::Latest) => Heat::Latest,
            Some(Distribution::Zipfian { theta }) => Heat::Zipfian(theta),
            Some(Distribution::Uniform) => Heat::Even,
        };
        match heat {
            Heat::Even => Sampler::new(Distribution::Uniform, end, options.seed).map(Self::Drawn),
            Heat::Latest => Ok(Self::Latest),
            Heat::Ranges(heat) => KeyRanges::new(heat, end, options.seed).map(Self::Ranges),
            Heat::Zipfian(theta) => {
                // As in YCSB: the law covers twice the expected inserts, so that inserts do not move the hot
                // keys.
                let inserts = 2.0 * options.ops() as f64 * mix.part(Kind::Insert);
                let n = end.saturating_add(inserts as u64);
                Sampler::new(Distribution::Zipfian { theta }, n, options.seed).map(Self::Drawn)
            }
        }
    }

    /// Draws the number of a key below `end`.
    #[inline]
    pub(super) fn draw(&self, end: u64, rng: &mut Rng) -> u64 {
        let number = match self {
            Self::Drawn(sampler) => {
                let mut draws = (0..DRAWS_MAX).map(|_| sampler.draw(rng));
                draws.find(|number| *number < end).unwrap_or(0)
            }
            Self::Latest => {
                let rank = Zipf::new(end, ZIPFIAN_THETA).map_or(0, |zipf| zipf.draw(rng));
                end.saturating_sub(1 + rank)
            }
            Self::Ranges(ranges) => ranges.draw(rng).min(end.saturating_sub(1)),
        };
        debug_assert!(number < end.max(1), "a mix reads keys that exist");
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Name;

    fn chooser(name: Name, options: Options) -> Chooser {
        Chooser::new(name.mix().unwrap(), &options, options.num).unwrap()
    }

    /// Inserts neither move the hot keys of a zipfian mix nor escape `latest`.
    #[test]
    fn inserts_keep_zipfian_hot_keys_and_move_the_latest() {
        let options = Options { num: 1000, ..Options::default() };
        let mut rng = Rng::new(1);
        let latest = chooser(Name::YcsbD, options);
        for end in [1, 1000, 5000] {
            let top = (0..1000).filter(|_| latest.draw(end, &mut rng) == end - 1).count();
            let total: f64 = (1..=end).map(|rank| (rank as f64).powf(-ZIPFIAN_THETA)).sum();
            assert!((top as f64 / 1000.0 - 1.0 / total).abs() < 0.06, "{end}: {top}");
        }
        let zipfian = chooser(Name::YcsbE, options);
        let mut hottest = |end: u64| {
            let mut counts = vec![0; end as usize];
            (0..20_000).for_each(|_| counts[zipfian.draw(end, &mut rng) as usize] += 1);
            (0..end as usize).max_by_key(|number| counts[*number]).unwrap()
        };
        let first = hottest(1000);
        assert!(first < 1000 && [1050, 1100].map(&mut hottest).contains(&first));
    }

    #[test]
    fn the_distribution_of_the_options_overrides_the_mix() {
        let uniform = Options { distribution: Some(Distribution::Uniform), ..Options::default() };
        assert!(matches!(chooser(Name::Mixgraph, uniform), Chooser::Drawn(_)));
        assert!(matches!(chooser(Name::Mixgraph, Options::default()), Chooser::Ranges(_)));
    }
}
