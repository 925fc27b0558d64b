//! Read demand: whether readers gain from merging a level before it is full.
//!
//! For writers, the best time to merge a level is when it is full. Until then every scan searches each of its
//! runs. So if a keyspace is scanned often and written rarely, an earlier merge costs less time than it
//! saves. LevelDB charges a seek that read a table in vain against that table's next compaction; here the
//! time that readers lose to the runs is compared with the time of the merge, over the time that the merge
//! will be of use.

use base::invariant;

/// Rates of use of a keyspace, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Cursor seeks. Each searches every run of its column and decompresses a block of it.
    pub seeks: f64,
    /// Bytes of tables written by flushes.
    pub written: f64,
}

/// Processor time that one run costs a seek, seconds; measured in docs/decisions/005-compaction.md.
/// A get pays only a filter per run, which is too little to merge for.
const SEEK_SECONDS: f64 = 5e-6;
/// Processor time of a merge per stored byte, seconds: twice the measured time, because readers compete with
/// the merge.
const MERGE_SECONDS_PER_BYTE: f64 = 8e-9;
/// Longest time for which demand is assumed to stay the same, seconds.
const HORIZON_SECONDS: f64 = 60.0;

impl Demand {
    /// Whether merging `runs` runs of one level, `bytes` in total, saves readers more time than it takes,
    /// counted until the level would be full with `fanout` runs.
    pub(super) fn is_worthwhile(&self, runs: usize, bytes: u64, fanout: usize) -> bool {
        let (spared, left) = (runs.saturating_sub(1) as f64, fanout.saturating_sub(runs) as f64);
        let a_second = spared * self.seeks * SEEK_SECONDS;
        let length = bytes as f64 / runs.max(1) as f64;
        let seconds = (left * length / self.written.max(1.0)).min(HORIZON_SECONDS);
        a_second * seconds > bytes as f64 * MERGE_SECONDS_PER_BYTE
    }
}

/// Estimates [`Demand`] from counters: exponential averages over ten seconds for reads and over a minute for
/// flushes, which are rare.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemandMeter {
    /// The last counters observed.
    last: Option<UsageCounters>,
    demand: Demand,
}

/// Counters of a keyspace since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageCounters {
    /// Time of the reading, seconds.
    pub at: f64,
    /// Count of [`Demand::seeks`].
    pub seeks: u64,
    /// Sum of [`Demand::written`].
    pub written: u64,
}

/// Time constants of the averages, seconds.
const READS_FADE_SECONDS: f64 = 10.0;
const WRITES_FADE_SECONDS: f64 = 60.0;
/// Counters are sampled at most this often, seconds.
const SAMPLE_INTERVAL_SECONDS: f64 = 0.2;

impl DemandMeter {
    /// Updates the averages with `counted`, the current counters.
    pub fn observe(&mut self, counted: UsageCounters) -> Demand {
        let Some(last) = self.last else {
            self.last = Some(counted);
            return self.demand;
        };
        let elapsed = counted.at - last.at;
        if elapsed < SAMPLE_INTERVAL_SECONDS {
            return self.demand;
        }
        invariant!(
            counted.seeks >= last.seeks && counted.written >= last.written,
            "counters of use only grow"
        );
        self.last = Some(counted);
        let blend = |old: f64, count: u64, fade: f64| {
            let weight = 1.0 - (-elapsed / fade).exp();
            old + (count as f64 / elapsed - old) * weight
        };
        let Demand { seeks, written } = self.demand;
        self.demand = Demand {
            seeks: blend(seeks, counted.seeks.saturating_sub(last.seeks), READS_FADE_SECONDS),
            written: blend(
                written,
                counted.written.saturating_sub(last.written),
                WRITES_FADE_SECONDS,
            ),
        };
        self.demand
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn scans_make_merging_short_runs_worthwhile_but_not_long_ones() {
        let scans = Demand { seeks: 7000.0, written: 0.2e6 };
        assert!(scans.is_worthwhile(2, 5 * MIB, 12) && scans.is_worthwhile(11, 50 * MIB, 12));
        assert!(
            !scans.is_worthwhile(2, 3000 * MIB, 12),
            "a merge of half a minute for one run less"
        );
        let few = Demand { seeks: 10.0, ..scans };
        assert!(!few.is_worthwhile(11, 50 * MIB, 12));
    }

    #[test]
    fn with_fast_writes_only_full_levels_are_merged() {
        let writes = Demand { seeks: 2000.0, written: 60e6 };
        for runs in 2..12 {
            assert!(!writes.is_worthwhile(runs, runs as u64 * 16 * MIB, 12), "{runs}");
        }
        let reads = Demand { written: 0.2e6, ..writes };
        assert!(reads.is_worthwhile(6, 6 * 3 * MIB, 12));
        assert!(!Demand::default().is_worthwhile(12, MIB, 12) && !reads.is_worthwhile(0, 0, 12));
    }

    #[test]
    fn measured_demand_fades() {
        let mut meter = DemandMeter::default();
        let mut counted = UsageCounters::default();
        assert_eq!(meter.observe(counted), Demand::default());
        for _ in 0..600 {
            counted.at += 0.1;
            counted.seeks += 50;
            counted.written += 100_000;
            meter.observe(counted);
        }
        let Demand { seeks, written } = meter.observe(counted);
        assert!((450.0..=501.0).contains(&seeks), "{seeks}");
        assert!((600_000.0..=1_000_001.0).contains(&written), "{written}");
        counted.at += 30.0;
        let later = meter.observe(counted);
        assert!(later.seeks < seeks / 15.0 && later.written > written / 2.0, "{later:?}");
    }
}
