//! The bytes that writers have brought and time has not paid for yet.

/// A line of bytes that moves on with time, as fast as a byte costs: every writer's wait ends when the
/// line has moved past its last byte. So the rate is bounded whatever the number of writers and the
/// length of their writes, and a cost that changes changes the waits under way.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Bytes that joined the line, ever.
    joined: f64,
    /// Bytes the line has moved past; a little more than joined, where sleeps ended late.
    passed: f64,
    /// When it was seen last, nanoseconds.
    seen: u64,
}

/// What sleepers may make up for, nanoseconds: a sleep ends late.
const CREDIT: f64 = 1e6;

impl Backlog {
    /// Lets the line move on to `now`, nanoseconds, at `cost` nanoseconds a byte.
    fn advance(&mut self, now: u64, cost: f64) {
        let elapsed = now.saturating_sub(self.seen) as f64;
        self.seen = self.seen.max(now);
        let most = self.joined + CREDIT / cost;
        self.passed = (self.passed + elapsed / cost).min(most);
    }

    /// Has `bytes` join at `now`; their place in the line, for [`Backlog::left`].
    pub(super) fn join(&mut self, bytes: usize, now: u64, cost: f64) -> f64 {
        self.advance(now, cost);
        self.joined += bytes as f64;
        self.joined
    }

    /// Nanoseconds until the line has moved past `place`, at `cost`: 0 where it has.
    pub(super) fn left(&mut self, place: f64, now: u64, cost: f64) -> u64 {
        self.advance(now, cost);
        ((place - self.passed) * cost).max(0.0) as u64
    }

    /// Lets everybody go: a byte costs nothing now.
    pub(super) fn clear(&mut self) {
        self.passed = self.joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_whatever_the_length_and_number_of_writes() {
        for (writers, bytes) in [(1, 100), (1, 1 << 20), (16, 100), (16, 1 << 20)] {
            // 10 ns a byte: 100 MB a second. Every writer writes as soon as its last write was let go.
            let (mut backlog, cost, mut now) = (Backlog::default(), 10.0, 1_000_000_000);
            let (start, mut done) = (now, 0);
            let mut places: Vec<f64> =
                (0..writers).map(|_| backlog.join(bytes, now, cost)).collect();
            while done < 2000 {
                let waits = places.iter().map(|place| backlog.left(*place, now, cost));
                let next = waits.min().unwrap();
                now += next;
                for place in &mut places {
                    if backlog.left(*place, now, cost) == 0 {
                        done += 1;
                        *place = backlog.join(bytes, now, cost);
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
    fn a_cost_that_falls_shortens_waits_and_none_ends_them() {
        let (mut backlog, now) = (Backlog::default(), 5_000_000_000);
        let place = backlog.join(1 << 20, now, 1000.0);
        let before = backlog.left(place, now, 1000.0);
        assert!((1_000_000_000..1_100_000_000).contains(&before), "{before}");
        assert_eq!(backlog.left(place, now, 10.0) / 10, before / 1000);
        backlog.clear();
        assert_eq!(backlog.left(place, now, 1000.0), 0);
    }

    #[test]
    fn rest_earns_no_more_than_a_late_sleep() {
        let mut backlog = Backlog::default();
        backlog.join(100, 1, 10.0);
        let place = backlog.join(1 << 20, 60_000_000_000, 10.0);
        let left = backlog.left(place, 60_000_000_000, 10.0) as f64;
        assert!(left >= (1 << 20) as f64 * 10.0 - CREDIT, "{left}");
    }
}
