//! A manifest made anew: from what is left of the old ones, and what each table says of itself.
//!
//! Tables say their keyspace, their keys and their sequence numbers, and those put them in order of
//! age. They do not say which of their keys a merge has moved to other tables since: what the old
//! manifest still says of that is used; otherwise what was deleted may be back in a keyspace that was
//! merged, and the report says so. Keyspaces whose names are lost are called `recovered-<id>`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Account, Error, ErrorKind, KeyspaceId, Result, Seqno, StoreId, TableId};
use media::{Listing, Medium};
use table::{
    Dictionaries, Dictionary, Fact, Properties, Table, Values, describe, file_name, parse_file_name,
};

use super::{FoundManifest, Lost, LostRange, RepairReport, RepairedFile, after};
use base::KeyRange;
use manifest::{
    KeyspaceEntry, KeyspaceKind, LivePiece, LiveTable, ManifestState, TableEntry, ValuesEntry,
    range_of, salvage_state,
};
use tree::StoreDictionaries;

/// What can be said of the store without its manifest.
pub(super) fn rebuild(
    medium: &Arc<dyn Medium>,
    account: &Account,
    report: &mut RepairReport,
) -> Result<FoundManifest> {
    let files = medium.list()?;
    let store = store_of(&**medium, &files, account)?;
    let (number, old) = salvage_state(&**medium, store)?;
    let (intact, unreadable) = open_all(medium, store, &files, account)?;
    let mut state = ManifestState { tables_below: highest(&files), ..old.clone() };
    state.tables_below = state.tables_below.max(old.tables_below);
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
        let entry = keyspace_entry(&mut state, keyspace);
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
            // Salvaged as any damaged table.
            Some((keyspace, live)) => {
                place(keyspace_entry(&mut state, *keyspace), (**live).clone())
            }
            None => nobodys(id, error, report),
        }
    }
    // A table that merges had replaced would have been named by the lost part of the manifest, as would the
    // place of one that was ingested.
    merged.sort();
    merged.dedup();
    let name = |id: &KeyspaceId| state.keyspaces.get(id).map(|entry| entry.name.clone());
    report.uncertain = merged.iter().filter_map(name).collect();
    dictionaries(&mut state, &intact, &files);
    Ok(FoundManifest { store, state, number })
}

/// A table that can be opened.
struct Intact {
    properties: Properties,
    file_bytes: u64,
    digest: u64,
}

/// The store whose files these are: the one that most tables, or log segments, name.
fn store_of(medium: &dyn Medium, files: &[Listing], account: &Account) -> Result<StoreId> {
    let mut votes: BTreeMap<u128, usize> = BTreeMap::new();
    for file in files {
        let mut seen = None;
        // What cannot be read has no vote.
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
            // A newer build wrote it.
            Err(error) if error.kind() == ErrorKind::Invalid => return Err(error),
            Err(error) => unreadable.push((id, error)),
        }
    }
    Ok((intact, unreadable))
}

/// Whether an ingested table does not say what was written before it: one of an older version.
fn is_of_unknown_age(properties: &Properties) -> bool {
    properties.seqno_max == Seqno::ZERO && properties.written_after == Seqno::ZERO
}

/// The sequence number after which a table was written: its own highest; of an ingested one, which
/// has none, the one that it says, or the highest of the tables that were begun before it.
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
    LiveTable { entry: Arc::new(entry), pieces: vec![piece], damaged: false }
}

/// Puts a table above all that it overlaps.
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

/// The keyspace `id`, called `recovered-<id>` where its name is lost.
fn keyspace_entry(state: &mut ManifestState, id: KeyspaceId) -> &mut KeyspaceEntry {
    state.keyspaces_below = state.keyspaces_below.max(KeyspaceId(id.0.saturating_add(1)));
    let new = || {
        let (flushed_below, ingested) = (Seqno::ZERO, Seqno::ZERO);
        let (tables, values, dictionaries, operator) = Default::default();
        let (name, kind) = (format!("recovered-{id}"), KeyspaceKind::Ordered);
        Arc::new(KeyspaceEntry {
            name,
            kind,
            flushed_below,
            ingested,
            tables,
            values,
            dictionaries,
            operator,
        })
    };
    Arc::make_mut(state.keyspaces.entry(id).or_insert_with(new))
}

/// Tells of a table that cannot be opened and that nothing assigns to a keyspace.
fn nobodys(id: TableId, error: Error, report: &mut RepairReport) {
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

/// Table ids below this one may be in use.
pub(super) fn highest(files: &[Listing]) -> TableId {
    let ids = files.iter().filter_map(|file| {
        let name = file.name.split_inclusive(".table").next().unwrap_or_default();
        parse_file_name(name).or_else(|| table::parse_values_file_name(&file.name))
    });
    TableId(ids.map(|id| id.0.saturating_add(1)).max().unwrap_or_default())
}

/// Dictionaries belong to the keyspace whose tables name them.
fn dictionaries(state: &mut ManifestState, intact: &BTreeMap<TableId, Intact>, files: &[Listing]) {
    for Intact { properties, .. } in intact.values() {
        for id in &properties.dictionaries {
            if !state.has_dictionary(*id) {
                keyspace_entry(state, properties.keyspace).dictionaries.push(*id);
            }
        }
    }
    let ids = files.iter().filter_map(|file| Dictionary::parse_file_name(&file.name));
    state.last_dictionary = ids.max().unwrap_or_default().max(state.last_dictionary);
}

/// Counts anew what tables point into. Of a file that cannot be read nothing is known: its values are
/// told to be lost by whoever reads them.
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
