//! What a device was measured to be: made by `terrace calibrate`, kept as a file, read by whoever shares
//! devices out.
//!
//! The file is `docs/format/calibration.md`'s.

mod device;
mod run;
mod text;

pub use device::Device;
pub use run::calibrate;

/// Points of a curve: (x, GB/s).
pub type Points = Vec<(f64, f64)>;

/// A device's measured constants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Where it is, as in settings.
    pub place: String,
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
