//! The module of `optane-dimm`, reached from the other socket of the machine.
//!
//! From table `17-numa` of the study that `optane_dimm.rs` cites, which has the bandwidth of six modules with
//! one thread and four, local and remote: each bandwidth here is the local one times that ratio. Beyond four
//! threads the study has no figure; the ratio of four is kept. Latencies: section 5.4 of the paper, which
//! gives the remote ones relative to the local ones (reads 1.79 in order and 1.20 at random; writes 2.53 past
//! the caches and 1.68 through them).

use super::optane_dimm::{LOADED, TAIL, UNIT};
use crate::emulated::profile::{AccessProfile, Interference, Kind, Profile};

/// Bandwidth of 4:1, 3:1, 2:1 and 1:1, over the harmonic mean of R and W of the remote columns, by threads.
const MIXED: Interference = Interference {
    one: &[(0.0, 1.0), (0.2, 1.4), (0.25, 1.446), (0.333, 1.443), (0.5, 1.691), (1.0, 1.0)],
    many: &[(0.0, 1.0), (0.2, 0.449), (0.25, 0.216), (0.333, 0.186), (0.5, 0.239), (1.0, 1.0)],
    many_threads: 4.0,
    loaded: LOADED,
};

pub(super) static PROFILE: Profile = Profile {
    name: "optane-dimm-remote",
    backend: "emulated optane-dimm-remote",
    kind: Kind::Memory,
    unit: UNIT,
    read: AccessProfile {
        latency_ns: 366.0,
        sequential_ns: 303.2,
        threads: &[
            (1.0, 2.68),
            (2.0, 5.18),
            (3.0, 5.87),
            (7.0, 5.92),
            (10.0, 5.72),
            (12.0, 5.38),
            (14.0, 4.78),
            (16.0, 4.3),
            (18.0, 3.96),
            (20.0, 3.73),
            (24.0, 3.54),
        ],
        sizes: &[],
        fenced_ns: &[],
        fenced: &[],
    },
    store: AccessProfile {
        latency_ns: 228.7,
        sequential_ns: 228.7,
        threads: &[
            (1.0, 0.907),
            (4.0, 0.961),
            (5.0, 0.926),
            (6.0, 0.857),
            (7.0, 0.756),
            (8.0, 0.669),
            (10.0, 0.546),
            (12.0, 0.489),
            (14.0, 0.428),
            (18.0, 0.385),
            (24.0, 0.35),
        ],
        sizes: &[],
        // The local times, with the remote latency in place of the local one and the bytes after the first
        // unit at the remote bandwidth.
        fenced_ns: &[
            (64.0, 263.0),
            (128.0, 273.0),
            (256.0, 350.0),
            (512.0, 632.0),
            (1024.0, 1197.0),
            (2048.0, 2326.0),
            (4096.0, 4584.0),
        ],
        fenced: &[(64.0, 0.132), (128.0, 0.254), (256.0, 0.491), (512.0, 0.904), (1024.0, 0.914)],
    },
    flushed: AccessProfile {
        latency_ns: 104.7,
        sequential_ns: 104.7,
        threads: &[
            (1.0, 0.589),
            (2.0, 0.782),
            (3.0, 0.782),
            (4.0, 0.747),
            (6.0, 0.677),
            (8.0, 0.612),
            (10.0, 0.529),
            (12.0, 0.472),
            (16.0, 0.393),
            (20.0, 0.367),
            (24.0, 0.358),
        ],
        sizes: &[(64.0, 1.16), (128.0, 1.05), (256.0, 1.0)],
        fenced_ns: &[
            (64.0, 158.0),
            (128.0, 176.0),
            (256.0, 234.0),
            (512.0, 669.0),
            (1024.0, 1538.0),
            (2048.0, 3277.0),
            (4096.0, 6754.0),
        ],
        fenced: &[(64.0, 0.213), (128.0, 0.372), (256.0, 0.489), (1024.0, 0.483), (4096.0, 0.458)],
    },
    combining_units: 72,
    mixed: Some(MIXED),
    tail: Some(TAIL),
};
