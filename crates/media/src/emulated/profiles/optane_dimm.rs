//! One Optane DC persistent memory module of the first generation, in app-direct mode.
//!
//! From the raw data of Yang, Kim, Hoseinzadeh, Izraelevitz, Swanson: An Empirical Guide to the Behavior and
//! Use of Scalable Persistent Memory, FAST 2020 (github.com/NVSL/OptaneStudy, `graphs`): two Xeon Platinum
//! 8260, six modules of 256 GB each. A comment beside each constant names its table.

use crate::emulated::profile::{AccessProfile, Interference, Kind, Profile, Tail};

pub(super) const UNIT: u64 = 256;

/// `06-bandwidth_seqwrite_latency`, Optane, over its idle latency and its greatest bandwidth.
pub(super) const LOADED: &[(f64, f64)] = &[
    (0.0, 1.0),
    (0.15, 1.025),
    (0.25, 1.06),
    (0.4, 1.07),
    (0.66, 1.15),
    (0.88, 1.33),
    (0.92, 1.55),
    (1.0, 1.62),
];

/// `17-numa`: bandwidth of 4:1, 3:1, 2:1 and 1:1, over the harmonic mean of R and W, by threads.
pub(super) const MIXED: Interference = Interference {
    one: &[(0.0, 1.0), (0.2, 1.206), (0.25, 1.235), (0.333, 1.208), (0.5, 1.265), (1.0, 1.0)],
    many: &[(0.0, 1.0), (0.2, 0.962), (0.25, 0.89), (0.333, 0.73), (0.5, 0.491), (1.0, 1.0)],
    many_threads: 4.0,
    loaded: LOADED,
};

/// `03-tail_latency`: the most frequent, the rarest, and those of a small hot region, which are absent if
/// the region is over 64 KiB.
pub(super) const TAIL: Tail = Tail {
    slow_one_in: 5_000,
    slow_ns: 262.0,
    rare_one_in: 1_000_000,
    rare_ns: 16_000.0,
    wear_writes: 50_000,
    wear: &[(0.4, (5_500.0, 33_500.0)), (0.75, (43_000.0, 58_500.0))],
    wear_bytes: 32 << 10,
};

/// `12-flush_instr_lat`.
pub(super) const STORE_FENCED_NS: &[(f64, f64)] = &[
    (64.0, 125.0),
    (128.0, 135.0),
    (256.0, 212.0),
    (512.0, 305.0),
    (1024.0, 484.0),
    (2048.0, 853.0),
    (4096.0, 1551.0),
];
/// `12-flush_instr_lat`.
pub(super) const FLUSHED_FENCED_NS: &[(f64, f64)] = &[
    (64.0, 116.0),
    (128.0, 134.0),
    (256.0, 192.0),
    (512.0, 328.0),
    (1024.0, 601.0),
    (2048.0, 1015.0),
    (4096.0, 1774.0),
];

pub(super) static PROFILE: Profile = Profile {
    name: "optane-dimm",
    backend: "emulated optane-dimm",
    kind: Kind::Memory,
    unit: UNIT,
    read: AccessProfile {
        // `02-best_case_latency`.
        latency_ns: 305.0,
        sequential_ns: 169.4,
        // `04-bandwidth_thcount_optane_ni`.
        threads: &[
            (1.0, 2.92),
            (2.0, 5.66),
            (3.0, 6.45),
            (7.0, 6.50),
            (10.0, 6.29),
            (12.0, 5.91),
            (14.0, 5.25),
            (16.0, 4.73),
            (18.0, 4.35),
            (20.0, 4.10),
            (24.0, 3.89),
        ],
        sizes: &[],
        fenced_ns: &[],
        fenced: &[],
    },
    store: AccessProfile {
        latency_ns: 90.4,
        sequential_ns: 90.4,
        threads: &[
            (1.0, 2.22),
            (4.0, 2.20),
            (5.0, 2.12),
            (6.0, 1.96),
            (7.0, 1.73),
            (8.0, 1.53),
            (10.0, 1.25),
            (12.0, 1.12),
            (14.0, 0.98),
            (18.0, 0.88),
            (24.0, 0.80),
        ],
        sizes: &[],
        fenced_ns: STORE_FENCED_NS,
        // Between `13-sfence_interval` and `12-flush_instr_bw`, which differ.
        fenced: &[(64.0, 0.322), (128.0, 0.622), (256.0, 1.2), (512.0, 2.21), (1024.0, 2.235)],
    },
    flushed: AccessProfile {
        latency_ns: 62.3,
        sequential_ns: 62.3,
        threads: &[
            (1.0, 1.44),
            (2.0, 1.79),
            (3.0, 1.79),
            (4.0, 1.71),
            (6.0, 1.55),
            (8.0, 1.40),
            (10.0, 1.21),
            (12.0, 1.08),
            (16.0, 0.90),
            (20.0, 0.84),
            (24.0, 0.82),
        ],
        // `05-bandwidth_accesssize_optane_ni`: short stores meet their neighbours in the caches.
        sizes: &[(64.0, 1.16), (128.0, 1.05), (256.0, 1.0)],
        fenced_ns: FLUSHED_FENCED_NS,
        // Between `13-sfence_interval` and `12-flush_instr_bw`, which differ.
        fenced: &[
            (64.0, 0.52),
            (128.0, 0.91),
            (256.0, 1.195),
            (1024.0, 1.18),
            (4096.0, 1.12),
            (16_777_216.0, 1.06),
        ],
    },
    // `09-infer_xpbuffer`: halves of a unit are combined in regions of up to 18 KiB.
    combining_units: 72,
    mixed: Some(MIXED),
    tail: Some(TAIL),
};
