//! The list of cases.

use super::first::{
    FIRST_MINUTES, MEMORY_READS_COLD, MEMORY_READS_UNSETTLED, YCSB_COLD, YCSB_UNSETTLED,
    ZIPFIAN_COLD, ZIPFIAN_UNSETTLED,
};
use super::hash::{HASHED, RESIDENT, WAN};
use super::{Case, Compression, Step};
use crate::bench::Name;

pub(super) const MIB: u64 = 1 << 20;

/// Data in memory: 2 million keys of 16 B with values of 100 B.
pub(super) const SMALL: Case = Case {
    name: "",
    has_floor: false,
    summary: "",
    keys: 2_000_000,
    value_bytes: Some(100),
    memory_bytes: 4096 * MIB,
    own_memory_bytes: None,
    is_held: false,
    is_in_memory: false,
    compression: Compression::Lz4,
    load: None,
    steps: &[],
    wan: None,
};

/// Data larger than memory: 20 million keys of 16 B with values of 400 B, 8.3 GB.
pub(super) const LARGE: Case = Case {
    keys: 20_000_000,
    value_bytes: Some(400),
    memory_bytes: 550 * MIB,
    is_held: true,
    load: Some(Name::FillSeq),
    ..SMALL
};

/// Every case, in the order of the rows.
pub const CASES: &[Case] = &[
    Case {
        name: "memory-reads",
        summary: "gets, batches of 32, seeks with 100 entries and missing keys, all in memory",
        // Every key is written twice, so that reads find versions in several runs of an LSM tree. One pass of
        // reads fills the caches.
        steps: &[
            Step::prepare(Name::FillSeq).batch(100),
            Step::prepare(Name::Overwrite).settled(),
            Step::prepare(Name::ReadRandom).threads(2),
            Step::new("get uniform, 1 thread", Name::ReadRandom).seconds(10),
            Step::new("get uniform, 2 threads", Name::ReadRandom).threads(2).seconds(10),
            Step::new("get zipfian, 1 thread", Name::ReadRandom).zipfian().seconds(10),
            Step::new("get zipfian, 2 threads", Name::ReadRandom).zipfian().threads(2).seconds(10),
            Step::new("get missing, 1 thread", Name::ReadMissing).seconds(10),
            Step::new("32 at once, 1 thread", Name::MultiReadRandom).seconds(10),
            Step::new("32 at once, 2 threads", Name::MultiReadRandom).threads(2).seconds(10),
            Step::new("seek + 100, 1 thread", Name::SeekRandom).entries(100).seconds(10),
            Step::new("seek + 100, 2 threads", Name::SeekRandom)
                .entries(100)
                .threads(2)
                .seconds(10),
        ],
        ..SMALL
    },
    MEMORY_READS_COLD,
    MEMORY_READS_UNSETTLED,
    Case {
        name: "scaling",
        summary: "gets and overwrites of 1 to 16 threads, all in memory: on a machine with the cores",
        // Overwrites come last, because they leave a tree that is not settled.
        steps: &[
            Step::prepare(Name::FillSeq).batch(100),
            Step::prepare(Name::Overwrite).settled(),
            Step::prepare(Name::ReadRandom).threads(2),
            Step::new("get uniform, 1 thread", Name::ReadRandom).seconds(5),
            Step::new("get uniform, 4 threads", Name::ReadRandom).threads(4).seconds(5),
            Step::new("get uniform, 8 threads", Name::ReadRandom).threads(8).seconds(5),
            Step::new("get uniform, 16 threads", Name::ReadRandom).threads(16).seconds(5),
            Step::new("get zipfian, 1 thread", Name::ReadRandom).zipfian().seconds(5),
            Step::new("get zipfian, 16 threads", Name::ReadRandom).zipfian().threads(16).seconds(5),
            Step::new("overwrite, 1 thread", Name::Overwrite).seconds(5),
            Step::new("overwrite, 4 threads", Name::Overwrite).threads(4).seconds(5),
            Step::new("overwrite, 16 threads", Name::Overwrite).threads(16).seconds(5),
        ],
        ..SMALL
    },
    Case {
        name: "fill-large",
        summary: "20 M x 400 B in random order with 512 MiB, until no debt is left",
        memory_bytes: 512 * MIB,
        load: None,
        steps: &[Step::new("fill", Name::FillRandom).settled(), VERIFY],
        ..LARGE
    },
    Case {
        name: "fill-1",
        summary: "2 M x 100 B in random order, one thread, one entry a write",
        steps: &[Step::new("fill, 1 thread", Name::FillRandom), VERIFY],
        ..SMALL
    },
    Case {
        name: "fill-2",
        summary: "2 M x 100 B in random order, two threads, one entry a write",
        steps: &[Step::new("fill, 2 threads", Name::FillRandom).threads(2), VERIFY],
        ..SMALL
    },
    Case {
        name: "fill-batch",
        summary: "2 M x 100 B in random order, one thread, 100 entries a write",
        steps: &[Step::new("fill, 100 a write", Name::FillRandom).batch(100), VERIFY],
        ..SMALL
    },
    Case {
        name: "sync-1",
        summary: "20,000 x 100 B, every write synced, one thread",
        keys: 20_000,
        steps: &[Step::new("synced, 1 thread", Name::FillSync), VERIFY],
        ..SMALL
    },
    Case {
        name: "sync-8",
        summary: "20,000 x 100 B, every write synced, eight threads",
        keys: 20_000,
        steps: &[Step::new("synced, 8 threads", Name::FillSync).threads(8), VERIFY],
        ..SMALL
    },
    Case {
        name: "overwrite",
        summary: "five minutes of overwrites at full speed with 512 MiB",
        memory_bytes: 512 * MIB,
        steps: &[Step::new("overwrite", Name::Overwrite).seconds(300), VERIFY],
        ..LARGE
    },
    Case {
        name: "compaction",
        summary: "a full compaction of 4 M x 400 B that all overlaps, LZ4",
        keys: 4_000_000,
        memory_bytes: 512 * MIB,
        load: None,
        steps: COMPACTION,
        ..LARGE
    },
    Case {
        name: "compaction-zstd",
        summary: "a full compaction of 4 M x 400 B that all overlaps, zstd-1 with a dictionary",
        keys: 4_000_000,
        memory_bytes: 512 * MIB,
        compression: Compression::Zstd,
        load: None,
        steps: COMPACTION,
        ..LARGE
    },
    Case {
        name: "cold",
        has_floor: true,
        summary: "uniform gets of data fifteen times memory, beside the device alone",
        steps: &[
            Step::new("get, 32 threads", Name::ReadRandom).threads(32).seconds(20),
            Step::new("32 in flight, 1 thread", Name::MultiReadRandom).seconds(20),
        ],
        ..LARGE
    },
    Case { name: "zipfian", summary: "zipfian gets, all with 550 MiB", steps: ZIPFIAN, ..LARGE },
    ZIPFIAN_COLD,
    ZIPFIAN_UNSETTLED,
    FIRST_MINUTES,
    HASHED,
    RESIDENT,
    WAN,
    Case {
        name: "zipfian-sixth",
        summary: "zipfian gets, this engine with 400 MiB, the others with 2.4 GiB",
        memory_bytes: 2458 * MIB,
        own_memory_bytes: Some(400 * MIB),
        steps: ZIPFIAN,
        ..LARGE
    },
    Case {
        name: "tiered",
        summary: "zipfian gets, this engine with 367 MiB over an emulated 2.9 GiB, the others with 2.4 GiB",
        memory_bytes: 2458 * MIB,
        own_memory_bytes: Some(367 * MIB),
        // The SCM tier takes as long to fill as the others' caches.
        steps: &[
            Step::prepare(Name::ReadRandom).zipfian().threads(8).seconds(WARM),
            Step::new("zipfian, 8 threads", Name::ReadRandom).zipfian().threads(8).seconds(20),
            Step::new("zipfian, 32 threads", Name::ReadRandom).zipfian().threads(32).seconds(20),
        ],
        ..LARGE
    },
    Case {
        name: "hybrid-cache",
        summary: "one page from a backing file where DRAM and a file have none, as a cache alone; 400 MiB",
        keys: 1_000_000,
        value_bytes: Some(4000),
        memory_bytes: 400 * MIB,
        steps: ZIPFIAN,
        ..LARGE
    },
    Case {
        name: "readwhilewriting",
        summary: "uniform gets of eight threads beside one that overwrites, 550 MiB",
        // At full speed, a store with a faster writer serves fewer reads. The second step offers the same
        // writes to every store: a third of the rate that RocksDB reaches in the first.
        steps: &[
            Step::new("read while writing", Name::ReadWhileWriting).threads(8).seconds(30),
            Step::new("read beside 20,000 writes a second", Name::ReadWhileWriting)
                .threads(8)
                .seconds(30)
                .write_rate(20_000.0),
        ],
        ..LARGE
    },
    Case {
        name: "ycsb",
        summary: "YCSB A to F with eight threads, 20 M x 400 B, 550 MiB",
        load: Some(Name::YcsbLoad),
        steps: &[
            Step::prepare(Name::YcsbC).threads(8).seconds(WARM),
            Step::new("A", Name::YcsbA).threads(8).seconds(20),
            Step::new("B", Name::YcsbB).threads(8).seconds(20),
            Step::new("C", Name::YcsbC).threads(8).seconds(20),
            Step::new("F", Name::YcsbF).threads(8).seconds(20),
            Step::new("D", Name::YcsbD).threads(8).seconds(20),
            Step::new("E", Name::YcsbE).threads(8).seconds(20),
        ],
        ..LARGE
    },
    YCSB_COLD,
    YCSB_UNSETTLED,
    Case {
        name: "mixgraph",
        summary: "the model of a production store, 60 M keys, eight threads, 550 MiB",
        keys: 60_000_000,
        value_bytes: None,
        load: Some(Name::MixgraphLoad),
        steps: &[
            Step::prepare(Name::Mixgraph).threads(8).seconds(WARM),
            Step::new("mixgraph", Name::Mixgraph).threads(8).seconds(20),
        ],
        ..LARGE
    },
];

