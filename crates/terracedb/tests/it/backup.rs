//! Backups: each restores the store as it was, shares files with the others, and never contains damage
//! without an error.
//!
//! I8: all copied data is verified. I3: a backup exists only when every file that it names is durable.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use base::{ErrorKind, Rng};
use media::{Faulty, Freeze, Medium, MemoryMedium};
use terracedb::Db;
use terracedb::tools::{Backup, CheckpointOptions, PruneOptions};

use crate::common::{
    self, Model, Source, Stepped, assert_restores, assert_same, assert_verifies, faulty, fill, open,
};

fn used(medium: &dyn Medium) -> u64 {
    medium.list().unwrap().iter().map(|file| file.len).sum()
}

#[test]
fn each_backup_restores_the_store_of_its_time() {
    let (_, seed) = Rng::from_env();
    let why = format!("TERRACE_SEED={seed}");
    let mut source = Source::new(seed);
    let medium = common::memory();
    let repository = Backup::on_medium(Arc::clone(&medium));
    let mut models: BTreeMap<u64, Model> = BTreeMap::new();
    for round in 0..5 {
        source.grow(200);
        let report = repository.create(&source.db, &format!("round {round}")).unwrap();
        assert!(models.insert(report.id, source.model.clone()).is_none(), "{why}");
    }
    for (id, model) in &models {
        assert_verifies(&repository, *id, &why);
        assert_restores(&repository, *id, model, &why);
    }
    let list = repository.list().unwrap();
    assert_eq!(list.backups.len(), 5, "{why}");
    assert_eq!((list.damaged.len(), list.unowned_bytes), (0, 0), "{why}");
    let labels: Vec<_> = list.backups.iter().map(|backup| backup.label.as_str()).collect();
    assert_eq!(labels, ["round 0", "round 1", "round 2", "round 3", "round 4"], "{why}");

    // Deleting a backup removes exactly the files that no other backup needs.
    let middle = &list.backups[2];
    let before = used(&*medium);
    let deleted = repository.delete(middle.id).unwrap();
    assert_eq!((deleted.bytes, &*deleted.backups), (middle.unique_bytes, &[middle.id][..]));
    assert!(before - used(&*medium) > middle.unique_bytes, "{why}: its index goes too");
    assert_eq!(repository.delete(middle.id).unwrap_err().kind(), ErrorKind::Invalid, "{why}");
    let pruned = repository.prune(2).unwrap();
    assert_eq!(pruned.backups, [list.backups[0].id, list.backups[1].id], "{why}");
    let kept: Vec<_> = repository.list().unwrap().backups.iter().map(|kept| kept.id).collect();
    assert_eq!(kept, [list.backups[3].id, list.backups[4].id], "{why}");
    for id in kept {
        assert_verifies(&repository, id, &why);
        assert_restores(&repository, id, &models[&id], &why);
    }
    assert_eq!(repository.prune(0).unwrap_err().kind(), ErrorKind::Invalid, "{why}");
    let all = PruneOptions::keep(0).delete_all(true);
    let before = medium.list().unwrap();
    let would = repository.prune_opt(&all.dry_run(true)).unwrap();
    assert_eq!(medium.list().unwrap(), before, "{why}: a dry run changes nothing");
    assert_eq!(repository.prune_opt(&all).unwrap(), would, "{why}");
    assert_eq!(medium.list().unwrap(), [], "{why}");
}

/// Tables that the repository has are neither copied nor read again.
#[test]
fn a_second_backup_copies_only_new_files() {
    let mut source = Source::new(5);
    source.grow(1500);
    let medium = common::memory();
    let repository = Backup::on_medium(Arc::clone(&medium));
    let first = repository.create(&source.db, "").unwrap();
    assert_eq!(first.files_copied, first.files);
    source.grow(50);
    let read = |db: &Db| db.statistics().device.of(media::Purpose::Scrub).read_bytes;
    let before = (read(&source.db), used(&*medium));
    let second = repository.create(&source.db, "").unwrap();
    assert!(second.bytes > first.bytes - first.log_bytes, "{second:?}");
    let copied = second.bytes_copied - second.log_bytes;
    assert!(copied * 4 < second.bytes - second.log_bytes, "{first:?} {second:?}");
    // The last page of every table, and the copied bytes.
    let read = read(&source.db) - before.0;
    assert!(read <= second.bytes_copied + 20 * 4096, "{read} bytes read, {second:?}");
    let third = repository.create(&source.db, "").unwrap();
    assert!(third.log_bytes < 100_000, "the log of flushed writes is freed: {third:?}");
    assert_eq!(
        third.bytes_copied,
        third.log_bytes.next_multiple_of(4096) + 4096,
        "log and manifest: {third:?}"
    );
    for id in [first.id, second.id, third.id] {
        assert_verifies(&repository, id, "");
    }
    assert_restores(&repository, third.id, &source.model, "the third");
}

