//! The task that scrubs in the background, at the rate that is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Task};

use super::pass::Pass;
use super::{SAVED_EVERY, Scrubber};
use manifest::ScrubPosition;

/// A store that was never scrubbed is left alone for this long after it was opened.
const FIRST_AFTER: Duration = Duration::from_secs(600);

/// How often the task looks whether a pass is due, or the rate was changed from nothing.
const LOOK_AROUND: Duration = Duration::from_secs(10);

/// After what may pass: short memory, a full device.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// See the module.
pub struct ScrubTask {
    scrubber: Arc<Scrubber>,
    stop: Arc<AtomicBool>,
    opened: Duration,
    pass: Option<(Pass, ScrubPosition)>,
    /// Bytes read since the manifest was told.
    unsaved: u64,
}

impl ScrubTask {
    pub fn new(scrubber: Arc<Scrubber>, stop: Arc<AtomicBool>) -> Self {
        let opened = scrubber.resources.clock().monotonic();
        Self { scrubber, stop, opened, pass: None, unsaved: 0 }
    }

    /// Where the pass that is due begins: where the last one was left, or at the first file.
    fn due(&self) -> Option<ScrubPosition> {
        let state = self.scrubber.env.manifest.state();
        let left = state.scrub;
        if left.next < left.end {
            return Some(left);
        }
        let clock = self.scrubber.resources.clock();
        let now = clock.unix_millis();
        let interval = self.scrubber.settings.load().scrub_interval;
        let is_due = match left.began_ms {
            0 => clock.monotonic().saturating_sub(self.opened) >= FIRST_AFTER.min(interval),
            // A clock that was set back makes it late, not never.
            began => u128::from(now.abs_diff(began)) >= interval.as_millis(),
        };
        let whole =
            ScrubPosition { began_ms: now, next: base::TableId(0), end: state.tables_below };
        (is_due && !state.keyspaces.is_empty()).then_some(whole)
    }

    fn begin(&mut self) -> Progress {
        let Some(position) = self.due() else { return Progress::IdleFor(LOOK_AROUND) };
        let begun = self
            .scrubber
            .save(position)
            .and_then(|()| Pass::begin(&self.scrubber, position.next, position.end));
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
            return Progress::IdleFor(LOOK_AROUND);
        }
        let Some((mut pass, position)) = self.pass.take() else { return self.begin() };
        match pass.step(&self.scrubber) {
            Some(bytes) => {
                self.unsaved += bytes;
                if self.unsaved >= SAVED_EVERY {
                    self.unsaved = 0;
                    // The file under way is read again after a restart. What is not remembered
                    // costs only that.
                    let next = base::TableId(pass.next().0.saturating_sub(1));
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
            None => {
                self.unsaved = 0;
                self.scrubber.statistics.lock().running = false;
                self.scrubber.ended(pass);
                match self.scrubber.save(ScrubPosition { next: position.end, ..position }) {
                    Ok(()) => Progress::Again,
                    // The next pass begins where this one did.
                    Err(_) => Progress::IdleFor(RETRY_AFTER),
                }
            }
        }
    }
}
