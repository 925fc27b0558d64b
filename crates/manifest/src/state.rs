//! The state that the manifest's edits add up to.
//!
//! Copied for every append, so that a failed one changes nothing: keyspaces and tables are shared,
//! and a copy of one with 5,000 tables costs their pointers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::limits::KEYSPACES_MAX;
use base::{DictionaryId, Error, KeyRange, KeyspaceId, Result, RunId, Seqno, TableId};
use table::{Dictionary, file_name, values_file_name};

use crate::{Edit, KeyspaceKind, ScrubPosition, TableEntry, ValuesEntry};

/// Which keyspaces and tables exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestState {
    pub keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceEntry>>,
    /// Keyspace ids below this one are used or were.
    pub keyspaces_below: KeyspaceId,
    /// Table ids below this one may have been used.
    pub tables_below: TableId,
    /// The highest dictionary id in use or used before; 0 where there was none.
    pub last_dictionary: DictionaryId,
    /// The latest time anyone was told, Unix milliseconds.
    pub clock_ms: u64,
    /// How far scrubbing is.
    pub scrub: ScrubPosition,
    /// Where the log begins.
    pub log_start: wal::Start,
}

/// One keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceEntry {
    pub name: String,
    pub kind: KeyspaceKind,
    /// Every write below this sequence number is in the tables.
    pub flushed_below: Seqno,
    /// The highest number of an ingest; zero where there was none.
    pub ingested: Seqno,
    pub tables: BTreeMap<TableId, Arc<LiveTable>>,
    /// The value files that tables point into.
    pub values: BTreeMap<TableId, LiveValues>,
    /// Oldest first; new tables use the last.
    pub dictionaries: Vec<DictionaryId>,
    /// What merges its operands.
    pub operator: Option<String>,
}

/// A table that holds keys of its keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTable {
    pub entry: Arc<TableEntry>,
    /// The ranges in which its keys count, ascending and disjoint, none of them empty; at least
    /// one. The rest was merged into other tables.
    pub pieces: Vec<LivePiece>,
    /// Damage was met in it.
    pub damaged: bool,
}

/// A value file, and what points into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveValues {
    pub entry: ValuesEntry,
    /// How many tables point into it.
    tables: usize,
    /// The bytes of its values that tables point at, by each table's own count.
    pub live_bytes: u64,
}

/// A part of a table, or all of it, and where in the tree it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivePiece {
    pub range: KeyRange,
    pub run: RunId,
    pub level: u8,
}

impl LiveTable {
    /// All of a table, where it was first put.
    fn whole(entry: Arc<TableEntry>) -> Arc<Self> {
        let TableEntry { range, run, level, .. } = &*entry;
        let pieces = vec![LivePiece { range: range.clone(), run: *run, level: *level }];
        Arc::new(Self { entry, pieces, damaged: false })
    }

    /// Without the keys in `cut`.
    fn without(&self, cut: &KeyRange) -> Self {
        let left = self.pieces.iter().flat_map(|piece| {
            let part = |range| LivePiece { range, ..piece.clone() };
            piece.range.subtract(cut).into_iter().map(part)
        });
        Self { entry: Arc::clone(&self.entry), pieces: left.collect(), damaged: self.damaged }
    }

    pub fn overlaps(&self, range: &KeyRange) -> bool {
        self.pieces.iter().any(|piece| piece.range.overlaps(range))
    }

    /// The edits that make it from nothing.
    fn edits(&self, keyspace: KeyspaceId, edits: &mut Vec<Edit>) {
        let entry = Arc::clone(&self.entry);
        let table = entry.id;
        let whole = vec![entry.range.clone()];
        let cuts = self.pieces.iter().fold(whole, |cuts, piece| {
            cuts.iter().flat_map(|cut| cut.subtract(&piece.range)).collect()
        });
        let cut = |range| Edit::TableCut { keyspace, table, range };
        edits.extend(cuts.into_iter().map(cut));
        for LivePiece { range, run, level } in &self.pieces {
            if (*run, *level) != (entry.run, entry.level) {
                let (range, run, level) = (range.clone(), *run, *level);
                edits.push(Edit::TableMoved { keyspace, table, range, run, level });
            }
        }
        if self.damaged {
            edits.push(Edit::TableDamaged { keyspace, table });
        }
    }
}

