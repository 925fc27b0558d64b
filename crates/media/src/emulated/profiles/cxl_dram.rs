//! DRAM behind one CXL link of eight lanes.
//!
//! Loads take 140 to 410 ns on the devices and platforms of Liu et al., Systematic CXL Memory
//! Characterization and Performance Analysis at Scale (Melody), ASPLOS 2025; this profile uses 250. The link
//! moves 32 GB/s each way before headers, of which the profile uses 25. One thread gets twelve lines in
//! flight, the number of fill buffers of a core of that time, divided by the latency. Writes are posted.
//! There is no unit above the cache line, and no published collapse under many threads.

use crate::emulated::profile::{AccessProfile, Kind, Profile};

const WRITES: AccessProfile = AccessProfile {
    latency_ns: 120.0,
    sequential_ns: 120.0,
    threads: &[(1.0, 3.0), (8.0, 24.0), (9.0, 25.0)],
    sizes: &[],
    fenced_ns: &[],
    fenced: &[],
};

pub(super) static PROFILE: Profile = Profile {
    name: "cxl-dram",
    backend: "emulated cxl-dram",
    kind: Kind::Memory,
    unit: 64,
    read: AccessProfile { latency_ns: 250.0, sequential_ns: 250.0, ..WRITES },
    store: WRITES,
    flushed: WRITES,
    combining_units: 0,
    mixed: None,
    tail: None,
};
