//! Compaction: which versions merges keep, the space they free, and their effect on readers and writers.

use std::sync::Arc;

use base::{Codec, ErrorKind, Rng};
use compact::plan::Options;
use media::{Access, Fault, Faulty, Medium, MemoryMedium, OpKind, Purpose, Rule};
use terracedb::stats::CompactionStatistics;
use terracedb::{Db, Keyspace, Snapshot};

use crate::common::{self, Model, Stepped, assert_same, key, value};

/// Options with early and small merges.
fn tiny() -> Options {
    Options { fanout: 3, settled_runs: 2, slice_bytes: 128 << 10, ..Options::default() }
}

fn open(medium: &Arc<dyn Medium>) -> Db {
    common::stepped(medium, 7).compaction_options(tiny()).open().unwrap()
}

fn fill(keyspace: &Keyspace, model: &mut Model, rng: &mut Rng, rounds: u64) {
    for round in 0..rounds {
        for _ in 0..300 {
            let key = key(rng.below(2000));
            if rng.one_in(5) {
                keyspace.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = value(rng, &key, round);
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        keyspace.flush().unwrap();
    }
}

/// Two stores share the smallest memory: their merges wait for each other, and none fails.
#[test]
fn stores_that_share_memory_merge_in_turns() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..4 {
        let stepped = Stepped::new(seed + round);
        let mut stores: Vec<_> = (0..2)
            .map(|_| {
                let builder = stepped.on(common::memory()).codec(Codec::Zstd);
                // A merge runs only on request.
                let options = Options { fanout: 1000, space_max: 1000.0, ..Options::default() };
                let db = builder.compaction_options(options).open().unwrap();
                let keyspace = db.open_or_create_keyspace("fruit").unwrap();
                (db, keyspace, Model::new())
            })
            .collect();
        for (_, keyspace, model) in &mut stores {
            fill(keyspace, model, &mut rng, 12);
        }
        let started: Vec<_> =
            stores.iter().map(|(db, ..)| db.start_compaction().unwrap()).collect();
        for compaction in started {
            compaction.wait().unwrap_or_else(|error| panic!("TERRACE_SEED={seed}: {error}"));
        }
        for (db, keyspace, model) in &stores {
            assert_eq!(db.statistics().compaction.failed, 0, "TERRACE_SEED={seed}");
            assert_same(keyspace, model, "merged in turns");
        }
    }
}

/// The memory limit shrinks while merges run that were promised more memory: they yield to each other and
/// restart with less, and their callers see no error.
#[test] // I10
fn running_merges_survive_a_lower_memory_number() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..6 {
        let stepped = Stepped::new(seed + round);
        // A merge runs only on request.
        let options = Options { fanout: 1000, space_max: 1000.0, ..Options::default() };
        let builder = stepped.on(common::memory()).compaction_options(options);
        let db = builder.open().unwrap();
        db.resources().set_memory(400 << 20).unwrap();
        let spaces = ["one", "two"].map(|name| db.open_or_create_keyspace(name).unwrap());
        let mut models = [Model::new(), Model::new()];
        for (keyspace, model) in spaces.iter().zip(&mut models) {
            fill(keyspace, model, &mut rng, 12);
        }
        let started = db.start_compaction().unwrap();
        stepped.work(2 + rng.below(12));
        db.resources().set_memory(common::MEMORY).unwrap();
        let done = started.wait();
        done.unwrap_or_else(|error| panic!("TERRACE_SEED={seed}, round {round}: {error}"));
        assert_eq!(db.statistics().compaction.failed, 0, "TERRACE_SEED={seed}");
        for (keyspace, model) in spaces.iter().zip(&models) {
            assert_same(keyspace, model, "merged with less memory");
        }
    }
}