impl ManifestState {
    /// Applies one edit.
    ///
    /// # Errors
    /// `Corrupt` where it contradicts the state: bytes from outside may say anything.
    pub fn apply(&mut self, edit: Edit) -> Result<()> {
        match edit {
            Edit::KeyspaceCreated { keyspace, kind, name } => {
                let duplicate = self.keyspaces.values().any(|entry| entry.name == name);
                if keyspace < self.keyspaces_below || duplicate {
                    return Err(contradiction(
                        "a new keyspace",
                        format_args!("{keyspace} `{name}`"),
                    ));
                }
                if self.keyspaces.len() >= KEYSPACES_MAX || keyspace.0 == u32::MAX {
                    return Err(contradiction("at most 1024 keyspaces", format_args!("`{name}`")));
                }
                self.keyspaces_below = KeyspaceId(keyspace.0 + 1);
                let (flushed_below, ingested) = (Seqno::ZERO, Seqno::ZERO);
                let (tables, values, dictionaries, operator) = Default::default();
                let entry = KeyspaceEntry {
                    name,
                    kind,
                    flushed_below,
                    ingested,
                    tables,
                    values,
                    dictionaries,
                    operator,
                };
                self.keyspaces.insert(keyspace, Arc::new(entry));
            }
            Edit::KeyspaceDropped { keyspace } => {
                self.entry(keyspace)?;
                self.keyspaces.remove(&keyspace);
            }
            Edit::TableAdded { keyspace, table } => self.add_table(keyspace, table)?,
            Edit::ValuesAdded { keyspace, values } => {
                let id = values.id;
                if id >= self.tables_below || self.has_table(id) || self.has_values(id) {
                    return Err(contradiction("a reserved, new id", format_args!("values {id}")));
                }
                let live = LiveValues { entry: values, tables: 0, live_bytes: 0 };
                self.entry(keyspace)?.values.insert(id, live);
            }
            Edit::TableRemoved { keyspace, table } => {
                let entry = self.entry(keyspace)?;
                let Some(removed) = entry.tables.remove(&table) else {
                    return Err(contradiction("a table of the keyspace", format_args!("{table}")));
                };
                entry.let_values_go(&removed.entry);
            }
            Edit::TableCut { keyspace, table, range } => {
                let entry = self.entry(keyspace)?;
                let left = holding(&entry.tables, table, &range)?.without(&range);
                if left.pieces.is_empty() {
                    entry.tables.remove(&table);
                    entry.let_values_go(&left.entry);
                } else {
                    entry.tables.insert(table, Arc::new(left));
                }
            }
            Edit::TableMoved { keyspace, table, range, run, level } => {
                let tables = &mut self.entry(keyspace)?.tables;
                let mut moved = LiveTable::clone(holding(tables, table, &range)?);
                for piece in moved.pieces.iter_mut().filter(|piece| range.covers(&piece.range)) {
                    (piece.run, piece.level) = (run, level);
                }
                tables.insert(table, Arc::new(moved));
            }
            Edit::Flushed { keyspace, below } => {
                let entry = self.entry(keyspace)?;
                if below < entry.flushed_below {
                    return Err(contradiction(
                        "a rising flushed sequence number",
                        format_args!("{below} after {}", entry.flushed_below),
                    ));
                }
                entry.flushed_below = below;
            }
            Edit::DictionaryAdded { keyspace, dictionary } => {
                let mut known = self.keyspaces.values().flat_map(|entry| &entry.dictionaries);
                if matches!(dictionary.0, 0 | u32::MAX) || known.any(|old| *old == dictionary) {
                    return Err(contradiction("a new dictionary", format_args!("{dictionary}")));
                }
                self.entry(keyspace)?.dictionaries.push(dictionary);
                self.last_dictionary = self.last_dictionary.max(dictionary);
            }
            Edit::Ingested { keyspace, last } => {
                let entry = self.entry(keyspace)?;
                entry.ingested = entry.ingested.max(last);
            }
            Edit::TableDamaged { keyspace, table } => {
                let Some(live) = self.entry(keyspace)?.tables.get_mut(&table) else {
                    return Err(contradiction("a table of the keyspace", format_args!("{table}")));
                };
                Arc::make_mut(live).damaged = true;
            }
            Edit::Scrubbed(position) => self.scrub = position,
            Edit::LogBegins { lane, segment } => {
                // Ids grow by one with every segment: there always is one more.
                if segment.0 > u64::MAX / 2 {
                    return Err(contradiction("a segment that was", format_args!("{segment}")));
                }
                self.log_start.raise(lane, segment);
            }
            Edit::ClockReached { unix_ms } => self.clock_ms = self.clock_ms.max(unix_ms),
            Edit::KeyspaceOperator { keyspace, name } => {
                let entry = self.entry(keyspace)?;
                if name.is_empty() || entry.operator.as_ref().is_some_and(|known| *known != name) {
                    return Err(contradiction("one merge operator", format_args!("`{name}`")));
                }
                entry.operator = Some(name);
            }
            Edit::DictionaryIdsUsed { last } => {
                if last.0 == u32::MAX {
                    return Err(contradiction(
                        "a dictionary id below the last",
                        format_args!("{last}"),
                    ));
                }
                self.last_dictionary = self.last_dictionary.max(last);
            }
            Edit::TableIdsReserved { below } => {
                // Ids are reserved in steps: there is always one more.
                if below.0 > u64::MAX / 2 {
                    return Err(contradiction("table ids that were used", format_args!("{below}")));
                }
                self.tables_below = self.tables_below.max(below);
            }
        }
        Ok(())
    }

