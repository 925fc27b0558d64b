//! Every file of the log, cut to nothing, to its header or in half, zeroed or removed, in a store that was
//! closed or killed: an open, a check and a repair agree, and no synced key is gone without a word, whether
//! tables hold later writes or the log alone has the last ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use media::{FileMedium, FileOptions, Medium};
use terracedb::tools::{CheckReport, RepairOptions, RepairReport, check, repair};
use terracedb::{Db, Durability, ErrorKind, Result, WriteOptions};

use crate::common::{self, Stepped};

const SYNC: WriteOptions = WriteOptions::new().durability(Durability::Sync);

fn open(path: &Path) -> Result<Db> {
    Db::builder(path).memory(common::MEMORY).create_if_missing(false).open()
}

fn medium(path: &Path) -> Arc<dyn Medium> {
    let options = FileOptions { create: false, ..FileOptions::default() };
    Arc::new(FileMedium::open(path, options).unwrap())
}

fn checked(path: &Path) -> CheckReport {
    check(&medium(path), &mut |_, _| {}).unwrap()
}

fn repaired(path: &Path) -> RepairReport {
    repair(&medium(path), RepairOptions::default(), &mut |_, _| {}).unwrap()
}

/// Keys of the keyspace `log`, which is never flushed, and their values.
type Synced = BTreeMap<String, String>;

/// How the last life of a store ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// The last synced writes are flushed: tables hold a later number than every key.
    Flushed,
    /// Only the log has the last synced writes; the store is closed.
    Closed,
    /// As before, and the store is killed while it writes nothing.
    Killed,
}