const COMPACTION: &[Step] = &[
    Step::prepare(Name::FillSeq).batch(100),
    Step::prepare(Name::Overwrite),
    Step::new("compact", Name::Compact),
    VERIFY,
];

/// Verifies everything that was written, unmeasured: the speed of a store that lost something does not count.
const VERIFY: Step = Step::prepare(Name::Verify);

/// Time to fill caches before a measurement, seconds. The three millionth zipfian get has a probability of a
/// quarter to ask for a key that no get asked for before, the ten millionth one of 18 %.
const WARM: u64 = 100;

const ZIPFIAN: &[Step] = &[
    Step::prepare(Name::ReadRandom).zipfian().threads(32).seconds(WARM),
    Step::new("zipfian, 8 threads", Name::ReadRandom).zipfian().threads(8).seconds(20),
    Step::new("zipfian, 32 threads", Name::ReadRandom).zipfian().threads(32).seconds(20),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Bench;
    use crate::cases::Scale;

    #[test]
    fn every_case_has_a_name_a_summary_and_unique_labels() {
        for case in CASES {
            assert_eq!(Case::named(case.name).unwrap().name, case.name);
            let labels: Vec<_> = case.labels().collect();
            assert!(!labels.is_empty() && !case.summary.is_empty(), "{}", case.name);
            for (at, label) in labels.iter().enumerate() {
                assert!(labels.iter().skip(at + 1).all(|other| other != label));
            }
            // A store that is opened again has the kept load and nothing else.
            let changes = |step: &Step| {
                (step.bench.writes() || step.bench.is_mixed()) && step.bench != Name::YcsbC
            };
            for (at, cold) in case.steps.iter().enumerate().filter(|(_, step)| step.is_cold) {
                let is_changed = case.steps.iter().take(at).any(changes);
                assert!(case.load.is_some() && !is_changed, "{}: {}", case.name, cold.label);
            }
        }
        assert!(Case::named("no such case").is_err());
    }

    /// The driver accepts every step at every scale, and can assume every kept load.
    #[test]
    fn every_step_can_run_at_every_scale() {
        for (case, scale) in CASES
            .iter()
            .flat_map(|case| [Scale::Full, Scale::Quick, Scale::Tiny].map(|s| (case, s)))
        {
            assert!(case.keys(scale) <= case.keys && case.memory(scale, true) >= 64 * MIB);
            assert_eq!(Scale::named(scale.name()).unwrap(), scale);
            for step in case.steps {
                let options = step.options(case.options(scale, 1), scale);
                options.check().unwrap();
                Bench::check(step.bench, &options, None).unwrap();
            }
            assert!(case.load.is_none_or(|load| load.load().is_none() && load.writes()));
        }
    }
}
