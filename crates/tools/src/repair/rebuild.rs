//! Rebuild: a new manifest from the remains of the old ones, and from the properties of each table.
//!
//! Tables state their keyspace, their keys and their sequence numbers, and the sequence numbers give their
//! order by age. They do not state which of their keys a merge has moved to other tables since: what the old
//! manifest still states about that is used. Without it, deleted entries may reappear in a keyspace that was
//! merged, and the report says so. Kinds and names of lost keyspaces: `keyspaces`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{
    Account, EntryKind, Error, ErrorKind, KeyRange, KeyspaceId, LineageId, Result, Seqno, StoreId,
    TableId, decode_ops,
};
use manifest::{
    KeyspaceEntry, KeyspaceKind, LivePiece, LiveTable, ManifestState, Salvage, TableEntry,
    ValuesEntry, range_of, salvage_state,
};
use media::{Listing, Medium};
use table::{
    Dictionaries, Dictionary, Fact, Properties, StoreDictionaries, Table, Values, describe,
    file_name, parse_file_name,
};

use super::keyspaces::Keyspaces;
use super::{FoundManifest, Lost, LostRange, RepairReport, RepairedFile};

/// Refuses a store without a manifest that has cold tables: it would count them as lost, or not know of them.
/// Pages of a table that are kept here tell of a cold one of which no manifest is left.
fn refuse_cold(state: &ManifestState, files: &[Listing]) -> Result<()> {
    let has_file = |name: &str| files.iter().any(|file| file.name == name);
    let of_cold = files.iter().filter_map(|file| media::kept_of(&file.name));
    let kept = of_cold.filter_map(parse_file_name).find(|id| !has_file(&file_name(*id)));
    match state.cold_tables().next().map(|(id, ..)| id).or(kept) {
        None => Ok(()),
        Some(id) => Err(Error::invalid("repair of a store without a readable manifest")
            .expected("no cold tables, whose objects only the manifest names; restore a backup")
            .got(file_name(id))),
    }
}

/// Rebuilds the state of a store without its manifest. Damaged tables that no keyspace is known for are
/// reported.
pub(super) fn rebuild(
    medium: &Arc<dyn Medium>,
    account: &Account,
    report: &mut RepairReport,
) -> Result<FoundManifest> {
    let files = medium.list()?;
    let store = store_of(&**medium, &files, account)?;
    let Salvage { highest: number, state: old, operators } = salvage_state(&**medium, store)?;
    refuse_cold(&old, &files)?;
    let (intact, unreadable) = open_all(medium, store, &files, account)?;
    let keyspaces = Keyspaces::read(&**medium, store)?;
    let mut state = ManifestState { tables_below: table_ids_end(&files), ..old.clone() };
    state.tables_below = state.tables_below.max(old.tables_below);
    if state.lineage.is_none() {
        // The lost records may have stated the lineage of a copy. A new one keeps every backup of either
        // store.
        state.lineage = Some(LineageId::random()?);
    }
    for keyspace in state.keyspaces.values_mut() {
        Arc::make_mut(keyspace).tables.clear();
    }
    let mut by_age: Vec<_> = intact.iter().collect();
    by_age.sort_by_key(|(id, table)| (seqno_of(&intact, **id, &table.properties), **id));
    let mut merged = Vec::new();
    for (id, table) in by_age {
        let known = old.keyspaces.values().find_map(|keyspace| keyspace.tables.get(id));
        let keyspace = table.properties.keyspace;
        let is_merged = table.properties.written_for == "compaction";
        if known.is_none() && (is_merged || is_of_unknown_age(&table.properties)) {
            merged.push(keyspace);
        }
        let entry = keyspaces.entry(&mut state, keyspace, Some(kind_of(&table.properties)));
        let live = match known {
            Some(live) => LiveTable { damaged: false, ..LiveTable::clone(live) },
            None => whole(*id, table, seqno_of(&intact, *id, &table.properties)),
        };
        place(entry, live);
        if table.properties.seqno_max > Seqno::ZERO {
            entry.flushed_below = entry.flushed_below.max(after(table.properties.seqno_max));
        }
    }
    for (id, error) in unreadable {
        let owner = old.keyspaces.iter().find(|(_, keyspace)| keyspace.tables.contains_key(&id));
        match owner.and_then(|(keyspace, entry)| Some((keyspace, entry.tables.get(&id)?))) {
            // The table is salvaged later, like any damaged table.
            Some((keyspace, live)) => {
                place(keyspaces.entry(&mut state, *keyspace, None), (**live).clone())
            }
            None => report_unowned(id, error, report),
        }
    }
    bound_windows(medium, store, &mut state, account)?;
    merged.extend(keyspaces.add_those_of_log(&**medium, old.keyspaces_below, &mut state)?);
    merged.extend(keyspaces.add_those_of_files(old.keyspaces_below, &mut state));
    // The lost part of the manifest would have stated which tables a merge had replaced, and the place of an
    // ingested table. So the keyspaces of such tables are reported as uncertain.
    merged.sort();
    merged.dedup();
    let name = |id: &KeyspaceId| state.keyspaces.get(id).map(|entry| entry.name.clone());
    report.uncertain = merged.iter().filter_map(name).collect();
    dictionaries(&keyspaces, &mut state, &intact, &files);
    let mut with_operands = operands_of_log(medium, store, &state, account);
    let merging = intact.values().map(|table| &table.properties).filter(|it| it.merges > 0);
    with_operands.extend(merging.map(|it| it.keyspace));
    report.operators = lost_operators(&mut state, &with_operands, &operators);
    Ok(FoundManifest { store, state, number })
}

