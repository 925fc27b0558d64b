//! What a tier takes its medium for before it has measured anything: by its kind, or as it was calibrated.
//!
//! Costs are measured anew from the first use on, and these are forgotten ([`super::costs`]). What running
//! does not measure stays: how many writes at once use all of the device's bandwidth. More would only have
//! readers wait behind them.

use media::Calibration;
use media::scm::Facts;

use super::backing::DEPTH;
use super::placement::DRAM_HIT_NANOS;

/// What is known of a medium at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// Getting a page, nanoseconds.
    pub read_nanos: u32,
    /// Writing one of many, nanoseconds.
    pub write_nanos: u32,
    /// Writes in flight at a device, at most.
    pub writes: usize,
}

impl Prior {
    /// By the kind of medium alone.
    #[must_use]
    pub fn of_kind(facts: &Facts) -> Self {
        let read_nanos = u32::try_from(facts.read_latency.as_nanos()).unwrap_or(u32::MAX);
        let write_nanos = read_nanos.saturating_add(DRAM_HIT_NANOS);
        Self { read_nanos, write_nanos, writes: DEPTH }
    }

    /// As it was measured; of what was not, what its kind says.
    #[must_use]
    pub fn calibrated(facts: &Facts, calibration: &Calibration) -> Self {
        let of_kind = Self::of_kind(facts);
        let read = calibration.page_read_ns();
        // One thread copies into memory.
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
    fn a_device_is_written_by_as_many_as_it_can_use() {
        let ssd = facts("optane-ssd");
        let measured = Calibration {
            read_latency_ns: 10_500.4,
            read_threads: vec![(1.0, 0.4), (8.0, 2.2)],
            write_threads: vec![(1.0, 0.4), (4.0, 1.6), (6.0, 2.1), (24.0, 2.1)],
            ..Calibration::default()
        };
        let prior = Prior::calibrated(&ssd, &measured);
        assert_eq!((prior.read_nanos, prior.write_nanos, prior.writes), (10_500, 1950, 6));
        // No more than there are buffers for.
        let wide = Calibration { write_threads: vec![(1.0, 0.1), (128.0, 9.0)], ..measured };
        assert_eq!(Prior::calibrated(&ssd, &wide).writes, DEPTH);
    }

    #[test]
    fn memory_is_written_by_one() {
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

    /// A file edited by hand may say anything.
    #[test]
    fn of_what_was_not_measured_the_kind_counts() {
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
