//! The cases of a user's first minutes: cold stores, and stores that were just written.

use super::list::{LARGE, MIB, SMALL};
use super::{Case, Step};
use crate::bench::Name;

/// Time of a cold step, and of a step right after writes, seconds.
const COLD: u64 = 8;

/// Time of the writes before a step that reads right after them, seconds.
const WRITTEN: u64 = 5;

pub(super) const MEMORY_READS_COLD: Case = Case {
    name: "memory-reads-cold",
    summary: "the first seconds after an open with an empty page cache, data that fits in memory",
    load: Some(Name::FillSeq),
    steps: &[
        Step::new("get uniform, 1 thread", Name::ReadRandom).seconds(COLD).cold(),
        Step::new("get uniform, 2 threads", Name::ReadRandom).threads(2).seconds(COLD).cold(),
        Step::new("get zipfian, 2 threads", Name::ReadRandom)
            .zipfian()
            .threads(2)
            .seconds(COLD)
            .cold(),
        Step::new("get missing, 1 thread", Name::ReadMissing).seconds(COLD).cold(),
        Step::new("32 at once, 1 thread", Name::MultiReadRandom).seconds(COLD).cold(),
        Step::new("seek + 100, 1 thread", Name::SeekRandom).entries(100).seconds(COLD).cold(),
    ],
    ..SMALL
};

pub(super) const MEMORY_READS_UNSETTLED: Case = Case {
    name: "memory-reads-unsettled",
    summary: "reads right after five seconds of overwrites, all in memory",
    steps: &[
        Step::prepare(Name::FillSeq).batch(100),
        Step::prepare(Name::Overwrite).seconds(WRITTEN),
        Step::new("get uniform, 2 threads", Name::ReadRandom).threads(2).seconds(COLD),
        Step::prepare(Name::Overwrite).seconds(WRITTEN),
        Step::new("get missing, 1 thread", Name::ReadMissing).seconds(COLD),
        Step::prepare(Name::Overwrite).seconds(WRITTEN),
        Step::new("32 at once, 1 thread", Name::MultiReadRandom).seconds(COLD),
        Step::prepare(Name::Overwrite).seconds(WRITTEN),
        Step::new("seek + 10, 1 thread", Name::SeekRandom).entries(10).seconds(COLD),
        Step::prepare(Name::Overwrite).seconds(WRITTEN),
        Step::new("seek + 100, 1 thread", Name::SeekRandom).entries(100).seconds(COLD),
    ],
    ..SMALL
};

pub(super) const ZIPFIAN_COLD: Case = Case {
    name: "zipfian-cold",
    summary: "zipfian gets from the first second after an open with an empty page cache, 550 MiB",
    steps: &[
        Step::new("zipfian, 8 threads, first seconds", Name::ReadRandom)
            .zipfian()
            .threads(8)
            .seconds(COLD)
            .cold(),
        Step::new("zipfian, 8 threads, next seconds", Name::ReadRandom)
            .zipfian()
            .threads(8)
            .seconds(COLD),
    ],
    ..LARGE
};

pub(super) const ZIPFIAN_UNSETTLED: Case = Case {
    name: "zipfian-unsettled",
    summary: "zipfian gets and scans right after 20 seconds of zipfian overwrites, 550 MiB",
    steps: &[
        Step::prepare(Name::Overwrite).zipfian().threads(8).seconds(20),
        Step::new("seek + 100, 8 threads", Name::SeekRandom)
            .zipfian()
            .entries(100)
            .threads(8)
            .seconds(10),
        Step::prepare(Name::Overwrite).zipfian().threads(8).seconds(20),
        Step::new("zipfian, 8 threads", Name::ReadRandom).zipfian().threads(8).seconds(10),
    ],
    ..LARGE
};

pub(super) const YCSB_COLD: Case = Case {
    name: "ycsb-cold",
    summary: "YCSB C and E with eight threads, each from an open with an empty page cache, 550 MiB",
    load: Some(Name::YcsbLoad),
    steps: &[
        Step::new("C", Name::YcsbC).threads(8).seconds(10).cold(),
        Step::new("E", Name::YcsbE).threads(8).seconds(10).cold(),
    ],
    ..LARGE
};

pub(super) const YCSB_UNSETTLED: Case = Case {
    name: "ycsb-unsettled",
    summary: "YCSB E with eight threads right after 20 seconds of A, 550 MiB",
    load: Some(Name::YcsbLoad),
    steps: &[
        Step::prepare(Name::YcsbA).threads(8).seconds(20),
        Step::new("E", Name::YcsbE).threads(8).seconds(20),
    ],
    ..LARGE
};

/// The rate of each second, from the first: a cold store, then one that was just written. Its data is small
/// enough for every store to be shown.
pub(super) const FIRST_MINUTES: Case = Case {
    name: "first-minutes",
    summary: "the rate of each second after an open with an empty page cache, and right after writes; \
              4 M x 400 B with 256 MiB",
    keys: 4_000_000,
    memory_bytes: 256 * MIB,
    steps: &[
        Step::new("zipfian gets from the open, 8 threads", Name::ReadRandom)
            .zipfian()
            .threads(8)
            .seconds(60)
            .cold()
            .timeline(),
        Step::new("overwrites, 2 threads", Name::Overwrite).threads(2).seconds(20).timeline(),
        Step::new("seek + 10 right after them, 8 threads", Name::SeekRandom)
            .zipfian()
            .entries(10)
            .threads(8)
            .seconds(20)
            .timeline(),
        Step::new("zipfian gets after that, 8 threads", Name::ReadRandom)
            .zipfian()
            .threads(8)
            .seconds(20)
            .timeline(),
    ],
    ..LARGE
};
