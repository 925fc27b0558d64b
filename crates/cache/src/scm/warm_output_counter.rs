//! How many warm outputs the tier admitted lately, per lookup: the input of
//! [`super::admission::decide_warm_output`].
//!
//! Both counts decay: after each window of [`WINDOW_LOOKUPS`] lookups, earlier lookups and admissions count
//! half.

use super::admission::RecentWarmOutputs;

/// Lookups and admitted warm outputs, with decay.
#[derive(Debug, Default)]
pub(crate) struct WarmOutputCounter {
    /// Lookups that no longer count.
    expired_lookups: u64,
    admitted: u32,
}

/// After this many lookups, earlier lookups and admissions count half.
const WINDOW_LOOKUPS: u64 = 1 << 16;

impl WarmOutputCounter {
    /// The recent counts, given the tier's total of lookups, which never decreases.
    pub(crate) fn recent(&mut self, total_lookups: u64) -> RecentWarmOutputs {
        let mut lookups = total_lookups.saturating_sub(self.expired_lookups);
        // Bounded: each turn halves the lookups.
        while lookups > WINDOW_LOOKUPS {
            lookups /= 2;
            self.admitted /= 2;
        }
        self.expired_lookups = total_lookups - lookups;
        RecentWarmOutputs { lookups: lookups as u32, admitted: self.admitted }
    }

    /// Counts an admitted warm output.
    pub(crate) const fn count(&mut self) {
        self.admitted += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_and_admissions_before_the_window_count_half() {
        let mut counter = WarmOutputCounter { expired_lookups: 0, admitted: 1000 };
        let mut recent = |total| {
            let RecentWarmOutputs { lookups, admitted } = counter.recent(total);
            (lookups, admitted)
        };
        assert_eq!(recent(50_000), (50_000, 1000));
        assert_eq!(recent(80_000), (40_000, 500));
        assert_eq!(recent(90_000), (50_000, 500));
        assert_eq!(recent(10_000_000), (38_906, 1));
    }
}
