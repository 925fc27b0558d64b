//! A losers of sorted sources: which of them is next.
//!
//! A tree of losers (Knuth, The Art of Computer Programming, volume 3, 5.4.1): each inner place
//! keeps who lost there, so that when the winner moves on, the next one is found with one
//! comparison for each level, log2 of the number of sources.

use std::cmp::Ordering;

/// A source, by number, and the head of what it is at.
#[derive(Clone, Copy, Debug)]
struct Player {
    head: u64,
    source: usize,
}

/// Who takes part, the least of them first. Most matches are decided by heads, which stand in the tree:
/// numbers that order as the sources do, as far as they differ. The rest is the caller's to say.
#[derive(Debug)]
pub(super) struct LoserTree {
    /// The winner stands at 0, the losers of the match at place `n` at `n`; the sources take part
    /// from place `losers.len()` on.
    losers: Vec<Player>,
}

/// A place where nobody played yet.
const FREE: Player = Player { head: 0, source: usize::MAX };

impl LoserTree {
    /// The first round among `sources` sources (at least one), whose heads `head` says; `order` is that
    /// of two sources with equal heads.
    pub(super) fn new(
        sources: usize,
        head: impl Fn(usize) -> u64,
        order: &impl Fn(usize, usize) -> Ordering,
    ) -> Self {
        let mut losers = Self { losers: vec![FREE; sources.max(1)] };
        for source in 0..sources {
            losers.play(Player { head: head(source), source }, order);
        }
        losers
    }

    /// The least source.
    #[inline]
    pub(super) fn winner(&self) -> usize {
        self.losers.first().map_or(0, |winner| winner.source)
    }

    /// The least source but for the winner, where there is another: it lost to the winner.
    pub(super) fn runner_up(&self, order: &impl Fn(usize, usize) -> Ordering) -> Option<usize> {
        let mut place = self.leaf(self.winner());
        let mut least: Option<Player> = None;
        while place > 0 {
            let loser = *self.losers.get(place)?;
            if least.is_none_or(|least| comes_before(loser, least, order)) {
                least = Some(loser);
            }
            place /= 2;
        }
        least.map(|least| least.source)
    }

    /// The place of a source's first match; one source alone wins at place 0.
    #[inline]
    fn leaf(&self, source: usize) -> usize {
        (source + self.losers.len()) / 2 * usize::from(self.losers.len() > 1)
    }

    /// Finds the next winner after the last one has moved on, to `head`.
    #[inline]
    pub(super) fn replay(&mut self, head: u64, order: &impl Fn(usize, usize) -> Ordering) {
        self.play(Player { head, source: self.winner() }, order);
    }

    /// Lets a source climb from its leaf; in the first round it waits in the first free place.
    #[inline]
    fn play(&mut self, player: Player, order: &impl Fn(usize, usize) -> Ordering) {
        let mut winner = player;
        let mut place = self.leaf(player.source);
        while place > 0 {
            let Some(slot) = self.losers.get_mut(place) else { return };
            let loser = *slot;
            if loser.source == usize::MAX {
                *slot = winner;
                return;
            }
            // Nobody can foretell who wins, so nothing branches on it.
            let upset = comes_before(loser, winner, order);
            *slot = select(upset, winner, loser);
            winner = select(upset, loser, winner);
            place /= 2;
        }
        if let Some(first) = self.losers.first_mut() {
            *first = winner;
        }
    }
}

/// Whether `one` comes before `other`.
#[inline]
fn comes_before(one: Player, other: Player, order: &impl Fn(usize, usize) -> Ordering) -> bool {
    if one.head == other.head {
        return order(one.source, other.source) == Ordering::Less;
    }
    one.head < other.head
}

#[inline]
fn select(condition: bool, one: Player, other: Player) -> Player {
    Player {
        head: std::hint::select_unpredictable(condition, one.head, other.head),
        source: std::hint::select_unpredictable(condition, one.source, other.source),
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
            // Heads that are often equal, and often not.
            let head = |lists: &[Vec<u64>], source: usize| {
                lists[source].last().map_or(u64::MAX, |number| number / 4)
            };
            let mut losers =
                LoserTree::new(sources, |source| head(&lists, source), &|a, b| order(&lists, a, b));
            let mut merged = Vec::new();
            loop {
                let winner = losers.winner();
                let runner_up = losers.runner_up(&|a, b| order(&lists, a, b));
                let others = (0..sources).filter(|source| *source != winner);
                assert_eq!(runner_up, others.min_by(|a, b| order(&lists, *a, *b)), "seed {seed}");
                let Some(least) = lists[winner].pop() else { break };
                merged.push(least);
                losers.replay(head(&lists, winner), &|a, b| order(&lists, a, b));
            }
            assert_eq!(merged, expected, "seed {seed}, {sources} sources");
        }
    }
}
