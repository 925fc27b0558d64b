//! The time that expiries are held against: the wall clock, but never earlier than it was.
//!
//! Now is the later of the wall clock and the latest time anyone was told, in this process or, as
//! the manifest says, in one before. So a clock that is set back revives nothing that was seen
//! expired. What the manifest says may be a minute behind: after a crash within that minute, a
//! clock set back can show once more what expired in it, unless a flush or a merge dropped it, for
//! their records carry the time they used.
//!
//! A wall clock that leaps ahead by more than a year is doubted for a day: reads go by it, but flushes
//! and merges drop nothing for it, and the manifest does not remember it. A store that lay about for
//! years works so, and a clock that comes up wrong and is set right within the day costs nothing: then,
//! and only then, what was seen expired is there again.
//!
//! Concurrency: any thread; one relaxed load a read, one write of a shared word a millisecond. What is
//! beyond doubt is looked at under a lock, by background work and reports alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Clock, Progress, Task};
use parking_lot::Mutex;

use manifest::{Edit, Manifest};

/// The wall clock may be so far ahead of where the last look at it leaves it, milliseconds.
const LEAP_MAX: u64 = 366 * 86_400_000;

/// A wall clock that is further ahead is doubted for so long of a store's being open.
const DOUBTED_FOR: Duration = Duration::from_secs(86_400);

/// A wall clock that is less behind the time told is as good as right: clocks are set by seconds.
const BEHIND_MIN: Duration = Duration::from_secs(60);

/// Tells the time to reads, and remembers it.
#[derive(Debug)]
pub struct Timekeeper {
    clock: Arc<dyn Clock>,
    /// The latest time told, and the latest that the manifest holds; Unix milliseconds. Nothing else
    /// hangs on them: `Relaxed`. The first goes back only where a leap that was doubted is taken back.
    latest: AtomicU64,
    persisted: AtomicU64,
    trusted: Mutex<Trusted>,
}

/// The latest time that was beyond doubt.
#[derive(Clone, Copy, Debug)]
struct Trusted {
    /// Unix milliseconds; 0: none was ever told, and any is believed.
    unix_ms: u64,
    /// When that was, by the clock that does not leap.
    at: Duration,
    /// Since when the wall clock is doubted, if it is.
    doubted: Option<Duration>,
}

/// How the wall clock stands to the time that expiries are held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockStatistics {
    /// How far the wall clock is behind the latest time told, which stands still until it catches up:
    /// what expires later lives longer by as much.
    pub behind: Duration,
    /// How far it leapt ahead, while that is doubted: values expire by it, and none is dropped for it.
    pub leapt: Duration,
}

impl ClockStatistics {
    /// What is wrong, where the clock is by more than clocks are set by.
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
                "the wall clock is {behind} behind the latest time latest: until then nothing expires"
            )
        })
    }

    pub const fn is_doubted(&self) -> bool {
        !self.leapt.is_zero()
    }

    pub fn is_behind(&self) -> bool {
        self.behind > BEHIND_MIN
    }
}

/// A time in days where there are any, else in seconds.
pub fn days(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..86_400 => format!("{secs} s"),
        secs => format!("{:.1} days", secs as f64 / 86_400.0),
    }
}

impl Timekeeper {
    /// A timekeeper for a store whose manifest says that it was `persisted`, Unix milliseconds.
    pub fn new(clock: Arc<dyn Clock>, persisted: u64) -> Self {
        let trusted = Trusted { unix_ms: persisted, at: clock.monotonic(), doubted: None };
        Self {
            clock,
            latest: AtomicU64::new(persisted),
            persisted: AtomicU64::new(persisted),
            trusted: Mutex::new(trusted),
        }
    }

    /// Now, Unix milliseconds. Read once an operation, and only by one that meets an expiry.
    pub fn now(&self) -> u64 {
        let wall = self.clock.unix_millis();
        let latest = self.latest.load(Ordering::Relaxed);
        if wall <= latest {
            return latest;
        }
        self.latest.fetch_max(wall, Ordering::Relaxed).max(wall)
    }

    /// The time by which something may be dropped, told to nobody yet: what [`Timekeeper::now`] would
    /// tell, or, while that is doubted, what the time would be without the leap.
    pub fn trusted_now(&self) -> u64 {
        self.observe().0
    }

    /// As [`Timekeeper::firm`], and how far the wall clock is past it, where it is doubted.
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
            // The leap is taken back. Not further than to what may have been dropped meanwhile.
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

    /// Everyone is told at least `now` from here on: by it, something was dropped. With the edit
    /// that makes the manifest remember it, if it does not yet.
    pub fn advance_to(&self, now: u64) -> Option<Edit> {
        self.latest.fetch_max(now, Ordering::Relaxed);
        self.pending_edit()
    }

    /// The moment `after` from now, Unix milliseconds; the last there is where it is later.
    pub fn expiry_after(&self, after: Duration) -> u64 {
        self.now().saturating_add(millis(after))
    }

