//! The index walk of a check: every entry that the newest checkpoint of the indexes of resident keyspaces
//! points to is read, and entries that the collector gave up are counted.

use base::{Error, Problem, Result};
use engine::check_indexes;
use manifest::ManifestState;

use super::Walk;
use crate::repair::{Lost, LostRange};
use crate::resident::{given_up_error, resident_losses};

impl Walk<'_> {
    /// Checks the newest checkpoint against the log, of which every record is intact unless `is_damaged`.
    pub(super) fn indexes(
        &mut self,
        state: Option<&ManifestState>,
        is_damaged: bool,
    ) -> Result<()> {
        let (Some(state), Some(store)) = (state, self.report.store) else { return Ok(()) };
        if !state.keyspaces.values().any(|entry| entry.kind.is_resident()) {
            return Ok(());
        }
        let found = check_indexes(self.medium, store, state, &self.account)?;
        self.report.index_checkpoint.clone_from(&found.file);
        self.report.resident_entries = found.entries.saturating_sub(found.bad_slots);
        if is_damaged {
            // The log's damage says which keys are lost.
            return Ok(());
        }
        if let Some(lost) = found.lost {
            self.report.lost.add_unknown();
            self.report.note(Problem::of("log", lost));
            return Ok(());
        }
        let given_up =
            resident_losses(self.medium, Some(store), state, &[], &self.account)?.given_up;
        if given_up > 0 {
            let file = "log".to_owned();
            let range =
                LostRange { file, pages: None, keyspace: None, keys: None, what: Lost::Versions };
            self.report.lost.add(Some(given_up), [range]);
            self.report.note(Problem::of("log", given_up_error(given_up)));
        } else if let Some(bad) = found.bad {
            // Every record is intact, so that the slots are wrong. A replay of the whole log finds every key.
            let file = found.file.unwrap_or_default();
            let slots = found.bad_slots;
            let error =
                Error::corrupt("slots of an index checkpoint").expected("none that is wrong");
            self.report.note(Problem::of(&file, error.got(format_args!("{slots}: {bad}"))));
        }
        Ok(())
    }
}