#[test]
fn a_settled_tree_has_few_runs_and_all_its_data() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let medium = common::memory();
    let mut model = Model::new();
    for life in 0..3 {
        let db = open(&medium);
        let keyspace = db.open_or_create_keyspace("fruit").unwrap();
        assert_same(&keyspace, &model, "opened");
        fill(&keyspace, &mut model, &mut rng, 12);
        assert_same(&keyspace, &model, "filled");
        db.wait_until_settled().unwrap();
        assert_same(&keyspace, &model, "settled");
        let statistics = db.statistics();
        println!("life {life}: {:?} {:?}", statistics.compaction, statistics.keyspaces);
        assert!(statistics.compaction.done > 0 && statistics.compaction.failed == 0);
        assert!(statistics.compaction.debt_bytes == 0, "{:?}", statistics.compaction);
        db.compact().unwrap();
        assert_same(&keyspace, &model, "compacted");
        let statistics = db.statistics();
        // Runs that are disjoint may stay side by side.
        assert!(statistics.keyspaces[0].runs <= 3, "{:?}", statistics.keyspaces);
        // A partly merged table is rewritten once its dead part is a third of its live part. Until then it
        // counts in full, and the live part of so few pages is estimated.
        let versions = versions(&db);
        assert!(versions <= model.len() as u64 * 5 / 3, "{versions} of {}", model.len());
        common::assert_tidy(&db, &*medium, "compacted");
        drop((keyspace, db));
        let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// The table files on `medium`.
fn tables(medium: &dyn Medium) -> Vec<String> {
    let listed = medium.list().unwrap().into_iter().map(|file| file.name);
    listed.filter(|name| name.ends_with(".table")).collect()
}

/// About the versions in the first keyspace's tables, without those already merged out of pieces.
fn versions(db: &Db) -> u64 {
    db.statistics().keyspaces[0].levels.iter().map(|level| level.entries).sum()
}

fn contents(snapshot: &Snapshot, keyspace: &Keyspace) -> Model {
    let entries = snapshot.iter(keyspace).unwrap().map(Result::unwrap);
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// I5: versions that a snapshot reads stay; versions that no snapshot reads are dropped.
#[test] // I5
fn merges_keep_versions_that_snapshots_read() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let medium = common::memory();
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut model = Model::new();
    let mut snapshots = Vec::new();
    for _ in 0..5 {
        fill(&keyspace, &mut model, &mut rng, 3);
        snapshots.push((db.snapshot(), model.clone()));
        db.compact().unwrap();
        for (snapshot, then) in &snapshots {
            assert!(contents(snapshot, &keyspace) == *then);
        }
    }
    let kept = versions(&db);
    assert!(kept > model.len() as u64 * 2, "{kept} of {}", model.len());
    while !snapshots.is_empty() {
        let (snapshot, then) = snapshots.swap_remove(rng.below(snapshots.len() as u64) as usize);
        assert!(contents(&snapshot, &keyspace) == then);
        drop(snapshot);
        keyspace.put("touched", "again").unwrap();
        model.insert("touched".into(), "again".into());
        db.compact().unwrap();
    }
    assert_same(&keyspace, &model, "without snapshots");
    let kept = versions(&db);
    // Mostly only the newest version is left; the dead part of a table is estimated, as above. With the
    // snapshots there were more than two versions per key.
    assert!(kept <= model.len() as u64 * 5 / 3, "{kept} of {}", model.len());
}

/// All data is deleted: all of its space is freed, and nothing else.
#[test]
fn compaction_frees_the_space_of_deleted_data() {
    let medium = common::memory();
    let db = open(&medium);
    let (fruit, trees) = (
        db.open_or_create_keyspace("fruit").unwrap(),
        db.open_or_create_keyspace("trees").unwrap(),
    );
    let mut rng = Rng::new(1);
    let (mut model, mut kept) = (Model::new(), Model::new());
    fill(&fruit, &mut model, &mut rng, 4);
    fill(&trees, &mut kept, &mut rng, 4);
    for key in model.keys() {
        fruit.delete(key).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(fruit.iter().unwrap().count(), 0);
    assert_same(&trees, &kept, "kept");
    let statistics = db.statistics();
    assert_eq!((statistics.keyspaces[0].tables, statistics.keyspaces[0].table_bytes), (0, 0));
    let listed = tables(&*medium).len();
    assert_eq!(listed, statistics.keyspaces[1].tables);
}

/// Part of a table is deleted: compaction frees this space too, not only that of whole tables.
#[test]
fn compaction_frees_the_space_of_data_deleted_within_one_table() {
    let db = open(&common::memory());
    let fruit = db.open_or_create_keyspace("fruit").unwrap();
    let mut ingest = fruit.ingest().unwrap();
    for at in 0..20_000u32 {
        ingest.put(at.to_be_bytes(), [7; 8]).unwrap();
    }
    ingest.finish().unwrap();
    let bytes = || db.statistics().keyspaces[0].table_bytes;
    let before = bytes();
    fruit.delete_range(..15_000u32.to_be_bytes()).unwrap();
    db.compact().unwrap();
    assert_eq!(fruit.iter().unwrap().count(), 5_000);
    assert!(bytes() < before / 2, "{} of {before}", bytes());
}

/// A merge that fails at any operation loses nothing, frees its files, and does not stop reads and writes;
/// the next merge succeeds.
#[test] // I9
fn a_failed_merge_is_reported_and_leaves_no_file() {
    let on = |on| Rule::new(on, Fault::Io);
    let rules = [
        // Once per retry of the read.
        on(OpKind::Read).purpose(Purpose::Compaction).times(3),
        on(OpKind::Write).purpose(Purpose::Compaction),
        on(OpKind::Sync).purpose(Purpose::Compaction),
        on(OpKind::Names).name(".table"),
        on(OpKind::Names).name("directory"),
        Rule::new(OpKind::Write, Fault::NoSpace).purpose(Purpose::Compaction),
        Rule::new(OpKind::Names, Fault::NoSpace).name(".table"),
    ];
    let mut struck = 0;
    for (number, rule) in rules.into_iter().enumerate() {
        for after in [0, 1, 2, 5, 9, 30] {
            let why = format!("{rule:?} after {after}");
            let device = Arc::new(Faulty::new(number as u64));
            let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
            let db = open(&medium);
            let keyspace = db.open_or_create_keyspace("fruit").unwrap();
            let mut model = Model::new();
            fill(&keyspace, &mut model, &mut Rng::new(after), 3);
            db.wait_until_settled().unwrap();
            fill(&keyspace, &mut model, &mut Rng::new(after + 1), 1);
            device.inject(rule.clone().after(after)).unwrap();
            let failed = db.compact();
            if device.struck() > 0 && failed.is_err() {
                struck += 1;
                let statistics = db.statistics();
                assert!(statistics.compaction.failed > 0, "{why}: {statistics:?}");
                let CompactionStatistics { failing, damaged_tables, .. } = statistics.compaction;
                assert!(failing.is_some() || damaged_tables > 0, "{why}");
                assert!(statistics.poisoned.is_none(), "{why}: {:?}", statistics.poisoned);
            }
            device.heal();
            keyspace.put("after", "the fault").unwrap();
            model.insert("after".into(), "the fault".into());
            assert_same(&keyspace, &model, &why);
            if failed.is_ok() || db.statistics().compaction.damaged_tables == 0 {
                db.compact().unwrap_or_else(|error| panic!("{why}: {error}"));
                assert_eq!(db.statistics().compaction.failing, None, "{why}");
            }
            assert_same(&keyspace, &model, &why);
            // A file that could not be removed when its last user dropped it is removed at the next open.
            let may_stay = number >= 3;
            if !may_stay {
                common::assert_tidy(&db, &*medium, &why);
            }
            drop((keyspace, db));
            let db = open(&medium);
            assert!(db.recovery().orphans_removed <= usize::from(may_stay), "{why}");
            common::assert_tidy(&db, &*medium, &why);
            assert_same(&db.open_or_create_keyspace("fruit").unwrap(), &model, &why);
        }
    }
    assert!(struck > 12, "{struck} merges failed");
}

/// A read that fails once, or returns a wrong bit once, does not quarantine a table. A merge reads pages of
/// its inputs only, because their tables are open.
#[test]
fn a_read_that_fails_once_is_no_damage() {
    let rules = [(Purpose::Compaction, Fault::Io), (Purpose::Compaction, Fault::Flip)];
    for (purpose, fault) in rules {
        let mut struck = 0;
        for after in [0, 1, 2, 5, 9, 20] {
            let why = format!("{purpose:?} {fault:?} after {after}");
            let device = Arc::new(Faulty::new(after));
            let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
            let db = open(&medium);
            let keyspace = db.open_or_create_keyspace("fruit").unwrap();
            let mut model = Model::new();
            fill(&keyspace, &mut model, &mut Rng::new(after), 2);
            // Only reads of merge inputs: an output that cannot be read back is written again.
            let input = tables(&*medium).remove(0);
            let rule = Rule::new(OpKind::Read, fault.clone()).purpose(purpose).name(input);
            device.inject(rule.after(after).times(2)).unwrap();
            db.compact().unwrap_or_else(|error| panic!("{why}: {error}"));
            device.heal();
            let CompactionStatistics { failed, damaged_tables, .. } = db.statistics().compaction;
            assert_eq!((failed, damaged_tables), (0, 0), "{why}");
            assert_same(&keyspace, &model, &why);
            struck += device.struck();
        }
        assert!(struck > 0, "{purpose:?} {fault:?}");
    }
}

/// `wait_until_settled` does not report an old failure: the failed merge is tried again.
#[test]
fn settling_does_not_wait_out_the_pause_after_a_failure() {
    let device = Arc::new(Faulty::new(3));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut model = Model::new();
    fill(&keyspace, &mut model, &mut Rng::new(3), 12);
    let rule = Rule::new(OpKind::Write, Fault::NoSpace).purpose(Purpose::Compaction);
    device.inject(rule.times(1000)).unwrap();
    for _ in 0..8 {
        assert_eq!(db.wait_until_settled().unwrap_err().kind(), ErrorKind::NoSpace);
    }
    device.heal();
    // The clock stands still, so no retry pause has passed.
    db.wait_until_settled().unwrap();
    assert_eq!(db.statistics().compaction.failing, None);
    assert_same(&keyspace, &model, "settled");
}

/// A merge meets a bad page: only the keys of that page are unreadable, as before. The table is kept and
/// left out of other merges; everything else is merged, and writes go on.
#[test]
fn a_bad_page_makes_only_its_keys_unreadable_and_stops_no_other_merge() {
    let device = Arc::new(MemoryMedium::new());
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let db = open(&medium);
    let (fruit, trees) = (
        db.open_or_create_keyspace("fruit").unwrap(),
        db.open_or_create_keyspace("trees").unwrap(),
    );
    let mut rng = Rng::new(5);
    let (mut model, mut other) = (Model::new(), Model::new());
    fill(&fruit, &mut model, &mut rng, 1);
    let damaged = tables(&*medium).remove(0);
    drop((fruit, trees, db));
    // The first data page of the oldest table.
    let file = device.open(&damaged, Access::Bytes).unwrap();
    file.store(100, &[0xff; 8], Purpose::Scrub).unwrap();
    let db = open(&medium);
    let (fruit, trees) = (
        db.open_or_create_keyspace("fruit").unwrap(),
        db.open_or_create_keyspace("trees").unwrap(),
    );
    let lost: Vec<_> = model.keys().filter(|key| fruit.get(key).is_err()).cloned().collect();
    assert!(!lost.is_empty() && lost.len() < 100, "{} keys lost", lost.len());
    fill(&trees, &mut other, &mut rng, 4);
    let mut newer = Model::new();
    fill(&fruit, &mut newer, &mut rng, 4);
    let error = db.compact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&damaged), "{error}");
    let statistics = db.statistics();
    assert_eq!(statistics.compaction.damaged_tables, 1);
    assert!(statistics.keyspaces[1].runs <= 3, "the other keyspace was merged");
    assert!(tables(&*medium).contains(&damaged));
    assert_same(&trees, &other, "the other keyspace");
    for (key, value) in &model {
        let got = fruit.get(key);
        match newer.get(key) {
            Some(new) => assert_eq!(got.unwrap().as_deref(), Some(&new[..])),
            None if lost.contains(key) => {
                assert!(got.as_ref().is_ok_and(|it| it.is_none()) || got.is_err(), "{got:?}");
            }
            // The key may have been deleted since.
            None => assert!(got.unwrap().is_none_or(|got| got == value[..])),
        }
    }
    fruit.put("after", "the damage").unwrap();
    db.flush().unwrap();
    assert_eq!(fruit.get("after").unwrap().as_deref(), Some(&b"the damage"[..]));
}

