//! Leaves the device to point reads while nobody writes: merges then keep to a rate.
//!
//! While there are writes, merges run at full speed, because the debt would grow. Without writes the debt
//! only shrinks, and gets, which filters keep from most runs, gain more from the device than from the end of
//! the merges. Short scans gain more from the merges: each run costs them a read. Measured with eight threads
//! right after 40 s of overwrites: gets 1.7 times, scans of 100 entries 0.7 times the rate of full-speed
//! merges. So merges run at full speed beside scans too. The rate follows what readers read, so that merges
//! end the sooner the less readers need. Callers that wait for merges lift it.

use std::time::Duration;

use base::Seqno;
use parking_lot::Mutex;

/// Readers are measured this often.
const WINDOW: Duration = Duration::from_millis(100);

/// After this time without writes merges keep to a rate.
const QUIET_AFTER: Duration = Duration::from_millis(300);

/// Fewer device reads per second are no reason to hold merges back.
const READS_MIN: u64 = 1000;

/// A seek for this many device reads: readers scan.
const READS_PER_SEEK: u64 = 12;

/// Merges may move so many bytes per second in any case.
const RATE_MIN: u64 = 32 << 20;

/// And this part, as a divisor, of the bytes that readers read.
const READERS_PART: u64 = 2;

/// What readers did since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readers {
    /// Device reads.
    pub(super) reads: u64,
    /// Bytes of them.
    pub(super) bytes: u64,
    /// Positions searched by iterators.
    pub(super) seeks: u64,
}

/// See the module. No other lock is taken under its lock.
#[derive(Debug, Default)]
pub(super) struct ReaderShare(Mutex<ShareState>);

#[derive(Debug, Default)]
struct ShareState {
    /// Begin of the present window, and the counters then.
    at: Duration,
    readers: Readers,
    /// The newest write that was seen, and when.
    written: (Seqno, Duration),
    /// Bytes per second that merges may move; 0: no limit.
    rate: u64,
}

impl ReaderShare {
    /// Bytes per second that merges may move at `now`; 0: no limit. `visible` is the newest write.
    pub(super) fn rate(
        &self,
        now: Duration,
        visible: Seqno,
        readers: impl FnOnce() -> Readers,
    ) -> u64 {
        let mut state = self.0.lock();
        if state.written.0 != visible {
            state.written = (visible, now);
            state.rate = 0;
        }
        let passed = now.saturating_sub(state.at);
        if passed < WINDOW {
            return state.rate;
        }
        let (readers, before) = (readers(), state.readers);
        let per_second = |now: u64, before: u64| {
            (u128::from(now.saturating_sub(before)) * 1000 / passed.as_millis().max(1)) as u64
        };
        let reads = per_second(readers.reads, before.reads);
        let bytes = per_second(readers.bytes, before.bytes);
        let scans = per_second(readers.seeks, before.seeks).saturating_mul(READS_PER_SEEK) >= reads;
        let is_quiet = now.saturating_sub(state.written.1) >= QUIET_AFTER;
        let is_held = is_quiet && reads >= READS_MIN && !scans;
        state.rate = if is_held { RATE_MIN.max(bytes / READERS_PART) } else { 0 };
        (state.at, state.readers) = (now, readers);
        state.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters after so many windows in which 5,000 pages were read.
    fn readers(windows: u64) -> Readers {
        Readers { reads: 5000 * windows, bytes: 5000 * windows * 4096, seeks: 0 }
    }

    /// The rate after ten windows, in each of which so many pages are read, batches written and positions
    /// searched.
    fn rate_of(reads: u64, writes: u64, seeks: u64) -> u64 {
        let share = ReaderShare::default();
        (1..=10).fold(0, |_, step| {
            let readers =
                || Readers { reads: step * reads, bytes: step * reads * 4096, seeks: step * seeks };
            share.rate(WINDOW * step as u32, Seqno::new(1 + step * writes), readers)
        })
    }

    #[test]
    fn merges_leave_the_device_to_gets_while_nobody_writes() {
        assert_eq!(rate_of(5000, 0, 0), 5000 * 10 * 4096 / 2);
        assert_eq!(rate_of(5000, 0, 100), 5000 * 10 * 4096 / 2, "hardly any scans");
        assert_eq!(rate_of(200, 0, 0), RATE_MIN, "few reads");
        assert_eq!(rate_of(50, 0, 0), 0, "hardly any reads");
        assert_eq!(rate_of(5000, 1, 0), 0, "writes");
        assert_eq!(rate_of(5000, 0, 700), 0, "scans");
    }

    #[test]
    fn a_write_lifts_the_rate_at_once_and_its_end_sets_it_again() {
        let share = ReaderShare::default();
        let rate = |window: u64, written: u64| {
            share.rate(WINDOW * window as u32, Seqno::new(written), || readers(window))
        };
        assert!((1..=10).fold(0, |_, window| rate(window, 1)) > 0);
        assert_eq!(rate(10, 2), 0);
        assert_eq!(rate(11, 2), 0, "not yet quiet");
        assert!(rate(15, 2) > 0);
    }
}
