//! Simulations: by default a few seconds of random scripts, and tests that they repeat exactly, that settings
//! change no answer, and that they notice a broken store. `cargo xtask sim` runs them for hours.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use base::{Codec, Rng};
use terrace_sim::{
    Action, CompactionStyle, OffloadSums, Report, Script, Step, TierSettings, TierSums, Variant,
    run, run_with, shrink,
};
use terracedb::scm::Placement;

const STEPS: usize = 400;

/// Number of scripts of a test.
fn count(default: u64) -> u64 {
    default * if std::env::var_os("TERRACE_LONG").is_some() { 30 } else { 1 }
}

/// Consecutive seeds from `TERRACE_SEED`, or from a random seed.
fn seeds(default: u64) -> impl Iterator<Item = u64> {
    let (mut rng, seed) = Rng::from_env();
    let given = std::env::var_os("TERRACE_SEED").is_some();
    let first = if given { seed } else { rng.next_u64() >> 16 };
    println!("TERRACE_SEED={first}");
    (0..count(default)).map(move |number| first + number)
}

/// Runs `script`; a failing one is shrunk first.
fn expect(script: &Script) -> Report {
    run(script).unwrap_or_else(|failure| {
        let text = failure.to_string();
        let (short, failure) = shrink(script, *failure, 60);
        panic!("{text}\nshrunk to {:?}:\n{failure}", short.steps);
    })
}

/// I1 to I11, as far as answers show them, over the whole API.
#[test] // I1, I2, I4, I5, I6, I11
fn random_scripts_succeed() {
    for seed in seeds(8) {
        expect(&Script::new(seed, STEPS));
    }
}

/// A second test, so that two cores are used.
#[test]
fn short_random_scripts_succeed() {
    for seed in seeds(24) {
        expect(&Script::new(!seed, 120));
    }
}

/// Merges at workers, over a wire that loses, delays, repeats and garbles, with workers that die, go on after
/// they were given up, and lie: no answer differs, and every spoilt attempt is counted as a fallback.
#[test] // I1, I3, I9
fn merges_at_workers_change_no_answer() {
    let mut sums = OffloadSums::default();
    for seed in seeds(16) {
        let report = expect(&Script::new(seed, STEPS).with_workers());
        sums += report.offload;
        println!("{seed}: {:?}", report.offload);
    }
    // A few seeds of this size meet each kind hundreds of times, and the first ones dozens.
    assert!(sums.installed > 0 && sums.spoilt > 0 && sums.lies > 0, "{sums:?}");
    assert!(sums.verified > 0 && sums.zombies > 0, "{sums:?}");
}

/// The same script with and without workers: the store answers the same.
#[test]
fn a_script_has_the_same_answers_with_workers() {
    for seed in seeds(4) {
        let script = Script::new(seed, STEPS).untroubled();
        let variant = Variant {
            codec: Codec::Lz4,
            memory: 64 << 20,
            page_cache: u64::MAX,
            has_rows: false,
            compaction: CompactionStyle::Tiny,
            order: seed,
            tier: None,
        };
        let with = run_with(&script.clone().with_workers(), Some(variant.clone())).unwrap();
        let without = run_with(&script, Some(variant)).unwrap();
        assert_eq!(with.answers, without.answers, "seed {seed}");
    }
}

/// Many keyspaces, long keys, large values, range deletes and operands, with the smallest memory limit: no
/// refusal lasts.
#[test] // I10
fn crowded_scripts_end_without_a_lasting_refusal() {
    for seed in seeds(2) {
        expect(&Script::crowded(seed, 150));
    }
}

/// Crowded scripts (seed and steps) that once failed. The bug: memory for a range delete was reserved in a
/// memtable that a later part of the batch sealed.
#[test] // I10
fn crowded_scripts_that_failed_once_succeed() {
    expect(&Script::crowded(8_076_959_478_329_817_746, 150));
}

