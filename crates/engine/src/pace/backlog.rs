//! The queue of written bytes that writers have not paid for with time yet.

use base::invariant;

/// A queue that drains at the rate that the cost per byte sets. Each write joins at the end, and its wait is
/// over when the queue has drained past its last byte. So the rate is bounded whatever the number of writers
/// and the length of their writes, and a change of the cost also changes the waits in progress.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Bytes that joined the queue, ever.
    joined: f64,
    /// Bytes drained, ever. A little more than `joined` after sleeps that ended late.
    drained: f64,
    /// Time of the last call, nanoseconds.
    last: u64,
}

/// The most time that later writes are credited for sleeps that ended late, nanoseconds.
const CREDIT: f64 = 1e6;

impl Backlog {
    /// Drains the queue up to `now`, nanoseconds, at `cost` nanoseconds per byte.
    fn advance(&mut self, now: u64, cost: f64) {
        invariant!(cost > 0.0, "a delayed byte has a cost");
        let elapsed = now.saturating_sub(self.last) as f64;
        self.last = self.last.max(now);
        let most = self.joined + CREDIT / cost;
        let before = self.drained;
        self.drained = (self.drained + elapsed / cost).min(most);
        debug_assert!(
            self.drained >= before.min(most),
            "the backlog drains, and does not fill by itself"
        );
    }

    /// Adds `bytes` at `now`. Returns their position in the queue, for [`Backlog::left`].
    pub(super) fn join(&mut self, bytes: usize, now: u64, cost: f64) -> f64 {
        self.advance(now, cost);
        self.joined += bytes as f64;
        self.joined
    }

    /// Nanoseconds until the queue has drained past `position`, at `cost`. 0 if it has already.
    pub(super) fn left(&mut self, position: f64, now: u64, cost: f64) -> u64 {
        self.advance(now, cost);
        invariant!(
            position <= self.joined,
            "a writer waits for bytes that have joined the backlog"
        );
        ((position - self.drained) * cost).max(0.0) as u64
    }

    /// Nanoseconds until the queue has drained, at `cost`.
    pub(super) fn left_of_all(&mut self, now: u64, cost: f64) -> u64 {
        let last = self.joined;
        self.left(last, now, cost)
    }

    /// Drains the queue at once: a byte costs nothing now.
    pub(super) fn clear(&mut self) {
        self.drained = self.joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_bounds_the_rate_for_any_length_and_number_of_writes() {
        for (writers, bytes) in [(1, 100), (1, 1 << 20), (16, 100), (16, 1 << 20)] {
            // 10 ns per byte: 100 MB per second. Every writer writes again as soon as its wait is over.
            let (mut backlog, cost, mut now) = (Backlog::default(), 10.0, 1_000_000_000);
            let (start, mut done) = (now, 0);
            let mut positions: Vec<f64> =
                (0..writers).map(|_| backlog.join(bytes, now, cost)).collect();
            while done < 2000 {
                let waits = positions.iter().map(|position| backlog.left(*position, now, cost));
                let next = waits.min().unwrap();
                now += next;
                for position in &mut positions {
                    if backlog.left(*position, now, cost) == 0 {
                        done += 1;
                        *position = backlog.join(bytes, now, cost);
                    }
                }
            }
            let least = (done * bytes) as f64 * cost - CREDIT;
            let took = (now - start) as f64;
            assert!(took >= least - 1e3, "{writers} x {bytes}: {took} of {least}");
            assert!(took <= least + 2.0 * CREDIT + writers as f64 * bytes as f64 * cost);
        }
    }

    #[test]
    fn a_lower_cost_shortens_waits_and_clear_ends_them() {
        let (mut backlog, now) = (Backlog::default(), 5_000_000_000);
        let position = backlog.join(1 << 20, now, 1000.0);
        let before = backlog.left(position, now, 1000.0);
        assert!((1_000_000_000..1_100_000_000).contains(&before), "{before}");
        assert_eq!(backlog.left(position, now, 10.0) / 10, before / 1000);
        backlog.clear();
        assert_eq!(backlog.left(position, now, 1000.0), 0);
    }

    #[test]
    fn a_pause_earns_no_more_credit_than_a_late_sleep() {
        let mut backlog = Backlog::default();
        backlog.join(100, 1, 10.0);
        let position = backlog.join(1 << 20, 60_000_000_000, 10.0);
        let left = backlog.left(position, 60_000_000_000, 10.0) as f64;
        assert!(left >= (1 << 20) as f64 * 10.0 - CREDIT, "{left}");
    }
}
