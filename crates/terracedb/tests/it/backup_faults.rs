//! Backups on devices on which any operation may fail and the power fails afterwards.
//!
//! I3: a backup exists only when every file that it names is durable, whatever failed before.

use std::sync::Arc;

use base::{Error, ErrorKind};
use media::{Fault, Faulty, Medium, MemoryMedium, OpKind, Purpose, Rule};
use terracedb::tools::Backup;

use crate::common::{
    self, Model, Source, Stepped, assert_restores, assert_same, assert_verifies, faulty,
};

const FAULTS: [(OpKind, Fault); 6] = [
    (OpKind::Read, Fault::Io),
    (OpKind::Write, Fault::Io),
    (OpKind::Write, Fault::NoSpace),
    (OpKind::Sync, Fault::Io),
    (OpKind::Names, Fault::Io),
    (OpKind::Names, Fault::NoSpace),
];

/// Runs `scenario` once per operation of each kind, with a rule that makes this operation fail, a seed and
/// a description, until the scenario returns false (no operation failed). Returns the number of failures.
fn each_fails(scenario: impl Fn(Rule, u64, &str) -> bool) -> u64 {
    let mut failures = 0;
    for (on, fault) in FAULTS {
        for nth in 0.. {
            // Which names a failed sync of names loses is random, so try more seeds.
            let draws = if (on, &fault) == (OpKind::Names, &Fault::Io) { 3 } else { 1 };
            let struck = (0..draws).all(|draw| {
                let why = format!("{on:?} {nth}, {fault:?}, draw {draw}");
                scenario(Rule::new(on, fault.clone()).after(nth), nth << 8 | draw, &why)
            });
            if !struck {
                break;
            }
            failures += 1;
        }
    }
    failures
}

fn allowed(error: &Error, why: &str) {
    let kinds = [ErrorKind::NoSpace, ErrorKind::Corrupt];
    assert!(kinds.contains(&error.kind()), "{why}: {error}");
}

/// A store that grew since its last backup, and the repository.
struct Backed {
    source: Source,
    old: Model,
    repository: MemoryMedium,
}

impl Backed {
    fn new(seed: u64) -> Self {
        let mut source = Source::new(seed);
        let (device, medium) = faulty(seed);
        Backup::on_medium(medium).create(&source.db, "old").unwrap();
        let (old, repository) = (source.model.clone(), device.crash_image(seed).unwrap());
        source.grow(200);
        source.db.flush().unwrap();
        Self { source, old, repository }
    }

    /// The repository on a device of its own.
    fn on_device(&self, seed: u64) -> (Arc<Faulty>, Backup) {
        let device = Arc::new(Faulty::over(&self.repository, seed).unwrap());
        (Arc::clone(&device), Backup::on_medium(device))
    }

    /// Asserts that every backup that `repository` lists is whole.
    fn check(&self, repository: &Backup, why: &str) -> Vec<String> {
        let list = repository.list().unwrap();
        assert!(list.damaged.is_empty(), "{why}: {:?}", list.damaged);
        for backup in &list.backups {
            assert_verifies(repository, backup.id, why);
            let model = if backup.label == "old" { &self.old } else { &self.source.model };
            assert_restores(repository, backup.id, model, why);
        }
        list.backups.into_iter().map(|backup| backup.label).collect()
    }
}

/// Scenario: each operation on the repository fails in turn during a backup. Then another backup is made,
/// and the power fails.
#[test] // I3
fn a_failed_backup_damages_no_other_and_can_be_repeated() {
    let backed = Backed::new(13);
    let failures = each_fails(|rule, seed, why| {
        let (device, repository) = backed.on_device(seed);
        device.inject(rule).unwrap();
        let made = repository.create(&backed.source.db, "new");
        let struck = device.struck() > 0;
        device.heal();
        if let Err(error) = &made {
            allowed(error, why);
            let labels: Vec<_> = repository.list().unwrap().backups.into_iter().collect();
            assert_eq!(labels.len(), 1, "{why}: a failed backup is not listed");
        }
        repository.create(&backed.source.db, "again").unwrap();
        let labels = backed.check(&repository, why);
        assert_eq!((&*labels[0], labels.last().map(|it| &**it)), ("old", Some("again")), "{why}");
        assert_eq!(repository.list().unwrap().unowned_bytes, 0, "{why}");
        let left = Arc::new(device.crash_image(seed).unwrap());
        assert_eq!(backed.check(&Backup::on_medium(left), why), labels, "{why}: without power");
        struck
    });
    assert!(failures > 30, "{failures}");
    assert!(backed.source.db.statistics().poisoned.is_none());
}

