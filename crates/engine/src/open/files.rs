//! The files of a store at open: the directory lock, the manifest, the files of keyspaces, and the removal of
//! orphans.

use std::any::Any;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Error, ErrorKind, PageSeed, Result, StoreId, TableId};
use manifest::{Edit, KeyspaceFile, Manifest, ManifestState};
use media::{Cold, Holding, Joined, Medium, Metered, Naming};
use table::{Dictionary, parse_file_name, parse_values_file_name, verify_page};

use crate::cold::{ColdConfig, cold_names};
use crate::log_media::OpenLog;
use crate::recovery::Recovery;
use crate::resources::Components as _;
use crate::{LogConfig, Resources};

/// A store's medium and manifest, under the directory lock.
pub(super) struct StoreFiles {
    pub id: StoreId,
    pub manifest: Arc<Manifest>,
    /// The manifest's state at open.
    pub state: ManifestState,
    pub medium: Arc<dyn Medium>,
    /// The same medium, for checkpoints that keep files while they copy them.
    pub holding: Arc<Holding>,
    /// The same medium, for its I/O counters.
    pub metered: Arc<Metered>,
    /// The same medium, for its cold tables; none without an object store.
    pub cold: Option<Arc<Cold>>,
    pub lock: Box<dyn Any + Send + Sync>,
}

impl StoreFiles {
    /// Locks the directory, opens or creates the manifest, opens the devices of the log, and removes orphans.
    ///
    /// # Errors
    /// Those of the lock and of `log`; `Corrupt` if there are files of a store but no manifest; `Invalid` if
    /// there is no store and `create` is `None`; those of the device.
    pub(super) fn open(
        medium: Arc<dyn Medium>,
        log: &LogConfig,
        object_store: Option<&ColdConfig>,
        resources: &Resources,
        create: Option<StoreId>,
        recovery: &mut Recovery,
    ) -> Result<Self> {
        let joined = Arc::new(Joined::new(medium, wal::device_of));
        let clock = Arc::clone(resources.clock());
        let is_table = |name: &str| parse_file_name(name).is_some();
        let cold = object_store.map(|_| Arc::new(Cold::new(Arc::clone(&joined) as _, is_table)));
        let all: Arc<dyn Medium> = match &cold {
            Some(cold) => Arc::clone(cold) as _,
            None => Arc::clone(&joined) as _,
        };
        let metered = Arc::new(Metered::new(all, clock));
        let naming = Arc::new(Naming::new(Arc::clone(&metered) as _));
        let holding = Arc::new(Holding::new(naming));
        let medium: Arc<dyn Medium> = Arc::clone(&holding) as _;
        let lock = medium.lock()?;
        let (id, manifest, prepared) = open_manifest(&medium, log, create, recovery)?;
        let recorded = manifest.state().log_place;
        let devices = prepared.map_or_else(|| log.open(id, &recorded), Ok)?;
        if devices.place != recorded {
            // A device was found at another place.
            let place = devices.place.clone();
            manifest.append(vec![Edit::LogPlaced { place }])?;
        }
        let lock: Box<dyn Any + Send + Sync> = match recorded.is_on_devices() {
            true => Box::new((devices.attach(&joined)?, lock)),
            false => lock,
        };
        let state = manifest.state();
        let account = resources.account("cold tables");
        attach_cold((id, &state), cold.as_deref(), object_store, &account, recovery)?;
        remove_orphans(&*medium, &state, recovery)?;
        let keyspaces = state.keyspaces.iter().map(|(id, entry)| (*id, &**entry));
        KeyspaceFile::install_all(&*medium, id, keyspaces)?;
        Ok(Self { id, manifest, state, medium, holding, metered, cold, lock })
    }
}