/// Scenario: a restored store diverges, uses table numbers that the first store uses too, and both back up
/// to one repository.
#[test]
fn diverged_stores_share_a_repository() {
    let mut source = Source::new(6);
    let repository = Backup::on_medium(common::memory());
    let base = repository.create(&source.db, "base").unwrap();
    let medium = common::memory();
    repository.restore_on(base.id, &medium).unwrap();
    let (mut other, mut model) = (open(&medium, 7), source.model.clone());
    for round in 0..3 {
        source.grow(100);
        let one = repository.create(&source.db, "one").unwrap();
        fill(&other, &mut Rng::new(round), &mut model, 100, false);
        let two = repository.create(&other, "other").unwrap();
        for (id, model) in [(one.id, &source.model), (two.id, &model)] {
            assert_verifies(&repository, id, "");
            assert_restores(&repository, id, model, "");
        }
        drop(other);
        other = open(&medium, round);
    }
    // An unrelated store.
    let stranger = Source::new(60);
    let third = repository.create(&stranger.db, "stranger").unwrap();
    assert_restores(&repository, third.id, &stranger.model, "stranger");
    let stores: Vec<_> = repository.list().unwrap().backups.iter().map(|b| b.store).collect();
    assert_eq!(stores.len(), 8);
    assert_ne!(stores[0], stores[7]);
    // Pruning keeps backups of each: the stranger, the first store, and the restored one, reopened or not.
    let lineages: Vec<_> = repository.list().unwrap().backups.iter().map(|b| b.lineage).collect();
    assert_eq!([lineages[0]; 3], [lineages[1], lineages[3], lineages[5]]);
    assert_eq!([lineages[2]; 2], [lineages[4], lineages[6]]);
    let would = repository.prune_opt(&PruneOptions::keep(1).dry_run(true)).unwrap();
    let pruned = repository.prune(1).unwrap();
    assert_eq!((&pruned.backups, &pruned), (&vec![1, 2, 3, 4, 5], &would));
    assert_restores(&repository, 6, &source.model, "the first store");
    assert_restores(&repository, 7, &model, "the restored one");
    assert_restores(&repository, third.id, &stranger.model, "stranger");
}

/// Every copy has a lineage of its own, and keeps it: a second restore, a checkpoint, a copy of a copy.
#[test]
fn every_copy_begins_a_lineage_and_keeps_it() {
    let source = Source::new(8);
    let repository = Backup::on_medium(common::memory());
    repository.create(&source.db, "origin").unwrap();
    let lineage = |db: &Db| {
        let id = repository.create(db, "").unwrap().id;
        let list = repository.list().unwrap();
        list.backups.iter().find(|backup| backup.id == id).unwrap().lineage
    };
    let origin = lineage(&source.db);
    let mut seen = vec![origin];
    for turn in 0..3 {
        let medium = common::memory();
        let from = match turn {
            2 => {
                source.db.checkpoint_on(&medium, &CheckpointOptions::default()).unwrap();
                None
            }
            from => Some(repository.list().unwrap().backups[from].id),
        };
        if let Some(id) = from {
            repository.restore_on(id, &medium).unwrap();
        }
        let own = lineage(&open(&medium, 1));
        assert!(!seen.contains(&own), "turn {turn}");
        assert_eq!(lineage(&open(&medium, 2)), own, "it outlives a reopening");
        seen.push(own);
    }
    assert_eq!(lineage(&source.db), origin);
}

