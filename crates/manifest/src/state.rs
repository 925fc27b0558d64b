//! The state that a manifest's edits add up to.
//!
//! Every append copies the state, so that a failed append changes nothing. Keyspaces and tables are shared
//! between copies: a copy and a change of one keyspace with 5,000 tables costs 5,000 pointers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::limits::KEYSPACES_MAX;
use base::{
    DictionaryId, Error, KeyRange, KeyspaceId, LaneId, Result, RunId, SegmentId, Seqno, TableId,
};
use table::{Dictionary, file_name, values_file_name};

use crate::{Edit, KeyspaceKind, ScrubPosition, TableEntry, ValuesEntry};

/// The keyspaces, tables and files of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestState {
    /// The keyspaces that exist.
    pub keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceEntry>>,
    /// Keyspace ids below this one are in use or were used.
    pub keyspaces_below: KeyspaceId,
    /// Table ids below this one may have been used.
    pub tables_below: TableId,
    /// The highest dictionary id in use or used before; 0 if there was none.
    pub last_dictionary: DictionaryId,
    /// The latest time read from the store's clock, Unix milliseconds.
    pub clock_ms: u64,
    /// Position of the scrub.
    pub scrub: ScrubPosition,
    /// The first needed segment of each lane of the log.
    pub log_start: wal::Start,
}

/// The state of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceEntry {
    /// Its name, unique in the store.
    pub name: String,
    /// Its kind.
    pub kind: KeyspaceKind,
    /// Every write below this sequence number is in the tables.
    pub flushed_below: Seqno,
    /// The highest sequence number of an ingest; zero if there was none.
    pub ingested: Seqno,
    /// The tables that hold keys of the keyspace.
    pub tables: BTreeMap<TableId, Arc<LiveTable>>,
    /// The value files of the keyspace; tables point into them.
    pub values: BTreeMap<TableId, LiveValues>,
    /// The dictionaries, oldest first. New tables use the last.
    pub dictionaries: Vec<DictionaryId>,
    /// The name of the merge operator, if one was set.
    pub operator: Option<String>,
}

/// A table that holds keys of its keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTable {
    /// The table's stored entry.
    pub entry: Arc<TableEntry>,
    /// The ranges whose keys are valid, ascending and disjoint; at least one, none empty. The rest of the
    /// table was merged into other tables.
    pub pieces: Vec<LivePiece>,
    /// The table is damaged and in quarantine.
    pub damaged: bool,
}

/// A value file, and how much of it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveValues {
    /// The file's stored entry.
    pub entry: ValuesEntry,
    /// Number of tables that point into it.
    tables: usize,
    /// Bytes of its values that tables point to; the sum of the tables' own counts.
    pub live_bytes: u64,
}

/// A piece of a table, and its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivePiece {
    /// The keys of the piece.
    pub range: KeyRange,
    /// The run that the piece belongs to.
    pub run: RunId,
    /// The level of that run.
    pub level: u8,
}

impl LiveTable {
    /// Returns the whole table as one piece, in the run and level of its entry.
    fn whole(entry: Arc<TableEntry>) -> Arc<Self> {
        let TableEntry { range, run, level, .. } = &*entry;
        let pieces = vec![LivePiece { range: range.clone(), run: *run, level: *level }];
        Arc::new(Self { entry, pieces, damaged: false })
    }

    /// Returns the table without the keys in `cut`.
    fn without(&self, cut: &KeyRange) -> Self {
        let rest = self.pieces.iter().flat_map(|piece| {
            let part = |range| LivePiece { range, ..piece.clone() };
            piece.range.subtract(cut).into_iter().map(part)
        });
        let pieces: Vec<_> = rest.collect();
        debug_assert!(
            pieces.windows(2).all(|pair| matches!(pair, [a, b] if a.range.first < b.range.first)),
            "the pieces of a table are ascending"
        );
        Self { entry: Arc::clone(&self.entry), pieces, damaged: self.damaged }
    }

    /// Whether a piece of the table overlaps `range`.
    pub fn overlaps(&self, range: &KeyRange) -> bool {
        self.pieces.iter().any(|piece| piece.range.overlaps(range))
    }