/// Scripts (seed and steps) that once failed. The bugs: a compaction that waited for memory did not notice
/// that it was free; a checkpoint showed values again that had expired before the clock was set back; an
/// ingest whose manifest record was in doubt was not reported as `Poisoned`; a failed open cut the log's last
/// segment, which then looked damaged; the simulation itself forgot a sync that failed before the process was
/// killed in the step that reopened the store; a backup lacked writes that a failed sync of the log had
/// dropped; an ingest begun while syncs of names failed, also for lack of space, was expected to succeed; a
/// value file that could not be read at open stayed unreadable; an SCM tier closed after a burst of writes
/// left a slot map that named overwritten slots.
#[test]
fn scripts_that_failed_once_succeed() {
    let failed = [
        (1, 340),
        (110, 490),
        (70037, 60),
        (5_000_007, 500),
        (16_871_337_198_624_898_891, 63),
        (2_140_249_268_322_967_213, 63),
        (13_243_134_217_441_640_331, 347),
        (20_261_538, 240),
        (20_261_863, 380),
        (7_140_647_050_209_526_585, 120),
    ];
    for (seed, steps) in failed {
        expect(&Script::new(seed, steps).ordered());
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in seeds(2) {
        let script = Script::new(seed, STEPS);
        let (one, other) = (expect(&script), expect(&script));
        assert_eq!(one, other, "seed {seed}: another source of randomness");
        let another = expect(&Script::new(seed + 1, STEPS));
        assert_ne!(one.everything, another.everything, "seed {seed}");
    }
}

/// The same script with other settings gives the same answers.
#[test] // I6
fn settings_change_no_answer() {
    let tier = |is_mapped, pages, placement| {
        Some(TierSettings {
            is_mapped,
            is_emulated: !is_mapped,
            pages,
            placement,
            write_budget: None,
        })
    };
    let small = 300 << 10;
    let variants = [
        (Codec::Lz4, 64 << 20, u64::MAX, CompactionStyle::Default, None),
        (Codec::None, 64 << 20, small, CompactionStyle::Tiny, tier(true, 40, Placement::ScmFirst)),
        (
            Codec::Zstd,
            1 << 30,
            u64::MAX,
            CompactionStyle::Tiny,
            tier(false, 600, Placement::ScmFirst),
        ),
        (Codec::Zstd, 65 << 20, small, CompactionStyle::Lazy, tier(false, 40, Placement::ByKind)),
    ];
    for seed in seeds(2) {
        let script = Script::new(seed, STEPS).untroubled();
        let mut first = None;
        for (order, (codec, memory, page_cache, compaction, tier)) in
            variants.into_iter().enumerate()
        {
            let order = order as u64;
            let variant =
                Variant { codec, memory, page_cache, has_rows: order < 2, compaction, order, tier };
            let report = run_with(&script, Some(variant.clone()));
            let report = report.unwrap_or_else(|failure| panic!("{variant:?}: {failure}"));
            let expected = *first.get_or_insert(report.answers);
            assert_eq!(report.answers, expected, "seed {seed}: {variant:?} changes an answer");
        }
    }
}

/// Statistics of the tier under a store with almost no DRAM.
fn tier_sums(tier: TierSettings, seed: u64) -> TierSums {
    let variant = Variant {
        codec: Codec::None,
        memory: 64 << 20,
        page_cache: 170 << 10,
        has_rows: false,
        compaction: CompactionStyle::Tiny,
        order: seed,
        tier: Some(tier),
    };
    let report = run_with(&Script::new(seed, STEPS), Some(variant));
    report.unwrap_or_else(|failure| panic!("{failure}")).tiers
}

/// The scripts exercise every event of a tier; otherwise their results would prove nothing about it.
#[test]
fn scripts_exercise_every_event_of_a_tier() {
    let mut sums = TierSums::default();
    for (seed, placement) in [(1, Placement::DramFirst), (2, Placement::ScmFirst)] {
        for is_mapped in [false, true] {
            let tier = TierSettings {
                is_mapped,
                is_emulated: false,
                pages: 40,
                placement,
                write_budget: None,
            };
            sums += tier_sums(tier, seed);
        }
    }
    let TierSums { processes, off, restored, written, demoted, carried, .. } = sums;
    let TierSums { hits, promoted, dropped, damaged, .. } = sums;
    let all =
        [processes, off, restored, written, demoted, carried, hits, promoted, dropped, damaged];
    assert!(all.iter().all(|sum| *sum > 0), "{sums:?}");
}

/// The process that reopens a tier's storage continues with the write budget that the previous one left.
#[test]
fn a_tiers_write_budget_holds_over_restarts() {
    let mut sums = TierSums::default();
    for seed in 1..5 {
        let tier = TierSettings {
            is_mapped: seed % 2 == 0,
            is_emulated: false,
            pages: 600,
            placement: Placement::ScmFirst,
            write_budget: Some(256),
        };
        sums += tier_sums(tier, seed);
    }
    assert!(sums.processes > 20 && sums.written > 0, "{sums:?}");
}

/// A store that does not sync is noticed, and the script that shows it is shrunk.
#[test] // I11
fn a_store_that_does_not_sync_is_noticed() {
    let mut found = 0;
    for seed in 0..6 {
        let mut script = Script::new(seed, 200).untroubled();
        script.steps.insert(0, Step { action: Action::LoseSyncs, seed: 0 });
        script.steps.retain(|step| {
            matches!(step.action, Action::LoseSyncs | Action::Write | Action::Sync | Action::Get)
        });
        script.steps.push(Step { action: Action::CutPower, seed });
        let Err(failure) = run(&script) else { continue };
        assert!(failure.why.contains("left by Power"), "{failure}");
        assert!(!failure.trace.is_empty() && failure.seed == seed, "{failure}");
        let (short, failure) = shrink(&script, *failure, 120);
        assert!(short.steps.len() <= 12, "{:?}: {failure}", short.steps);
        assert!(
            short.steps.iter().any(|step| step.action == Action::LoseSyncs),
            "{:?}",
            short.steps
        );
        found += 1;
    }
    // A power cut may spare unsynced writes.
    assert!(found >= 1, "{found} of 6 found out");
}
