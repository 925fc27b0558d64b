//! An emulated device in use: the model behind a lock, a clock, and who waits how.
//!
//! Concurrency: one short lock an access, whose time is within the wait. In virtual time a wait moves the
//! clock, which is for one thread at a time.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::model::{Access, Act, Model};
use super::profile::{Kind, Profile};
use super::waiting;

/// What an emulation did, for statistics: a figure from it names the profile, and stands with and without
/// the processor time that waiting took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Emulation {
    /// The profile's name.
    pub profile: &'static str,
    /// Processor time burnt in waiting, all threads together.
    pub wait_cpu_seconds: f64,
}

/// What reading from local DRAM takes in any case, and the caller spends by itself: nanoseconds for the
/// first line, GB/s of one thread; the same for writing. The DRAM columns of the study that
/// `profiles/optane_dimm.rs` names, `02` and `04`.
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

/// A moment of a device's own time, nanoseconds.
pub(super) type Moment = f64;

impl Device {
    /// A device whose callers wait.
    #[must_use]
    pub fn real(profile: &'static Profile) -> Self {
        Self::new(profile, Clock::Real(Instant::now()))
    }

    /// A device whose clock is moved by waits: for one thread, in tests and simulations.
    #[must_use]
    pub fn virtual_time(profile: &'static Profile) -> Self {
        Self::new(profile, Clock::Virtual(AtomicU64::new(0)))
    }

    fn new(profile: &'static Profile, clock: Clock) -> Self {
        let model = Box::new(Mutex::new(Model::new(profile)));
        Self { model, profile, clock, wait_cpu_ns: AtomicU64::new(0) }
    }

    /// The constants.
    #[must_use]
    pub const fn profile(&self) -> &'static Profile {
        self.profile
    }

    /// What it did so far.
    #[must_use]
    pub fn emulation(&self) -> Emulation {
        let burnt = Duration::from_nanos(self.wait_cpu_ns.load(Relaxed));
        Emulation { profile: self.profile.name, wait_cpu_seconds: burnt.as_secs_f64() }
    }

    /// The time since the device was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        match &self.clock {
            Clock::Real(start) => start.elapsed(),
            Clock::Virtual(nanos) => Duration::from_nanos(nanos.load(Relaxed)),
        }
    }

    pub(super) fn moment(&self) -> Moment {
        self.now().as_nanos() as f64
    }

    /// Starts a read or write of blocks that the caller has carried out, or is about to; when it is over.
    pub(super) fn start(&self, is_read: bool, at: u64, len: usize) -> Moment {
        let act = if is_read { Act::Read } else { Act::Store };
        let access = Access { act, at, len: len as u64, is_fenced: false };
        let now = self.moment();
        self.model.lock().access(now, own_number(), access).done
    }

    /// Waits until `moment`. Where it is a block device's others may run meanwhile.
    pub(super) fn wait_until(&self, moment: Moment) {
        match &self.clock {
            Clock::Real(start) => {
                let deadline = *start + Duration::from_nanos(moment.max(0.0) as u64);
                let burnt = match self.profile.kind {
                    Kind::Memory => waiting::spin_until(deadline),
                    Kind::Block => waiting::yield_until(deadline),
                };
                let burnt = u64::try_from(burnt.as_nanos()).unwrap_or(u64::MAX);
                self.wait_cpu_ns.fetch_add(burnt, Relaxed);
            }
            Clock::Virtual(nanos) => {
                nanos.fetch_max(moment.max(0.0).ceil() as u64, Relaxed);
            }
        }
    }

    /// Waits for as much longer than local memory would take as an access to `len` bytes of the region
    /// takes. Of memory; others have queues.
    pub(crate) fn delay(&self, is_read: bool, at: u64, len: usize) {
        let (first, rate) = if is_read { LOCAL_READ } else { LOCAL_WRITE };
        let local = first + len.saturating_sub(64) as f64 / rate;
        let done = self.start(is_read, at, len);
        self.wait_until(done - local);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.profile.name)
    }
}

/// A number of the calling thread, the same for as long as it lives.
fn own_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}
