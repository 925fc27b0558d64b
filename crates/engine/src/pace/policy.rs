//! The write delay per byte: a pure function of how far flushes and merges are behind.

/// How far background work is behind, and the speed of flushes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Behind {
    /// The used share of the write buffers: 0 to 1, and a little over.
    pub buffers: f64,
    /// Runs of the fullest level of any tree, over its fanout: 1 is just full.
    pub runs: f64,
    /// Stored bytes of the worst tree, over the most that it should have.
    pub space: f64,
    /// Bytes of memtables that flushes write per second.
    pub flush_rate: f64,
}

/// Why writers are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Flushes do not keep up: the write buffers fill.
    Buffers,
    /// Merges do not keep up: runs pile up.
    Runs,
    /// Merges do not keep up: superseded versions take too much space.
    Space,
}

impl Cause {
    pub(super) const ALL: [Self; 3] = [Self::Buffers, Self::Runs, Self::Space];

    /// The reason as reports show it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Buffers => "flushes do not keep up",
            Self::Runs => "merges do not keep up: runs pile up",
            Self::Space => "merges do not keep up: superseded versions take space",
        }
    }
}

/// Used share at which delays begin, and at which they would be infinite. Half of the write buffers are in
/// use whenever one memtable fills while another is flushed; flushes keep up then.
const BUFFERS: (f64, f64) = (0.6, 1.0);
/// The same for runs and space. `crates/compact/tests/shapes/tree.rs` repeats these two.
const RUNS: (f64, f64) = (2.0, 6.0);
const SPACE: (f64, f64) = (1.11, 1.56);
/// The greatest fraction of the distance between the two that counts. Writers are never stopped here, but
/// slowed to a 50th of the rate of flushes, so that background work catches up first.
const FRACTION_MAX: f64 = 0.98;
/// Bounds on the assumed rate of flushes, bytes per second.
const RATE: (f64, f64) = (4e6, 2e9);

/// The delay of each written byte, nanoseconds, and its cause.
///
/// With `f` the fraction of the distance between the begin of delays and infinite delay, the delay is
/// `f / (1 - f)` over the rate of flushes. Halfway, writers are as fast as flushes; before, faster; beyond,
/// slower; without a step. So the rate of writers settles at the rate of background work, whatever that is.
pub(super) fn delay(behind: &Behind) -> (f64, Cause) {
    let fraction = |value: f64, (from, to): (f64, f64)| {
        ((value - from) / (to - from)).clamp(0.0, FRACTION_MAX)
    };
    let fractions = [
        (fraction(behind.buffers, BUFFERS), Cause::Buffers),
        (fraction(behind.runs, RUNS), Cause::Runs),
        (fraction(behind.space, SPACE), Cause::Space),
    ];
    let worst = fractions
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
    fn delays_grow_monotonically_without_a_step() {
        let all = [
            series(|behind, value| behind.buffers = value),
            series(|behind, value| behind.runs = value),
            series(|behind, value| behind.space = value),
        ];
        for delays in all {
            assert!(delays.is_sorted());
            assert_eq!(delays[0], 0.0);
            let last = delays[delays.len() - 1];
            assert!((480.0..500.0).contains(&last), "{last}: writers are slow, but never stopped");
            for pair in delays.windows(2) {
                // The delay is steepest at the end: a thousandth of fullness adds a tenth.
                assert!(pair[1] - pair[0] <= 0.12 * pair[1] + 0.1, "{pair:?}");
            }
        }
    }

    #[test]
    fn halfway_the_delay_matches_the_rate_of_flushes() {
        let (delay, cause) = delay(&Behind { buffers: 0.8, ..NONE });
        assert!((delay - 10.0).abs() < 1e-9, "{delay}: 100 MB per second");
        assert_eq!(cause, Cause::Buffers);
    }

    #[test]
    fn only_the_worst_cause_counts() {
        let runs = Behind { runs: 5.0, ..NONE };
        let both = Behind { buffers: 0.6, ..runs };
        assert_eq!(delay(&both), delay(&runs));
        assert_eq!(delay(&both).1, Cause::Runs);
        assert_eq!(delay(&NONE).0, 0.0);
        let (slow, cause) = delay(&Behind { space: 1.9, flush_rate: 0.0, ..NONE });
        assert!(slow.is_finite() && cause == Cause::Space);
    }
}
