//! Outcomes of jobs compared with retention over the same versions in memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "support is shared by test files")]

mod support;

use std::sync::Arc;

use base::{Account, Budget, EntryKind, ErrorKind, Rng, Seqno, TableId, Trailer};
use media::{Medium, MemoryMedium};
use support::*;
use table::{Bounds, RangeDelete, RangeDeletes};
use terrace_compact::job::{Job, ValueRules};
use terrace_compact::{
    KeyRange, OlderRanges, Outcome, RetainedVersion, Retention, RetentionRules, Run, run,
};

/// The versions and range deletes of `content` within the job's bounds that should survive.
fn expected(
    content: &Content,
    job: &Job,
    env: &terrace_compact::Env,
) -> (Vec<Version>, RangeDeletes) {
    let rules = RetentionRules {
        horizon: job.horizon.clone(),
        now_ms: job.now_ms,
        older: OlderRanges::new(job.older.clone()),
        value_bytes_max: env.value_bytes_max,
        operator: job.operator.as_ref().and_then(|name| env.operators.get(name).cloned()),
    };
    let bounds = Bounds::from(&job.bounds);
    let deletes = content.range_deletes.iter().cloned();
    let ranges = RangeDeletes::build_for(deletes, job.horizon.seqnos()).clipped(&bounds);
    let mut retention = Retention::new(rules, &env.account).unwrap();
    let mut kept_ranges = Vec::new();
    for fragment in ranges.iter() {
        let mut seqnos = Vec::new();
        retention.range_deletes(fragment.start, Some(fragment.end), fragment.seqnos, &mut seqnos);
        kept_ranges.extend(seqnos.into_iter().map(|seqno| RangeDelete {
            start: fragment.start.clone(),
            end: fragment.end.clone(),
            seqno,
        }));
    }
    let mut kept = Vec::new();
    let mut keep = |version: RetainedVersion<'_>| {
        kept.push((version.key.to_vec(), version.trailer, version.value.to_vec()));
        Ok(())
    };
    for (key, trailer, value) in content.versions.iter().filter(|it| job.bounds.holds(&it.0)) {
        let covering = ranges.fragment_at(key).map_or(&[][..], |fragment| fragment.seqnos);
        retention.version(key, covering, *trailer, value, &mut keep).unwrap();
    }
    retention.end_key(&mut keep).unwrap();
    (kept, RangeDeletes::build(kept_ranges))
}

/// Reads the outcome's tables and checks the properties that hold for any content.
fn survivors(
    outcome: &Outcome,
    job: &Job,
    medium: &Arc<dyn Medium>,
) -> (Vec<Version>, RangeDeletes) {
    let (mut versions, mut ranges) = (Vec::new(), Vec::new());
    let mut end = Vec::new();
    for summary in &outcome.tables {
        let table = open(medium, summary.table);
        assert!(table.properties().first_key >= end, "{} overlaps the one before", table.id());
        end = table.properties().end_key();
        assert_eq!(table.properties(), &summary.properties);
        assert!(job.output.ids.contains(&table.id()));
        let report = table.check(&Account::unlimited("test"), &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        versions.extend(read(&table));
        ranges.extend(table.range_deletes().unwrap().deletes());
    }
    assert!(outcome.counts.is_balanced());
    assert_eq!(outcome.counts.kept, versions.len() as u64);
    (versions, RangeDeletes::build(ranges))
}

#[test]
fn survivors_are_written_once_and_in_order() {
    let (mut rng, seed) = Rng::from_env();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 2000 } else { 40 };
    for round in 0..rounds {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let env = env(&medium);
        let spec = ContentSpec {
            runs: 1 + rng.below(5),
            keys: [5, 300, 5000, 1_000_000][rng.below(4) as usize],
            entries: 1 + rng.below(2500),
            tables: 1 + rng.below(4),
            value_bytes: [0, 100, 1000][rng.below(3) as usize],
            puts_only: rng.one_in(2),
            disjoint: rng.one_in(2),
        };
        let content = Content::random(&mut rng, &medium, &spec);
        let readers: Vec<_> = (0..rng.below(4)).map(|_| 1 + rng.below(6000)).collect();
        let mut job = content.job(&readers);
        job.output.ids.end = TableId(OUTPUTS + 1 + rng.below(20));
        if rng.one_in(2) {
            let (start, end) = (rng.below(spec.keys), rng.below(spec.keys) + 1);
            job.bounds = KeyRange::new(&key(start), Some(&key(start + end)));
        }
        if rng.one_in(2) {
            let start = rng.below(spec.keys);
            job.older = vec![KeyRange::new(&key(start), Some(&key(start + 1 + spec.keys / 3)))];
        }
        let outcome = run(job.clone(), &env).unwrap();
        let (versions, ranges) = survivors(&outcome, &job, &medium);
        let (wanted, wanted_ranges) = expected(&content, &job, &env);
        assert_eq!(versions.len(), wanted.len(), "seed {seed} round {round}");
        assert!(versions == wanted, "seed {seed} round {round}");
        assert_eq!(ranges, wanted_ranges, "seed {seed} round {round}");
    }
}