/// The keyspaces that have merge operands in the log, as far as the log can be read.
pub(super) fn operands_of_log(
    medium: &Arc<dyn Medium>,
    store: StoreId,
    state: &ManifestState,
    account: &Account,
) -> BTreeSet<KeyspaceId> {
    let mut found = BTreeSet::new();
    let mut see = |_: wal::Appended, body: &[u8]| {
        if base::is_moved(body) {
            // Of resident keyspaces, which have no operands.
            return Ok(());
        }
        // The log's damage is reported with the log.
        let operands = decode_ops(body).flatten().filter(|op| op.kind == EntryKind::Merge);
        found.extend(operands.map(|op| op.keyspace));
        Ok(())
    };
    let (known, past) = (state.known_log(), wal::Recover::PastDamage);
    let _ = wal::read(medium, Some(store), &known, past, account, &mut see);
    found
}

/// Gives keyspaces the merge operators that `known` names. Returns the names of the keyspaces that have
/// operands and lost their operator: reads of those keys fail until the keyspace is opened with it.
pub(super) fn lost_operators(
    state: &mut ManifestState,
    with_operands: &BTreeSet<KeyspaceId>,
    known: &BTreeMap<KeyspaceId, String>,
) -> Vec<String> {
    let mut lost = Vec::new();
    for (id, keyspace) in state.keyspaces.iter_mut().filter(|(_, it)| it.operator.is_none()) {
        if let Some(name) = known.get(id) {
            Arc::make_mut(keyspace).operator = Some(name.clone());
        } else if with_operands.contains(id) {
            lost.push(keyspace.name.clone());
        }
    }
    lost
}

/// A table that can be opened.
struct Intact {
    properties: Properties,
    file_bytes: u64,
    digest: u64,
}

/// The store that the files belong to: the one that most tables and log segments name.
fn store_of(medium: &dyn Medium, files: &[Listing], account: &Account) -> Result<StoreId> {
    let mut votes: BTreeMap<u128, usize> = BTreeMap::new();
    for file in files {
        let mut seen = None;
        // Files that cannot be read are not counted.
        if parse_file_name(&file.name).is_some() {
            let _ = describe(medium, &file.name, account, false, &mut |fact| {
                if let Fact::Footer(footer) = fact {
                    seen = Some(footer.store);
                }
            });
        } else if wal::parse_segment_name(&file.name).is_some() {
            let _ = wal::inspect(medium, &file.name, &mut |entry| {
                if let wal::LogEntry::Header(header) = entry {
                    seen = Some(header.store);
                }
                Ok(())
            });
        }
        if let Some(store) = seen {
            *votes.entry(store.0).or_default() += 1;
        }
    }
    let most = votes.into_iter().max_by_key(|(_, votes)| *votes);
    most.map(|(store, _)| StoreId(store))
        .ok_or_else(|| Error::corrupt("store").expected("one readable table or log segment"))
}

