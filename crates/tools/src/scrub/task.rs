//! The background task that scrubs at the configured rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, TableId, Task};
use manifest::ScrubPosition;

use super::pass::Pass;
use super::{SAVED_EVERY, Scrubber};

/// Time after opening before a store is scrubbed for the first time.
const FIRST_AFTER: Duration = Duration::from_secs(600);

/// Time between checks whether a pass is due, or whether a rate of 0 was raised.
const POLL_EVERY: Duration = Duration::from_secs(10);

/// Time before a retry after an error that may be temporary: no memory, no space.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The background task; see the module `scrub`.
pub(super) struct ScrubTask {
    scrubber: Arc<Scrubber>,
    stop: Arc<AtomicBool>,
    /// When the task was created, on the monotonic clock.
    opened: Duration,
    /// The pass in progress, and the position where it began.
    pass: Option<(Pass, ScrubPosition)>,
    /// Bytes read since the position was recorded.
    unsaved: u64,
}

impl ScrubTask {
    /// Creates the task, which ends after `stop` is set.
    pub(super) fn new(scrubber: Arc<Scrubber>, stop: Arc<AtomicBool>) -> Self {
        let opened = scrubber.resources.clock().monotonic();
        Self { scrubber, stop, opened, pass: None, unsaved: 0 }
    }

    /// The start of the pass that is due, if one is: the position of an unfinished pass, or the first file.
    fn due(&self) -> Option<ScrubPosition> {
        let state = self.scrubber.env.manifest.state();
        let last = state.scrub;
        if last.next < last.end {
            return Some(last);
        }
        let clock = self.scrubber.resources.clock();
        let now = clock.unix_millis();
        let interval = self.scrubber.settings.load().scrub_interval;
        let is_due = match last.began_ms {
            0 => clock.monotonic().saturating_sub(self.opened) >= FIRST_AFTER.min(interval),
            // With a clock that was set back, the next pass is late but happens.
            began => u128::from(now.abs_diff(began)) >= interval.as_millis(),
        };
        let whole = ScrubPosition { began_ms: now, next: TableId(0), end: state.tables_below };
        (is_due && !state.keyspaces.is_empty()).then_some(whole)
    }

    /// Begins a pass, if one is due.
    fn begin(&mut self) -> Progress {
        let Some(position) = self.due() else { return Progress::IdleFor(POLL_EVERY) };
        let begun = self
            .scrubber
            .save(position)
            .and_then(|()| self.scrubber.begin(position.next, position.end));
        let Ok(pass) = begun else { return Progress::IdleFor(RETRY_AFTER) };
        let mut statistics = self.scrubber.statistics.lock();
        (statistics.running, statistics.last_began_ms) = (true, position.began_ms);
        self.pass = Some((pass, position));
        Progress::Again
    }
}

impl Task for ScrubTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        let rate = self.scrubber.settings.load().scrub_rate;
        if rate == 0 {
            return Progress::IdleFor(POLL_EVERY);
        }
        let Some((mut pass, position)) = self.pass.take() else { return self.begin() };
        match pass.step(&self.scrubber) {
            // The same pages are read again.
            Err(_) => {
                self.pass = Some((pass, position));
                Progress::IdleFor(RETRY_AFTER)
            }
            Ok(Some(bytes)) => {
                self.unsaved += bytes;
                if self.unsaved >= SAVED_EVERY {
                    self.unsaved = 0;
                    // The current file is read again after a restart. If the record fails, more files are.
                    let next = TableId(pass.next().0.saturating_sub(1));
                    let _ = self.scrubber.save(ScrubPosition { next, ..position });
                }
                self.pass = Some((pass, position));
                let nanos = bytes.saturating_mul(1_000_000_000) / rate;
                if nanos == 0 {
                    Progress::Again
                } else {
                    Progress::IdleFor(Duration::from_nanos(nanos))
                }
            }
            Ok(None) => {
                self.unsaved = 0;
                self.scrubber.statistics.lock().running = false;
                self.scrubber.ended(pass);
                match self.scrubber.save(ScrubPosition { next: position.end, ..position }) {
                    Ok(()) => Progress::Again,
                    // The next pass begins at the last recorded position.
                    Err(_) => Progress::IdleFor(RETRY_AFTER),
                }
            }
        }
    }
}