#[test]
fn a_backup_refuses_a_directory_that_is_not_for_backups() {
    let source = Source::new(9);
    let medium = common::memory();
    drop(open(&medium, 1));
    let before = medium.list().unwrap();
    let error = Backup::on_medium(Arc::clone(&medium)).create(&source.db, "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("the files of a store"), "{error}");
    assert_eq!(medium.list().unwrap(), before);

    let directory = tempfile::tempdir().unwrap();
    let names = || fs::read_dir(directory.path()).unwrap().count();
    fs::write(directory.path().join("My notes.txt"), "mine").unwrap();
    let error = Backup::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("`My notes.txt`"), "{error}");
    assert_eq!(names(), 1, "not even a lock is left");
    // What an empty file system has is no hindrance, and backups may later have other files beside them.
    fs::remove_file(directory.path().join("My notes.txt")).unwrap();
    fs::create_dir(directory.path().join("lost+found")).unwrap();
    Backup::open(directory.path()).unwrap().create(&source.db, "").unwrap();
    fs::write(directory.path().join("README"), "backups of the shop").unwrap();
    Backup::open(directory.path()).unwrap().create(&source.db, "").unwrap();
}

/// Scenario: the power fails at any sync or any change while a backup is made.
#[test] // I3
fn an_interrupted_backup_is_whole_or_absent_and_the_next_one_resumes_it() {
    let mut source = Source::new(11);
    let prepared = {
        let (device, medium) = faulty(1);
        Backup::on_medium(medium).create(&source.db, "old").unwrap();
        device.crash_image(1).unwrap()
    };
    let old = source.model.clone();
    source.grow(200);
    source.db.flush().unwrap();
    let run = |freeze: Option<Freeze>, seed| {
        let device = Arc::new(Faulty::over(&prepared, seed).unwrap());
        if let Some(freeze) = freeze {
            device.freeze(freeze);
        }
        let repository = Backup::on_medium(Arc::clone(&device) as _);
        let report = repository.create(&source.db, "new").unwrap();
        (device, report)
    };
    let (whole, _) = run(None, 1);
    let syncs = (0..whole.syncs()).map(Freeze::AtSync);
    let points: Vec<_> = syncs.chain((0..whole.changes()).map(Freeze::AtChange)).collect();
    let (mut there, mut taken_up) = (0, 0);
    for point in points {
        for seed in 0..3 {
            let why = format!("{point:?}, seed {seed}");
            let (device, full) = run(Some(point), seed);
            assert!(device.is_frozen(), "{why}");
            let image = Arc::new(device.crash_image(seed).unwrap()) as Arc<dyn Medium>;
            let repository = Backup::on_medium(image);
            let list = repository.list().unwrap();
            assert!(list.damaged.is_empty(), "{why}: {:?}", list.damaged);
            assert_eq!(list.backups[0].label, "old", "{why}");
            assert_restores(&repository, list.backups[0].id, &old, &why);
            if let Some(new) = list.backups.get(1) {
                assert_verifies(&repository, new.id, &why);
                assert_restores(&repository, new.id, &source.model, &why);
                there += 1;
            }
            let again = repository.create(&source.db, "again").unwrap();
            taken_up += u64::from(again.files_copied < full.files_copied);
            assert_verifies(&repository, again.id, &why);
            assert_restores(&repository, again.id, &source.model, &why);
            assert_eq!(repository.list().unwrap().unowned_bytes, 0, "{why}");
        }
    }
    assert!(there > 0 && taken_up > there, "{there} there, {taken_up} taken up");
}

/// Scenario: the power fails at any point of a restore.
#[test] // I3
fn an_interrupted_restore_leaves_a_whole_store_or_none() {
    let source = Source::new(12);
    let repository = Backup::on_medium(common::memory());
    let backup = repository.create(&source.db, "").unwrap();
    let (device, medium) = faulty(1);
    repository.restore_on(backup.id, &medium).unwrap();
    let syncs = (0..device.syncs()).map(Freeze::AtSync);
    let points: Vec<_> = syncs.chain((0..device.changes()).map(Freeze::AtChange)).collect();
    let (mut whole, mut none) = (0, 0);
    for point in points {
        for seed in 0..3 {
            let why = format!("{point:?}, seed {seed}");
            let (device, medium) = faulty(seed);
            device.freeze(point);
            repository.restore_on(backup.id, &medium).unwrap();
            let image = Arc::new(device.crash_image(seed).unwrap()) as Arc<dyn Medium>;
            match Stepped::new(seed).on(image).create_if_missing(false).open() {
                Ok(db) => {
                    assert_same(&db.open_or_create_keyspace("k").unwrap(), &source.model, &why);
                    whole += 1;
                }
                Err(error) => {
                    let kinds = [ErrorKind::Invalid, ErrorKind::Corrupt];
                    assert!(kinds.contains(&error.kind()), "{why}: {error}");
                    none += 1;
                }
            }
        }
    }
    assert!(whole > 0 && none > 0, "{whole} whole, {none} none");
}

