//! Which keys a merge's outputs are to be read for soon, from which pages of its inputs were: a pure
//! function.
//!
//! A page that was read much says so of one of its keys or of all; which, nobody knows. Where runs of like
//! size are merged, its keys go to as many pages as there are runs, most of which nobody will ask for. So
//! only runs count whose pages span few pages of what is written: those that hold most of the content.

use crate::KeyRange;

/// A run of a merge.
#[derive(Clone, Debug, Default)]
pub struct RunHeat {
    /// The data pages that are merged.
    pub pages: u64,
    /// Those that were read lately: the keys of each, and how often, ascending.
    pub hot: Vec<(KeyRange, u8)>,
}

impl RunHeat {
    /// The bytes of the keys.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.hot.iter().map(|(keys, _)| keys.key_bytes()).sum()
    }
}

/// A page of an output holds at least one part in so many of a page's keys that are told as hot.
const SPREAD_MAX: u64 = 3;

/// Ranges told, at most.
const HOT_RANGES_MAX: usize = 4096;

/// Bytes of their keys, at most, about.
pub const HOT_BYTES_MAX: usize = 256 << 10;

/// The ranges of keys to be asked for soon, ascending and apart; where there are too many, those that were
/// asked for most.
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
            return ranges;
        }
        // Bounded: heat has few values. Of pages all as hot, the first are as good as others.
        match hot.iter().any(|(_, heat)| *heat > least) {
            true => hot.retain(|(_, heat)| *heat > least),
            false => hot.truncate(hot.len() / 2),
        }
        least = least.saturating_add(1);
    }
}

/// The union of ranges.
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
    fn runs_that_hold_most_of_it_say_what_is_hot() {
        let large = run(100, &[(10, 20, 1), (20, 30, 2), (50, 60, 1)]);
        let small = run(20, &[(0, 1000, 3)]);
        assert_eq!(hot_ranges(vec![small.clone(), large]), [range(10, 30), range(50, 60)]);
        // Four runs of the same size: each of their pages is spread over four.
        assert_eq!(hot_ranges(vec![small.clone(); 4]), []);
        assert_eq!(hot_ranges(vec![small.clone(); 3]), [range(0, 1000)]);
        assert_eq!(hot_ranges(Vec::new()), []);
    }

    #[test]
    fn of_too_many_the_hottest_are_told() {
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
