//! DRAM behind one CXL link of eight lanes.
//!
//! Loads take 140 to 410 ns on the devices and platforms of Liu et al., Systematic CXL Memory
//! Characterization and Performance Analysis at Scale (Melody), ASPLOS 2025; the one here takes 250. The
//! link moves 32 GB/s each way before headers, of which 25 are taken. What one thread gets is twelve lines
//! in flight, as many as a core of that time has fill buffers, over the latency. Writes are posted. There
//! is no unit above the cache line, and nothing is known to collapse under many threads.

use crate::emulated::profile::{Kind, Path, Profile};

const WRITES: Path = Path {
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
    read: Path { latency_ns: 250.0, sequential_ns: 250.0, ..WRITES },
    store: WRITES,
    flushed: WRITES,
    combining_units: 0,
    mixed: None,
    tail: None,
};
