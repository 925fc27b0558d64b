//! A loser tree (Knuth, The Art of Computer Programming, volume 3, 5.4.1): finds the smallest of several
//! sorted sources.
//!
//! Each inner node keeps the loser of its match. When the winner advances, the next winner is found with one
//! comparison per level: log2 of the number of sources.

use std::cmp::Ordering;

use base::invariant;

/// A source, and the abbreviated key of its current entry.
#[derive(Clone, Copy, Debug)]
struct Player {
    head: u64,
    source: usize,
}

/// The tree. Most matches are decided by the abbreviated keys (`head`) in its nodes, which order like the
/// sources if they differ. If two are equal, the caller's `order` compares the sources.
#[derive(Debug)]
pub(super) struct LoserTree {
    /// The winner at index 0; at index `n` the loser of match `n`. Leaf `s` of source `s` is at index
    /// `losers.len() + s`, which is not stored.
    losers: Vec<Player>,
}

/// A node with a match that was not played yet.
const FREE: Player = Player { head: 0, source: usize::MAX };

impl LoserTree {
    /// Plays the first round of `sources` sources (at least one). `head` is the abbreviated key of a source;
    /// `order` compares two sources with equal ones.
    pub(super) fn new(
        sources: usize,
        head: impl Fn(usize) -> u64,
        order: &impl Fn(usize, usize) -> Ordering,
    ) -> Self {
        let mut tree = Self { losers: vec![FREE; sources.max(1)] };
        for source in 0..sources {
            tree.play(Player { head: head(source), source }, order);
        }
        invariant!(
            sources == 0 || tree.losers.iter().all(|player| player.source < sources),
            "after the first round every match has a loser"
        );
        tree
    }

    /// The smallest source.
    #[inline]
    pub(super) fn winner(&self) -> usize {
        self.losers.first().map_or(0, |winner| winner.source)
    }

    /// The second smallest source: the smallest of those that lost to the winner. `None` if there is only one
    /// source.
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

    /// The index of a source's first match; 0 if there is only one source.
    #[inline]
    fn leaf(&self, source: usize) -> usize {
        (source + self.losers.len()) / 2 * usize::from(self.losers.len() > 1)
    }

    /// Finds the next winner after the last one advanced to `head`.
    #[inline]
    pub(super) fn replay(&mut self, head: u64, order: &impl Fn(usize, usize) -> Ordering) {
        self.play(Player { head, source: self.winner() }, order);
    }

    /// Plays a source's matches from its leaf up. In the first round it stops at the first free node.
    #[inline]
    fn play(&mut self, player: Player, order: &impl Fn(usize, usize) -> Ordering) {
        let mut winner = player;
        let mut place = self.leaf(player.source);
        while place > 0 {
            let Some(slot) = self.losers.get_mut(place) else {
                invariant!(false, "every match of a source is in the tree");
                return;
            };
            let loser = *slot;
            if loser.source == usize::MAX {
                *slot = winner;
                return;
            }
            // Selected without a branch: the outcome of a match is unpredictable.
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

/// Whether `one` orders before `other`.
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
    fn sources_are_merged_in_order() {
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
            // Heads that are often equal.
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
