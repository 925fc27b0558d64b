//! A small fast SSD on 3D XPoint.
//!
//! The device of Eisenman et al., Reducing DRAM Footprint with NVM in Facebook, EuroSys 2018, table 1: 10 us
//! for a read and for a write of 4 KiB, 2.2 GB/s read, 2.1 GB/s written, and reads that writes do not slow
//! down.

use crate::emulated::profile::{AccessProfile, Kind, Profile};

const READS: AccessProfile = AccessProfile {
    latency_ns: 10_000.0,
    sequential_ns: 10_000.0,
    threads: &[(1.0, 2.2)],
    sizes: &[],
    fenced_ns: &[],
    fenced: &[],
};
const WRITES: AccessProfile = AccessProfile { threads: &[(1.0, 2.1)], ..READS };

pub(super) static PROFILE: Profile = Profile {
    name: "optane-ssd",
    backend: "emulated optane-ssd",
    kind: Kind::Block,
    unit: 4096,
    read: READS,
    store: WRITES,
    flushed: WRITES,
    combining_units: 0,
    mixed: None,
    tail: None,
};
