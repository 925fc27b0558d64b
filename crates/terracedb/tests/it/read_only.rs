//! Stores that are open for reading only: beside a writer, over a checkpoint, and by several readers.
//!
//! I11: a reader sees every write that was acknowledged before it opened the store, and whole batches.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{ErrorKind, Rng};
use media::{FileMedium, FileOptions, Medium, MemoryMedium};
use terracedb::tools::{Backup, CheckpointOptions, LogConfig};
use terracedb::{Db, KeyspaceOptions, WriteBatch};

use crate::common::{MEMORY, Model, Views, assert_same, fill, memory, until};

/// Numbers that the writer may write in each round of readers.
const ROUND_NUMBERS: u64 = 1000;

fn reader(path: &Path) -> terracedb::Result<Db> {
    Db::builder(path).memory(MEMORY).read_only(true).open()
}

/// Ends the writer even if the test fails, which would wait for it.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes batches of two keyspaces, with flushes, merges, ingests and new keyspaces between them, until
/// `ended`; waits while there are `allowed` numbers. Number `n` is in both keyspaces, with the same value;
/// `written` counts the acknowledged ones.
fn write_until(db: &Db, ended: &AtomicBool, allowed: &AtomicU64, written: &AtomicU64) {
    let (mut rng, _) = Rng::from_env();
    let (one, two) = (db.create_keyspace("one").unwrap(), db.create_keyspace("two").unwrap());
    let mut number = 0u64;
    while !ended.load(Ordering::SeqCst) {
        if number >= allowed.load(Ordering::SeqCst) {
            std::thread::yield_now();
            continue;
        }
        let value = vec![number as u8; 1 + rng.below(2000) as usize];
        let mut batch = WriteBatch::new();
        batch.put(&one, number.to_be_bytes(), &value).unwrap();
        batch.put(&two, number.to_be_bytes(), &value).unwrap();
        db.write(&batch).unwrap();
        number += 1;
        written.store(number, Ordering::SeqCst);
        match rng.below(1000) {
            0 => drop(db.start_compaction().unwrap()),
            1..=5 => db.flush().unwrap(),
            6 => {
                let name = format!("at {number}");
                db.create_keyspace(&name).unwrap().put("a", "b").unwrap();
                db.drop_keyspace(&name).unwrap();
            }
            7..=9 => {
                // A number of its own, in tables only, below the numbers in the log that follow it.
                let mut ingest = db.keyspace("one").unwrap().ingest().unwrap();
                ingest.put(number.to_be_bytes(), b"ingested").unwrap();
                ingest.finish().unwrap();
                two.put(number.to_be_bytes(), "ingested").unwrap();
                number += 1;
                written.store(number, Ordering::SeqCst);
            }
            _ => {}
        }
    }
}

/// The result of `open`, which is called again while the writer changes its manifest all the time. It
/// ends: the writer waits once it has written what it may.
fn retried<T>(open: impl Fn() -> terracedb::Result<T>) -> T {
    loop {
        match open() {
            Err(error) if error.to_string().contains("a change during each") => {}
            opened => return opened.unwrap(),
        }
    }
}

/// Checks that `db` has the numbers from 0 to some number, all with one value in both keyspaces. Returns the
/// number.
fn numbers(db: &Db, at_least: u64) -> u64 {
    let (one, two) = (db.keyspace("one").unwrap(), db.keyspace("two").unwrap());
    let mut expected = 0u64;
    let mut others = two.iter().unwrap();
    for entry in one.iter().unwrap() {
        let (key, value) = entry.unwrap();
        assert_eq!(&*key, expected.to_be_bytes(), "a number is missing");
        match others.next().transpose().unwrap() {
            Some(other) => assert_eq!(other, (key, value), "half a batch"),
            // An ingested number is in the first keyspace before it is in the second one.
            None => assert_eq!(&*value, b"ingested"),
        }
        expected += 1;
    }
    assert!(others.next().is_none());
    assert!(expected >= at_least, "{expected} of {at_least} acknowledged");
    expected
}

