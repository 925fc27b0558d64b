//! How a thread waits for a device: woken by the interrupt, or asleep for a while and then polling.
//!
//! An interrupt and the wake-up after it cost some microseconds, which is much for a device that takes ten.
//! Polling all the time costs a core. In between, a thread sleeps for part of the time and polls for the
//! rest: it sleeps for half of the mean latency, as Linux did (hybrid polling, 2016) and MyNVM used
//! (Eisenman et al., EuroSys 2018), or for a time that adapts so that the sleep ends just before the device
//! does (DPAS, FAST 2026: the adaptation uses only whether the last two sleeps were too short or too long).
//! The interrupt is the default, and the fallback if the latency is unknown or long, if many operations are
//! in flight, if no core is free, or if the system's sleeps end late.
//!
//! Pure: [`WaitPlanner`] gets the outcomes and returns plans; [`super::ring`] carries them out.

/// From this latency on the cost of an interrupt is negligible, nanoseconds.
const LATENCY_MAX_NS: f64 = 50_000.0;

/// With more operations in flight than this, the next completion is near in any case. DPAS uses 1 for flash
/// and 3 for 3D XPoint; devices below the latency limit above are nearer to the latter.
const DEPTH_MAX: usize = 3;

/// The mean latency counts as known after this many operations, which wait by interrupt.
const MEASURED_MIN: u32 = 100;

/// Number of waits by interrupt that follow a failed sleep, or a wait with more than `DEPTH_MAX` operations
/// in flight.
const INTERRUPTS: u32 = 10_000;

/// Growth, reduction and initial value (nanoseconds) of the adaptive sleep.
const UP: f64 = 0.01;
const DOWN: f64 = 0.1;
const FIRST_SLEEP_NS: f64 = 100.0;

/// A sleep that takes more than twice the requested time plus this, nanoseconds, has failed.
const LATE_NS: f64 = 5_000.0;

/// Polling goes on for this many times the mean; then the thread waits for the interrupt.
const POLL_MEANS: f64 = 4.0;

/// Weight of one operation in the moving mean.
const MEAN_WEIGHT: f64 = 1.0 / 32.0;

/// A way to wait for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The kernel wakes the thread.
    Interrupt,
    /// Sleep for half of the mean, then poll.
    HalfMean,
    /// Sleep for a time that adapts, then poll.
    Adaptive,
}

/// Picks the way to wait, from the device's mean latency if it is known, the operations in flight, and the
/// cores that no other thread needs.
pub(super) fn choose(mean_ns: Option<f64>, in_flight: usize, free_cores: usize) -> Strategy {
    let is_fast = mean_ns.is_some_and(|mean| mean < LATENCY_MAX_NS);
    match in_flight {
        _ if !is_fast || free_cores == 0 => Strategy::Interrupt,
        // The adaptation observes one operation at a time.
        0 | 1 => Strategy::Adaptive,
        2..=DEPTH_MAX => Strategy::HalfMean,
        _ => Strategy::Interrupt,
    }
}

/// The plan of one wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plan {
    /// Wait for the interrupt.
    Block,
    /// Sleep, then poll until `poll_ns` after the start, then wait for the interrupt.
    Poll {
        /// Nanoseconds; 0 to poll at once.
        sleep_ns: f64,
        /// Nanoseconds.
        poll_ns: f64,
    },
}

/// Outcome of a sleep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slept {
    /// Duration of the sleep, nanoseconds.
    pub(super) slept_ns: f64,
    /// Whether the operation was complete at the end of the sleep.
    pub(super) is_complete: bool,
}

/// The latencies that one queue measured, and the adaptation of its sleep.
#[derive(Debug)]
pub(super) struct WaitPlanner {
    mean_ns: f64,
    measured: u32,
    /// Waits by interrupt that are still to come.
    interrupts: u32,
    sleep_ns: f64,
    adjust: f64,
    /// Whether the previous sleep was too long; none at first.
    last: Option<bool>,
    /// Strategy and length of the planned sleep.
    planned: (Strategy, f64),
}

impl WaitPlanner {
    pub(super) const fn new() -> Self {
        Self {
            mean_ns: 0.0,
            measured: 0,
            interrupts: 0,
            sleep_ns: FIRST_SLEEP_NS,
            adjust: 1.0,
            last: None,
            planned: (Strategy::Interrupt, 0.0),
        }
    }

    /// Plans the next wait.
    pub(super) fn plan(&mut self, in_flight: usize, free_cores: usize) -> Plan {
        if self.interrupts > 0 {
            self.interrupts -= 1;
            return Plan::Block;
        }
        let mean = (self.measured >= MEASURED_MIN).then_some(self.mean_ns);
        let strategy = choose(mean, in_flight, free_cores);
        let sleep_ns = match strategy {
            Strategy::Interrupt => {
                if self.measured >= MEASURED_MIN && in_flight > DEPTH_MAX {
                    self.interrupts = INTERRUPTS;
                }
                return Plan::Block;
            }
            Strategy::HalfMean => self.mean_ns / 2.0,
            Strategy::Adaptive => self.sleep_ns,
        };
        self.planned = (strategy, sleep_ns);
        Plan::Poll { sleep_ns, poll_ns: self.mean_ns * POLL_MEANS }
    }

    /// Records the latency of an operation that was alone in flight.
    pub(super) fn record_latency(&mut self, ns: f64) {
        self.measured = self.measured.saturating_add(1);
        let weight = MEAN_WEIGHT.max(1.0 / f64::from(self.measured));
        self.mean_ns += (ns - self.mean_ns) * weight;
        base::invariant!(
            self.mean_ns.is_finite() && self.mean_ns >= 0.0,
            "a mean latency is a time"
        );
    }

    /// Records the outcome of a planned sleep.
    pub(super) fn record_sleep(&mut self, slept: Slept) {
        let (strategy, asked) = self.planned;
        base::invariant!(
            strategy != Strategy::Interrupt,
            "a sleep was planned before it is recorded"
        );
        if slept.slept_ns > asked * 2.0 + LATE_NS {
            self.interrupts = INTERRUPTS;
            self.sleep_ns = FIRST_SLEEP_NS;
            self.last = None;
            return;
        }
        if strategy != Strategy::Adaptive {
            return;
        }
        self.adjust = match (self.last, slept.is_complete) {
            (None, _) => 1.0,
            (Some(false), false) => self.adjust + UP,
            (Some(true), true) => self.adjust - DOWN,
            (Some(false), true) => 1.0 - DOWN,
            (Some(true), false) => 1.0 + UP,
        };
        self.last = Some(slept.is_complete);
        let longest = self.mean_ns.max(FIRST_SLEEP_NS);
        self.sleep_ns = (self.sleep_ns * self.adjust.max(DOWN)).clamp(FIRST_SLEEP_NS, longest);
    }
}

#[cfg(test)]
mod tests;
