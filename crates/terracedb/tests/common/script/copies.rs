//! Checkpoints and backups of a script's store, each on a device of its own.

use std::sync::Arc;

use base::Result;
use media::{Faulty, Medium, MemoryMedium};
use terracedb::tools::{Backup, CheckpointOptions};

use super::super::assert_verifies;
use super::Script;

impl Script {
    /// Makes a checkpoint: it holds the state that readers see, even if the power fails directly
    /// afterwards. A failed checkpoint is no store, or a whole one if its target fails the removal too.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        let next = Arc::new(Faulty::new(self.rng.next_u64()));
        let to = std::mem::replace(&mut self.copy, next);
        let medium = Arc::clone(&to) as Arc<dyn Medium>;
        let options = CheckpointOptions::default().flush(self.rng.one_in(2));
        let made = self.db().checkpoint_on(&medium, &options);
        let image = Arc::new(to.crash_image(self.rng.next_u64()).unwrap());
        match &made {
            Ok(_) => self.check_copy(image, "checkpoint"),
            Err(error) => {
                let medium = Arc::clone(&image) as Arc<dyn Medium>;
                if self.stepped.on(medium).create_if_missing(false).open().is_ok() {
                    // The sync of the manifest's name failed, and so did its removal; the name may survive.
                    assert!(to.struck() > 1, "{}: a store of `{error}`", self.context);
                    self.check_copy(image, "checkpoint whose last sync failed");
                }
            }
        }
        made.map(drop)
    }

    /// Makes a backup that restores to the state that readers see, even if the power fails directly
    /// afterwards.
    pub(crate) fn back_up(&mut self) -> Result<()> {
        let repository = Arc::clone(&self.repository) as Arc<dyn Medium>;
        let report = Backup::on_medium(repository).create(self.db(), "scripted")?;
        let image = self.repository.crash_image(self.rng.next_u64()).unwrap();
        let left = Backup::on_medium(Arc::new(image));
        assert_verifies(&left, report.id, &self.context);
        let restored = Arc::new(MemoryMedium::new());
        let medium = Arc::clone(&restored) as Arc<dyn Medium>;
        left.restore_on(report.id, &medium)
            .unwrap_or_else(|error| panic!("{}: {error}", self.context));
        self.check_copy(restored, "restored backup");
        self.backups += 1;
        Ok(())
    }

    /// Asserts that every backup made is listed and whole; for devices without faults.
    pub(crate) fn check_backups(&self) {
        let repository = Backup::on_medium(Arc::clone(&self.repository) as _);
        let list = repository.list().unwrap();
        assert!(list.damaged.is_empty(), "{}: {:?}", self.context, list.damaged);
        assert!(list.backups.len() >= self.backups, "{}: {list:?}", self.context);
        for backup in &list.backups {
            assert_verifies(&repository, backup.id, &self.context);
        }
    }

    /// Asserts that `check` finds no problem and no orphan file in the closed store.
    pub(crate) fn check_closed(&self) {
        let medium = Arc::clone(&self.device) as Arc<dyn Medium>;
        let checked = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
        let problems = (&checked.problems, &checked.unowned);
        assert!(checked.is_clean() && checked.unowned.is_empty(), "{}: {problems:?}", self.context);
    }

    fn check_copy(&self, copy: Arc<MemoryMedium>, what: &str) {
        let context = format!("{}, {what}", self.context);
        let builder = self.stepped.on(Arc::clone(&copy) as _).codec(self.codec);
        let db = builder.create_if_missing(false).open();
        let db = db.unwrap_or_else(|error| panic!("{context}: {error}"));
        let held = self.check(&db, &*copy, self.batches.len(), &context);
        held.unwrap_or_else(|error| panic!("{context}: {error}"));
    }
}
