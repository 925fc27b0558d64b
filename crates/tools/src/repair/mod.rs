//! Repair of a closed store: makes a store of everything that can still be read, and reports the rest.
//!
//! The manifest comes first. If it is lost, it is rebuilt from the statements of the tables
//! (`rebuild`), and written before anything else changes. Then every table is read. A damaged one is
//! salvaged: every block that verifies (I8) goes to a new table, which replaces the old one in the tree (one
//! manifest record for all of them); the original is kept under another name. Then every value file is read:
//! the intact values of a damaged one are copied to a new file, and the tables that point into it are
//! rewritten without the lost values (`values`). The log comes last: records before and behind its damage go
//! to tables, and lost records are reported by place and sequence numbers.
//!
//! Cold tables are in an object store and stay as they are: they are not read. A repair that would have to
//! change or find one is refused.
//!
//! Nothing is deleted, and until the manifest is written nothing is changed that a failure does not undo. A
//! crash in between leaves originals under their other names; the next repair renames them back first. A
//! repair of an intact store changes nothing.
//!
//! Threads: the caller's, one, and the executor's while the repaired store is opened once to recover the log.

mod changes;
mod devices;
mod ids;
mod keyspaces;
mod log;
mod rebuild;
mod report;
mod tables;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Account, Cancel, Error, ErrorKind, KeyspaceId, Result, Seqno, StoreId, TableId};
use compact::Operators;
use engine::{LogConfig, Resources, Settings, join_log};
use manifest::{KeyspaceEntry, LiveTable, Manifest, ManifestState};
use media::Medium;
use table::{Dictionaries, Dictionary, StoreDictionaries, file_name};
use wal::LogDevice;

use crate::check::{is_ours, no_store};
use crate::log_move::{replace_log, resident_keyspace};
use crate::unreachable::without_object_store;

use changes::{Changes, undo_interrupted};
use devices::NewDevices;
use ids::{after_id, next_id};
use keyspaces::Keyspaces;
use rebuild::{rebuild, table_ids_end};
pub use report::{Lost, LostLog, LostRange, RepairReport, RepairedFile};
pub(crate) use tables::{Salvager, Verdict};

/// Options of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Change nothing; report the changes that a repair would make.
    pub dry_run: bool,
    /// Ends the repair early, with an error of kind `Cancelled`, after which the store is as it was before.
    pub cancel: Cancel,
}

/// Repairs the store on `medium`, which must not be open. `progress` gets the bytes of tables and
/// value files done, and their total.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # drop(terracedb::Db::builder(dir.path()).open()?);
/// use std::sync::Arc;
/// use terracedb::tools::{RepairOptions, repair};
///
/// let options = media::FileOptions { create: false, ..Default::default() };
/// let medium: Arc<dyn media::Medium> = Arc::new(media::FileMedium::open(dir.path(), options)?);
/// let report = repair(&medium, RepairOptions { dry_run: true, ..Default::default() }, &mut |_, _| {})?;
/// assert!(report.is_clean());
/// # Ok(()) }
/// ```
///
/// # Errors
/// `Invalid` if there is no store, a newer version wrote it, or it is open; `Retry` without memory; `NoSpace`
/// without space for the salvaged data. After an error the store is as it was before.
pub fn repair(
    medium: &Arc<dyn Medium>,
    options: RepairOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    repair_with(medium, &LogConfig::default(), options, progress)
}

/// As [`repair`], with the devices of the log at the places of `log`. If one is missing, the records of the
/// others are kept as far as they go, and the log moves to the store's directory. The log of a store with a
/// resident keyspace stays on devices: an empty one, at a place of `log` or at its own, replaces the missing
/// one.
///
/// # Errors
/// As [`repair`].
pub fn repair_with(
    medium: &Arc<dyn Medium>,
    log: &LogConfig,
    options: RepairOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    if !medium.list()?.iter().any(is_ours) {
        return Err(no_store());
    }
    let lock = medium.lock()?;
    let config = LogConfig { replace_missing: true, ..log.clone() };
    let joined = join_log(medium, &config)?;
    let is_incomplete = !joined.missing.is_empty();
    let stays_on_devices = is_incomplete && resident_keyspace(&joined.medium)?.is_some();
    let new_devices = (stays_on_devices && !options.dry_run)
        .then(|| NewDevices::prepare(log, &joined))
        .transpose()?;
    let mut changes = Changes::new(&joined.medium);
    let mut repair = Repair {
        medium: &joined.medium,
        missing: &joined.missing,
        dry_run: options.dry_run,
        cancel: options.cancel.clone(),
        account: Account::unlimited("repair"),
        report: RepairReport { dry_run: options.dry_run, ..RepairReport::default() },
    };
    let done = repair.files(&mut changes, progress);
    let log = match done {
        Ok(log) => log,
        Err(error) => {
            changes.undo();
            return Err(error);
        }
    };
    repair.report.kept = changes.kept();
    let mut report = repair.report;
    drop((joined, lock));
    if !log || options.dry_run {
        return Ok(report);
    }
    match new_devices {
        Some(new) => {
            let config = new.install(medium, config)?;
            reopen(medium, &config, &mut report)?;
        }
        None => {
            let last = reopen(medium, &config, &mut report)?;
            if is_incomplete {
                replace_log(medium, &config, &LogConfig::default(), last)?;
            }
        }
    }
    Ok(report)
}

