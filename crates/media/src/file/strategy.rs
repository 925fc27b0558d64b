//! How a thread waits for a device: woken by its interrupt, or asleep for a while and then looking.
//!
//! An interrupt and the wake-up behind it cost some microseconds, which is much where the device takes ten.
//! Looking all the time costs a core. Between them lies sleeping for a part of the time and looking for the
//! rest: half of the mean, as Linux did (hybrid polling, 2016) and MyNVM used (Eisenman et al., EuroSys
//! 2018), or for a time that adapts so that the sleep ends just before the device does (DPAS, FAST 2026:
//! only whether the last two sleeps were too short or too long counts). An interrupt is the default, and
//! the way out: where latency is unknown or long, where many operations are in flight, where no core is
//! free, where the system's sleeps end late.
//!
//! Pure: [`Waits`] is told what happened and says what to do. [`super::ring`] does it.

/// From this latency on an interrupt's cost is lost in it, nanoseconds.
const LATENCY_MAX_NS: f64 = 50_000.0;

/// With more in flight than this the next completion is near in any case. DPAS has 1 for flash and 3 for
/// 3D XPoint; what is as fast as the limit above is nearer to the latter.
const DEPTH_MAX: usize = 3;

/// Waits by interrupt before anything else is tried, so that the mean is one; and after a sleep that
/// failed, or too many in flight.
const LEARNED: u32 = 100;
const INTERRUPTS: u32 = 10_000;

/// What the adaptive sleep grows and shrinks by, and starts with, nanoseconds.
const UP: f64 = 0.01;
const DOWN: f64 = 0.1;
const FIRST_SLEEP_NS: f64 = 100.0;

/// A sleep that takes this much longer than asked for, nanoseconds, and twice as long, has failed.
const LATE_NS: f64 = 5_000.0;

/// Looking goes on for this many times the mean; then an interrupt is waited for.
const LOOKS: f64 = 4.0;

/// Weight of one operation in the mean.
const MEAN_WEIGHT: f64 = 1.0 / 32.0;

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The kernel wakes the thread.
    Interrupt,
    /// Sleep for half of the mean, then look.
    HalfMean,
    /// Sleep for a time that adapts, then look.
    Adaptive,
}

/// Which way suits: by the device's mean latency where it is known, the operations in flight, and the cores
/// that nobody else needs.
pub(super) fn choose(mean_ns: Option<f64>, in_flight: usize, free_cores: usize) -> Strategy {
    let is_fast = mean_ns.is_some_and(|mean| mean < LATENCY_MAX_NS);
    match in_flight {
        _ if !is_fast || free_cores == 0 => Strategy::Interrupt,
        // What it learns from is one operation at a time.
        0 | 1 => Strategy::Adaptive,
        2..=DEPTH_MAX => Strategy::HalfMean,
        _ => Strategy::Interrupt,
    }
}

/// What to do in one wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plan {
    /// Wait for the interrupt.
    Block,
    /// Sleep, then look until `look_ns` after the start, then wait for the interrupt.
    Look {
        /// Nanoseconds; none to look at once.
        sleep_ns: f64,
        /// Nanoseconds.
        look_ns: f64,
    },
}

/// How a wait that slept went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slept {
    /// How long the sleep was, nanoseconds.
    pub(super) slept_ns: f64,
    /// Whether the operation was complete when the sleep ended.
    pub(super) is_over: bool,
}

/// What one queue learned of its device.
#[derive(Debug)]
pub(super) struct Waits {
    mean_ns: f64,
    learned: u32,
    /// Waits for which the interrupt stays.
    interrupts: u32,
    sleep_ns: f64,
    adjust: f64,
    /// Whether the sleep before the last was over the mark; none at first.
    last: Option<bool>,
    /// What the sleep under way was asked for by.
    under_way: (Strategy, f64),
}

impl Waits {
    pub(super) const fn new() -> Self {
        Self {
            mean_ns: 0.0,
            learned: 0,
            interrupts: 0,
            sleep_ns: FIRST_SLEEP_NS,
            adjust: 1.0,
            last: None,
            under_way: (Strategy::Interrupt, 0.0),
        }
    }

    /// What to do in the next wait.
    pub(super) fn plan(&mut self, in_flight: usize, free_cores: usize) -> Plan {
        if self.interrupts > 0 {
            self.interrupts -= 1;
            return Plan::Block;
        }
        let mean = (self.learned >= LEARNED).then_some(self.mean_ns);
        let strategy = choose(mean, in_flight, free_cores);
        let sleep_ns = match strategy {
            Strategy::Interrupt => {
                if self.learned >= LEARNED && in_flight > DEPTH_MAX {
                    self.interrupts = INTERRUPTS;
                }
                return Plan::Block;
            }
            Strategy::HalfMean => self.mean_ns / 2.0,
            Strategy::Adaptive => self.sleep_ns,
        };
        self.under_way = (strategy, sleep_ns);
        Plan::Look { sleep_ns, look_ns: self.mean_ns * LOOKS }
    }

    /// An operation alone in flight took this long.
    pub(super) fn took(&mut self, ns: f64) {
        self.learned = self.learned.saturating_add(1);
        let weight = MEAN_WEIGHT.max(1.0 / f64::from(self.learned));
        self.mean_ns += (ns - self.mean_ns) * weight;
    }

    /// A planned sleep is over.
    pub(super) fn slept(&mut self, slept: Slept) {
        let (strategy, asked) = self.under_way;
        if slept.slept_ns > asked * 2.0 + LATE_NS {
            self.interrupts = INTERRUPTS;
            self.sleep_ns = FIRST_SLEEP_NS;
            self.last = None;
            return;
        }
        if strategy != Strategy::Adaptive {
            return;
        }
        self.adjust = match (self.last, slept.is_over) {
            (None, _) => 1.0,
            (Some(false), false) => self.adjust + UP,
            (Some(true), true) => self.adjust - DOWN,
            (Some(false), true) => 1.0 - DOWN,
            (Some(true), false) => 1.0 + UP,
        };
        self.last = Some(slept.is_over);
        let longest = self.mean_ns.max(FIRST_SLEEP_NS);
        self.sleep_ns = (self.sleep_ns * self.adjust.max(DOWN)).clamp(FIRST_SLEEP_NS, longest);
    }
}

#[cfg(test)]
mod tests;
