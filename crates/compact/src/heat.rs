//! Hot ranges of a merge: the keys whose output pages should be cached, computed from the hot pages of its
//! inputs. A pure function.
//!
//! A hot page shows that some of its keys are read often, but not which. If runs of similar size are merged,
//! the keys of one input page spread over as many output pages as there are runs, and most of these are cold.
//! So only runs count that hold a large part of the merge's content: each of their pages spreads over few
//! output pages.

use crate::KeyRange;

/// Hot pages of one input run.
#[derive(Clone, Debug, Default)]
pub struct RunHeat {
    /// Data pages of the run that are merged.
    pub pages: u64,
    /// The key range and the heat of each recently read page, ascending.
    pub hot: Vec<(KeyRange, u8)>,
}

impl RunHeat {
    /// Bytes of all keys in `hot`.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.hot.iter().map(|(keys, _)| keys.key_bytes()).sum()
    }
}

/// A run counts if it holds at least one part in this many of the merge's pages.
const SPREAD_MAX: u64 = 3;

/// Most ranges returned.
const HOT_RANGES_MAX: usize = 4096;

/// Most bytes of keys in the returned ranges.
pub const HOT_BYTES_MAX: usize = 256 << 10;

/// The hot key ranges of a merge, disjoint and ascending. If there are too many, the hottest are kept.
#[must_use]
pub fn hot_ranges(runs: Vec<RunHeat>) -> Vec<KeyRange> {
    let all: u64 = runs.iter().map(|run| run.pages).sum();
    let narrow = runs.into_iter().filter(|run| all <= run.pages * SPREAD_MAX);
    let mut hot: Vec<(KeyRange, u8)> = narrow.flat_map(|run| run.hot).collect();
    let mut least = 0;
    loop {
        let ranges = union(&mut hot);
        let bytes: usize = ranges.iter().map(KeyRange::key_bytes).sum();
        if ranges.len() <= HOT_RANGES_MAX && bytes <= HOT_BYTES_MAX {
            debug_assert!(
                ranges.is_sorted_by(|a, b| a.end.as_ref().is_some_and(|end| *end <= b.first)),
                "hot ranges are disjoint: {ranges:?}"
            );
            return ranges;
        }
        // Bounded: heat has at most 256 values, and each halving shortens the list. Among pages of equal heat
        // the first half is kept.
        match hot.iter().any(|(_, heat)| *heat > least) {
            true => hot.retain(|(_, heat)| *heat > least),
            false => hot.truncate(hot.len() / 2),
        }
        least = least.saturating_add(1);
    }
}

/// The union of the ranges, disjoint and ascending.
fn union(hot: &mut [(KeyRange, u8)]) -> Vec<KeyRange> {
    hot.sort_unstable_by(|(one, _), (other, _)| one.first.cmp(&other.first));
    let mut union: Vec<KeyRange> = Vec::new();
    for (range, _) in hot.iter() {
        match union.last_mut() {
            Some(last) if last.reaches(&range.first) => last.extend_to(range.end.clone()),
            _ => union.push(range.clone()),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, end: u32) -> KeyRange {
        KeyRange::new(&first.to_be_bytes(), Some(&end.to_be_bytes()))
    }

    fn run(pages: u64, hot: &[(u32, u32, u8)]) -> RunHeat {
        let hot = hot.iter().map(|(first, end, heat)| (range(*first, *end), *heat)).collect();
        RunHeat { pages, hot }
    }

    #[test]
    fn only_runs_with_most_pages_give_hot_ranges() {
        let large = run(100, &[(10, 20, 1), (20, 30, 2), (50, 60, 1)]);
        let small = run(20, &[(0, 1000, 3)]);
        assert_eq!(hot_ranges(vec![small.clone(), large]), [range(10, 30), range(50, 60)]);
        // Four runs of equal size: each page spreads over four output pages.
        assert_eq!(hot_ranges(vec![small.clone(); 4]), []);
        assert_eq!(hot_ranges(vec![small.clone(); 3]), [range(0, 1000)]);
        assert_eq!(hot_ranges(Vec::new()), []);
    }

    #[test]
    fn too_many_hot_ranges_are_cut_to_the_hottest() {
        let many = |heat: fn(u32) -> u8| {
            let hot = (0..20_000u32).map(|at| (at * 10, at * 10 + 5, heat(at)));
            vec![run(20_000, &hot.collect::<Vec<_>>())]
        };
        let ranges = hot_ranges(many(|at| if at % 10 == 0 { 3 } else { 1 }));
        assert_eq!(ranges.len(), 2000);
        assert_eq!(ranges[1], range(100, 105));
        let ranges = hot_ranges(many(|_| 3));
        assert!((1000..=HOT_RANGES_MAX).contains(&ranges.len()), "{}", ranges.len());
        let long = KeyRange::new(&[b'a'; 60_000], Some(&[b'b'; 60_000]));
        let hot = vec![(long, 1); 3].into_iter().enumerate();
        let hot = hot.map(|(at, (range, heat))| {
            (KeyRange { first: vec![at as u8; 9].into(), ..range }, heat)
        });
        assert!(hot_ranges(vec![RunHeat { pages: 1, hot: hot.collect() }]).len() <= 3);
    }
}