#[test] // I11
fn readers_beside_a_writer_see_consistent_states_that_do_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path()).memory(MEMORY).open().unwrap();
    let (ended, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let allowed = AtomicU64::new(ROUND_NUMBERS);
    std::thread::scope(|scope| {
        let _ends = Ends(&ended);
        scope.spawn(|| write_until(&db, &ended, &allowed, &written));
        while written.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let mut first = None;
        let mut latest = retried(|| reader(dir.path()));
        for round in 0..20 {
            allowed.fetch_add(ROUND_NUMBERS, Ordering::SeqCst);
            let acknowledged = written.load(Ordering::SeqCst);
            latest = match round % 2 {
                0 => retried(|| reader(dir.path())),
                _ => retried(|| latest.refresh()),
            };
            assert!(latest.recovery().damaged_tables.is_empty(), "{:?}", latest.recovery());
            let seen = numbers(&latest, acknowledged);
            first.get_or_insert((latest.clone(), seen));
        }
        let (first, seen) = first.unwrap();
        assert_eq!(numbers(&first, seen), seen, "the first reader sees what it saw");
    });
}

#[test]
fn a_reader_answers_from_files_that_the_writer_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, seed) = Rng::from_env();
    let db = Db::builder(dir.path()).memory(MEMORY).open().unwrap();
    let mut model = Model::new();
    fill(&db, &mut rng, &mut model, 3000, true);
    let keyspace = db.keyspace("k").unwrap();
    keyspace.put("long", vec![7; 100 << 10]).unwrap();
    db.flush().unwrap();
    fill(&db, &mut rng, &mut model, 100, false);
    let reader = reader(dir.path()).unwrap();
    let names = |dir: &Path| {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names(dir.path());
    keyspace.delete_range::<&str>(..).unwrap();
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    // They are removed in the background.
    until("half of the files are gone", || {
        let left = names(dir.path()).intersection(&before).count();
        (left < before.len() / 2).then_some(())
    });
    assert_eq!(keyspace.iter().unwrap().count(), 0);
    let read = reader.keyspace("k").unwrap();
    assert_eq!(read.get("long").unwrap().unwrap().len(), 100 << 10);
    let missing = read.iter().unwrap().inspect(|entry| assert!(entry.is_ok())).count();
    assert_eq!(missing, model.len() + 1, "TERRACE_SEED={seed}");
    drop(db);
    assert_eq!(reader.refresh().unwrap().keyspace("k").unwrap().iter().unwrap().count(), 0);
}

#[test]
fn a_reader_refuses_everything_that_writes_and_changes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, seed) = Rng::from_env();
    let mut model = Model::new();
    {
        let db = Db::builder(dir.path()).memory(MEMORY).open().unwrap();
        fill(&db, &mut rng, &mut model, 500, true);
    }
    let content = || {
        let mut files: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = content();
    let db = reader(dir.path()).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    assert!(db.is_read_only() && db.settings().read_only);
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, "a", "b").unwrap();
    let mut transaction = db.transaction();
    transaction.put(&keyspace, "a", "b").unwrap();
    let refused = [
        keyspace.put("a", "b"),
        keyspace.delete("a"),
        keyspace.delete_range::<&str>(..),
        db.write(&batch),
        transaction.commit(),
        db.flush(),
        db.compact(),
        db.wait_until_settled(),
        db.create_keyspace("new").map(drop),
        db.create_keyspace_opt("new", &KeyspaceOptions::new().merge_operator("u64-max")).map(drop),
        db.drop_keyspace("k").map(drop),
        keyspace.ingest().map(drop),
        db.change_settings(|settings| settings.read_only = false).map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "call {number}");
    }
    db.sync().unwrap();
    assert_same(&keyspace, &model, &format!("TERRACE_SEED={seed}"));
    db.close().unwrap();
    drop((db, keyspace, batch));
    assert!(before == content(), "nothing was written");
    let writer = Db::builder(dir.path()).memory(MEMORY).open().unwrap();
    assert_eq!(writer.refresh().unwrap_err().kind(), ErrorKind::Invalid);
    let locked = Db::builder(dir.path()).memory(MEMORY).open().unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::Locked, "{locked}");
    let nothing = reader(&dir.path().join("nothing")).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::Invalid, "{nothing}");
    assert!(!dir.path().join("nothing").exists());
}