/// The tables that can be opened, and the errors of the others.
type Opened = (BTreeMap<TableId, Intact>, Vec<(TableId, Error)>);

fn open_all(
    medium: &Arc<dyn Medium>,
    store: StoreId,
    files: &[Listing],
    account: &Account,
) -> Result<Opened> {
    let (mut intact, mut unreadable) = (BTreeMap::new(), Vec::new());
    let dictionaries: Arc<dyn Dictionaries> =
        Arc::new(StoreDictionaries::new(Arc::clone(medium), store, account.clone()));
    for file in files {
        let Some(id) = parse_file_name(&file.name) else { continue };
        let dictionaries = Arc::clone(&dictionaries);
        match Table::open(&**medium, store, id, None, None, dictionaries, account) {
            Ok(table) => {
                let (properties, digest) = (table.properties().clone(), table.footer().digest);
                intact.insert(id, Intact { properties, file_bytes: file.len, digest });
            }
            Err(error) if error.is_retryable() => return Err(error),
            // A newer version wrote the table, or this user may not read it: no damage.
            Err(error)
                if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::PermissionDenied) =>
            {
                return Err(error);
            }
            Err(error) => unreadable.push((id, error)),
        }
    }
    Ok((intact, unreadable))
}

/// Whether an ingested table does not state after which sequence number it was written: a table of an older
/// version.
fn is_of_unknown_age(properties: &Properties) -> bool {
    properties.seqno_max == Seqno::ZERO && properties.written_after == Seqno::ZERO
}

/// The sequence number by which a table is ordered: its own highest. An ingested table has none; it gets the
/// one that it states it was written after, or the highest of the tables with lower ids.
fn seqno_of(intact: &BTreeMap<TableId, Intact>, id: TableId, properties: &Properties) -> Seqno {
    if properties.seqno_max > Seqno::ZERO {
        return properties.seqno_max;
    }
    if properties.written_after > Seqno::ZERO {
        return after(properties.written_after);
    }
    let before = intact.range(..id).map(|(_, table)| table.properties.seqno_max);
    before.max().unwrap_or_default().max(Seqno::new(1))
}

/// A table with all of its keys, in no run yet.
fn whole(id: TableId, table: &Intact, seqno: Seqno) -> LiveTable {
    let properties = &table.properties;
    let is_ingested = properties.seqno_max == Seqno::ZERO;
    let entry = TableEntry {
        id,
        level: u8::from(properties.written_for == "compaction"),
        file_bytes: table.file_bytes,
        entries: properties.entries,
        deletes: properties.deletes,
        range_deletes: properties.range_deletes,
        seqno_min: if is_ingested { seqno } else { properties.seqno_min },
        seqno_max: seqno,
        range: range_of(properties),
        latest_expiry: properties.latest_expiry,
        seqno: is_ingested.then_some(seqno),
        values: properties.values.clone(),
        digest: Some(table.digest),
        ..TableEntry::default()
    };
    let piece = LivePiece { range: entry.range.clone(), run: entry.run, level: entry.level };
    LiveTable { entry: Arc::new(entry), pieces: vec![piece], damaged: false, cold: None }
}

/// Adds a table to the keyspace, in a run above all tables that it overlaps.
fn place(keyspace: &mut KeyspaceEntry, mut live: LiveTable) {
    let hull = live.pieces.iter().map(|piece| piece.range.clone());
    let hull = hull.reduce(|hull, range| hull.hull(&range)).unwrap_or_else(KeyRange::all);
    let run = keyspace.place_newest(&hull);
    let entry = Arc::make_mut(&mut live.entry);
    entry.run = run;
    live.pieces.iter_mut().for_each(|piece| piece.run = run);
    if let Some(seqno) = live.entry.seqno {
        keyspace.ingested = keyspace.ingested.max(seqno);
    }
    keyspace.tables.insert(live.entry.id, Arc::new(live));
}

