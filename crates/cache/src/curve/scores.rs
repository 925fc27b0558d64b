//! Scores of the [`Rules`]: whose simulated cache missed least of late.
//!
//! The decision is a pure function of the simulated misses, which count half after some thousand sampled
//! accesses. Rules change only for a clear gain, so that chance does not move a cache between rules that miss
//! alike.

use crate::rows::policy::Rules;

/// Sampled accesses between two decisions.
pub(super) const ACCESSES_A_DECISION: u32 = 256;

pub(super) const RULES: usize = Rules::ALL.len();

/// Recent misses by each of the rules.
#[derive(Debug, Default)]
pub(super) struct Scores {
    /// All misses up to the last decision, and those of late.
    before: [f64; RULES],
    recent: [f64; RULES],
}

/// Share of the recent misses that the next decision forgets.
const FORGOTTEN: f64 = 1.0 / 8.0;

/// Rules win only with fewer misses than the current ones by this share of them, and by what chance explains:
/// this many times the root of their number.
const GAIN: f64 = 0.03;
const CHANCE: f64 = 1.0;

impl Scores {
    /// Adds the misses since the last call; `misses` are all so far, of which the share `rate` was sampled.
    pub(super) fn add(&mut self, misses: impl Iterator<Item = f64>, rate: f64) {
        for ((recent, before), now) in self.recent.iter_mut().zip(&mut self.before).zip(misses) {
            debug_assert!(now >= *before, "simulated misses never decrease");
            *recent += (now - *before) * rate - *recent * FORGOTTEN;
            *before = now;
        }
    }

    /// Other simulations count from now on.
    pub(super) fn restart(&mut self) {
        self.before = [0.0; RULES];
    }

    /// The rules to use next, if those at `current` are in use.
    pub(super) fn next(&self, current: usize) -> usize {
        let recent = |at: usize| self.recent.get(at).copied().unwrap_or(f64::MAX);
        let best = (0..RULES).min_by(|one, other| recent(*one).total_cmp(&recent(*other)));
        let best = best.unwrap_or(current);
        let needed = recent(best) * (1.0 + GAIN) + CHANCE * recent(best).sqrt();
        if recent(current) > needed { best } else { current }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_miss_alike_stay() {
        let mut scores = Scores { recent: [1000.0, 990.0, 1000.0], ..Scores::default() };
        assert_eq!([0, 1, 2].map(|current| scores.next(current)), [0, 1, 2]);
        scores.recent = [1000.0, 900.0, 1000.0];
        assert_eq!([0, 1, 2].map(|current| scores.next(current)), [1, 1, 1]);
        // Of few misses chance explains more.
        scores.recent = [10.0, 8.0, 9.0];
        assert_eq!(scores.next(0), 0);
        assert_eq!(Scores::default().next(2), 2);
    }

    #[test]
    fn old_misses_are_forgotten_and_other_simulations_start_from_none() {
        let mut scores = Scores::default();
        scores.add([800.0, 0.0, 0.0].into_iter(), 0.5);
        assert_eq!(scores.recent, [400.0, 0.0, 0.0]);
        scores.add([800.0, 200.0, 0.0].into_iter(), 0.5);
        assert_eq!(scores.recent, [350.0, 100.0, 0.0]);
        scores.restart();
        scores.add([80.0, 0.0, 0.0].into_iter(), 0.5);
        assert_eq!(scores.recent, [346.25, 87.5, 0.0]);
    }
}
