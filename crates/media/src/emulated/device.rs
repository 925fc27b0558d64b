//! An emulated device in use: the model behind a lock, a clock, and the waiting.
//!
//! Concurrency: one short lock an access; its time counts as part of the wait. In virtual time a wait moves
//! the clock, so only one thread may use the device.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::model::{Access, AccessKind, Model};
use super::profile::{Kind, Profile};
use super::waiting;

/// Counters of an emulation, for statistics. A report names the profile, and gives figures with and without
/// the CPU time of waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Emulation {
    /// The profile's name.
    pub profile: &'static str,
    /// CPU time spent waiting, all threads together.
    pub wait_cpu_seconds: f64,
}

/// Time of an access to local DRAM, which the caller spends anyway: nanoseconds for the first line, then
/// GB/s of one thread; for reads and for writes. From the DRAM columns of tables `02` and `04` of the study
/// that `profiles/optane_dimm.rs` cites.
const LOCAL_READ: (f64, f64) = (101.5, 7.38);
const LOCAL_WRITE: (f64, f64) = (86.9, 4.31);

enum Clock {
    Real(Instant),
    /// Nanoseconds.
    Virtual(AtomicU64),
}

/// An emulated device.
pub struct Device {
    model: Box<Mutex<Model>>,
    profile: &'static Profile,
    clock: Clock,
    wait_cpu_ns: AtomicU64,
}

/// A time of a device's own clock, nanoseconds since its creation.
pub(super) type Nanos = f64;

impl Device {
    /// A device that makes its callers wait in real time.
    #[must_use]
    pub fn real(profile: &'static Profile) -> Self {
        Self::new(profile, Clock::Real(Instant::now()))
    }

    /// A device with a clock that only waits move: for one thread, in tests and simulations.
    #[must_use]
    pub fn virtual_time(profile: &'static Profile) -> Self {
        Self::new(profile, Clock::Virtual(AtomicU64::new(0)))
    }

    fn new(profile: &'static Profile, clock: Clock) -> Self {
        let model = Box::new(Mutex::new(Model::new(profile)));
        Self { model, profile, clock, wait_cpu_ns: AtomicU64::new(0) }
    }

    /// The constants of the device.
    #[must_use]
    pub const fn profile(&self) -> &'static Profile {
        self.profile
    }

    /// Counters of the emulation so far.
    #[must_use]
    pub fn emulation(&self) -> Emulation {
        let spent = Duration::from_nanos(self.wait_cpu_ns.load(Relaxed));
        Emulation { profile: self.profile.name, wait_cpu_seconds: spent.as_secs_f64() }
    }

    /// Time since the device was created.
    #[must_use]
    pub fn now(&self) -> Duration {
        match &self.clock {
            Clock::Real(start) => start.elapsed(),
            Clock::Virtual(nanos) => Duration::from_nanos(nanos.load(Relaxed)),
        }
    }

    pub(super) fn now_ns(&self) -> Nanos {
        self.now().as_nanos() as f64
    }

    /// Starts an access of `stream`, which the caller performs before or after. Returns the time at which it
    /// completes.
    pub(super) fn start(&self, stream: Stream, is_read: bool, at: u64, len: usize) -> Nanos {
        let kind = if is_read { AccessKind::Read } else { AccessKind::Store };
        let access = Access { kind, at, len: len as u64, is_fenced: false };
        self.model.lock().access(self.now_ns(), stream.0, access).done
    }

    /// Waits until `time`. At a block device, other threads run meanwhile; at memory, the thread spins.
    pub(super) fn wait_until(&self, time: Nanos) {
        base::invariant!(time.is_finite(), "a wait ends");
        match &self.clock {
            Clock::Real(start) => {
                let deadline = *start + Duration::from_nanos(time.max(0.0) as u64);
                let spent = match self.profile.kind {
                    Kind::Memory => waiting::spin_until(deadline),
                    Kind::Block => waiting::yield_until(deadline),
                };
                let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
                self.wait_cpu_ns.fetch_add(spent, Relaxed);
            }
            Clock::Virtual(nanos) => {
                nanos.fetch_max(time.max(0.0).ceil() as u64, Relaxed);
            }
        }
    }

    /// Waits for the difference between an access of `stream` to `len` bytes of emulated memory and one of
    /// local memory. Block devices use queues instead.
    pub(crate) fn delay(&self, stream: Stream, is_read: bool, at: u64, len: usize) {
        let (first, rate) = if is_read { LOCAL_READ } else { LOCAL_WRITE };
        let local = first + len.saturating_sub(64) as f64 / rate;
        let done = self.start(stream, is_read, at, len);
        self.wait_until(done - local);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.profile.name)
    }
}

/// A sequence of accesses that a device tells from others: those of a thread, or of a log, whichever thread
/// writes it at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(u32);

impl Stream {
    /// The stream called `number`. Numbers are apart from those of threads.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number | 1 << 31)
    }

    /// The stream of the calling thread, constant for its lifetime.
    #[must_use]
    pub fn of_thread() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        thread_local! {
            static NUMBER: u32 = NEXT.fetch_add(1, Relaxed);
        }
        NUMBER.with(|number| Self(*number & !(1 << 31)))
    }
}