/// Scenario: a page of the store rots before the backup.
#[test] // I8
fn a_damaged_page_is_not_backed_up() {
    let mut source = Source::new(14);
    let repository = Backup::on_medium(common::memory());
    let good = repository.create(&source.db, "good").unwrap();
    let old = source.model.clone();
    source.grow(300);
    source.db.flush().unwrap();
    let listed = source.device.list().unwrap();
    let tables: Vec<_> = listed.iter().filter(|file| file.name.ends_with(".table")).collect();
    let newest = tables.last().unwrap();
    source.device.flip(&newest.name, newest.len / 3, 0x10).unwrap();
    let error = repository.create(&source.db, "damaged").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&newest.name) && text.contains("page") && text.contains("keys"),
        "{text}"
    );
    assert_eq!(repository.list().unwrap().backups.len(), 1);
    assert_restores(&repository, good.id, &old, "the older one");
    // Undo the damage, as a repair would.
    source.device.flip(&newest.name, newest.len / 3, 0x10).unwrap();
    let mended = repository.create(&source.db, "mended").unwrap();
    assert_restores(&repository, mended.id, &source.model, "mended");
}

/// Scenario: any one byte of the repository rots.
#[test] // I8
fn any_flipped_byte_of_a_repository_is_found_and_refused_or_harmless() {
    let (mut rng, seed) = Rng::from_env();
    let source = Source::new(15);
    let medium = MemoryMedium::new();
    let medium = Arc::new(medium);
    let repository = Backup::on_medium(Arc::clone(&medium) as _);
    let backup = repository.create(&source.db, "").unwrap();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 100 } else { 6 };
    for file in medium.list().unwrap() {
        let good = medium.content(&file.name).unwrap();
        for _ in 0..rounds {
            let used = good.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
            let most = if rng.one_in(4) { file.len } else { used };
            let at = rng.below(most) as usize;
            let why = format!("TERRACE_SEED={seed}, {}, byte {at}", file.name);
            let mut bad = good.clone();
            bad[at] ^= 1 << rng.below(8);
            medium.insert(&file.name, bad).unwrap();
            if file.name.starts_with("backup-") {
                assert_verifies(&repository, backup.id, &why);
                assert_restores(&repository, backup.id, &source.model, &why);
                continue;
            }
            let report = repository.verify(backup.id).unwrap();
            assert!(!report.is_clean(), "{why}");
            let (name, _) = file.name.rsplit_once('.').unwrap();
            assert!(
                report.problems.iter().any(|problem| problem.file == name),
                "{why}: {report:?}"
            );
            let to = common::memory();
            let error = repository.restore_on(backup.id, &to).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
            let opened = Stepped::new(seed).on(to).create_if_missing(false).open();
            assert!(opened.is_err(), "{why}: a failed restore leaves no store");
        }
        medium.insert(&file.name, good).unwrap();
        assert_verifies(&repository, backup.id, &file.name);
    }
    for file in medium.list().unwrap() {
        let content = medium.content(&file.name).unwrap();
        medium.remove(&file.name).unwrap();
        let error = repository.restore_on(backup.id, &common::memory()).unwrap_err();
        let kinds = [ErrorKind::Corrupt, ErrorKind::Invalid];
        assert!(kinds.contains(&error.kind()), "{}: {error}", file.name);
        if !file.name.starts_with("backup-") {
            assert!(!repository.verify(backup.id).unwrap().is_clean(), "{}", file.name);
        }
        medium.insert(&file.name, content).unwrap();
    }
}