    /// Appends the edits that change a newly added table to this one.
    fn push_edits(&self, keyspace: KeyspaceId, edits: &mut Vec<Edit>) {
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
    /// `Corrupt` if the edit contradicts the state: edits are read from a file, and may say anything.
    pub fn apply(&mut self, edit: Edit) -> Result<()> {
        match edit {
            Edit::KeyspaceCreated { keyspace, kind, name } => {
                self.create_keyspace(keyspace, kind, name)
            }
            Edit::KeyspaceDropped { keyspace } => {
                self.entry(keyspace)?;
                self.keyspaces.remove(&keyspace);
                Ok(())
            }
            Edit::TableAdded { keyspace, table } => self.add_table(keyspace, table),
            Edit::ValuesAdded { keyspace, values } => self.add_values(keyspace, values),
            Edit::TableRemoved { keyspace, table } => self.entry(keyspace)?.remove_table(table),
            Edit::TableCut { keyspace, table, range } => {
                self.entry(keyspace)?.cut_table(table, &range)
            }
            Edit::TableMoved { keyspace, table, range, run, level } => {
                self.entry(keyspace)?.move_table(table, &range, run, level)
            }
            Edit::TableDamaged { keyspace, table } => self.entry(keyspace)?.quarantine(table),
            Edit::Flushed { keyspace, below } => self.entry(keyspace)?.raise_flushed(below),
            Edit::Ingested { keyspace, last } => {
                let entry = self.entry(keyspace)?;
                entry.ingested = entry.ingested.max(last);
                Ok(())
            }
            Edit::KeyspaceOperator { keyspace, name } => self.entry(keyspace)?.set_operator(name),
            Edit::DictionaryAdded { keyspace, dictionary } => {
                self.add_dictionary(keyspace, dictionary)
            }
            Edit::DictionaryIdsUsed { last } => self.use_dictionary_ids(last),
            Edit::TableIdsReserved { below } => self.reserve_table_ids(below),
            Edit::LogBegins { lane, segment } => self.begin_log(lane, segment),
            Edit::Scrubbed(position) => {
                self.scrub = position;
                Ok(())
            }
            Edit::ClockReached { unix_ms } => {
                self.clock_ms = self.clock_ms.max(unix_ms);
                Ok(())
            }
        }
    }

    fn create_keyspace(
        &mut self,
        keyspace: KeyspaceId,
        kind: KeyspaceKind,
        name: String,
    ) -> Result<()> {
        let duplicate = self.keyspaces.values().any(|entry| entry.name == name);
        if keyspace < self.keyspaces_below || duplicate {
            return Err(contradiction("a new keyspace", format_args!("{keyspace} `{name}`")));
        }
        if self.keyspaces.len() >= KEYSPACES_MAX || keyspace.0 == u32::MAX {
            return Err(contradiction("at most 1024 keyspaces", format_args!("`{name}`")));
        }
        self.keyspaces_below = KeyspaceId(keyspace.0 + 1);
        let entry = KeyspaceEntry {
            name,
            kind,
            flushed_below: Seqno::ZERO,
            ingested: Seqno::ZERO,
            tables: BTreeMap::new(),
            values: BTreeMap::new(),
            dictionaries: Vec::new(),
            operator: None,
        };
        self.keyspaces.insert(keyspace, Arc::new(entry));
        Ok(())
    }

    fn add_values(&mut self, keyspace: KeyspaceId, values: ValuesEntry) -> Result<()> {
        let id = values.id;
        if id >= self.tables_below || self.has_table(id) || self.has_values(id) {
            return Err(contradiction("a reserved, new id", format_args!("values {id}")));
        }
        let live = LiveValues { entry: values, tables: 0, live_bytes: 0 };
        self.entry(keyspace)?.values.insert(id, live);
        Ok(())
    }

    fn add_dictionary(&mut self, keyspace: KeyspaceId, dictionary: DictionaryId) -> Result<()> {
        if matches!(dictionary.0, 0 | u32::MAX) || self.has_dictionary(dictionary) {
            return Err(contradiction("a new dictionary", format_args!("{dictionary}")));
        }
        self.entry(keyspace)?.dictionaries.push(dictionary);
        self.last_dictionary = self.last_dictionary.max(dictionary);
        Ok(())
    }

    fn use_dictionary_ids(&mut self, last: DictionaryId) -> Result<()> {
        if last.0 == u32::MAX {
            return Err(contradiction("a dictionary id below the last", format_args!("{last}")));
        }
        self.last_dictionary = self.last_dictionary.max(last);
        Ok(())
    }

    fn reserve_table_ids(&mut self, below: TableId) -> Result<()> {
        // Ids are reserved in steps, so a store never reaches half of the range; the next id always exists.
        if below.0 > u64::MAX / 2 {
            return Err(contradiction("table ids that were used", format_args!("{below}")));
        }
        self.tables_below = self.tables_below.max(below);
        Ok(())
    }

    fn begin_log(&mut self, lane: LaneId, segment: SegmentId) -> Result<()> {
        // Ids grow by one per segment, so a store never reaches half of the range; the next id always exists.
        if segment.0 > u64::MAX / 2 {
            return Err(contradiction("a segment that was written", format_args!("{segment}")));
        }
        self.log_start.raise(lane, segment);
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
        check_run(table.run)?;
        let keyspace = self.entry(keyspace)?;
        let mut table = table;
        if table.run == TableEntry::UNPLACED {
            let run = keyspace.place_newest(&table.range);
            Arc::make_mut(&mut table).run = run;
        }
        keyspace.count_values(&table)?;
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

    /// Returns the highest sequence number that the tables account for. The log must reach it.
    pub fn floor(&self) -> Seqno {
        let highest = self.keyspaces.values().flat_map(|entry| {
            let tables = entry.tables.values().map(|table| table.entry.seqno_max);
            tables.chain([entry.flushed_below.before()])
        });
        highest.max().unwrap_or(Seqno::ZERO)
    }

    /// Returns the sequence number below which every write to an existing keyspace is in tables.
    pub fn flushed_below(&self) -> Seqno {
        let below = self.keyspaces.values().map(|entry| entry.flushed_below);
        below.min().unwrap_or(Seqno::ZERO)
    }

    /// Whether a keyspace uses the dictionary `id`.
    pub fn has_dictionary(&self, id: DictionaryId) -> bool {
        self.keyspaces.values().any(|entry| entry.dictionaries.contains(&id))
    }

    /// Whether a keyspace has the table `id`.
    pub fn has_table(&self, id: TableId) -> bool {
        self.keyspaces.values().any(|entry| entry.tables.contains_key(&id))
    }

    /// Whether the value file `id` exists.
    pub fn has_values(&self, id: TableId) -> bool {
        self.keyspaces.values().any(|entry| entry.values.contains_key(&id))
    }

    /// Returns the names of the files that must exist, other than the manifest and the log.
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

    /// Returns the edits that build this state from nothing.
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
            entry.push_edits(*id, &mut edits);
        }
        // Ids of dropped keyspaces stay used: if the highest used id was dropped, a keyspace with that id is
        // created and dropped again.
        let highest = self.keyspaces.last_key_value().map_or(0, |(id, _)| id.0 + 1);
        if highest < self.keyspaces_below.0 {
            let last = self.keyspaces_below.0 - 1;
            let keyspace = KeyspaceId(last);
            let name = format!("\u{0}dropped {last}");
            edits.push(Edit::KeyspaceCreated { keyspace, kind: KeyspaceKind::Ordered, name });
            edits.push(Edit::KeyspaceDropped { keyspace });
        }
        edits
    }
}