/// An engine that compresses on threads and decompresses at once, and counts.
#[derive(Debug)]
struct CountingEngine(table::SoftPool, std::sync::atomic::AtomicU64);

impl table::BlockEngine for CountingEngine {
    fn stream(
        &self,
        codec: base::Codec,
        level: i32,
        account: &Account,
    ) -> Option<Box<dyn table::BlockStream>> {
        self.0.stream(codec, level, account)
    }

    fn decompress(&self, codec: base::Codec, payload: &[u8], raw: usize) -> Option<Vec<u8>> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        table::decompress_block(codec, payload, raw).ok()
    }
}

#[test]
fn an_engine_changes_where_blocks_are_compressed_and_no_entry() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let spec = ContentSpec {
        runs: 3,
        keys: 2000,
        entries: 1500,
        tables: 2,
        value_bytes: 300,
        puts_only: false,
        disjoint: false,
    };
    let account = Account::unlimited("test");
    let pool = table::SoftPool::new(2, &account).unwrap();
    let engine = Arc::new(CountingEngine(pool, Default::default()));
    // The outputs of the first job are the inputs of a second one: compressed, unlike the first inputs.
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let content = Content::random(&mut rng, &medium, &spec);
    let mut job = content.job(&[]);
    (job.output.codec, job.output.level) = (base::Codec::Deflate, 6);
    let plain = run(job.clone(), &env(&medium)).unwrap();
    let (expected, _) = survivors(&plain, &job, &medium);
    job.output.ids = TableId(OUTPUTS + 100)..TableId(OUTPUTS + 200);
    let with = terrace_compact::Env { engine: Some(Arc::clone(&engine) as _), ..env(&medium) };
    let outcome = run(job.clone(), &with).unwrap();
    assert!(survivors(&outcome, &job, &medium).0 == expected);
    assert_eq!(outcome.counts, plain.counts);
    let compressed = outcome.tables.iter().map(|it| it.properties.compressions).sum::<u64>();
    assert!(compressed > 0);
    let input = |it: &table::Summary| terrace_compact::job::Input {
        id: it.table,
        file_bytes: it.file_bytes,
        digest: it.digest,
        bounds: KeyRange::all(),
        seqno: None,
    };
    job.inputs =
        vec![terrace_compact::job::InputRun { tables: outcome.tables.iter().map(input).collect() }];
    job.output.ids = TableId(OUTPUTS + 300)..TableId(OUTPUTS + 400);
    let again = run(job.clone(), &with).unwrap();
    assert!(survivors(&again, &job, &medium).0 == expected);
    assert!(engine.1.load(std::sync::atomic::Ordering::Relaxed) > 0);
}