/// A keyspace is dropped, or the store closed, while a merge runs.
#[test] // I9
fn an_interrupted_merge_leaves_no_file() {
    for seed in 0..8 {
        let medium = common::memory();
        let stepped = Stepped::new(seed);
        let db = stepped.on(Arc::clone(&medium)).compaction_options(tiny()).open().unwrap();
        let (fruit, trees) = (
            db.open_or_create_keyspace("fruit").unwrap(),
            db.open_or_create_keyspace("trees").unwrap(),
        );
        let mut model = Model::new();
        fill(&fruit, &mut Model::new(), &mut Rng::new(seed), 3);
        fill(&trees, &mut model, &mut Rng::new(seed), 3);
        let started = db.start_compaction().unwrap();
        stepped.work(seed * 7);
        if seed % 2 == 0 {
            db.drop_keyspace("fruit").unwrap();
            drop(started);
            db.wait_until_settled().unwrap();
            assert_same(&trees, &model, "dropped");
            common::assert_tidy(&db, &*medium, "dropped");
        } else {
            drop(started);
        }
        drop((fruit, trees, db));
        let db = open(&medium);
        assert_eq!(db.recovery().orphans_removed, 0, "seed {seed}");
        assert_same(&db.open_or_create_keyspace("trees").unwrap(), &model, "opened");
        common::assert_tidy(&db, &*medium, "opened");
    }
}

