//! Prior costs of a medium: what the tier assumes before it has measured anything, by the kind of medium or
//! from its calibration.
//!
//! Costs are measured from the first use on and replace the prior ones ([`super::costs`]). The number of
//! writes in flight is not measured while the tier runs, so it stays: it is the least that uses all of the
//! device's write bandwidth. More writes would only make readers wait.

use media::Calibration;
use media::scm::Facts;

use super::backing::DEPTH;
use super::placement::DRAM_HIT_NANOS;

/// Prior costs of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// Read of a page, nanoseconds.
    pub read_nanos: u32,
    /// Write of a page among many, nanoseconds.
    pub write_nanos: u32,
    /// Most writes in flight at a device.
    pub writes: usize,
}

impl Prior {
    /// The prior costs of this kind of medium.
    #[must_use]
    pub fn of_kind(facts: &Facts) -> Self {
        let read_nanos = u32::try_from(facts.read_latency.as_nanos()).unwrap_or(u32::MAX);
        let write_nanos = read_nanos.saturating_add(DRAM_HIT_NANOS);
        Self { read_nanos, write_nanos, writes: DEPTH }
    }

    /// The calibrated costs; for those that were not measured, the costs of this kind of medium.
    #[must_use]
    pub fn calibrated(facts: &Facts, calibration: &Calibration) -> Self {
        let of_kind = Self::of_kind(facts);
        let read = calibration.page_read_ns();
        // The background writer copies into memory with one thread.
        let writers = if facts.byte_addressable { 1 } else { calibration.writers() };
        let is_known = !calibration.write_threads.is_empty();
        Self {
            read_nanos: if read > 0.0 { read as u32 } else { of_kind.read_nanos },
            write_nanos: calibration
                .page_write_ns(writers)
                .map_or(of_kind.write_nanos, |nanos| nanos as u32),
            writes: if is_known { (writers as usize).clamp(1, DEPTH) } else { DEPTH },
        }
    }
}

#[cfg(test)]
mod tests {
    use media::emulated::Profile;

    use super::*;

    fn facts(profile: &str) -> Facts {
        Facts::of_profile(Profile::named(profile).unwrap())
    }

    #[test]
    fn a_calibrated_device_gets_as_many_writes_as_use_its_bandwidth() {
        let ssd = facts("optane-ssd");
        let measured = Calibration {
            read_latency_ns: 10_500.4,
            read_threads: vec![(1.0, 0.4), (8.0, 2.2)],
            write_threads: vec![(1.0, 0.4), (4.0, 1.6), (6.0, 2.1), (24.0, 2.1)],
            ..Calibration::default()
        };
        let prior = Prior::calibrated(&ssd, &measured);
        assert_eq!((prior.read_nanos, prior.write_nanos, prior.writes), (10_500, 1950, 6));
        // No more than there are buffers.
        let wide = Calibration { write_threads: vec![(1.0, 0.1), (128.0, 9.0)], ..measured };
        assert_eq!(Prior::calibrated(&ssd, &wide).writes, DEPTH);
    }

    #[test]
    fn memory_is_written_by_one_thread() {
        let measured = Calibration {
            is_byte_addressable: true,
            read_latency_ns: 305.0,
            read_threads: vec![(1.0, 2.016), (3.0, 6.5)],
            write_threads: vec![(1.0, 2.048), (4.0, 2.2)],
            ..Calibration::default()
        };
        let prior = Prior::calibrated(&facts("optane-dimm"), &measured);
        assert_eq!((prior.read_nanos, prior.write_nanos, prior.writes), (2305, 2000, 1));
    }

    /// A calibration file edited by hand may have any numbers.
    #[test]
    fn missing_calibration_falls_back_to_the_kind_of_medium() {
        for profile in ["optane-dimm", "cxl-dram", "nvme"] {
            let facts = facts(profile);
            let of_kind = Prior::of_kind(&facts);
            assert_eq!(Prior::calibrated(&facts, &Calibration::default()), of_kind, "{profile}");
        }
        let endless = Calibration {
            read_latency_ns: 1e17,
            read_threads: vec![(1.0, 0.0)],
            write_threads: vec![(1.0, 1e-9)],
            ..Calibration::default()
        };
        let prior = Prior::calibrated(&facts("nvme"), &endless);
        assert_eq!((prior.read_nanos, prior.write_nanos, prior.writes), (u32::MAX, u32::MAX, 1));
    }
}
