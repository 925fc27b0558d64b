//! What a device was measured to be: made by `terrace calibrate`, kept as a file on the device, read by
//! whoever uses it.
//!
//! The file is `docs/format/calibration.md`'s.

use base::limits::PAGE_BYTES;

mod device;
mod find;
mod run;
mod text;

pub use device::Device;
pub use find::{Found, device_of};
pub use run::calibrate;

/// Points of a curve: (x, GB/s).
pub type Points = Vec<(f64, f64)>;

/// A device's measured constants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Where it is, as in settings.
    pub place: String,
    /// What tells the device from others ([`device_of`]); empty where nothing does.
    pub device: String,
    /// When it was measured, Unix milliseconds.
    pub measured_unix_ms: u64,
    /// The profile where it was emulated; empty of a real one.
    pub emulated: String,
    /// Loads and stores reach it.
    pub is_byte_addressable: bool,
    /// The least that it writes at once, bytes.
    pub unit_bytes: u64,
    /// One short read that depends on the last, nanoseconds.
    pub read_latency_ns: f64,
    /// One short write, nanoseconds.
    pub write_latency_ns: f64,
    /// Bandwidth against the number of threads.
    pub read_threads: Points,
    /// As above.
    pub write_threads: Points,
    /// Bandwidth against the size of random accesses, bytes, at the best number of threads.
    pub read_sizes: Points,
    /// As above.
    pub write_sizes: Points,
    /// Total bandwidth against the writes' share of accesses.
    pub mixed: Points,
}

/// A number of threads is enough at this part of the most bandwidth.
const ENOUGH: f64 = 0.95;

impl Calibration {
    /// The least number of readers with about the most bandwidth; 1 where nothing was measured.
    #[must_use]
    pub fn readers(&self) -> u32 {
        enough(&self.read_threads)
    }

    /// The least number of writers with about the most bandwidth; 1 where nothing was measured.
    #[must_use]
    pub fn writers(&self) -> u32 {
        enough(&self.write_threads)
    }

    /// What a mix leaves of the bandwidth that reads and writes have one after the other, where it
    /// leaves least; 1 where nothing was measured.
    #[must_use]
    pub fn mixed_part(&self) -> f64 {
        let (Some((_, reads)), Some((_, writes))) = (self.mixed.first(), self.mixed.last()) else {
            return 1.0;
        };
        let part = |(share, total): &(f64, f64)| total * ((1.0 - share) / reads + share / writes);
        self.mixed.iter().map(part).fold(1.0, f64::min)
    }
}

impl Calibration {
    /// What one reader of a whole page takes, nanoseconds: the latency of the first bytes, and the rest as
    /// fast as one thread reads.
    #[must_use]
    pub fn page_read_ns(&self) -> f64 {
        let rest = PAGE_BYTES as u64 - self.least_bytes();
        match at_most(&self.read_threads, 1.0) {
            Some(gb) => self.read_latency_ns + rest as f64 / gb,
            None => self.read_latency_ns,
        }
    }

    /// What a page takes of the time of whoever writes many, `writers` at once, nanoseconds; none where that
    /// was not measured.
    #[must_use]
    pub fn page_write_ns(&self, writers: u32) -> Option<f64> {
        at_most(&self.write_threads, f64::from(writers)).map(|gb| PAGE_BYTES as f64 / gb)
    }

    /// The length of accesses whose latency was measured.
    const fn least_bytes(&self) -> u64 {
        if self.is_byte_addressable { LEAST_BYTES } else { PAGE_BYTES as u64 }
    }
}

/// The shortest access to memory that is measured: a cache line.
const LEAST_BYTES: u64 = 64;

/// The bandwidth at the last point whose x is at most `x`; none where there is none, or none at all.
fn at_most(points: &Points, x: f64) -> Option<f64> {
    let point = points.iter().rev().find(|point| point.0 <= x);
    point.map(|(_, gb)| *gb).filter(|gb| *gb > 0.0)
}

fn enough(points: &Points) -> u32 {
    let most = most(points);
    let found = points.iter().find(|(_, gb)| *gb >= ENOUGH * most);
    found.map_or(1, |(threads, _)| (*threads as u32).max(1))
}

fn most(points: &Points) -> f64 {
    points.iter().map(|(_, gb)| *gb).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests;
