//! How much a written byte is delayed: a pure function of how far flushes and merges are behind.

/// How far background work is behind, and how fast it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Behind {
    /// The part of the write buffers in use, 0 to 1 and a little over.
    pub buffers: f64,
    /// How far the fullest level of the highest tree is over its fanout: 1 is just full.
    pub runs: f64,
    /// Space taken, over the most it should be.
    pub space: f64,
    /// Bytes of memtables a second that flushes write.
    pub flush_rate: f64,
}

/// Why writers are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Flushes do not keep up: the write buffers fill.
    Buffers,
    /// Merges do not keep up: runs pile up.
    Runs,
    /// Merges do not keep up: superseded versions take more and more space.
    Space,
}

impl Cause {
    pub(super) const ALL: [Self; 3] = [Self::Buffers, Self::Runs, Self::Space];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Buffers => "flushes do not keep up",
            Self::Runs => "merges do not keep up: runs pile up",
            Self::Space => "merges do not keep up: superseded versions take space",
        }
    }
}

/// Where delays begin, and where they would grow beyond all bounds. Half of the write buffers are in
/// use whenever one memtable fills while another is flushed: nothing is behind then.
const BUFFERS: (f64, f64) = (0.6, 1.0);
/// `crates/compact/tests/shapes/tree.rs` says these two again.
const RUNS: (f64, f64) = (2.0, 6.0);
const SPACE: (f64, f64) = (1.11, 1.56);
/// The most of the way between the two that counts: writers are not stopped here, but go 50 times slower
/// than flushes, so that what is behind catches up first.
const WAY_MAX: f64 = 0.98;
/// What flushes are taken to do at least and at most, bytes a second.
const RATE: (f64, f64) = (4e6, 2e9);

/// Nanoseconds that each byte written costs now, and why.
///
/// Halfway between where delays begin and end writers go at the rate of flushes; before it faster,
/// beyond it slower, without a step anywhere: delay `w / (1 - w)` at the way `w`, over the rate. So
/// writers come to rest at the rate that background work achieves, wherever that is.
pub(super) fn delay(behind: &Behind) -> (f64, Cause) {
    let way =
        |value: f64, (from, to): (f64, f64)| ((value - from) / (to - from)).clamp(0.0, WAY_MAX);
    let ways = [
        (way(behind.buffers, BUFFERS), Cause::Buffers),
        (way(behind.runs, RUNS), Cause::Runs),
        (way(behind.space, SPACE), Cause::Space),
    ];
    let worst = ways
        .into_iter()
        .fold((0.0, Cause::Buffers), |worst, next| if next.0 > worst.0 { next } else { worst });
    let rate = behind.flush_rate.clamp(RATE.0, RATE.1);
    (worst.0 / (1.0 - worst.0) * 1e9 / rate, worst.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Behind = Behind { buffers: 0.4, runs: 1.0, space: 1.0, flush_rate: 100e6 };

    fn series(set: impl Fn(&mut Behind, f64)) -> Vec<f64> {
        let at = |step: u32| {
            let mut behind = NONE;
            set(&mut behind, f64::from(step) / 1000.0);
            delay(&behind).0
        };
        (0..=8000).map(at).collect()
    }

    #[test]
    fn delays_grow_without_a_step() {
        let all = [
            series(|behind, value| behind.buffers = value),
            series(|behind, value| behind.runs = value),
            series(|behind, value| behind.space = value),
        ];
        for delays in all {
            assert!(delays.is_sorted());
            assert_eq!(delays[0], 0.0);
            let last = delays[delays.len() - 1];
            assert!((480.0..500.0).contains(&last), "{last}: slow, but never stopped");
            for pair in delays.windows(2) {
                // Where the way ends it is steepest: a thousandth of the fill adds a tenth.
                assert!(pair[1] - pair[0] <= 0.12 * pair[1] + 0.1, "{pair:?}");
            }
        }
    }

    #[test]
    fn halfway_writers_go_as_fast_as_flushes() {
        let (delay, cause) = delay(&Behind { buffers: 0.8, ..NONE });
        assert!((delay - 10.0).abs() < 1e-9, "{delay}: 100 MB a second");
        assert_eq!(cause, Cause::Buffers);
    }

    #[test]
    fn the_worst_of_the_causes_counts_alone() {
        let runs = Behind { runs: 5.0, ..NONE };
        let both = Behind { buffers: 0.6, ..runs };
        assert_eq!(delay(&both), delay(&runs));
        assert_eq!(delay(&both).1, Cause::Runs);
        assert_eq!(delay(&NONE).0, 0.0);
        let (slow, cause) = delay(&Behind { space: 1.9, flush_rate: 0.0, ..NONE });
        assert!(slow.is_finite() && cause == Cause::Space);
    }
}