impl KeyspaceEntry {
    /// Appends the edits that build this keyspace from nothing.
    fn push_edits(&self, keyspace: KeyspaceId, edits: &mut Vec<Edit>) {
        edits.push(Edit::KeyspaceCreated { keyspace, kind: self.kind, name: self.name.clone() });
        // Value files precede the tables that point into them.
        for LiveValues { entry, .. } in self.values.values() {
            edits.push(Edit::ValuesAdded { keyspace, values: *entry });
        }
        for table in self.tables.values() {
            edits.push(Edit::TableAdded { keyspace, table: Arc::clone(&table.entry) });
            table.push_edits(keyspace, edits);
        }
        let used = |id: &DictionaryId| Edit::DictionaryAdded { keyspace, dictionary: *id };
        edits.extend(self.dictionaries.iter().map(used));
        if let Some(name) = self.operator.clone() {
            edits.push(Edit::KeyspaceOperator { keyspace, name });
        }
        edits.push(Edit::Flushed { keyspace, below: self.flushed_below });
        if self.ingested > Seqno::ZERO {
            edits.push(Edit::Ingested { keyspace, last: self.ingested });
        }
    }

    /// Rebuilds the counts of live values after tables were changed by other means than edits. `read_entry`
    /// returns the entry of a value file that was unknown.
    pub fn recount_values(&mut self, mut read_entry: impl FnMut(TableId) -> ValuesEntry) {
        let known = std::mem::take(&mut self.values);
        for (file, bytes) in self.tables.values().flat_map(|table| &table.entry.values) {
            let live = self.values.entry(*file).or_insert_with(|| {
                let entry = known.get(file).map(|live| live.entry);
                let entry = entry.unwrap_or_else(|| read_entry(*file));
                LiveValues { entry, tables: 0, live_bytes: 0 }
            });
            live.tables += 1;
            live.live_bytes = live.live_bytes.saturating_add(*bytes);
        }
    }

