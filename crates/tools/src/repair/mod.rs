//! Repairing a store that is not open: whatever can still be read is made a store again, and what
//! cannot is named.
//!
//! The manifest comes first; where it is lost it is made anew from what the tables say of
//! themselves (`rebuild`), and written before anything else is changed. Every table is read. One that is
//! damaged is salvaged: every block that verifies (I8) goes to a new table, which takes its place in the tree
//! with one manifest record for all of them; the original is kept under another name. Then every value file
//! is read: what is left of a damaged one is copied, and the tables that point into it are written anew
//! without what is lost (`values`). Last comes the log: what can be read before and behind its damage goes to
//! tables, and what cannot is told by place and sequence numbers.
//!
//! Nothing is deleted, and up to the manifest's record nothing is changed that a failure does not
//! take back. A crash in between leaves originals under their other names: the next repair takes
//! them back first. A repair of a whole store changes nothing.

mod changes;
mod rebuild;
mod report;
mod tables;
mod values;

use std::sync::Arc;

use base::{Account, Codec, Error, ErrorKind, Result, Seqno, StoreId, TableId};
use media::Medium;
use table::{Dictionaries, Dictionary, file_name};

use crate::check::{is_ours, no_store};
use compact::Operators;
use engine::LostRecords;
use engine::{Resources, Settings, missing_log};
use manifest::{self, LiveTable, Manifest, ManifestState};
use tree::StoreDictionaries;

use changes::{Changes, take_back};
use rebuild::{highest, rebuild};
pub use report::{Lost, LostLog, LostRange, RepairReport, RepairedFile};
use tables::{Fate, Shop};

/// How to repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairOptions {
    /// Only say what would be done.
    pub dry_run: bool,
}

/// Repairs the store on `medium`, which must not be open. `progress` is told the bytes of tables and
/// value files done and their total.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # drop(terracedb::Db::builder(dir.path()).open()?);
/// use std::sync::Arc;
/// use terracedb::{RepairOptions, repair};
///
/// let options = media::FileOptions { create: false, ..Default::default() };
/// let medium: Arc<dyn media::Medium> = Arc::new(media::FileMedium::open(dir.path(), options)?);
/// let report = repair(&medium, RepairOptions { dry_run: true }, &mut |_, _| {})?;
/// assert!(report.is_clean());
/// # Ok(()) }
/// ```
///
/// # Errors
/// `Invalid` where no store is here, a newer version wrote it, or it is open; `Retry` where memory
/// is short, `NoSpace` where there is no room for what is salvaged: the store then is as it was.
pub fn repair(
    medium: &Arc<dyn Medium>,
    options: RepairOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    if !medium.list()?.iter().any(is_ours) {
        return Err(no_store());
    }
    let lock = medium.lock()?;
    let mut changes = Changes::new(medium);
    let mut repair = Repair {
        medium,
        dry_run: options.dry_run,
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
    drop(lock);
    if log && !options.dry_run {
        reopen(medium, &mut repair.report)?;
    }
    Ok(repair.report)
}

/// Opens the store once, so that what can be read of its log goes to tables, and the log begins anew.
fn reopen(medium: &Arc<dyn Medium>, report: &mut RepairReport) -> Result<()> {
    let mut settings = Settings::default();
    settings.scrub_rate = 0;
    settings.recover_damaged_log = true;
    let resources = Resources::builder().build()?;
    let (operators, events) = (Operators::builtin(), Arc::default());
    let store = engine::open(Arc::clone(medium), resources, settings, operators, events, None)?;
    if let Some(log) = &mut report.log {
        // A device that reads less by now has lost more.
        log.lost.clone_from(&store.recovery.log_lost);
    }
    store.flush(&store.trees.all())
}

struct Repair<'a> {
    medium: &'a Arc<dyn Medium>,
    dry_run: bool,
    account: Account,
    report: RepairReport,
}

/// What a manifest says, or what stands in for it.
struct FoundManifest {
    store: StoreId,
    state: ManifestState,
    /// The number of the highest manifest there is.
    number: u64,
}

