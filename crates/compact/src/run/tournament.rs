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

    /// Finds the next winner after the last one has moved on.
    #[inline]
    pub(super) fn replay(&mut self, order: &impl Fn(usize, usize) -> Ordering) {
        self.play(self.winner(), order);
    }

    /// Lets `source` climb from its leaf; in the first round it waits in the first free place.
    #[inline]
    fn play(&mut self, source: usize, order: &impl Fn(usize, usize) -> Ordering) {
        let mut winner = source;
        // One source alone wins at place 0.
        let mut place = (source + self.losers.len()) / 2 * usize::from(self.losers.len() > 1);
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
            while let Some(least) = lists[tournament.winner()].pop() {
                merged.push(least);
                tournament.replay(&|a, b| order(&lists, a, b));
            }
            assert_eq!(merged, expected, "seed {seed}, {sources} sources");
        }
    }
}
