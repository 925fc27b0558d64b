//! The time that expiries are compared with: the wall clock, but it never goes back.
//!
//! Now is the later of the wall clock and the latest time that was returned, in this process or, by the
//! manifest, in an earlier one. So a clock that is set back does not revive a value that was seen expired.
//! The manifest's time may be a minute old: after a crash within that minute, a clock that is set back can
//! show values again that expired in it, except those that a flush or merge dropped, because their manifest
//! records contain the time they used.
//!
//! A wall clock that leaps ahead by more than a year is doubted for a day: reads use it, but flushes and
//! merges drop nothing by it, and the manifest does not store it. So a store that was closed for years works,
//! and a clock that starts wrong and is corrected within the day does no damage: then, and only then, values
//! that were seen expired are visible again.
//!
//! Concurrency: any thread. Cost: one relaxed load per read, one write to a shared word per millisecond. The
//! trusted time is computed under a lock, by background work and reports only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Clock, Progress, Task};
use manifest::{Edit, Manifest};
use parking_lot::Mutex;

/// A wall clock is plausible up to this far ahead of the expected time, milliseconds.
const LEAP_MAX: u64 = 366 * 86_400_000;

/// A wall clock that is further ahead is doubted while the store is open for this long.
const DOUBTED_FOR: Duration = Duration::from_secs(86_400);

/// A wall clock that is less far behind the latest time counts as right: clocks are set by seconds.
const BEHIND_MIN: Duration = Duration::from_secs(60);

/// Returns the time for reads, and remembers it.
#[derive(Debug)]
pub struct Timekeeper {
    clock: Arc<dyn Clock>,
    /// The latest time returned, and the latest that the manifest stores, Unix milliseconds. No other data
    /// depends on them: `Relaxed`. The first goes back only when a doubted leap is taken back.
    latest: AtomicU64,
    persisted: AtomicU64,
    trusted: Mutex<Trusted>,
}

/// The latest time that was not doubted.
#[derive(Clone, Copy, Debug)]
struct Trusted {
    /// Unix milliseconds; 0: none yet, and any is plausible.
    unix_ms: u64,
    /// The monotonic time at which it was observed.
    at: Duration,
    /// The monotonic time since which the wall clock is doubted, if it is.
    doubted: Option<Duration>,
}

/// The wall clock compared with the time that expiries are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockStatistics {
    /// How far the wall clock is behind the latest time. That time stands still until the clock catches up,
    /// and values that expire later live longer by as much.
    pub behind: Duration,
    /// How far the wall clock leapt ahead, while that is doubted: values expire by it, but none is dropped.
    pub leapt: Duration,
}

impl ClockStatistics {
    /// A description of the problem, if the clock is off by more than clocks are usually set by.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if self.is_doubted() {
            let leapt = days(self.leapt);
            return Some(format!(
                "the wall clock leapt {leapt} ahead: values expire by it; what expired is kept until the \
                 store was open for a day"
            ));
        }
        self.is_behind().then(|| {
            let behind = days(self.behind);
            format!(
                "the wall clock is {behind} behind the latest time seen: until then nothing expires"
            )
        })
    }

    /// Whether the wall clock is doubted.
    pub const fn is_doubted(&self) -> bool {
        !self.leapt.is_zero()
    }

    /// Whether the wall clock is further behind than clocks are usually set by.
    pub fn is_behind(&self) -> bool {
        self.behind > BEHIND_MIN
    }
}

/// A duration as text: in days if it is at least one, else in seconds.
pub fn days(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..86_400 => format!("{secs} s"),
        secs => format!("{:.1} days", secs as f64 / 86_400.0),
    }
}

impl Timekeeper {
    /// A timekeeper for a store with a manifest that stores the time `persisted`, Unix milliseconds.
    pub fn new(clock: Arc<dyn Clock>, persisted: u64) -> Self {
        let trusted = Trusted { unix_ms: persisted, at: clock.monotonic(), doubted: None };
        Self {
            clock,
            latest: AtomicU64::new(persisted),
            persisted: AtomicU64::new(persisted),
            trusted: Mutex::new(trusted),
        }
    }

    /// Now, Unix milliseconds. Read once per operation, and only by operations that find an expiry.
    pub fn now(&self) -> u64 {
        let wall = self.clock.unix_millis();
        let latest = self.latest.load(Ordering::Relaxed);
        if wall <= latest {
            return latest;
        }
        self.latest.fetch_max(wall, Ordering::Relaxed).max(wall)
    }