    /// The edit that makes the manifest remember the latest time told, as far as it is beyond doubt, if
    /// it does not yet.
    fn pending_edit(&self) -> Option<Edit> {
        let trusted_now = self.trusted_now();
        let latest = self.latest.load(Ordering::Relaxed).min(trusted_now);
        (latest > self.persisted.load(Ordering::Relaxed))
            .then_some(Edit::ClockReached { unix_ms: latest })
    }

    /// The manifest remembers what `edit` says.
    pub fn mark_persisted(&self, edit: &Edit) {
        if let Edit::ClockReached { unix_ms } = edit {
            self.persisted.fetch_max(*unix_ms, Ordering::Relaxed);
        }
    }

    /// Makes the manifest remember the latest time told.
    ///
    /// # Errors
    /// The manifest's.
    pub fn persist(&self, manifest: &Manifest) -> base::Result<()> {
        let Some(edit) = self.pending_edit() else { return Ok(()) };
        manifest.append(vec![edit.clone()])?;
        self.mark_persisted(&edit);
        Ok(())
    }

    /// How the wall clock stands.
    pub fn statistics(&self) -> ClockStatistics {
        let (trusted_now, leapt) = self.observe();
        // In this order: a leap that is taken back meanwhile is nothing to tell of.
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

/// How far the manifest may be behind.
const PERSIST_EVERY: Duration = Duration::from_secs(60);

/// Has the manifest remember the time, where anyone asked for it.
pub struct ClockTask {
    pub timekeeper: Arc<Timekeeper>,
    pub manifest: Arc<Manifest>,
    pub stop: Arc<AtomicBool>,
}

impl Task for ClockTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        // Also looks at the clock, so that a leap is known as one. A manifest that failed says so to
        // whoever writes; a full device is tried again.
        let _ = self.timekeeper.persist(&self.manifest);
        Progress::IdleFor(PERSIST_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ManualClock;

    #[test]
    fn time_told_never_goes_back() {
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
    fn a_clock_decades_ahead_is_read_and_makes_nothing_final_for_a_day() {
        for at_opening in [true, false] {
            let (clock, keeper) = at(if at_opening { 129 * YEAR } else { PRESENT });
            let first = keeper.trusted_now();
            clock.set_unix_millis(129 * YEAR);
            assert_eq!((keeper.now(), first, keeper.trusted_now()), (129 * YEAR, PRESENT, PRESENT));
            assert_eq!(keeper.statistics().leapt, Duration::from_millis(75 * YEAR));
            // Time goes on meanwhile, and that much is remembered.
            clock.advance(Duration::from_millis(DAY - 1));
            assert_eq!(
                keeper.pending_edit(),
                Some(Edit::ClockReached { unix_ms: PRESENT + DAY - 1 })
            );
            assert_eq!(keeper.statistics().behind, Duration::ZERO);
            clock.advance(Duration::from_millis(1));
            assert_eq!((keeper.trusted_now(), keeper.now()), (129 * YEAR + DAY, 129 * YEAR + DAY));
            assert_eq!(keeper.statistics(), ClockStatistics::default());
            // Now it is final, and a clock set right is behind it.
            clock.set_unix_millis(PRESENT);
            assert_eq!((keeper.now(), keeper.trusted_now()), (129 * YEAR + DAY, 129 * YEAR + DAY));
            assert_eq!(keeper.statistics().behind, Duration::from_millis(75 * YEAR + DAY));
        }
    }

    #[test]
    fn a_leap_taken_back_within_the_day_is_forgotten_but_for_the_time_that_passed() {
        let (clock, keeper) = at(129 * YEAR);
        assert_eq!((keeper.now(), keeper.trusted_now()), (129 * YEAR, PRESENT));
        clock.advance(Duration::from_secs(60));
        clock.set_unix_millis(PRESENT + 5000);
        // A minute passed since: by that, something may have been dropped.
        assert_eq!((keeper.trusted_now(), keeper.now()), (PRESENT + 60_000, PRESENT + 60_000));
        assert_eq!(keeper.statistics().behind, Duration::from_secs(55));
        assert!(!keeper.statistics().is_behind() && !keeper.statistics().is_doubted());
        clock.advance(Duration::from_secs(60));
        assert_eq!(keeper.now(), PRESENT + 65_000);
    }

    #[test]
    fn a_store_that_lay_about_for_a_year_believes_the_clock() {
        let (_, keeper) = at(PRESENT + YEAR);
        assert_eq!((keeper.trusted_now(), keeper.now()), (PRESENT + YEAR, PRESENT + YEAR));
        assert_eq!(keeper.statistics().trouble(), None);
        // One that never told the time has nothing to hold the clock against.
        let new = Timekeeper::new(Arc::new(ManualClock::at(PRESENT)), 0);
        assert_eq!((new.trusted_now(), new.statistics().trouble()), (PRESENT, None));
    }

    #[test]
    fn a_clock_decades_behind_is_told() {
        let (clock, keeper) = at(0);
        assert_eq!((keeper.now(), keeper.trusted_now()), (PRESENT, PRESENT));
        let latest = keeper.statistics().trouble().unwrap();
        assert!(latest.contains("19710.0 days behind"), "{latest}");
        clock.set_unix_millis(PRESENT + 1);
        assert_eq!(keeper.statistics().trouble(), None);
    }
}