/// Scenario: from some operation on names on, all of them fail during a backup, so its files can neither
/// become durable nor be removed. Then the device works again, a backup is made, and the power fails.
#[test]
fn files_that_a_failed_backup_could_not_remove_are_synced_by_the_next() {
    let (backed, mut failures) = (Backed::new(16), 0);
    'all: for nth in 0.. {
        for draw in 0..4 {
            let seed = nth << 8 | draw;
            let why = format!("names from {nth} on, draw {draw}");
            let (device, repository) = backed.on_device(seed);
            let rule = Rule::new(OpKind::Names, Fault::Io).after(nth).times(u64::MAX);
            device.inject(rule).unwrap();
            let made = repository.create(&backed.source.db, "new");
            if device.struck() == 0 {
                break 'all;
            }
            device.heal();
            // If the failed backup is listed all the same, only its own name may be lost, as its caller was
            // told.
            if repository.list().unwrap().backups.len() > 1 {
                continue;
            }
            allowed(&made.unwrap_err(), &why);
            failures += 1;
            repository.create(&backed.source.db, "again").unwrap();
            let labels = backed.check(&repository, &why);
            assert_eq!(labels, ["old", "again"], "{why}");
            let left = Arc::new(device.crash_image(seed).unwrap());
            assert_eq!(backed.check(&Backup::on_medium(left), &why), labels, "{why}: no power");
        }
    }
    assert!(failures > 20, "{failures}");
}

/// Scenario: each operation on the repository fails in turn while a backup is deleted. Then a backup is
/// made, and the power fails.
#[test] // I3
fn a_backup_whose_deletion_failed_is_whole() {
    let backed = Backed::new(14);
    let failures = each_fails(|rule, seed, why| {
        let (device, repository) = backed.on_device(seed);
        repository.create(&backed.source.db, "new").unwrap();
        device.inject(rule).unwrap();
        let deleted = repository.delete(1);
        let struck = device.struck() > 0;
        device.heal();
        if let Err(error) = &deleted {
            allowed(error, why);
        }
        repository.create(&backed.source.db, "again").unwrap();
        let labels = backed.check(&repository, why);
        assert_eq!(repository.list().unwrap().unowned_bytes, 0, "{why}");
        let left = Arc::new(device.crash_image(seed).unwrap());
        assert_eq!(backed.check(&Backup::on_medium(left), why), labels, "{why}: without power");
        struck
    });
    assert!(failures > 3, "{failures}");
}

/// Scenario: each operation on the target of a restore fails in turn.
#[test]
fn a_failed_restore_leaves_nothing_and_can_be_repeated() {
    let backed = Backed::new(15);
    let (_, repository) = backed.on_device(1);
    let failures = each_fails(|rule, seed, why| {
        let (device, medium) = faulty(seed);
        device.inject(rule).unwrap();
        let restored = repository.restore_on(1, &medium);
        let struck = device.struck() > 0;
        device.heal();
        if let Err(error) = restored {
            allowed(&error, why);
            assert_eq!(medium.list().unwrap(), [], "{why}");
            repository.restore_on(1, &medium).unwrap();
        }
        let left = Arc::new(device.crash_image(seed).unwrap()) as Arc<dyn Medium>;
        let db = Stepped::new(seed).on(left).create_if_missing(false).open().unwrap();
        assert_same(&db.open_or_create_keyspace("k").unwrap(), &backed.old, why);
        struck
    });
    assert!(failures > 20, "{failures}");
}

/// Scenario: the sync of the store's log fails, and the device drops all, some or none of the unsynced
/// data, at once or only at a power cut. A backup has the state that readers see, or is refused.
#[test] // I11
fn a_backup_after_a_failed_log_sync_has_the_visible_state_or_is_refused() {
    let (mut made, mut refused) = (0, 0);
    for seed in 0..20 {
        let why = format!("seed {seed}");
        let source = Source::new(seed);
        source.device.inject(Rule::new(OpKind::Sync, Fault::Io).purpose(Purpose::Log)).unwrap();
        let repository = Backup::on_medium(common::memory());
        match repository.create(&source.db, "of a poisoned store") {
            Ok(report) => {
                assert_restores(&repository, report.id, &source.model, &why);
                made += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Poisoned, "{why}: {error}");
                assert!(error.to_string().contains("sync"), "the first failure: {error}");
                assert!(repository.list().unwrap().backups.is_empty(), "{why}");
                refused += 1;
            }
        }
        assert!(source.db.statistics().poisoned.is_some(), "{why}");
        assert_same(&source.db.open_or_create_keyspace("k").unwrap(), &source.model, &why);
    }
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
}
