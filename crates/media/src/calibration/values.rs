//! The measured constants of a device, and the figures that follow from them. Pure.

use base::limits::PAGE_BYTES;

/// A curve of (x, GB/s), sorted by x.
pub type Points = Vec<(f64, f64)>;

/// The measured constants of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// The location, as in the settings.
    pub place: String,
    /// The identity of the device ([`device_of`](super::device_of)); empty if it has none.
    pub device: String,
    /// Time of the measurement, Unix milliseconds.
    pub measured_unix_ms: u64,
    /// The profile of an emulated device; empty for a real one.
    pub emulated: String,
    /// Loads and stores reach the device directly.
    pub is_byte_addressable: bool,
    /// The least that the device writes, bytes: a shorter write costs as much.
    pub unit_bytes: u64,
    /// Latency of a short read, nanoseconds.
    pub read_latency_ns: f64,
    /// Latency of a short write, nanoseconds.
    pub write_latency_ns: f64,
    /// Read bandwidth by number of threads.
    pub read_threads: Points,
    /// Write bandwidth by number of threads.
    pub write_threads: Points,
    /// Read bandwidth by size of random accesses, bytes, at the best number of threads.
    pub read_sizes: Points,
    /// Write bandwidth by size of random accesses, bytes, at the best number of threads.
    pub write_sizes: Points,
    /// Total bandwidth by the share of writes among the accesses.
    pub mixed: Points,
}

/// A number of threads suffices if it has this share of the greatest bandwidth.
const SUFFICIENT: f64 = 0.95;

impl Calibration {
    /// The least number of reading threads with about the greatest bandwidth; 1 if nothing was measured.
    #[must_use]
    pub fn readers(&self) -> u32 {
        sufficient_threads(&self.read_threads)
    }

    /// The least number of writing threads with about the greatest bandwidth; 1 if nothing was measured.
    #[must_use]
    pub fn writers(&self) -> u32 {
        sufficient_threads(&self.write_threads)
    }

    /// The number of logs on one device that write at once: as many as the writers above, but two at least,
    /// because one of them encodes while the other waits for its fence; no more than the device takes at
    /// about its greatest bandwidth.
    #[must_use]
    pub fn log_lanes(&self) -> u32 {
        let most = SUFFICIENT * most(&self.write_threads);
        let knee = self.write_threads.iter().rev().find(|(_, gb)| *gb >= most);
        let knee = knee.map_or(1, |(threads, _)| *threads as u32);
        self.writers().max(2).clamp(1, knee.max(1))
    }

    /// The least share of bandwidth that a mix of reads and writes leaves, relative to running them one
    /// after the other; 1 if nothing was measured.
    #[must_use]
    pub fn mixed_part(&self) -> f64 {
        let (Some((_, reads)), Some((_, writes))) = (self.mixed.first(), self.mixed.last()) else {
            return 1.0;
        };
        let part = |(share, total): &(f64, f64)| total * ((1.0 - share) / reads + share / writes);
        self.mixed.iter().map(part).fold(1.0, f64::min)
    }

    /// Time to read a page with one thread, nanoseconds: the latency of the first bytes, and the rest at the
    /// bandwidth of one thread.
    #[must_use]
    pub fn page_read_ns(&self) -> f64 {
        let rest = PAGE_BYTES as u64 - self.least_bytes();
        match bandwidth_at(&self.read_threads, 1.0) {
            Some(gb) => self.read_latency_ns + rest as f64 / gb,
            None => self.read_latency_ns,
        }
    }

    /// Time per page if `writers` threads write many pages, nanoseconds; none if that was not measured.
    #[must_use]
    pub fn page_write_ns(&self, writers: u32) -> Option<f64> {
        bandwidth_at(&self.write_threads, f64::from(writers)).map(|gb| PAGE_BYTES as f64 / gb)
    }

    /// The length of the accesses with a measured latency.
    const fn least_bytes(&self) -> u64 {
        if self.is_byte_addressable { LEAST_BYTES } else { PAGE_BYTES as u64 }
    }
}

/// The shortest access to memory that is measured: a cache line.
pub(super) const LEAST_BYTES: u64 = 64;

/// The bandwidth at the last point with an x of at most `x`; none if there is no such point or it is 0.
fn bandwidth_at(points: &Points, x: f64) -> Option<f64> {
    let point = points.iter().rev().find(|point| point.0 <= x);
    point.map(|(_, gb)| *gb).filter(|gb| *gb > 0.0)
}

/// The least x with about the greatest bandwidth.
fn sufficient_threads(points: &Points) -> u32 {
    let most = most(points);
    let found = points.iter().find(|(_, gb)| *gb >= SUFFICIENT * most);
    found.map_or(1, |(threads, _)| (*threads as u32).max(1))
}

pub(super) fn most(points: &Points) -> f64 {
    points.iter().map(|(_, gb)| *gb).fold(0.0, f64::max)
}