impl Repair<'_> {
    /// Repairs manifest, tables and dictionaries; whether the log needs repair.
    fn files(&mut self, changes: &mut Changes, progress: &mut dyn FnMut(u64, u64)) -> Result<bool> {
        let mut found = match manifest::recover(&**self.medium, false) {
            Ok(Ok(found)) => {
                FoundManifest { store: found.store, state: found.state, number: found.number }
            }
            Ok(Err(number)) => {
                let none = Error::corrupt("store").expected("a manifest").got("none");
                self.rebuilt(none, number)?
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => self.rebuilt(error, 0)?,
            Err(error) => return Err(error),
        };
        self.report.store = Some(found.store);
        // One that was cut off may have left files that no manifest names.
        found.state.tables_below = found.state.tables_below.max(highest(&self.medium.list()?));
        if !self.dry_run {
            let points_into = |id: TableId| {
                let keyspaces = found.state.keyspaces.values();
                let mut tables = keyspaces.flat_map(|keyspace| keyspace.tables.values());
                tables.any(|live| live.entry.points_into(id))
            };
            take_back(&**self.medium, |id| found.state.has_table(id) || points_into(id))?;
        }
        let read = found.state.clone();
        rebuild::value_files(&**self.medium, found.store, &mut found.state, &self.account);
        let before = match self.report.manifest.is_some() && !self.dry_run {
            true => self.begin_anew(&mut found, changes)?,
            false => read,
        };
        let files = found.state.keyspaces.values().flat_map(|keyspace| {
            let tables = keyspace.tables.values().map(|live| live.entry.file_bytes);
            tables.chain(keyspace.values.values().map(|live| live.entry.file_bytes))
        });
        let total = files.sum();
        let progress = &mut |done| progress(done, total);
        let dictionaries: Arc<dyn Dictionaries> = Arc::new(StoreDictionaries::new(
            Arc::clone(self.medium),
            found.store,
            self.account.clone(),
        ));
        let shop = Shop {
            medium: Arc::clone(self.medium),
            store: found.store,
            dictionaries,
            account: self.account.clone(),
        };
        let mut replaced = self.tables(&shop, &mut found.state, changes, progress)?;
        replaced.extend(self.values(&shop, &mut found.state, changes, progress)?);
        let lost = self.dictionaries(&shop, &mut found.state)?;
        rebuild::value_files(&**self.medium, found.store, &mut found.state, &self.account);
        let log = self.log(&found)?;
        if self.dry_run {
            return Ok(log);
        }
        if log || found.state != before {
            self.still_reads()?;
        }
        if log {
            // Opening the store will change them.
            for file in self.medium.list()? {
                if wal::parse_segment_name(&file.name).is_some() {
                    changes.copy_aside(&file.name)?;
                }
            }
            self.medium.sync_names(&[])?;
        }
        if found.state != before {
            for name in replaced.into_iter().chain(lost) {
                self.put_aside(&name, changes)?;
            }
            self.install(found)?;
        }
        Ok(log)
    }

    /// Has a new manifest say what was found without one, so that a repair that is cut off from here on
    /// leaves a store that has one: the next repair then knows which tables count, and which were being
    /// made. What the manifest says.
    fn begin_anew(
        &self,
        found: &mut FoundManifest,
        changes: &mut Changes,
    ) -> Result<ManifestState> {
        for table in self.report.repaired.iter().filter(|table| table.keyspace.is_none()) {
            self.put_aside(&table.file, changes)?;
        }
        for file in self.medium.list()? {
            if manifest::is_file_name(&file.name) {
                changes.keep_replaced(&file.name)?;
            }
        }
        let state = found.state.clone();
        changes.made(manifest::file_name(found.number.saturating_add(1)));
        self.install(FoundManifest { state: state.clone(), ..*found })?;
        found.number += 1;
        Ok(state)
    }

    /// Fails where the manifest cannot be read any more, which it could be when the repair began, or was
    /// made since: then what else could not be read is no damage. The device fails, and nothing is
    /// given up for that.
    fn still_reads(&self) -> Result<()> {
        manifest::recover(&**self.medium, false).map(drop)
    }

    fn put_aside(&self, name: &str, changes: &mut Changes) -> Result<()> {
        // What is missing cannot be kept.
        if self.medium.list()?.iter().any(|file| file.name == name) {
            changes.put_aside(name)?;
        }
        Ok(())
    }

    fn rebuilt(&mut self, why: Error, number: u64) -> Result<FoundManifest> {
        let mut found = rebuild(self.medium, &self.account, &mut self.report)?;
        found.number = found.number.max(number);
        self.report.manifest = Some(why);
        Ok(found)
    }

    /// Examines every table, and puts what is left in the place of those that are damaged; the
    /// files of those.
    fn tables(
        &mut self,
        shop: &Shop,
        state: &mut ManifestState,
        changes: &mut Changes,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<String>> {
        let mut damaged = Vec::new();
        for (id, keyspace) in &mut state.keyspaces {
            let keyspace = Arc::make_mut(keyspace);
            for live in keyspace.tables.values().cloned().collect::<Vec<_>>() {
                let table = live.entry.id;
                let error = shop.examine(&live.entry)?;
                self.report.tables += 1;
                self.report.bytes += live.entry.file_bytes;
                progress(self.report.bytes);
                let Some(error) = error else {
                    if live.damaged {
                        let whole = LiveTable { damaged: false, ..LiveTable::clone(&live) };
                        keyspace.tables.insert(table, Arc::new(whole));
                    }
                    continue;
                };
                let file = file_name(table);
                let new = next_id(&mut state.tables_below);
                let write = (!self.dry_run).then_some(new);
                changes.made(file_name(new));
                let is_there = self.medium.list()?.iter().any(|listed| listed.name == file);
                let remains = match is_there {
                    true => Some(shop.salvage(
                        &live.entry,
                        *id,
                        Codec::Lz4,
                        write,
                        &mut |_, _, _| Ok(Fate::Keep),
                    )?),
                    false => None,
                };
                keyspace.tables.remove(&table);
                let replacement = remains.as_ref().and_then(|it| it.replacement(&live));
                let new_file = replacement.as_ref().map(|it| file_name(it.entry.id));
                let name = keyspace.name.clone();
                match &remains {
                    Some(remains) => self.report.lost.extend(remains.lost_of(&live, &name)),
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
                let repaired =
                    RepairedFile { file: file.clone(), keyspace, error, new_file, versions };
                self.report.repaired.push(repaired);
                damaged.push(file);
            }
        }
        Ok(damaged)
    }

    /// Forgets dictionaries that cannot be read; their files.
    fn dictionaries(&mut self, shop: &Shop, state: &mut ManifestState) -> Result<Vec<String>> {
        let mut lost = Vec::new();
        for keyspace in state.keyspaces.values_mut() {
            for id in keyspace.dictionaries.clone() {
                match shop.dictionaries.get(id) {
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

    /// Whether the log is damaged, is missing, or ends before what tables hold.
    fn log(&mut self, found: &FoundManifest) -> Result<bool> {
        let ManifestState { log_start: start, .. } = &found.state;
        let read =
            |recover| wal::check(self.medium, Some(found.store), start, recover, &self.account);
        let (read, error) = match read(wal::Recover::Strict) {
            Ok(whole) => (whole, missing_log(&**self.medium, &found.state)?),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                (read(wal::Recover::PastDamage)?, Some(error))
            }
            Err(error) => return Err(error),
        };
        let floor = found.state.floor();
        let is_short = read.last < floor && found.state.keyspaces_below.0 > 0;
        let short = is_short.then(|| {
            Error::corrupt("end of the log (I11)")
                .expected(format_args!("sequence number {floor}, which tables hold"))
                .got(read.last)
        });
        let is_missing = error.is_some() && read.losses.is_empty();
        let Some(error) = error.or(short) else { return Ok(false) };
        let flushed = found.state.flushed_below();
        let lost = read.losses.iter().map(|loss| LostRecords::of(loss, flushed)).collect();
        let ends = (is_short || is_missing).then(|| after(read.last).get());
        self.report.log = Some(LostLog { error, lost, ends });
        Ok(true)
    }

    /// Writes a manifest of what there is now, after the new tables are durable (I3).
    fn install(&self, found: FoundManifest) -> Result<()> {
        let FoundManifest { store, state, number } = found;
        self.medium.sync_names(&[])?;
        let number = number
            .checked_add(1)
            .ok_or_else(|| Error::corrupt("manifest number").expected("one below").got(number))?;
        let started =
            Manifest::start(Arc::clone(self.medium), store, state.clone(), number).map(drop);
        started.or_else(|error| match manifest::recover(&**self.medium, false) {
            // It failed after it was there: what it names must stay.
            Ok(Ok(found)) if found.state == state => Ok(()),
            _ => Err(error),
        })
    }
}

/// An id that no table or value file had.
fn next_id(below: &mut TableId) -> TableId {
    let id = *below;
    *below = TableId(id.0 + 1);
    id
}

/// The lowest sequence number after `seqno`.
fn after(seqno: Seqno) -> Seqno {
    seqno.plus(1)
}