    /// The time by which versions may be dropped: [`Timekeeper::now`], or, while that is doubted, the time
    /// without the leap. Does not count as returned to a reader.
    pub fn trusted_now(&self) -> u64 {
        self.observe().0
    }

    /// As [`Timekeeper::trusted_now`], and how far the wall clock is ahead of it while it is doubted.
    fn observe(&self) -> (u64, u64) {
        let mut trusted = self.trusted.lock();
        let (wall, at) = (self.clock.unix_millis(), self.clock.monotonic());
        let due = trusted.unix_ms.saturating_add(millis(at.saturating_sub(trusted.at)));
        let is_plausible =
            |unix_ms: u64| trusted.unix_ms == 0 || unix_ms <= due.saturating_add(LEAP_MAX);
        let latest = self.latest.load(Ordering::Relaxed);
        let latest = wall.max(latest);
        let is_over = |since| at.saturating_sub(since) >= DOUBTED_FOR;
        let unix_ms = if is_plausible(latest) || trusted.doubted.is_some_and(is_over) {
            latest
        } else if is_plausible(wall) {
            // The leap is taken back, but not below a time by which versions may have been dropped meanwhile.
            let back = wall.max(due);
            self.latest.store(back, Ordering::Relaxed);
            back
        } else {
            trusted.doubted.get_or_insert(at);
            return (due, wall.saturating_sub(due));
        };
        *trusted = Trusted { unix_ms, at, doubted: None };
        (unix_ms, 0)
    }

    /// Makes `now` the least time that reads get from here on, because versions were dropped by it. Returns
    /// the edit that stores the time in the manifest, if that is needed.
    pub fn advance_to(&self, now: u64) -> Option<Edit> {
        self.latest.fetch_max(now, Ordering::Relaxed);
        self.pending_edit()
    }

    /// The time `after` from now, Unix milliseconds: at least 1, since an expiry of 0 means none, and at most
    /// `u64::MAX`.
    pub fn expiry_after(&self, after: Duration) -> u64 {
        self.now().saturating_add(millis(after)).max(1)
    }

    /// The edit that stores the latest trusted time in the manifest, if the manifest has an earlier one.
    fn pending_edit(&self) -> Option<Edit> {
        let trusted_now = self.trusted_now();
        let latest = self.latest.load(Ordering::Relaxed).min(trusted_now);
        (latest > self.persisted.load(Ordering::Relaxed))
            .then_some(Edit::ClockReached { unix_ms: latest })
    }

    /// Records that the manifest stores the time of `edit`.
    pub fn mark_persisted(&self, edit: &Edit) {
        if let Edit::ClockReached { unix_ms } = edit {
            self.persisted.fetch_max(*unix_ms, Ordering::Relaxed);
        }
    }

    /// Stores the latest trusted time in the manifest.
    ///
    /// # Errors
    /// The manifest's error.
    pub fn persist(&self, manifest: &Manifest) -> base::Result<()> {
        let Some(edit) = self.pending_edit() else { return Ok(()) };
        manifest.append(vec![edit.clone()])?;
        self.mark_persisted(&edit);
        base::invariant!(
            self.persisted.load(Ordering::Relaxed) > 0,
            "a time that was made durable is known as such"
        );
        Ok(())
    }