    fn add_table(&mut self, keyspace: KeyspaceId, table: Arc<TableEntry>) -> Result<()> {
        let id = table.id;
        if table.range.is_empty() || table.seqno_min > table.seqno_max {
            return Err(contradiction("ordered bounds", format_args!("table {id}")));
        }
        if id >= self.tables_below || self.has_table(id) || self.has_values(id) {
            return Err(contradiction("a reserved, new id", format_args!("table {id}")));
        }
        let keyspace = self.entry(keyspace)?;
        let mut table = table;
        if table.run == TableEntry::UNPLACED {
            let run = keyspace.place_newest(&table.range);
            Arc::make_mut(&mut table).run = run;
        }
        keyspace.take_values(&table)?;
        keyspace.ingested = keyspace.ingested.max(table.seqno.unwrap_or_default());
        keyspace.tables.insert(id, LiveTable::whole(table));
        Ok(())
    }

    fn entry(&mut self, keyspace: KeyspaceId) -> Result<&mut KeyspaceEntry> {
        self.keyspaces
            .get_mut(&keyspace)
            .map(Arc::make_mut)
            .ok_or_else(|| contradiction("a keyspace that exists", format_args!("{keyspace}")))
    }

    /// The highest sequence number that the tables account for: the log must reach it.
    pub fn floor(&self) -> Seqno {
        let highest = self.keyspaces.values().flat_map(|entry| {
            let tables = entry.tables.values().map(|table| table.entry.seqno_max);
            tables.chain([entry.flushed_below.before()])
        });
        highest.max().unwrap_or(Seqno::ZERO)
    }

    /// Every write below this sequence number is in tables, as far as its keyspace is there.
    pub fn flushed_below(&self) -> Seqno {
        let below = self.keyspaces.values().map(|entry| entry.flushed_below);
        below.min().unwrap_or(Seqno::ZERO)
    }

    /// Whether a keyspace uses this dictionary.
    pub fn has_dictionary(&self, id: DictionaryId) -> bool {
        self.keyspaces.values().any(|entry| entry.dictionaries.contains(&id))
    }

    /// Whether a keyspace has this table.
    pub fn has_table(&self, id: TableId) -> bool {
        self.keyspaces.values().any(|entry| entry.tables.contains_key(&id))
    }

    /// Whether a table points into this value file.
    pub fn has_values(&self, id: TableId) -> bool {
        self.keyspaces.values().any(|entry| entry.values.contains_key(&id))
    }

    /// The files that must be there, manifest and log apart.
    pub fn files(&self) -> BTreeSet<String> {
        let entries = self.keyspaces.values();
        entries
            .flat_map(|entry| {
                let tables = entry.tables.keys().map(|table| file_name(*table));
                let values = entry.values.keys().map(|file| values_file_name(*file));
                let dictionaries = entry.dictionaries.iter().map(|id| Dictionary::file_name(*id));
                tables.chain(values).chain(dictionaries)
            })
            .collect()
    }