/// Opens the store once: recovery puts the readable records of the log into memtables, which are flushed, and
/// a new log begins. Returns the last sequence number.
fn reopen(
    medium: &Arc<dyn Medium>,
    config: &LogConfig,
    report: &mut RepairReport,
) -> Result<Seqno> {
    let mut settings = Settings::default();
    settings.scrub_rate = 0;
    settings.recover_damaged_log = true;
    let resources = Resources::builder().build()?;
    let operators = Operators::builtin().without_required_priorities();
    let (media, events) = (without_object_store(medium), Arc::default());
    let store = engine::open(media, config, resources, settings, operators, events, None)?;
    if let Some(log) = &mut report.log {
        // The device may have lost more since the log was read.
        log.lost.clone_from(&store.recovery.log_lost);
    }
    store.flush(&store.trees.all())?;
    store.close()?;
    Ok(store.log.last())
}

/// A repair in progress.
struct Repair<'a> {
    medium: &'a Arc<dyn Medium>,
    /// The devices of the log that cannot be opened.
    missing: &'a [(LogDevice, Error)],
    dry_run: bool,
    cancel: Cancel,
    account: Account,
    report: RepairReport,
}

/// The state that a manifest holds, or the rebuilt state in its place.
struct FoundManifest {
    store: StoreId,
    state: ManifestState,
    /// The highest number that a manifest has.
    number: u64,
}

/// A walk over all files that the manifest names.
struct Walk<'a> {
    salvager: &'a Salvager,
    state: &'a mut ManifestState,
    changes: &'a mut Changes,
    /// Gets the bytes done.
    progress: &'a mut dyn FnMut(u64),
}

