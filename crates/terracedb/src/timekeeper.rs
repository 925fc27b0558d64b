//! The time that expiries are held against: the wall clock, but never earlier than it was.
//!
//! Now is the later of the wall clock and the latest time anyone was told, in this process or, as
//! the manifest says, in one before. So a clock that is set back revives nothing that was seen
//! expired. What the manifest says may be a minute behind: after a crash within that minute, a
//! clock set back can show once more what expired in it, unless a flush or a merge dropped it, for
//! their records carry the time they used.
//!
//! Concurrency: any thread; one relaxed load a read, one write of a shared word a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Clock, Progress, Task};

use crate::manifest::{Edit, Manifest};

/// Tells the time to reads, and remembers it.
#[derive(Debug)]
pub(crate) struct Timekeeper {
    clock: Arc<dyn Clock>,
    /// The latest time told, and the latest that the manifest holds; Unix milliseconds. Each only
    /// grows; nothing else hangs on them: `Relaxed`.
    told: AtomicU64,
    persisted: AtomicU64,
}

impl Timekeeper {
    /// A timekeeper for a store whose manifest says that it was `persisted`, Unix milliseconds.
    pub(crate) fn new(clock: Arc<dyn Clock>, persisted: u64) -> Self {
        Self { clock, told: AtomicU64::new(persisted), persisted: AtomicU64::new(persisted) }
    }

    /// Now, Unix milliseconds. Read once an operation, and only by one that meets an expiry.
    pub(crate) fn now(&self) -> u64 {
        let wall = self.clock.unix_millis();
        let told = self.told.load(Ordering::Relaxed);
        if wall <= told {
            return told;
        }
        self.told.fetch_max(wall, Ordering::Relaxed).max(wall)
    }

    /// The time that [`Timekeeper::now`] would tell, told to nobody yet.
    pub(crate) fn coming(&self) -> u64 {
        self.clock.unix_millis().max(self.told.load(Ordering::Relaxed))
    }

    /// Everyone is told at least `now` from here on: by it, something was dropped. With the edit
    /// that makes the manifest remember it, if it does not yet.
    pub(crate) fn tell(&self, now: u64) -> Option<Edit> {
        self.told.fetch_max(now, Ordering::Relaxed);
        self.reached()
    }

    /// The moment `after` from now, Unix milliseconds; the last there is where it is later.
    pub(crate) fn in_time(&self, after: Duration) -> u64 {
        self.now().saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
    }

    /// The edit that makes the manifest remember the latest time told, if it does not yet.
    fn reached(&self) -> Option<Edit> {
        let told = self.told.load(Ordering::Relaxed);
        (told > self.persisted.load(Ordering::Relaxed))
            .then_some(Edit::ClockReached { unix_ms: told })
    }

    /// The manifest remembers what `edit` says.
    pub(crate) fn is_persisted(&self, edit: &Edit) {
        if let Edit::ClockReached { unix_ms } = edit {
            self.persisted.fetch_max(*unix_ms, Ordering::Relaxed);
        }
    }

    /// Makes the manifest remember the latest time told.
    ///
    /// # Errors
    /// The manifest's.
    pub(crate) fn persist(&self, manifest: &Manifest) -> base::Result<()> {
        let Some(edit) = self.reached() else { return Ok(()) };
        manifest.append(vec![edit.clone()])?;
        self.is_persisted(&edit);
        Ok(())
    }
}

/// How far the manifest may be behind.
const PERSIST_EVERY: Duration = Duration::from_secs(60);

/// Has the manifest remember the time, where anyone asked for it.
pub(crate) struct ClockTask {
    pub(crate) timekeeper: Arc<Timekeeper>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Task for ClockTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        // A manifest that failed says so to whoever writes; a full device is tried again.
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
        assert_eq!(keeper.reached(), None);
        assert_eq!(keeper.now(), 1000);
        clock.set_unix_millis(10);
        assert_eq!((keeper.now(), keeper.in_time(Duration::from_millis(5))), (1000, 1005));
        assert_eq!(keeper.in_time(Duration::MAX), u64::MAX);
        let edit = keeper.reached().unwrap();
        assert_eq!(edit, Edit::ClockReached { unix_ms: 1000 });
        keeper.is_persisted(&edit);
        assert_eq!(keeper.reached(), None);
        assert_eq!(Timekeeper::new(clock, 2000).now(), 2000);
    }
}
