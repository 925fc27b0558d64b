//! Check of a closed store: reads every file, verifies every checksum, and the invariants that are cheap to
//! verify.
//!
//! The manifest is read first, by the rules of recovery; it states which tables must exist. Each table and
//! value file is streamed once, then the log is read as recovery would read it. Damage is reported with its
//! file, pages and keys, and the walk continues behind it. If the manifest itself is lost, every table is
//! checked under the identity that it claims.
//!
//! Verified are checksums (I8), that the tables, value files and dictionaries that the manifest names exist
//! (I3), that tables agree with their manifest entries, that newer versions of each key lie above older ones
//! (I4), and that the log reaches the newest write in a table (I11). The check locks the directory and
//! changes nothing.
//!
//! Threads: the caller's, one. Memory: the two largest entries, and a fixed part.

mod index_walk;
mod log_walk;
mod loss;
mod order_walk;
mod report;
mod table_walk;
mod values_walk;

use std::sync::Arc;

use base::{Account, Error, Problem, Result};
use cache::HotPages;
use engine::{LogConfig, join_log};
use manifest::{KeyspaceFile, KeyspaceKind, ManifestState};
use media::{Listing, Medium};
use table::{Dictionary, parse_file_name, parse_values_file_name};

pub use loss::LostKeys;
pub use report::CheckReport;

/// Checks the store on `medium`. `progress` gets the bytes done and their total.
///
/// # Errors
/// `Invalid` if there is no store, a newer version wrote it, or it is open; `Retry` without memory. Damage is
/// not an error: the report lists it.
pub fn check(medium: &Arc<dyn Medium>, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
    check_with(medium, &LogConfig::default(), progress)
}