/// Recovers the manifest and continues it in a new file. Creates it as store `create` if there is none, with
/// the devices of `log`, which it returns then.
fn open_manifest(
    medium: &Arc<dyn Medium>,
    log: &LogConfig,
    create: Option<StoreId>,
    recovery: &mut Recovery,
) -> Result<(StoreId, Arc<Manifest>, Option<OpenLog>)> {
    let mut prepared = None;
    let listed = medium.list()?;
    let others = listed.iter().find(|file| {
        parse_file_name(&file.name).is_some()
            || parse_values_file_name(&file.name).is_some()
            || wal::parse_segment_name(&file.name).is_some()
            || KeyspaceFile::parse_file_name(&file.name).is_some()
    });
    let (id, state, number, found) = match manifest::recover(&**medium, others.is_none())? {
        Ok(found) => {
            recovery.manifest_repairs = found.repaired;
            (found.store, found.state.clone(), found.number, Some(found))
        }
        Err(number) => {
            if let Some(file) = others {
                return Err(Error::corrupt("store")
                    .expected("a manifest")
                    .got(format_args!("none, but the file `{}`", file.name)));
            }
            let Some(id) = create else {
                return Err(Error::invalid("store").expected("an existing one").got("none"));
            };
            recovery.created = true;
            let devices = log.prepare(id)?;
            let log_place = devices.place.clone();
            prepared = Some(devices);
            (id, ManifestState { log_place, ..ManifestState::default() }, number, None)
        }
    };
    let next = number
        .checked_add(1)
        .ok_or_else(|| Error::corrupt("manifest number").expected("a number below").got(number))?;
    let started = Manifest::start(Arc::clone(medium), id, state, next);
    let manifest = match (started, found) {
        // A full device has no room for a new manifest file: go on in the old one, so that reads work.
        (Err(error), Some(found)) if error.kind() == ErrorKind::NoSpace => {
            Manifest::resume(Arc::clone(medium), found)?
        }
        (started, _) => started?,
    };
    Ok((id, Arc::new(manifest), prepared))
}

/// Gives the cold tables of `state` their content, which is in `object_store`. Local files that they had are
/// removed.
///
/// # Errors
/// `Invalid` if there are cold tables and no object store; those of removing a file and of the object store.
fn attach_cold(
    (store, state): (StoreId, &ManifestState),
    cold: Option<&Cold>,
    object_store: Option<&ColdConfig>,
    account: &Account,
    recovery: &mut Recovery,
) -> Result<()> {
    let names = cold_names(state);
    match (cold, object_store, names.len()) {
        (Some(cold), Some(object_store), _) => {
            if object_store.read_only {
                drop(object_store.medium.lock()?);
            }
            let is_sound = move |name: &str, at: u64, bytes: &[u8]| {
                parse_file_name(name).is_some_and(|table| are_pages(store, table, at, bytes))
            };
            cold.attach(Arc::clone(&object_store.medium), names, is_sound, account)?;
            recovery.orphans_removed += cold.remove_hidden()?;
            Ok(())
        }
        (_, _, 0) => Ok(()),
        (_, _, tables) => Err(Error::invalid("store with cold tables")
            .expected("the object store that has them (`[remote] url`)")
            .got(format_args!("none for {tables} tables"))),
    }
}

/// Whether `bytes` are the pages of `table` at offset `at`.
fn are_pages(store: StoreId, table: TableId, at: u64, bytes: &[u8]) -> bool {
    let (seed, page) = (PageSeed::new(store, table), PAGE_BYTES as u64);
    let mut pages = (at / page..).zip(bytes.chunks(PAGE_BYTES));
    pages.all(|(number, page)| {
        let number = u32::try_from(number).ok();
        number.is_some_and(|number| verify_page(seed, number, page).is_ok())
    })
}

/// Removes tables, value files and dictionaries that the manifest does not name: flushes, merges and
/// ingests that did not finish left them.
fn remove_orphans(
    medium: &dyn Medium,
    state: &ManifestState,
    recovery: &mut Recovery,
) -> Result<()> {
    let named = state.files();
    for listing in medium.list()? {
        let name = &listing.name;
        let orphan = parse_file_name(name).is_some_and(|id| !state.has_table(id))
            || parse_values_file_name(name).is_some_and(|id| !state.has_values(id))
            || Dictionary::parse_file_name(name).is_some_and(|id| !state.has_dictionary(id));
        base::invariant!(
            !orphan || !named.contains(name),
            "a file that the manifest names is no orphan (I3)"
        );
        if orphan {
            medium.remove(name)?;
            recovery.orphans_removed += 1;
        }
    }
    Ok(())
}

/// Files that a store opens beside its tables: log segments, manifests, outputs of flushes and merges; and
/// those of the rest of the process.
const OTHER_FILES: u64 = 64;

/// Refuses a store with more tables and value files than the process may have open. Each has a handle while
/// the store is open, and an open that ran out of them on the way would name none of this.
pub(super) fn refuse_too_many(medium: &dyn Medium, state: &ManifestState) -> Result<()> {
    let Some(most) = medium.capabilities().open_files_max else { return Ok(()) };
    let files = state.keyspaces.values().map(|it| it.tables.len() + it.values.len());
    let cold = state.cold_tables().count() as u64;
    let files = files.sum::<usize>() as u64 - cold;
    if files + OTHER_FILES <= most {
        return Ok(());
    }
    Err(Error::invalid("limit of open files")
        .expected(format_args!(
            "at least {} for {files} tables and value files (raise it with `ulimit -n`)",
            files + OTHER_FILES
        ))
        .got(most))
}
