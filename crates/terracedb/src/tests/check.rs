use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Durability, ErrorKind, ManualClock, Rng, Stepper, TableId};
use media::{Access, Buf, Faulty, Medium, MemoryMedium, Purpose};

use base::Problem;
use manifest::ManifestState;

use super::without_merges;
use crate::tools::{CheckReport, check};
use crate::{Db, Resources, WriteOptions};

/// A store without merges. Background work runs only while a caller waits for it, so the files are the same
/// in every run.
pub(super) fn unmerged(medium: &Arc<dyn Medium>) -> Db {
    let executor = Arc::new(Stepper::new(0, Arc::new(ManualClock::at(1_700_000_000_000))));
    let resources = Resources::builder().memory(64 << 20).executor(executor).build().unwrap();
    let builder = Db::on_medium(Arc::clone(medium)).resources(&resources);
    builder.compaction_options(without_merges()).open().unwrap()
}

/// A store with two tables in one keyspace, and log records that are not flushed.
fn store(medium: &Arc<dyn Medium>) {
    let db = unmerged(medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    for round in 0..3u32 {
        for number in 0..400u32 {
            let value = format!("{round}:{number}:{}", "v".repeat(80));
            keyspace
                .put_opt(
                    format!("key{number:04}"),
                    value,
                    &WriteOptions::new().durability(Durability::None),
                )
                .unwrap();
        }
        if round < 2 {
            db.flush().unwrap();
        }
    }
    keyspace.put_opt("last", "synced", &WriteOptions::new().durability(Durability::Sync)).unwrap();
}

pub(super) fn memory() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new())
}

fn whole() -> Arc<dyn Medium> {
    let medium = memory();
    store(&medium);
    medium
}

pub(super) fn run(medium: &Arc<dyn Medium>) -> CheckReport {
    check(medium, &mut |done, total| assert!(done <= total)).unwrap()
}

fn names(medium: &Arc<dyn Medium>, part: &str) -> Vec<String> {
    let files = medium.list().unwrap().into_iter();
    files.map(|file| file.name).filter(|name| name.contains(part)).collect()
}

fn content(medium: &Arc<dyn Medium>, name: &str) -> Vec<u8> {
    let file = medium.open(name, Access::Bytes).unwrap();
    let len = file.size().unwrap() as usize;
    let (buf, read) = file.read(0, Buf::pages(len.div_ceil(PAGE_BYTES)), Purpose::Scrub);
    read.unwrap();
    buf[..len].to_vec()
}

fn contents(medium: &Arc<dyn Medium>) -> Vec<(String, Vec<u8>)> {
    names(medium, "").into_iter().map(|name| (name.clone(), content(medium, &name))).collect()
}

fn flip(medium: &Arc<dyn Medium>, name: &str, at: usize) {
    let byte = content(medium, name)[at] ^ 0x20;
    let file = medium.open(name, Access::Bytes).unwrap();
    file.store(at as u64, &[byte], Purpose::Scrub).unwrap();
}