/// In key ranges that one run holds alone, blocks are copied, with almost no padding.
#[test]
fn blocks_of_a_run_without_overlap_are_copied() {
    let mut rng = Rng::new(6);
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ContentSpec {
        runs: 3,
        keys: 6_000_000,
        entries: 9000,
        tables: 2,
        value_bytes: 300,
        puts_only: true,
        disjoint: true,
    };
    let content = Content::random(&mut rng, &medium, &spec);
    let mut job = content.job(&[]);
    job.output.table_bytes_max = 1 << 20;
    let env = env(&medium);
    let outcome = run(job.clone(), &env).unwrap();
    let (versions, _) = survivors(&outcome, &job, &medium);
    assert!(versions == expected(&content, &job, &env).0);
    let pages: u64 = outcome.tables.iter().map(|it| it.properties.data_pages).sum();
    assert!(outcome.pages_passed * 2 > pages, "{} of {pages}", outcome.pages_passed);
    let read: u64 = job.pieces().map(|piece| piece.file_bytes).sum();
    assert!(outcome.bytes_written() < read + read / 20, "{} of {read}", outcome.bytes_written());
    // With another codec, only uncompressed blocks are copied: long ones of random bytes.
    let passed = outcome.pages_passed;
    job.discard_outputs(&*medium).unwrap();
    job.output.codec = base::Codec::None;
    let outcome = run(job.clone(), &env).unwrap();
    assert!(survivors(&outcome, &job, &medium).0 == versions);
    assert!(outcome.pages_passed * 5 < passed, "{}", outcome.pages_passed);
}

/// Tables are never cut between versions of a key.
#[test]
fn a_key_with_many_versions_stays_in_one_table() {
    let mut rng = Rng::new(1);
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ContentSpec {
        runs: 2,
        keys: 3,
        entries: 2000,
        tables: 1,
        value_bytes: 400,
        puts_only: true,
        disjoint: false,
    };
    let content = Content::random(&mut rng, &medium, &spec);
    // A read at every seqno: nothing is dropped.
    let readers: Vec<_> = (1..4001).collect();
    let job = content.job(&readers);
    let outcome = run(job.clone(), &env(&medium)).unwrap();
    assert_eq!(survivors(&outcome, &job, &medium).0, content.versions);
    assert_eq!(outcome.tables.len(), 3);
    // With one id, there is one table.
    job.discard_outputs(&*medium).unwrap();
    let mut job = job;
    job.output.ids.end = TableId(OUTPUTS + 1);
    assert_eq!(run(job, &env(&medium)).unwrap().tables.len(), 1);
}

/// If nothing survives, nothing is written.
#[test]
fn without_survivors_nothing_is_written() {
    let mut rng = Rng::new(2);
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ContentSpec {
        runs: 1,
        keys: 90,
        entries: 500,
        tables: 2,
        value_bytes: 50,
        puts_only: true,
        disjoint: false,
    };
    let mut content = Content::random(&mut rng, &medium, &spec);
    let delete = RangeDelete { start: key(0).into(), end: key(90).into(), seqno: Seqno::new(900) };
    let range_deletes = RangeDeletes::build([delete.clone()]);
    let over = write(&medium, TableId(900), &[], &range_deletes).unwrap();
    content.runs.insert(0, terrace_compact::job::InputRun { tables: vec![over] });
    let before = files(&medium);
    let outcome = run(content.job(&[]), &env(&medium)).unwrap();
    assert_eq!(outcome.tables, []);
    assert_eq!(outcome.counts.range_deleted, content.versions.len() as u64);
    assert_eq!(files(&medium), before);
    // If older tables may hold the keys, the range delete survives.
    let job = Job { older: vec![KeyRange::all()], ..content.job(&[]) };
    let outcome = run(job.clone(), &env(&medium)).unwrap();
    assert_eq!(survivors(&outcome, &job, &medium), (Vec::new(), RangeDeletes::build([delete])));
}

