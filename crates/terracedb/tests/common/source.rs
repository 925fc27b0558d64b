//! A store that is backed up, and checks of its backups.

use std::sync::Arc;

use base::Rng;
use media::{Faulty, Medium};
use terracedb::Db;
use terracedb::tools::Backup;

use super::{Model, Stepped, assert_same, faulty, fill};

pub(crate) fn open(medium: &Arc<dyn Medium>, seed: u64) -> Db {
    Stepped::new(seed).on(Arc::clone(medium)).open().unwrap()
}

/// A store with a model of its contents and its device.
pub(crate) struct Source {
    pub(crate) db: Db,
    pub(crate) model: Model,
    rng: Rng,
    pub(crate) device: Arc<Faulty>,
}

impl Source {
    pub(crate) fn new(seed: u64) -> Self {
        let (device, medium) = faulty(seed);
        let db = open(&medium, seed);
        let mut source = Self { db, model: Model::new(), rng: Rng::new(seed), device };
        source.grow(300);
        source
    }

    pub(crate) fn grow(&mut self, writes: u64) {
        fill(&self.db, &mut self.rng, &mut self.model, writes, false);
    }
}

/// Asserts that backup `id` restores to `model` and that the restored store checks clean.
pub(crate) fn assert_restores(repository: &Backup, id: u64, model: &Model, why: &str) {
    let medium = super::memory();
    repository.restore_on(id, &medium).unwrap_or_else(|error| panic!("{why}: {error}"));
    let db = open(&medium, id);
    assert!(db.recovery().damaged_tables.is_empty() && db.recovery().log_torn.is_none(), "{why}");
    assert_same(&db.open_or_create_keyspace("k").unwrap(), model, why);
    drop(db);
    let checked = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(checked.is_clean() && checked.unowned.is_empty(), "{why}: {checked:?}");
}

pub(crate) fn assert_verifies(repository: &Backup, id: u64, why: &str) {
    let report = repository.verify(id).unwrap_or_else(|error| panic!("{why}: {error}"));
    assert!(report.is_clean(), "{why}: {:?}", report.problems);
}