#[test]
fn an_undamaged_store_is_clean_and_check_changes_nothing() {
    let medium = whole();
    let before = contents(&medium);
    let report = run(&medium);
    assert!(report.is_clean() && report.unowned.is_empty(), "{report:?}");
    assert_eq!((report.keyspaces, report.tables, report.entries), (1, 2, 800));
    assert_eq!((report.log_torn.as_ref(), report.manifest_repairs), (None, 0));
    assert!(report.log_records >= 401, "{report:?}");
    assert_eq!(report.files, before.len());
    assert_eq!(report.bytes, before.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
    assert_eq!(contents(&medium), before);
}

#[test]
fn progress_ends_at_the_total() {
    let (mut last, mut rising) = ((0, 0), true);
    check(&whole(), &mut |done, total| {
        rising &= done >= last.0;
        last = (done, total);
    })
    .unwrap();
    assert!(rising && last.0 == last.1 && last.1 > 0, "{last:?}");
}

#[test]
fn an_open_store_and_no_store_are_refused() {
    let medium = memory();
    assert_eq!(check(&medium, &mut |_, _| ()).unwrap_err().kind(), ErrorKind::Invalid);
    let _db = Db::on_medium(Arc::clone(&medium)).memory(64 << 20).open().unwrap();
    assert_eq!(check(&medium, &mut |_, _| ()).unwrap_err().kind(), ErrorKind::Locked);
}

/// Any flipped byte of a table is reported for its file and for no other file.
#[test]
fn a_flipped_byte_of_a_table_is_reported_for_its_file() {
    let medium = whole();
    let (mut rng, seed) = Rng::from_env();
    for name in names(&medium, ".table") {
        let length = content(&medium, &name).len();
        for _ in 0..20 {
            let at = rng.below(length as u64) as usize;
            flip(&medium, &name, at);
            let report = run(&medium);
            let why = format!("seed {seed}, byte {at} of {name}: {report:?}");
            assert!(!report.is_clean(), "{why}");
            assert!(report.problems.iter().all(|problem| problem.file == name), "{why}");
            let page = (at / PAGE_BYTES) as u32;
            assert!(report.problems.iter().any(|it| it.pages == Some((page, 1))), "{why}");
            // Two copies each of top level, properties and footer.
            let pages_before_tail = (length / PAGE_BYTES) as u32 - 6;
            if page < pages_before_tail {
                let known = |it: &Problem| it.keys.is_some() && it.keyspace.is_some();
                assert!(report.problems.iter().all(known), "{why}");
            }
            flip(&medium, &name, at);
        }
    }
    assert!(run(&medium).is_clean());
}

/// A flipped byte of the log or the manifest is reported as damage, a cut tail or a repaired copy, and never
/// as damage of a table.
#[test]
fn a_flipped_byte_of_log_or_manifest_is_reported() {
    let medium = whole();
    let (mut rng, seed) = Rng::from_env();
    // The newest segment is a spare without records; a power cut may leave any bytes in it.
    let mut files = names(&medium, "log-");
    files.pop();
    files.extend(names(&medium, "manifest-"));
    for name in files {
        let bytes = content(&medium, &name);
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        for _ in 0..20.min(used) {
            let at = rng.below(used as u64) as usize;
            flip(&medium, &name, at);
            let report = run(&medium);
            let why = format!("seed {seed}, byte {at} of {name}: {report:?}");
            let told = !report.is_clean() || report.log_torn.is_some();
            // The header page of a manifest has unused bytes between and behind its two headers.
            let unused = name.starts_with("manifest-") && at < 1024 && at % 512 >= 40;
            // After a sync, zeros pad the log page.
            let filling = name.starts_with("log-") && at >= PAGE_BYTES && bytes[at] == 0;
            assert!(told || report.manifest_repairs > 0 || unused || filling, "{why}");
            assert!(report.problems.iter().all(|it| !it.file.ends_with(".table")), "{why}");
            flip(&medium, &name, at);
        }
    }
    assert!(run(&medium).is_clean());
}

#[test]
fn missing_and_orphan_tables_are_reported() {
    let medium = whole();
    let tables = names(&medium, ".table");
    medium.rename(&tables[0], &table::file_name(TableId(999))).unwrap();
    medium.create("notes.txt", Access::Bytes, 0).unwrap();
    let report = run(&medium);
    assert_eq!(report.damages, 1, "{report:?}");
    let problem = &report.problems[0];
    assert_eq!(problem.file, tables[0]);
    assert_eq!(problem.keys, Some((b"key0000".to_vec(), b"key0399".to_vec())));
    assert_eq!(report.unowned, [table::file_name(TableId(999)), "notes.txt".to_owned()]);
}

#[test]
fn tables_and_log_are_checked_without_a_manifest() {
    let medium = whole();
    for name in names(&medium, "manifest-") {
        medium.remove(&name).unwrap();
    }
    let report = run(&medium);
    assert_eq!(report.damages, 1, "{report:?}");
    assert_eq!((report.tables, report.entries, report.store), (2, 800, None));
    let table = &names(&medium, ".table")[1];
    flip(&medium, table, 100);
    let report = run(&medium);
    assert!(
        report.damages == 2 && report.problems.iter().any(|it| it.file == *table),
        "{report:?}"
    );
}

#[test]
fn a_missing_log_is_damage() {
    let medium = whole();
    for name in names(&medium, "log-") {
        medium.remove(&name).unwrap();
    }
    let report = run(&medium);
    assert_eq!(report.damages, 1, "{report:?}");
    assert!(
        report.problems[0].to_string().starts_with("log-0-0000000001: corrupt: end of the log"),
        "{report:?}"
    );
    assert!(!report.lost.is_empty() && report.lost.entries.is_none(), "{report:?}");
}

/// A store with a dictionary-compressed table: values share words with each other, but repeat hardly any
/// within themselves.
fn with_dictionary() -> Arc<dyn Medium> {
    let medium = memory();
    let mut rng = Rng::new(7);
    let words: Vec<String> = (0..600).map(|_| format!("{:012x}", rng.next_u64() >> 16)).collect();
    let db = Db::on_medium(Arc::clone(&medium)).memory(64 << 20).codec(base::Codec::Zstd);
    let db = db.open().unwrap();
    let keyspace = db.open_or_create_keyspace("words").unwrap();
    for number in 0..4000u32 {
        let word = |_| words[rng.below(words.len() as u64) as usize].as_str();
        let value: String = (0..10).map(word).collect();
        keyspace.put(format!("key{number:05}"), value).unwrap();
    }
    db.flush().unwrap();
    medium
}

#[test]
fn a_missing_dictionary_is_reported_by_name() {
    let medium = with_dictionary();
    let names = names(&medium, ".dictionary");
    assert_eq!(names.len(), 1, "nothing was trained");
    let report = run(&medium);
    assert!(report.is_clean() && report.unowned.is_empty(), "{report:?}");
    assert_eq!((report.dictionaries, report.entries), (1, 4000));

    flip(&medium, &names[0], 1000);
    let damaged = run(&medium);
    let problem = &damaged.problems[0];
    assert_eq!((&problem.file, problem.keyspace.as_deref()), (&names[0], Some("words")));
    // The blocks that need it are reported too, with their keys.
    assert!(damaged.damages > 1 && damaged.problems[1].keys.is_some(), "{damaged:?}");
    flip(&medium, &names[0], 1000);
    assert!(run(&medium).is_clean());

    medium.remove(&names[0]).unwrap();
    let missing = run(&medium);
    assert!(missing.problems[0].to_string().contains("expected its file"), "{missing:?}");
    assert_eq!(missing.dictionaries, 0);
}

/// Writes a manifest, with `change` applied to its state, that takes effect at the next opening.
pub(super) fn rewrite_manifest(medium: &Arc<dyn Medium>, change: impl FnOnce(&mut ManifestState)) {
    let found = manifest::recover(&**medium, false).unwrap().unwrap();
    let (mut state, number) = (found.state, found.number + 1);
    change(&mut state);
    manifest::Manifest::start(Arc::clone(medium), found.store, state, number).unwrap();
}

#[test]
fn a_table_that_contradicts_the_manifest_is_reported() {
    for (part, complaint) in [
        (0, "entries of a table: expected 401, got 400"),
        (1, "keys of a table: expected `key` to `key0399`, got `key0000` to `key0399`"),
        (2, "keys of a table"),
        (3, "sequence numbers of a table"),
        (4, "corrupt: table length, bytes: expected"),
    ] {
        let medium = whole();
        rewrite_manifest(&medium, |state| {
            let keyspace = Arc::make_mut(state.keyspaces.values_mut().next().unwrap());
            let table = Arc::make_mut(keyspace.tables.values_mut().next().unwrap());
            let entry = Arc::make_mut(&mut table.entry);
            match part {
                0 => entry.entries += 1,
                1 => entry.range.first.truncate(3),
                2 => entry.range.end = None,
                3 => entry.seqno_min = entry.seqno_min.plus(1),
                _ => entry.file_bytes += PAGE_BYTES as u64,
            }
        });
        let report = run(&medium);
        let text = report.problems.first().map(ToString::to_string).unwrap_or_default();
        assert!(report.damages == 1 && text.contains(complaint), "{report:?}");
        assert_eq!(report.problems[0].file, names(&medium, ".table")[0]);
    }
}

#[test]
fn log_records_of_unknown_keyspaces_are_reported() {
    let medium = whole();
    rewrite_manifest(&medium, |state| *state = ManifestState::default());
    let report = run(&medium);
    let texts: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    assert!(!texts.is_empty(), "{report:?}");
    assert!(texts.iter().all(|text| text.contains("keyspace of a log record")), "{texts:?}");
    assert_eq!(report.unowned, names(&medium, ".table"));
}

/// A power cut at any time leaves no damage (I3, I11).
#[test]
fn crash_images_are_clean() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..20 {
        let faulty = Arc::new(Faulty::new(rng.next_u64()));
        let medium: Arc<dyn Medium> = Arc::clone(&faulty) as _;
        let at = 3 + rng.below(40);
        faulty.freeze(media::Freeze::AtSync(at));
        store(&medium);
        let image: Arc<dyn Medium> = Arc::new(faulty.crash_image(rng.next_u64()).unwrap());
        if !image.list().unwrap().iter().any(tools::is_ours) {
            continue;
        }
        match check(&image, &mut |_, _| ()) {
            Ok(report) => assert!(report.is_clean(), "seed {seed}, round {round}: {report:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "seed {seed}: {error}"),
        }
    }
}

/// A table holds entries above the flushed bound: recovery would replay them a second time.
#[test]
fn a_table_above_the_flushed_bound_is_reported() {
    let medium = whole();
    rewrite_manifest(&medium, |state| {
        let keyspace = Arc::make_mut(state.keyspaces.values_mut().next().unwrap());
        let table = keyspace.tables.values().next().unwrap();
        keyspace.flushed_below = table.entry.seqno_max;
    });
    let report = run(&medium);
    let texts: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    // Both tables are above the bound; the second one is newer.
    assert!(texts.len() == 2 && texts[0].contains("the flushed bound"), "{texts:?}");
}