/// The memory of a run does not grow with its inputs, is charged, and is released.
#[test] // I10
fn memory_of_a_run_is_bounded_and_released() {
    let mut peaks = Vec::new();
    for entries in [2000, 20_000] {
        let mut rng = Rng::new(3);
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let spec = ContentSpec {
            runs: 4,
            keys: 50_000,
            entries,
            tables: 3,
            value_bytes: 100,
            puts_only: true,
            disjoint: false,
        };
        let content = Content::random(&mut rng, &medium, &spec);
        let budget = Budget::new(64 << 20);
        let env = env_charging(&medium, budget.account("compaction"));
        run(content.job(&[]), &env).unwrap();
        assert_eq!(budget.used(), 0);
        peaks.push(env.account.peak());
    }
    assert!(peaks[1] < peaks[0] + (64 << 10) && peaks[1] < 8 << 20, "{peaks:?}");
}

#[test] // I10
fn a_run_without_memory_leaves_no_files() {
    let mut rng = Rng::new(4);
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ContentSpec {
        runs: 3,
        keys: 4000,
        entries: 3000,
        tables: 2,
        value_bytes: 200,
        puts_only: false,
        disjoint: false,
    };
    let content = Content::random(&mut rng, &medium, &spec);
    let before = files(&medium);
    let mut failures = 0;
    for limit in (0..6 << 20).step_by(300 << 10) {
        let budget = Budget::new(limit);
        match run(content.job(&[]), &env_charging(&medium, budget.account("compaction"))) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                assert_eq!(files(&medium), before);
                failures += 1;
            }
            Ok(_) => content.job(&[]).discard_outputs(&*medium).unwrap(),
        }
        assert_eq!(budget.used(), 0);
    }
    assert!(failures > 5, "{failures}");
}

/// A run dropped between any two steps leaves nothing behind, and the job can be run again.
#[test]
fn a_cancelled_run_leaves_no_files() {
    let mut rng = Rng::new(5);
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ContentSpec {
        runs: 3,
        keys: 4000,
        entries: 3000,
        tables: 3,
        value_bytes: 200,
        puts_only: true,
        disjoint: false,
    };
    let content = Content::random(&mut rng, &medium, &spec);
    let before = files(&medium);
    let (job, env) = (content.job(&[]), env(&medium));
    for steps in 0.. {
        let mut run = Run::new(job.clone(), &env).unwrap();
        let done = (0..steps).find_map(|_| run.step().unwrap());
        drop(run);
        if let Some(outcome) = done {
            assert!(steps > 15 && !outcome.tables.is_empty());
            break;
        }
        assert_eq!(files(&medium), before, "after {steps} steps");
        assert_eq!(env.account.used(), 0);
    }
}

/// Whatever a merge drops, merges, turns into tombstones, moves to a value file or copies as whole blocks: no
/// entry is lost, doubled or changed, and the sums say so.
#[test]
fn sums_of_entries_balance() {
    let (mut rng, seed) = Rng::from_env();
    let (mut made, mut passed, mut moved) = (0, 0, 0);
    for round in 0..16u64 {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let is_disjoint = round % 4 == 1;
        let spec = ContentSpec {
            runs: 1 + round % 4,
            keys: if is_disjoint { 200_000 } else { 200 << (round % 5) },
            entries: if is_disjoint { 6000 } else { 1500 },
            tables: 2,
            value_bytes: 200,
            puts_only: round % 2 == 1,
            disjoint: is_disjoint,
        };
        let content = Content::random(&mut rng, &medium, &spec);
        let mut job = content.job(&[rng.below(3000)]);
        if round % 3 == 0 {
            job.values = ValueRules {
                bytes_min: 16 << 10,
                ids: TableId(OUTPUTS + 3000)..TableId(OUTPUTS + 3001),
                collect: Vec::new(),
            };
        }
        if rng.one_in(3) {
            job.operator = None;
        }
        let outcome = run(job.clone(), &env(&medium)).unwrap();
        outcome.expect_conserved(Some(input_sum(&job, &medium))).unwrap();
        outcome.expect_conserved(None).unwrap();
        for summary in &outcome.tables {
            let account = Account::unlimited("check");
            let report = open(&medium, summary.table).check(&account, &mut |_, _| {}).unwrap();
            assert!(report.is_clean(), "seed {seed}, {report:?}");
        }
        let sums = outcome.sums.unwrap();
        made += u64::from(sums.made != 0);
        passed += outcome.pages_passed;
        moved += u64::from(outcome.values.is_some());
        // Without sums nothing is written of them.
        job.discard_outputs(&*medium).unwrap();
        let plain = terrace_compact::Env { sums_entries: false, ..env(&medium) };
        let outcome = run(job.clone(), &plain).unwrap();
        assert_eq!(outcome.sums, None);
        assert!(outcome.tables.iter().all(|table| table.properties.entry_sum == 0));
        outcome.expect_conserved(None).unwrap_err();
    }
    assert!(made > 0 && passed > 0 && moved > 0, "seed {seed}: {made} {passed} {moved}");
}