/// Makes a store whose log has a segment for each of `lives`, and maybe more. In each life synced keys are
/// written that only the log holds, and ones that are flushed.
fn make(path: &Path, lives: usize, ending: Ending) -> Synced {
    let live = path.with_extension("live");
    let mut synced = Synced::new();
    for life in 0..lives {
        let stepped = Stepped::new(life as u64);
        let files = FileMedium::open(&live, FileOptions::default()).unwrap();
        let db = stepped.on(Arc::new(files)).open().unwrap();
        let log = db.open_or_create_keyspace("log").unwrap();
        let tables = db.open_or_create_keyspace("tables").unwrap();
        for number in 0..3 {
            let (key, value) = (format!("{life}-{number}"), format!("value {life} {number}"));
            log.put_opt(&key, &value, &SYNC).unwrap();
            synced.insert(key, value);
            tables.put_opt(format!("{life}-{number}"), vec![b'x'; 1000], &SYNC).unwrap();
            tables.flush().unwrap();
        }
        if ending != Ending::Flushed {
            // A full segment, which is not cut as those of an earlier life, and a new one after it.
            let bulk = db.open_or_create_keyspace("bulk").unwrap();
            bulk.put_opt("full", common::noise(2_500_000), &SYNC).unwrap();
            let key = format!("{life}-last");
            log.put_opt(&key, "value last", &SYNC).unwrap();
            synced.insert(key, "value last".to_owned());
            assert!(segments(&live).len() > 1);
            // The background tasks learn of the growth.
            stepped.work(100);
        }
        drop((log, tables));
        if ending == Ending::Killed && life + 1 == lives {
            copy(&live, path);
        }
    }
    if ending != Ending::Killed {
        copy(&live, path);
    }
    fs::remove_dir_all(&live).unwrap();
    synced
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn segments(path: &Path) -> Vec<String> {
    let names = medium(path).list().unwrap().into_iter().map(|file| file.name);
    names.filter(|name| wal::parse_segment_name(name).is_some()).collect()
}

/// Whether the segment was made ahead of need and never used.
fn is_prepared(path: &Path, name: &str) -> bool {
    let mut is_used = false;
    wal::inspect(&*medium(path), name, &mut |entry| {
        is_used |= matches!(entry, wal::LogEntry::Begin { .. } | wal::LogEntry::Batch { .. });
        Ok(())
    })
    .unwrap();
    !is_used
}

const DAMAGES: [&str; 6] = [
    "cut to nothing",
    "cut to its header",
    "cut in half",
    "zeroed",
    "zeroed behind its header",
    "removed",
];

fn damage(file: &PathBuf, how: &str) {
    let len = fs::metadata(file).unwrap().len();
    let cut = |to| fs::File::options().write(true).open(file).unwrap().set_len(to).unwrap();
    match how {
        "cut to nothing" => fs::write(file, []).unwrap(),
        "cut to its header" => cut(4096),
        "cut in half" => cut(len / 2),
        "zeroed behind its header" => {
            cut(4096);
            cut(len);
        }
        "zeroed" => fs::write(file, vec![0; len as usize]).unwrap(),
        _ => fs::remove_file(file).unwrap(),
    }
}

/// The keys of `synced` that the open store does not have. No key has another value.
fn missing(db: &Db, synced: &Synced) -> Vec<String> {
    let log = db.keyspace("log").unwrap();
    let mut missing = Vec::new();
    for (key, value) in synced {
        match log.get(key).unwrap() {
            Some(found) => assert_eq!(found, value.as_bytes(), "{key}"),
            None => missing.push(key.clone()),
        }
    }
    missing
}

#[test]
fn a_damaged_log_file_is_refused_by_open_and_check_and_repair_names_the_loss() {
    let root = tempfile::tempdir().unwrap();
    let (mut refused, mut prepared) = (0, 0);
    use Ending::{Closed, Flushed, Killed};
    for (lives, ending) in [(1, Killed), (2, Closed), (3, Flushed)] {
        let whole = root.path().join(format!("whole-{lives}"));
        let synced = make(&whole, lives, ending);
        assert!(checked(&whole).is_clean());
        let names = segments(&whole);
        assert!(names.len() >= lives, "{names:?}");
        for name in &names {
            for how in DAMAGES {
                let what = format!("{lives} lives, {ending:?}, {name} of {} {how}", names.len());
                let place = root.path().join("damaged");
                copy(&whole, &place);
                let is_prepared = is_prepared(&place, name);
                damage(&place.join(name), how);
                let before = checked(&place);
                match open(&place) {
                    Ok(db) => {
                        assert!(before.is_clean(), "{what}: {:?}", before.problems);
                        assert_eq!(missing(&db, &synced), [""; 0], "{what}");
                        drop(db);
                        assert!(checked(&place).is_clean(), "{what}");
                        assert!(repaired(&place).is_clean(), "{what}");
                        prepared += u32::from(is_prepared);
                    }
                    Err(error) => {
                        assert!(!is_prepared, "{what}: {error}");
                        refused += 1;
                        must_be_repairable(&place, &synced, &before, &error, &what);
                    }
                }
                fs::remove_dir_all(&place).unwrap();
            }
        }
        fs::remove_dir_all(&whole).unwrap();
    }
    assert!(refused >= 20 && prepared >= 6, "{refused} refused, {prepared} unused");
}

/// The store at `place` is damaged, as `before` lists and `error` of an open says: nothing changes until it
/// is repaired, and then every key is there, or its loss is reported.
fn must_be_repairable(
    place: &Path,
    synced: &Synced,
    before: &CheckReport,
    error: &terracedb::Error,
    what: &str,
) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    assert!(!before.is_clean(), "{what}: open says {error}");
    assert!(!before.lost.is_empty(), "{what}: {error}");
    // The refused open changed nothing that matters.
    assert_eq!(open(place).unwrap_err().to_string(), error.to_string(), "{what}");
    assert_eq!(checked(place).damages, before.damages, "{what}");
    let report = repaired(place);
    let log = report.log.as_ref().unwrap_or_else(|| panic!("{what}: {report:?}"));
    let db = open(place).unwrap();
    let missing = missing(&db, synced);
    assert!(missing.is_empty() || log.costs_writes(), "{what}: {missing:?} of {report:?}");
    let tables = db.keyspace("tables").unwrap();
    let of_tables = synced.keys().filter(|key| !key.ends_with("last")).count();
    assert_eq!(tables.iter().unwrap().count(), of_tables, "{what}");
    drop((tables, db));
    assert!(checked(place).is_clean(), "{what}");
}
