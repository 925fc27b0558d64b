//! The log in a repair: whether it is damaged, and what that costs.

use base::{Error, ErrorKind, Result};
use engine::lost_records;

use super::changes::Changes;
use super::rebuild::after;
use super::{FoundManifest, Lost, LostLog, LostRange, Repair};
use crate::resident::{Lacking, lacking_entries, resident_losses};

impl Repair<'_> {
    /// Keeps copies of the log's segments, which opening the store will change.
    pub(super) fn keep_log(&self, changes: &mut Changes) -> Result<()> {
        for file in self.medium.list()? {
            if wal::parse_segment_name(&file.name).is_some() {
                changes.keep_copy(&file.name)?;
            }
        }
        self.medium.sync_names(&[])
    }

    /// Whether the log is damaged, missing, or ends before the newest write in a table. Reports why.
    pub(super) fn log(&mut self, found: &FoundManifest) -> Result<bool> {
        let known = found.state.known_log();
        let read =
            |recover| wal::check(self.medium, Some(found.store), &known, recover, &self.account);
        let (read, error) = match read(wal::Recover::Strict) {
            Ok(read) if self.missing.is_empty() => {
                let (store, state) = (found.store, &found.state);
                let lacking = lacking_entries(self.medium, store, state, &self.account)?;
                let (error, ends) = match lacking {
                    None => return Ok(false),
                    Some(Lacking::End(error)) => (error, Some(after(read.last).get())),
                    Some(Lacking::GivenUp(error)) => (error, None),
                };
                self.report.log = Some(LostLog { error, lost: Vec::new(), ends });
                return Ok(true);
            }
            Ok(read) => (read, Error::corrupt("commit log")),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                (read(wal::Recover::PastDamage)?, error)
            }
            Err(error) => return Err(error),
        };
        if self.missing.is_empty() {
            let (store, state, losses) = (Some(found.store), &found.state, &read.losses);
            let resident = resident_losses(self.medium, store, state, losses, &self.account)?;
            self.report.lost.extend(resident.ranges);
        }
        let residents = found.state.keyspaces.values().filter(|entry| entry.kind.is_resident());
        for ((device, _), entry) in
            self.missing.iter().flat_map(|it| residents.clone().map(move |entry| (it, entry)))
        {
            let (file, keyspace) = (device.place.clone(), Some(entry.name.clone()));
            let what = Lost::Versions;
            self.report.lost.push(LostRange { file, pages: None, keyspace, keys: None, what });
        }
        let error = self.missing.first().map_or(error, |(_, missing)| missing.clone());
        let is_short = read.last < known.logged && known.has_keyspaces;
        let is_missing = read.losses.is_empty();
        let flushed = found.state.flushed_below();
        let lost = read.losses.iter().map(|loss| lost_records(loss, flushed)).collect();
        let ends = (is_short || is_missing).then(|| after(read.last).get());
        self.report.log = Some(LostLog { error, lost, ends });
        Ok(true)
    }
}