/// A cancelled compaction stops, and its finished merges stay.
#[test]
fn a_compaction_reports_its_progress_and_can_be_cancelled() {
    let medium = common::memory();
    let stepped = Stepped::new(3);
    let db = stepped.on(Arc::clone(&medium)).compaction_options(tiny()).open().unwrap();
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut model = Model::new();
    fill(&keyspace, &mut model, &mut Rng::new(3), 8);
    let work = keyspace.start_compaction::<&[u8]>(..).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 4 {
        stepped.work(1);
        let progress = work.progress();
        assert!(progress.bytes_left <= progress.bytes_total);
        if progress.bytes_total > 0 && seen.last() != Some(&progress.bytes_left) {
            seen.push(progress.bytes_left);
        }
    }
    drop(work);
    assert_same(&keyspace, &model, "called off");
    let work = keyspace.start_compaction::<&[u8]>(..).unwrap();
    work.wait().unwrap();
    assert!(db.statistics().keyspaces[0].runs <= 3);
    assert_same(&keyspace, &model, "done");
}

/// Writers, readers and merges run at the same time on real threads.
#[test] // I4
fn merges_run_concurrently_with_writers_and_readers() {
    let medium = common::memory();
    let db = common::threaded(&medium).compaction_options(tiny()).open().unwrap();
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 200 } else { 8 };
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (keyspace, db) = (&keyspace, &db);
            scope.spawn(move || {
                for round in 1..=rounds {
                    for number in 0..400u64 {
                        let key = format!("{thread} {number:04}");
                        keyspace.put(&key, round.to_string().repeat(20)).unwrap();
                        if number % 97 == 0 {
                            let got = keyspace.get(&key).unwrap();
                            assert_eq!(
                                got.as_deref(),
                                Some(round.to_string().repeat(20).as_bytes())
                            );
                        }
                    }
                    keyspace.flush().unwrap();
                    let snapshot = db.snapshot();
                    let found = snapshot.prefix(keyspace, format!("{thread} ")).unwrap();
                    assert_eq!(found.map(Result::unwrap).count(), 400, "round {round}");
                }
            });
        }
    });
    db.compact().unwrap();
    let statistics = db.statistics();
    assert!(statistics.compaction.done > 0, "{:?}", statistics.compaction);
    // The versions in partly merged tables of a few pages are only estimated, and disjoint runs may stay
    // side by side.
    assert!(statistics.keyspaces[0].runs <= 3, "{:?}", statistics.keyspaces);
    for thread in 0..2 {
        for number in 0..400 {
            let got = keyspace.get(format!("{thread} {number:04}")).unwrap();
            assert_eq!(got.as_deref(), Some(rounds.to_string().repeat(20).as_bytes()));
        }
    }
}