    /// The edits that make this state from nothing.
    pub fn edits(&self) -> Vec<Edit> {
        let mut edits = vec![
            Edit::TableIdsReserved { below: self.tables_below },
            Edit::DictionaryIdsUsed { last: self.last_dictionary },
        ];
        if self.clock_ms > 0 {
            edits.push(Edit::ClockReached { unix_ms: self.clock_ms });
        }
        if self.scrub.began_ms > 0 {
            edits.push(Edit::Scrubbed(self.scrub));
        }
        edits.extend(Edit::log_begins(&self.log_start));
        for (id, entry) in &self.keyspaces {
            let KeyspaceEntry { name, kind, ingested, flushed_below, .. } = &**entry;
            let KeyspaceEntry { tables, values, dictionaries, operator, .. } = &**entry;
            let keyspace = *id;
            edits.push(Edit::KeyspaceCreated { keyspace, kind: *kind, name: name.clone() });
            for LiveValues { entry, .. } in values.values() {
                edits.push(Edit::ValuesAdded { keyspace, values: *entry });
            }
            for table in tables.values() {
                edits.push(Edit::TableAdded { keyspace, table: Arc::clone(&table.entry) });
                table.edits(keyspace, &mut edits);
            }
            let used = |dictionary: &DictionaryId| Edit::DictionaryAdded {
                keyspace,
                dictionary: *dictionary,
            };
            edits.extend(dictionaries.iter().map(used));
            if let Some(name) = operator.clone() {
                edits.push(Edit::KeyspaceOperator { keyspace, name });
            }
            edits.push(Edit::Flushed { keyspace, below: *flushed_below });
            if *ingested > Seqno::ZERO {
                edits.push(Edit::Ingested { keyspace, last: *ingested });
            }
        }
        // Ids of keyspaces dropped since stay used: the highest one is created and dropped again.
        let highest = self.keyspaces.last_key_value().map_or(0, |(id, _)| id.0 + 1);
        if let Some(gone) =
            self.keyspaces_below.0.checked_sub(1).filter(|_| highest < self.keyspaces_below.0)
        {
            let keyspace = KeyspaceId(gone);
            let name = format!("\u{0}dropped {gone}");
            edits.push(Edit::KeyspaceCreated { keyspace, kind: KeyspaceKind::Ordered, name });
            edits.push(Edit::KeyspaceDropped { keyspace });
        }
        edits
    }
}

impl KeyspaceEntry {
    /// Counts anew what tables point into, where they were changed otherwise than by edits. `read`
    /// tells what there is of a value file that was not known.
    pub fn recount_values(&mut self, mut read: impl FnMut(TableId) -> ValuesEntry) {
        let known = std::mem::take(&mut self.values);
        for (file, bytes) in self.tables.values().flat_map(|table| &table.entry.values) {
            let live = self.values.entry(*file).or_insert_with(|| {
                let entry = known.get(file).map(|live| live.entry);
                let entry = entry.unwrap_or_else(|| read(*file));
                LiveValues { entry, tables: 0, live_bytes: 0 }
            });
            live.tables += 1;
            live.live_bytes = live.live_bytes.saturating_add(*bytes);
        }
    }

    /// Counts `table` among those that point into its value files.
    fn take_values(&mut self, table: &TableEntry) -> Result<()> {
        for (file, bytes) in &table.values {
            let live = self.values.get_mut(file).ok_or_else(|| {
                let expected = "value files that there are";
                contradiction(expected, format_args!("{file}, table {}", table.id))
            })?;
            live.tables += 1;
            live.live_bytes = live.live_bytes.saturating_add(*bytes);
        }
        Ok(())
    }

    /// `table` is gone, and with it the value files that nothing else points into.
    fn let_values_go(&mut self, table: &TableEntry) {
        for (file, bytes) in &table.values {
            let Some(live) = self.values.get_mut(file) else { continue };
            live.tables -= 1;
            live.live_bytes = live.live_bytes.saturating_sub(*bytes);
            if live.tables == 0 {
                self.values.remove(file);
            }
        }
    }

    /// The run for a table that is newer than all others: just above the newest run with a table
    /// that it overlaps.
    pub fn place_newest(&self, range: &KeyRange) -> RunId {
        let pieces = || self.tables.values().flat_map(|table| &table.pieces);
        let overlapping = pieces().filter(|piece| piece.range.overlaps(range));
        let blocked = overlapping.map(|piece| piece.run).max();
        let runs = pieces().map(|piece| piece.run);
        let above = runs.filter(|run| blocked.is_none_or(|blocked| *run > blocked)).min();
        above.unwrap_or_else(|| RunId(blocked.map_or(1, |run| run.0 + 1)))
    }
}

/// The table called `id`, which has keys in `range`.
fn holding<'a>(
    tables: &'a BTreeMap<TableId, Arc<LiveTable>>,
    id: TableId,
    range: &KeyRange,
) -> Result<&'a LiveTable> {
    let found = tables.get(&id).filter(|table| !range.is_empty() && table.overlaps(range));
    let missing =
        || contradiction("a table with keys in the range", format_args!("{range} of {id}"));
    found.map(|table| &**table).ok_or_else(missing)
}

fn contradiction(expected: &'static str, got: std::fmt::Arguments<'_>) -> Error {
    Error::corrupt("manifest edit").expected(expected).got(got)
}