/// As [`check`], with the devices of the log at the places of `log`.
///
/// # Errors
/// As [`check`].
pub fn check_with(
    medium: &Arc<dyn Medium>,
    log: &LogConfig,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport> {
    // The files are listed before the lock is taken, because locking may create a file.
    if !medium.list()?.iter().any(is_ours) {
        return Err(no_store());
    }
    let _lock = medium.lock()?;
    let log = LogConfig { replace_missing: true, ..log.clone() };
    let joined = join_log(medium, &log)?;
    let medium = &joined.medium;
    let files = medium.list()?;
    let total = files.iter().map(|file| file.len).sum();
    let account = Account::unlimited("check");
    let report = CheckReport::new();
    let mut walk = Walk { medium, files, account, report, done: 0, total, progress };
    let state = walk.manifest()?;
    for (device, error) in joined.missing.iter() {
        walk.report.note(Problem::of(&device.place, error.clone()));
    }
    walk.keyspace_files(state.as_ref())?;
    walk.tables(state.as_ref())?;
    walk.values(state.as_ref())?;
    let before = walk.report.damages;
    walk.log(state.as_ref())?;
    let is_damaged = walk.report.damages > before || !joined.missing.is_empty();
    walk.indexes(state.as_ref(), is_damaged)?;
    walk.unowned(state.as_ref());
    Ok(walk.report)
}

/// A check in progress.
struct Walk<'a> {
    medium: &'a Arc<dyn Medium>,
    files: Vec<Listing>,
    account: Account,
    report: CheckReport,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Walk<'_> {
    /// Reads the manifest in force; `None` if it is damaged or lost.
    fn manifest(&mut self) -> Result<Option<ManifestState>> {
        let manifests: Vec<_> = self.files.iter().filter(|file| is_manifest(&file.name)).collect();
        let newest = manifests.last().map_or("manifest", |file| &file.name).to_owned();
        self.report.files += manifests.len();
        let bytes = manifests.iter().map(|file| file.len).sum();
        let alone = !self.files.iter().any(|file| is_ours(file) && !is_manifest(&file.name));
        let recovered = match manifest::recover(&**self.medium, alone) {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) if alone => return Err(no_store()),
            Ok(Err(_)) => Err(Error::corrupt("store").expected("a manifest").got("none")),
            Err(error) if error.kind() == base::ErrorKind::Corrupt => Err(error),
            Err(error) => return Err(error),
        };
        self.walked(bytes);
        Ok(match recovered {
            Ok(found) => {
                self.report.store = Some(found.store);
                self.report.keyspaces = found.state.keyspaces.len();
                self.report.manifest_repairs = found.repaired;
                Some(found.state)
            }
            Err(error) => {
                self.report.note(Problem::of(&newest, error));
                None
            }
        })
    }

    /// Reads the files of keyspaces, and compares them with the manifest. A missing one is no damage: an open
    /// writes it, as after an update or a restore.
    fn keyspace_files(&mut self, state: Option<&ManifestState>) -> Result<()> {
        for Listing { name, len } in self.files.clone() {
            let Some(keyspace) = KeyspaceFile::parse_file_name(&name) else { continue };
            let read = match (state, self.report.store) {
                (Some(state), Some(store)) => {
                    let entry = state.keyspaces.get(&keyspace);
                    let file = entry.and_then(|it| KeyspaceFile::of_entry(store, keyspace, it));
                    // Without a keyspace it is listed as unowned.
                    file.map_or(Ok(()), |file| file.check(&**self.medium))
                }
                _ => KeyspaceFile::find(&**self.medium, keyspace).map(drop),
            };
            self.report.files += 1;
            self.walked(len);
            match read {
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => self.report.note(Problem::of(&name, error)),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Lists files that nothing names.
    fn unowned(&mut self, state: Option<&ManifestState>) {
        // Only the newest readable manifest is in force. If none is readable, all count as owned.
        let in_force = self.files.iter().rev().find(|file| {
            is_manifest(&file.name) && manifest::inspect(&**self.medium, &file.name).is_ok()
        });
        for Listing { name, .. } in &self.files {
            let owned = if is_manifest(name) {
                in_force.is_none_or(|file| file.name == *name)
            } else if let Some(table) = parse_file_name(name) {
                state.is_none_or(|state| state.has_table(table))
            } else if let Some(table) = media::kept_of(name).and_then(parse_file_name) {
                state.is_none_or(|state| state.is_cold(table))
            } else if let Some(values) = parse_values_file_name(name) {
                state.is_none_or(|state| state.has_values(values))
            } else if let Some(dictionary) = Dictionary::parse_file_name(name) {
                state.is_none_or(|state| state.has_dictionary(dictionary))
            } else if let Some((lane, segment)) = wal::parse_segment_name(name) {
                state.is_none_or(|state| segment >= state.log_start.of(lane))
            } else if let Some(keyspace) = KeyspaceFile::parse_file_name(name) {
                let entry = state.map(|state| state.keyspaces.get(&keyspace));
                entry.is_none_or(|it| it.is_some_and(|it| it.kind != KeyspaceKind::Ordered))
            } else {
                // The next open replaces one that is damaged or out of date: it names no content.
                HotPages::is_file_name(name) || is_index_checkpoint(name)
            };
            if !owned {
                self.report.unowned.push(name.clone());
            }
        }
    }

    /// Adds `bytes` to the bytes done, and reports progress.
    fn walked(&mut self, bytes: u64) {
        self.report.bytes += bytes;
        self.done += bytes;
        (self.progress)(self.done.min(self.total), self.total);
    }
}

fn is_index_checkpoint(name: &str) -> bool {
    tree::checkpoint::Header::parse_file_name(name).is_some()
}

fn is_manifest(name: &str) -> bool {
    manifest::is_file_name(name)
}

/// Whether `file` has the name of a file of a store.
pub fn is_ours(file: &Listing) -> bool {
    let Listing { name, .. } = file;
    is_manifest(name)
        || parse_file_name(name).is_some()
        || parse_values_file_name(name).is_some()
        || Dictionary::parse_file_name(name).is_some()
        || wal::parse_segment_name(name).is_some()
        || KeyspaceFile::parse_file_name(name).is_some()
}

pub(crate) fn no_store() -> Error {
    Error::invalid("store").expected("one to exist").got("none")
}