/// Any single change of an entry changes the sum.
#[test]
fn every_change_of_an_entry_changes_its_hash() {
    let trailer = |seqno, kind| Trailer::new(Seqno::new(seqno), kind);
    let hash = table::entry_hash(b"key", trailer(7, EntryKind::Put), b"value");
    for (key, trailer, value) in [
        (&b"kez"[..], trailer(7, EntryKind::Put), &b"value"[..]),
        (b"keyv", trailer(7, EntryKind::Put), b"alue"),
        (b"key", trailer(8, EntryKind::Put), b"value"),
        (b"key", trailer(7, EntryKind::Merge), b"value"),
        (b"key", trailer(7, EntryKind::Put), b"valuf"),
        (b"key", trailer(7, EntryKind::Put), b""),
    ] {
        assert_ne!(table::entry_hash(key, trailer, value), hash);
    }
}

/// Two jobs that share the keys of one, cut anywhere: together they keep what one keeps, no version is lost
/// at the cut or kept twice, and a range delete over the cut covers the keys of both sides. A part that was
/// lost is run again, whole, with other ids.
#[test]
fn a_cut_between_two_jobs_splits_no_key_and_no_range_delete() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..20 {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let env = env(&medium);
        let spec = ContentSpec {
            runs: 1 + rng.below(4),
            keys: 300,
            entries: 1 + rng.below(1000),
            tables: 1 + rng.below(3),
            value_bytes: 100,
            puts_only: false,
            disjoint: false,
        };
        let content = Content::random(&mut rng, &medium, &spec);
        let readers: Vec<_> = (0..rng.below(4)).map(|_| 1 + rng.below(4000)).collect();
        let whole = content.job(&readers);
        let (wanted, wanted_ranges) = expected(&content, &whole, &env);
        let cut = key(rng.below(spec.keys));
        let (mut versions, mut ranges) = (Vec::new(), Vec::new());
        let parts = [KeyRange::new(b"", Some(&cut)), KeyRange::new(&cut, None)];
        for (number, bounds) in (0u32..).zip(parts) {
            let mut part = Job { bounds, part: number, ..whole.clone() };
            for attempt in 0..2 {
                let first = OUTPUTS + 1000 * u64::from(2 * number + attempt);
                part.output.ids = TableId(first)..TableId(first + 500);
                part.epoch += 1;
                let outcome = run(part.clone(), &env).unwrap();
                let (kept, deletes) = survivors(&outcome, &part, &medium);
                if attempt == 0 {
                    part.discard_outputs(&*medium).unwrap();
                } else {
                    versions.extend(kept);
                    ranges.extend(deletes.deletes());
                }
            }
        }
        assert!(versions == wanted, "seed {seed} round {round}");
        let ranges = RangeDeletes::build(ranges);
        let of = |ranges: &RangeDeletes, key: &[u8]| {
            ranges.fragment_at(key).map(|it| it.seqnos.to_vec()).unwrap_or_default()
        };
        for number in 0..spec.keys * 2 {
            let key = key(number);
            assert_eq!(of(&ranges, &key), of(&wanted_ranges, &key), "seed {seed} round {round}");
        }
    }
}
