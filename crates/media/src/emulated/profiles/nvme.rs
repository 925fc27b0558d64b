//! A flash SSD of a data centre: the neutral profile that the others are compared with.
//!
//! Not one particular device: 80 us a read and 15 us a write into its power-protected buffer, a million reads
//! and two hundred thousand writes of 4 KiB a second, 7 and 5 GB/s in long transfers, as in data sheets of
//! such devices (PCIe 4.0). Writes do not lengthen reads here: that effect differs from device to device.

use crate::emulated::profile::{AccessProfile, Kind, Profile};

const READS: AccessProfile = AccessProfile {
    latency_ns: 80_000.0,
    sequential_ns: 80_000.0,
    threads: &[(1.0, 7.0)],
    sizes: &[(4096.0, 0.585), (16_384.0, 1.0)],
    fenced_ns: &[],
    fenced: &[],
};
const WRITES: AccessProfile = AccessProfile {
    latency_ns: 15_000.0,
    sequential_ns: 15_000.0,
    threads: &[(1.0, 5.0)],
    sizes: &[(4096.0, 0.164), (131_072.0, 1.0)],
    ..READS
};

pub(super) static PROFILE: Profile = Profile {
    name: "nvme",
    backend: "emulated nvme",
    kind: Kind::Block,
    unit: 4096,
    read: READS,
    store: WRITES,
    flushed: WRITES,
    combining_units: 0,
    mixed: None,
    tail: None,
};