impl Repair<'_> {
    /// Repairs manifest, tables, value files and dictionaries. Returns whether the log needs repair.
    fn files(&mut self, changes: &mut Changes, progress: &mut dyn FnMut(u64, u64)) -> Result<bool> {
        let mut found = self.manifest()?;
        let before = self.prepare(&mut found, changes)?;
        let total = bytes_of(&found.state);
        let progress = &mut |done| progress(done, total);
        let (medium, account) = (Arc::clone(self.medium), self.account.clone());
        let dictionaries =
            StoreDictionaries::new(Arc::clone(&medium), found.store, account.clone());
        let dictionaries = Arc::new(dictionaries) as Arc<dyn Dictionaries>;
        let salvager = Salvager { medium, store: found.store, dictionaries, account };
        let mut walk =
            Walk { salvager: &salvager, state: &mut found.state, changes: &mut *changes, progress };
        let mut damaged = self.tables(&mut walk)?;
        damaged.extend(self.values(&mut walk)?);
        damaged.extend(self.dictionaries(&salvager, &mut found.state)?);
        rebuild::value_files(&**self.medium, found.store, &mut found.state, &self.account);
        self.keyspace_files(&found, changes)?;
        let log = self.log(&found)?;
        if self.dry_run {
            return Ok(log);
        }
        let is_changed = found.state != before;
        if log || is_changed {
            self.check_device()?;
        }
        if log {
            self.keep_log(changes)?;
        }
        if is_changed {
            for name in damaged {
                self.keep(&name, changes)?;
            }
            self.install(found)?;
        }
        Ok(log)
    }

    /// Reads the manifest in force, or rebuilds it.
    fn manifest(&mut self) -> Result<FoundManifest> {
        match manifest::recover(&**self.medium, false) {
            Ok(Ok(found)) => self.completed(FoundManifest {
                store: found.store,
                state: found.state,
                number: found.number,
            }),
            Ok(Err(number)) => {
                let none = Error::corrupt("store").expected("a manifest").got("none");
                self.rebuilt(none, number)
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => self.rebuilt(error, 0),
            Err(error) => Err(error),
        }
    }

    /// Adds the keyspaces that the log has records of and the manifest lacks, because it is older.
    fn completed(&mut self, mut found: FoundManifest) -> Result<FoundManifest> {
        let (below, state) = (found.state.keyspaces_below, &mut found.state);
        let keyspaces = Keyspaces::read(&**self.medium, found.store)?;
        let added = keyspaces.add_those_of_log(&**self.medium, below, state)?;
        if state.keyspaces_below > below {
            let error = Error::corrupt("manifest").expected("every keyspace of the log");
            self.report.manifest = Some(error.got(format_args!("only those below {below}")));
        }
        if !added.is_empty() {
            let mut merging =
                rebuild::operands_of_log(self.medium, found.store, state, &self.account);
            merging.retain(|id| added.contains(id));
            self.report.operators = rebuild::lost_operators(state, &merging, &BTreeMap::new());
        }
        let names = added.iter().filter_map(|id| state.keyspaces.get(id));
        self.report.uncertain = names.map(|entry| entry.name.clone()).collect();
        Ok(found)
    }

    /// Undoes an interrupted repair, and writes a manifest if it was rebuilt. Returns the state that the
    /// manifest on the medium holds.
    fn prepare(
        &mut self,
        found: &mut FoundManifest,
        changes: &mut Changes,
    ) -> Result<ManifestState> {
        self.report.store = Some(found.store);
        // An interrupted repair may have left files that no manifest names; their ids are used.
        // Tables may point into a value file that is lost, and so not listed; its id is used too.
        let tables = found.state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let pointed = tables.flat_map(|live| &live.entry.values).map(|(file, _)| after_id(*file));
        let below = pointed.fold(table_ids_end(&self.medium.list()?), TableId::max);
        found.state.tables_below = found.state.tables_below.max(below);
        if !self.dry_run {
            let points_into = |id: TableId| {
                let keyspaces = found.state.keyspaces.values();
                let mut tables = keyspaces.flat_map(|keyspace| keyspace.tables.values());
                tables.any(|live| live.entry.points_into(id))
            };
            undo_interrupted(&**self.medium, |id| found.state.has_table(id) || points_into(id))?;
        }
        let read = found.state.clone();
        rebuild::value_files(&**self.medium, found.store, &mut found.state, &self.account);
        match self.report.manifest.is_some() && !self.dry_run {
            true => self.write_rebuilt(found, changes),
            false => Ok(read),
        }
    }

    /// Writes the rebuilt state to a new manifest, so that a repair interrupted from here on leaves a store
    /// that has one: the next repair then knows which tables are valid, and which ones were being written.
    /// Returns the state.
    fn write_rebuilt(
        &self,
        found: &mut FoundManifest,
        changes: &mut Changes,
    ) -> Result<ManifestState> {
        for table in self.report.repaired.iter().filter(|table| table.keyspace.is_none()) {
            self.keep(&table.file, changes)?;
        }
        for file in self.medium.list()? {
            if manifest::is_file_name(&file.name) {
                changes.keep_replaced(&file.name)?;
            }
        }
        let state = found.state.clone();
        changes.add_created(manifest::file_name(found.number.saturating_add(1)));
        self.install(FoundManifest { state: state.clone(), ..*found })?;
        found.number += 1;
        Ok(state)
    }

    /// Reads the manifest once more. If it cannot be read any more, the device fails, and other
    /// unreadable files may not be damaged: nothing is given up for that.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn check_device(&self) -> Result<()> {
        manifest::recover(&**self.medium, false).map(drop)
    }

    /// Keeps the damaged file `name` under another name, if it exists.
    fn keep(&self, name: &str, changes: &mut Changes) -> Result<()> {
        if self.medium.list()?.iter().any(|file| file.name == name) {
            changes.keep_renamed(name)?;
        }
        Ok(())
    }

    /// Rebuilds the manifest, which could not be read because of `why`.
    fn rebuilt(&mut self, why: Error, number: u64) -> Result<FoundManifest> {
        let mut found = rebuild(self.medium, &self.account, &mut self.report)?;
        found.number = found.number.max(number);
        self.report.manifest = Some(why);
        Ok(found)
    }

    /// Examines every table, and replaces the damaged ones. Returns the file names of those.
    fn tables(&mut self, walk: &mut Walk<'_>) -> Result<Vec<String>> {
        let Walk { salvager, state, changes, progress } = walk;
        let mut damaged = Vec::new();
        for (id, keyspace) in &mut state.keyspaces {
            let keyspace = Arc::make_mut(keyspace);
            for live in keyspace.tables.values().cloned().collect::<Vec<_>>() {
                self.cancel.check("repair")?;
                if live.cold.is_some() {
                    self.report.cold_tables += 1;
                    continue;
                }
                let table = live.entry.id;
                let error = salvager.examine(&live.entry)?;
                self.report.tables += 1;
                self.report.bytes += live.entry.file_bytes;
                progress(self.report.bytes);
                if let Some(error) = error {
                    let new = next_id(&mut state.tables_below);
                    changes.add_created(file_name(new));
                    self.replace_table(salvager, *id, keyspace, &live, error, new)?;
                    damaged.push(file_name(table));
                } else if live.damaged {
                    let intact = LiveTable { damaged: false, ..LiveTable::clone(&live) };
                    keyspace.tables.insert(table, Arc::new(intact));
                }
            }
        }
        Ok(damaged)
    }

    /// Salvages the table `live`, damaged as `error` says, to the table `new`, and reports both.
    fn replace_table(
        &mut self,
        salvager: &Salvager,
        id: KeyspaceId,
        keyspace: &mut KeyspaceEntry,
        live: &LiveTable,
        error: Error,
        new: TableId,
    ) -> Result<()> {
        let file = file_name(live.entry.id);
        let write = (!self.dry_run).then_some(new);
        let form = keyspace.kind.key_form();
        let keep_all = &mut |_: &[u8], _, _: &[u8]| Ok(Verdict::Keep);
        let remains = match self.medium.list()?.iter().any(|listed| listed.name == file) {
            true => Some(salvager.salvage(&live.entry, id, form, write, keep_all)?),
            false => None,
        };
        keyspace.tables.remove(&live.entry.id);
        let replacement = remains.as_ref().and_then(|remains| remains.replacement(live));
        let new_file = replacement.as_ref().map(|it| file_name(it.entry.id));
        let name = keyspace.name.clone();
        match &remains {
            Some(remains) => self.report.lost.extend(remains.lost_of(live, &name)),
            None => self.report.lost.extend(live.pieces.iter().map(|piece| LostRange {
                file: file.clone(),
                pages: None,
                keyspace: Some(name.clone()),
                keys: Some(piece.range.shown()),
                what: Lost::Versions,
            })),
        }
        if let Some(replacement) = replacement {
            keyspace.tables.insert(replacement.entry.id, Arc::new(replacement));
        }
        let versions = remains.map_or(0, |remains| remains.versions);
        let keyspace = Some(name);
        self.report.repaired.push(RepairedFile { file, keyspace, error, new_file, versions });
        Ok(())
    }

    /// Removes dictionaries that cannot be read from their keyspaces. Returns their file names.
    fn dictionaries(
        &mut self,
        salvager: &Salvager,
        state: &mut ManifestState,
    ) -> Result<Vec<String>> {
        let mut lost = Vec::new();
        for keyspace in state.keyspaces.values_mut() {
            for id in keyspace.dictionaries.clone() {
                match salvager.dictionaries.get(id) {
                    Ok(_) => {}
                    Err(error) if error.is_retryable() => return Err(error),
                    Err(_) => {
                        Arc::make_mut(keyspace).dictionaries.retain(|known| *known != id);
                        lost.push(Dictionary::file_name(id));
                    }
                }
            }
        }
        self.report.dictionaries.clone_from(&lost);
        Ok(lost)
    }

    /// Writes a manifest with the present state; its new tables are durable (I3).
    fn install(&self, found: FoundManifest) -> Result<()> {
        let FoundManifest { store, state, number } = found;
        let mut entries = state.keyspaces.values();
        let is_reserved = entries.all(|keyspace| {
            let mut ids = keyspace.tables.keys().chain(keyspace.values.keys());
            ids.all(|id| *id < state.tables_below)
        });
        if !is_reserved {
            // A table may state any id of a value file.
            return Err(Error::corrupt("id of a table or value file")
                .expected(format_args!("below {}", state.tables_below))
                .got("a higher one"));
        }
        self.medium.sync_names(&[])?;
        let number = number
            .checked_add(1)
            .ok_or_else(|| Error::corrupt("manifest number").expected("one below").got(number))?;
        let started =
            Manifest::start(Arc::clone(self.medium), store, state.clone(), number).map(drop);
        started.or_else(|error| match manifest::recover(&**self.medium, false) {
            // The call failed after it had made the new manifest, so the files that the manifest names must
            // stay.
            Ok(Ok(found)) if found.state == state => Ok(()),
            _ => Err(error),
        })
    }
}

/// Bytes of the tables and value files of `state`.
fn bytes_of(state: &ManifestState) -> u64 {
    let files = state.keyspaces.values().flat_map(|keyspace| {
        let local = keyspace.tables.values().filter(|live| live.cold.is_none());
        let tables = local.map(|live| live.entry.file_bytes);
        tables.chain(keyspace.values.values().map(|live| live.entry.file_bytes))
    });
    files.sum()
}