/// Scenario: a file of the repository rots, is found and removed. The next backup copies it again, which
/// also restores the older backups.
#[test]
fn a_removed_damaged_file_is_copied_again_by_the_next_backup() {
    let source = Source::new(18);
    let medium = Arc::new(MemoryMedium::new());
    let repository = Backup::on_medium(Arc::clone(&medium) as _);
    let first = repository.create(&source.db, "first").unwrap();
    let listed = medium.list().unwrap();
    let table = listed.iter().find(|file| file.name.contains(".table.")).unwrap();
    let mut bytes = medium.content(&table.name).unwrap();
    bytes[100] ^= 4;
    medium.insert(&table.name, bytes).unwrap();
    assert!(!repository.verify(first.id).unwrap().is_clean());
    medium.remove(&table.name).unwrap();
    assert!(!repository.verify(first.id).unwrap().is_clean());
    let second = repository.create(&source.db, "second").unwrap();
    for id in [first.id, second.id] {
        assert_verifies(&repository, id, "healed");
        assert_restores(&repository, id, &source.model, "healed");
    }
}

/// The needs of an unreadable index are unknown, so nothing is removed while it exists.
#[test]
fn a_damaged_index_keeps_its_files_until_it_is_deleted() {
    let mut source = Source::new(16);
    let medium = Arc::new(MemoryMedium::new());
    let repository = Backup::on_medium(Arc::clone(&medium) as _);
    let first = repository.create(&source.db, "first").unwrap();
    let index = format!("backup-{:010}", first.id);
    let good = medium.content(&index).unwrap();
    medium.insert(&index, vec![7; good.len()]).unwrap();
    let list = repository.list().unwrap();
    assert_eq!((list.backups.len(), list.damaged.len()), (0, 1));
    source.grow(100);
    let second = repository.create(&source.db, "second").unwrap();
    assert!(second.id > first.id);
    assert_eq!(repository.restore_on(first.id, &common::memory()).unwrap_err().kind(), {
        ErrorKind::Corrupt
    });
    assert_eq!(repository.delete(second.id).unwrap().files, 0, "nothing may go");
    medium.insert(&index, good).unwrap();
    assert_eq!(repository.list().unwrap().backups.len(), 1);
    assert_verifies(&repository, first.id, "found again");
    repository.delete(first.id).unwrap();
    assert_eq!(medium.list().unwrap(), []);
}

#[test]
fn wrong_directories_and_backup_numbers_are_refused() {
    let source = Source::new(17);
    let directory = tempfile::tempdir().unwrap();
    let repository = Backup::open(directory.path().join("repository")).unwrap();
    let limited = Backup::open(directory.path().join("repository")).unwrap().rate(200 << 20);
    let backup = limited.create(&source.db, "nightly").unwrap();
    let refused = |result: terracedb::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    };
    let to = |name: &str| directory.path().join(name);
    refused(repository.restore(backup.id + 1, to("none")).map(drop));
    assert!(!to("none").exists());
    refused(repository.restore(backup.id, to("repository")).map(drop));
    refused(repository.verify(9).map(drop));
    refused(repository.delete(9).map(drop));
    refused(repository.create(&source.db, &"x".repeat(256)).map(drop));
    let report = repository.restore(backup.id, to("deep/restored")).unwrap();
    assert_eq!(report.files, backup.files);
    let db = Db::builder(to("deep/restored")).memory(common::MEMORY).open().unwrap();
    assert_same(&db.open_or_create_keyspace("k").unwrap(), &source.model, "restored");
    refused(repository.restore(backup.id, to("deep/restored")).map(drop));
}

#[test]
fn a_backup_event_has_the_number_and_the_bytes_copied() {
    let (stepped, recorder) = (Stepped::new(1), Arc::new(common::EventRecorder::default()));
    let db = stepped.on(common::memory()).listener(Arc::clone(&recorder) as _).open().unwrap();
    db.open_or_create_keyspace("k").unwrap().put("key", "value").unwrap();
    let repository = Backup::on_medium(common::memory());
    let made = repository.create(&db, "one").unwrap();
    let events =
        recorder.take(|event| matches!(event, terracedb::events::Event::BackupEnded { .. }));
    let copied = base::format_bytes(made.bytes_copied);
    assert_eq!(events, [format!("backup {}, {copied} copied", made.id)]);
}
