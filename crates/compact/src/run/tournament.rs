//! A tournament of sorted sources: which of them is next.
//!
//! A tree of losers (Knuth, The Art of Computer Programming, volume 3, 5.4.1): each inner place
//! keeps who lost there, so that when the winner moves on, the next one is found with one
//! comparison for each level, log2 of the number of sources.

use std::cmp::Ordering;

/// Sources by number, the least of them first. Who is less is the caller's to say.
#[derive(Debug)]
pub(super) struct Tournament {
    /// The winner stands at 0, the losers of the match at place `n` at `n`; the sources take part
    /// from place `losers.len()` on.
    losers: Vec<usize>,
}

impl Tournament {
    /// The first round among `sources` sources (at least one).
    pub(super) fn new(sources: usize, order: &impl Fn(usize, usize) -> Ordering) -> Self {
        let mut tournament = Self { losers: vec![usize::MAX; sources.max(1)] };
        for source in 0..sources {
            tournament.play(source, order);
        }
        tournament
    }

    /// The least source.
    pub(super) fn winner(&self) -> usize {
        self.losers.first().copied().unwrap_or_default()
    }

    /// The least source but for the winner, where there is another: it lost to the winner.
    pub(super) fn runner_up(&self, order: &impl Fn(usize, usize) -> Ordering) -> Option<usize> {
        let mut place = self.leaf(self.winner());
        let mut least: Option<usize> = None;
        while place > 0 {
            let loser = *self.losers.get(place)?;
            if least.is_none_or(|least| order(loser, least) == Ordering::Less) {
                least = Some(loser);
            }
            place /= 2;
        }
        least
    }

    /// The place of a source's first match; one source alone wins at place 0.
    fn leaf(&self, source: usize) -> usize {
        (source + self.losers.len()) / 2 * usize::from(self.losers.len() > 1)
    }

    /// Finds the next winner after the last one has moved on.
    #[inline]
    pub(super) fn replay(&mut self, order: &impl Fn(usize, usize) -> Ordering) {
        self.play(self.winner(), order);
    }

    /// Lets `source` climb from its leaf; in the first round it waits in the first free place.
    #[inline]
    fn play(&mut self, source: usize, order: &impl Fn(usize, usize) -> Ordering) {
        let mut winner = source;
        let mut place = self.leaf(source);
        while place > 0 {
            let Some(loser) = self.losers.get_mut(place) else { return };
            if *loser == usize::MAX {
                *loser = winner;
                return;
            }
            if order(*loser, winner) == Ordering::Less {
                std::mem::swap(loser, &mut winner);
            }
            place /= 2;
        }
        if let Some(first) = self.losers.first_mut() {
            *first = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn sources_come_in_order() {
        let (mut rng, seed) = Rng::from_env();
        for sources in 1..20 {
            let mut lists: Vec<Vec<u64>> =
                (0..sources).map(|_| (0..rng.below(30)).map(|_| rng.below(50)).collect()).collect();
            lists.iter_mut().for_each(|list| list.sort_by(|a, b| b.cmp(a)));
            let mut expected: Vec<_> = lists.iter().flatten().copied().collect();
            expected.sort_unstable();
            let order = |lists: &[Vec<u64>], a: usize, b: usize| {
                let head = |source: usize| lists[source].last().copied().unwrap_or(u64::MAX);
                (head(a), a).cmp(&(head(b), b))
            };
            let mut tournament = Tournament::new(sources, &|a, b| order(&lists, a, b));
            let mut merged = Vec::new();
            loop {
                let winner = tournament.winner();
                let runner_up = tournament.runner_up(&|a, b| order(&lists, a, b));
                let others = (0..sources).filter(|source| *source != winner);
                assert_eq!(runner_up, others.min_by(|a, b| order(&lists, *a, *b)), "seed {seed}");
                let Some(least) = lists[winner].pop() else { break };
                merged.push(least);
                tournament.replay(&|a, b| order(&lists, a, b));
            }
            assert_eq!(merged, expected, "seed {seed}, {sources} sources");
        }
    }
}