/// The kind of a keyspace that only tables state.
fn kind_of(properties: &Properties) -> KeyspaceKind {
    KeyspaceKind::of_tables(properties.key_form(), &properties.window)
}

/// Lowers the flushed bounds of windows to the end of the log: their tables may have seqnos that the log
/// never had, and an open takes a log that does not reach a flushed bound for damaged. Every record of the
/// log stays below the bound.
fn bound_windows(
    medium: &Arc<dyn Medium>,
    store: StoreId,
    state: &mut ManifestState,
    account: &Account,
) -> Result<()> {
    if !state.keyspaces.values().any(|entry| entry.kind.is_window()) {
        return Ok(());
    }
    let known = wal::Known { start: state.log_start.clone(), ..wal::Known::default() };
    let log = wal::check(medium, Some(store), &known, wal::Recover::PastDamage, account);
    let end = match log {
        Ok(log) => after(log.last),
        Err(error) if error.is_retryable() => return Err(error),
        // The log's damage is reported with the log. Nothing of it is replayed.
        Err(_) => Seqno::ZERO,
    };
    for entry in state.keyspaces.values_mut().filter(|entry| entry.kind.is_window()) {
        let bound = entry.flushed_below.min(end);
        Arc::make_mut(entry).flushed_below = bound;
    }
    Ok(())
}

/// Reports a table that cannot be opened and that no keyspace is known for.
fn report_unowned(id: TableId, error: Error, report: &mut RepairReport) {
    let (file, keyspace) = (file_name(id), None);
    report.lost.push(LostRange {
        file: file.clone(),
        pages: None,
        keyspace: None,
        keys: None,
        what: Lost::Versions,
    });
    let (new_file, versions) = (None, 0);
    report.repaired.push(RepairedFile { file, keyspace, error, new_file, versions });
}

/// Table ids below the returned one may be in use, by the names of the files.
pub(super) fn table_ids_end(files: &[Listing]) -> TableId {
    let ids = files.iter().filter_map(|file| {
        let name = file.name.split_inclusive(".table").next().unwrap_or_default();
        parse_file_name(name).or_else(|| table::parse_values_file_name(&file.name))
    });
    TableId(ids.map(|id| id.0.saturating_add(1)).max().unwrap_or_default())
}

/// Adds each dictionary to the keyspace with tables that name it.
fn dictionaries(
    keyspaces: &Keyspaces,
    state: &mut ManifestState,
    intact: &BTreeMap<TableId, Intact>,
    files: &[Listing],
) {
    for Intact { properties, .. } in intact.values() {
        for id in &properties.dictionaries {
            if !state.has_dictionary(*id) {
                let kind = kind_of(properties);
                let entry = keyspaces.entry(state, properties.keyspace, Some(kind));
                entry.dictionaries.push(*id);
            }
        }
    }
    let ids = files.iter().filter_map(|file| Dictionary::parse_file_name(&file.name));
    state.last_dictionary = ids.max().unwrap_or_default().max(state.last_dictionary);
}

/// Rebuilds the counts of live values. A value file that cannot be read gets an entry without lengths; the
/// walk over the value files reports its values as lost.
pub(super) fn value_files(
    medium: &dyn Medium,
    store: StoreId,
    state: &mut ManifestState,
    account: &Account,
) {
    let read = |id: TableId| {
        let opened = Values::open(medium, store, id, None, account).ok();
        let unknown = ValuesEntry { id, file_bytes: 0, values: 0, value_bytes: 0, digest: 0 };
        opened.map_or(unknown, |values| {
            let footer = values.footer();
            ValuesEntry {
                id,
                file_bytes: values.file_bytes(),
                values: footer.values,
                value_bytes: footer.value_bytes,
                digest: footer.digest,
            }
        })
    };
    for keyspace in state.keyspaces.values_mut() {
        let mut counted = KeyspaceEntry::clone(keyspace);
        counted.recount_values(read);
        if counted != **keyspace {
            *keyspace = Arc::new(counted);
        }
    }
}

/// The lowest sequence number after `seqno`; the highest of all for itself. A table may state any.
pub(super) fn after(seqno: Seqno) -> Seqno {
    if seqno < Seqno::MAX { seqno.plus(1) } else { seqno }
}