#[test] // I11
fn a_reader_makes_copies_of_a_store_that_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, seed) = Rng::from_env();
    let why = format!("TERRACE_SEED={seed}");
    let (source, copy, backups) =
        (dir.path().join("store"), dir.path().join("copy"), dir.path().join("backups"));
    let db = Db::builder(&source).memory(MEMORY).open().unwrap();
    let mut model = Model::new();
    fill(&db, &mut rng, &mut model, 2000, true);
    fill(&db, &mut rng, &mut model, 200, false);
    let read = reader(&source).unwrap();
    let captured = model.clone();
    fill(&db, &mut rng, &mut model, 2000, true);
    db.compact().unwrap();
    read.checkpoint_opt(&copy, &CheckpointOptions::default()).unwrap();
    let backup = Backup::open(&backups).unwrap();
    let report = backup.create(&read, "a label").unwrap();
    backup.restore(report.id, dir.path().join("restored")).unwrap();
    for place in [copy, dir.path().join("restored")] {
        // Several readers of a copy, and then a writer.
        let readers = [reader(&place).unwrap(), reader(&place).unwrap()];
        for reader in &readers {
            assert_same(&reader.keyspace("k").unwrap(), &captured, &why);
        }
        let writer = Db::builder(&place).memory(MEMORY).open().unwrap();
        assert_same(&writer.keyspace("k").unwrap(), &captured, &why);
        drop(writer);
        let medium: Arc<dyn Medium> =
            Arc::new(FileMedium::open(&place, FileOptions::default()).unwrap());
        let checked = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
        assert!(checked.is_clean(), "{why}: {checked:?}");
    }
}

#[test]
fn the_files_of_a_store_that_is_written_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path()).memory(MEMORY).open().unwrap();
    let (ended, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let allowed = AtomicU64::new(ROUND_NUMBERS);
    let options = FileOptions { create: false, read_only: true, ..FileOptions::default() };
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::open(dir.path(), options).unwrap());
    std::thread::scope(|scope| {
        let _ends = Ends(&ended);
        scope.spawn(|| write_until(&db, &ended, &allowed, &written));
        while written.load(Ordering::SeqCst) < 1000 {
            std::thread::yield_now();
        }
        for _ in 0..5 {
            let log = LogConfig::default();
            let (files, log) = retried(|| terracedb::tools::read_only_files(&medium, &log));
            let report = terracedb::tools::check_with(&files, &log, &mut |_, _| ()).unwrap();
            assert!(report.is_clean(), "{report:?}");
            assert!(report.log_records > 0 || report.entries > 0);
        }
    });
}

#[test]
fn a_reader_finds_the_log_on_its_devices() {
    let devices = Views::of(memory());
    let builder = || {
        Db::on_medium(Arc::clone(&devices.device))
            .memory(MEMORY)
            .log_lanes(2)
            .log_devices(Arc::clone(&devices) as _)
    };
    let db = builder().log_path(["a", "b"]).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    for number in 0..200u32 {
        keyspace.put(number.to_be_bytes(), number.to_be_bytes()).unwrap();
    }
    let reader = builder().read_only(true).open().unwrap();
    keyspace.put("later", "value").unwrap();
    assert_eq!(reader.keyspace("k").unwrap().iter().unwrap().count(), 200);
    assert_eq!(reader.refresh().unwrap().keyspace("k").unwrap().iter().unwrap().count(), 201);
}

#[test]
fn a_reader_with_too_little_memory_for_the_log_is_refused() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let db = Db::on_medium(Arc::clone(&medium)).memory(64 * MEMORY).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    for number in 0..1200u32 {
        keyspace.put(number.to_be_bytes(), vec![1; 64 << 10]).unwrap();
    }
    let error = Db::on_medium(medium).memory(MEMORY).read_only(true).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(error.to_string().contains("memory"), "{error}");
}