    /// The state of the wall clock.
    pub fn statistics(&self) -> ClockStatistics {
        let (trusted_now, leapt) = self.observe();
        // Loaded after the observation: a leap that is taken back in between is then not reported.
        let latest = self.latest.load(Ordering::Relaxed).min(trusted_now);
        let behind = latest.saturating_sub(self.clock.unix_millis());
        ClockStatistics {
            behind: Duration::from_millis(behind),
            leapt: Duration::from_millis(leapt),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How old the manifest's time may be.
const PERSIST_EVERY: Duration = Duration::from_secs(60);

/// Stores the time in the manifest once a minute, if any operation asked for it.
pub struct ClockTask {
    /// The store's timekeeper.
    pub timekeeper: Arc<Timekeeper>,
    /// The store's manifest.
    pub manifest: Arc<Manifest>,
    /// Set when the store is closed.
    pub stop: Arc<AtomicBool>,
}

impl Task for ClockTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        // Also observes the clock, so that a leap is recognised as one. A failed manifest is reported to
        // writers; a full device is tried again.
        let _ = self.timekeeper.persist(&self.manifest);
        Progress::IdleFor(PERSIST_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use base::ManualClock;

    use super::*;

    #[test]
    fn time_never_goes_back() {
        let clock = Arc::new(ManualClock::at(1000));
        let keeper = Timekeeper::new(Arc::clone(&clock) as _, 500);
        assert_eq!(keeper.pending_edit(), None);
        assert_eq!(keeper.now(), 1000);
        clock.set_unix_millis(10);
        assert_eq!((keeper.now(), keeper.expiry_after(Duration::from_millis(5))), (1000, 1005));
        assert_eq!(keeper.expiry_after(Duration::MAX), u64::MAX);
        let edit = keeper.pending_edit().unwrap();
        assert_eq!(edit, Edit::ClockReached { unix_ms: 1000 });
        keeper.mark_persisted(&edit);
        assert_eq!(keeper.pending_edit(), None);
        assert_eq!(Timekeeper::new(clock, 2000).now(), 2000);
    }

    const DAY: u64 = 86_400_000;
    const YEAR: u64 = 365 * DAY;
    const PRESENT: u64 = 54 * YEAR;

    fn at(wall: u64) -> (Arc<ManualClock>, Timekeeper) {
        let clock = Arc::new(ManualClock::at(wall));
        let keeper = Timekeeper::new(Arc::clone(&clock) as _, PRESENT);
        (clock, keeper)
    }

    #[test]
    fn a_clock_decades_ahead_is_used_by_reads_but_not_trusted_for_a_day() {
        for at_opening in [true, false] {
            let (clock, keeper) = at(if at_opening { 129 * YEAR } else { PRESENT });
            let first = keeper.trusted_now();
            clock.set_unix_millis(129 * YEAR);
            assert_eq!((keeper.now(), first, keeper.trusted_now()), (129 * YEAR, PRESENT, PRESENT));
            assert_eq!(keeper.statistics().leapt, Duration::from_millis(75 * YEAR));
            // Meanwhile the trusted time goes on, and is stored.
            clock.advance(Duration::from_millis(DAY - 1));
            assert_eq!(
                keeper.pending_edit(),
                Some(Edit::ClockReached { unix_ms: PRESENT + DAY - 1 })
            );
            assert_eq!(keeper.statistics().behind, Duration::ZERO);
            clock.advance(Duration::from_millis(1));
            assert_eq!((keeper.trusted_now(), keeper.now()), (129 * YEAR + DAY, 129 * YEAR + DAY));
            assert_eq!(keeper.statistics(), ClockStatistics::default());
            // Now it is trusted, and a corrected clock is behind it.
            clock.set_unix_millis(PRESENT);
            assert_eq!((keeper.now(), keeper.trusted_now()), (129 * YEAR + DAY, 129 * YEAR + DAY));
            assert_eq!(keeper.statistics().behind, Duration::from_millis(75 * YEAR + DAY));
        }
    }

    #[test]
    fn a_leap_taken_back_within_the_day_leaves_only_the_time_that_passed() {
        let (clock, keeper) = at(129 * YEAR);
        assert_eq!((keeper.now(), keeper.trusted_now()), (129 * YEAR, PRESENT));
        clock.advance(Duration::from_secs(60));
        clock.set_unix_millis(PRESENT + 5000);
        // A minute has passed: versions may have been dropped by that.
        assert_eq!((keeper.trusted_now(), keeper.now()), (PRESENT + 60_000, PRESENT + 60_000));
        assert_eq!(keeper.statistics().behind, Duration::from_secs(55));
        assert!(!keeper.statistics().is_behind() && !keeper.statistics().is_doubted());
        clock.advance(Duration::from_secs(60));
        assert_eq!(keeper.now(), PRESENT + 65_000);
    }

    #[test]
    fn a_store_that_was_closed_for_a_year_trusts_the_clock() {
        let (_, keeper) = at(PRESENT + YEAR);
        assert_eq!((keeper.trusted_now(), keeper.now()), (PRESENT + YEAR, PRESENT + YEAR));
        assert_eq!(keeper.statistics().trouble(), None);
        // A new store has nothing to compare the clock with.
        let new = Timekeeper::new(Arc::new(ManualClock::at(PRESENT)), 0);
        assert_eq!((new.trusted_now(), new.statistics().trouble()), (PRESENT, None));
    }

    #[test]
    fn a_clock_decades_behind_is_reported() {
        let (clock, keeper) = at(0);
        assert_eq!((keeper.now(), keeper.trusted_now()), (PRESENT, PRESENT));
        let latest = keeper.statistics().trouble().unwrap();
        assert!(latest.contains("19710.0 days behind"), "{latest}");
        clock.set_unix_millis(PRESENT + 1);
        assert_eq!(keeper.statistics().trouble(), None);
    }
}