    /// Counts `table` among those that point into its value files.
    fn count_values(&mut self, table: &TableEntry) -> Result<()> {
        // All are checked before one is counted: salvage continues after an edit that is refused.
        if let Some((file, _)) =
            table.values.iter().find(|(file, _)| !self.values.contains_key(file))
        {
            return Err(contradiction(
                "value files that exist",
                format_args!("{file}, table {}", table.id),
            ));
        }
        for (file, bytes) in &table.values {
            let Some(live) = self.values.get_mut(file) else { continue };
            live.tables += 1;
            live.live_bytes = live.live_bytes.saturating_add(*bytes);
        }
        Ok(())
    }

    /// Uncounts a removed table, and removes the value files that no other table points into.
    fn uncount_values(&mut self, table: &TableEntry) {
        for (file, bytes) in &table.values {
            let live = self.values.get_mut(file).filter(|live| live.tables > 0);
            base::invariant!(
                live.is_some(),
                "a value file exists, and counts a table, while the table points into it"
            );
            let Some(live) = live else { continue };
            live.tables -= 1;
            live.live_bytes = live.live_bytes.saturating_sub(*bytes);
            if live.tables == 0 {
                self.values.remove(file);
            }
        }
    }

    fn remove_table(&mut self, id: TableId) -> Result<()> {
        let removed = self.tables.remove(&id).ok_or_else(|| unknown_table(id))?;
        self.uncount_values(&removed.entry);
        Ok(())
    }

    fn cut_table(&mut self, id: TableId, range: &KeyRange) -> Result<()> {
        let rest = table_in_range(&self.tables, id, range)?.without(range);
        if rest.pieces.is_empty() {
            self.tables.remove(&id);
            self.uncount_values(&rest.entry);
        } else {
            self.tables.insert(id, Arc::new(rest));
        }
        Ok(())
    }

    fn move_table(&mut self, id: TableId, range: &KeyRange, run: RunId, level: u8) -> Result<()> {
        check_run(run)?;
        let mut moved = LiveTable::clone(table_in_range(&self.tables, id, range)?);
        for piece in moved.pieces.iter_mut().filter(|piece| range.covers(&piece.range)) {
            (piece.run, piece.level) = (run, level);
        }
        self.tables.insert(id, Arc::new(moved));
        Ok(())
    }

    fn quarantine(&mut self, id: TableId) -> Result<()> {
        let table = self.tables.get_mut(&id).ok_or_else(|| unknown_table(id))?;
        Arc::make_mut(table).damaged = true;
        Ok(())
    }

    fn raise_flushed(&mut self, below: Seqno) -> Result<()> {
        if below < self.flushed_below {
            return Err(contradiction(
                "a rising flushed sequence number",
                format_args!("{below} after {}", self.flushed_below),
            ));
        }
        self.flushed_below = below;
        Ok(())
    }

    fn set_operator(&mut self, name: String) -> Result<()> {
        if name.is_empty() || self.operator.as_ref().is_some_and(|known| *known != name) {
            return Err(contradiction("one merge operator", format_args!("`{name}`")));
        }
        self.operator = Some(name);
        Ok(())
    }

    /// Returns the run for a table that is newer than all others: the lowest existing run above every run
    /// with a piece that `range` overlaps, or a new run on top.
    pub fn place_newest(&self, range: &KeyRange) -> RunId {
        let pieces = || self.tables.values().flat_map(|table| &table.pieces);
        let overlapping = pieces().filter(|piece| piece.range.overlaps(range));
        let blocked = overlapping.map(|piece| piece.run).max();
        let runs = pieces().map(|piece| piece.run);
        let above = runs.filter(|run| blocked.is_none_or(|blocked| *run > blocked)).min();
        above.unwrap_or_else(|| RunId(blocked.map_or(1, |run| run.0 + 1)))
    }
}

/// Returns the table `id`, which must have keys in `range`.
fn table_in_range<'a>(
    tables: &'a BTreeMap<TableId, Arc<LiveTable>>,
    id: TableId,
    range: &KeyRange,
) -> Result<&'a LiveTable> {
    let found = tables.get(&id).filter(|table| !range.is_empty() && table.overlaps(range));
    let missing =
        || contradiction("a table with keys in the range", format_args!("{range} of {id}"));
    found.map(|table| &**table).ok_or_else(missing)
}

/// Ids of runs grow by one per run, so a store never reaches half of the range; the next id always exists.
fn check_run(run: RunId) -> Result<()> {
    if run.0 > u64::MAX / 2 {
        return Err(contradiction("a run that was used", format_args!("{run}")));
    }
    Ok(())
}

fn unknown_table(id: TableId) -> Error {
    contradiction("a table of the keyspace", format_args!("{id}"))
}

fn contradiction(expected: &'static str, got: std::fmt::Arguments<'_>) -> Error {
    Error::corrupt("manifest edit").expected(expected).got(got)
}
