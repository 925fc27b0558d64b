//! The state of one keyspace: its tables, with their valid pieces, and its files. `ManifestState::apply`
//! changes it, one edit at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{DictionaryId, Error, KeyRange, KeyspaceId, Result, RunId, Seqno, TableId};

use crate::{Edit, KeyspaceKind, TableEntry, TableOptions, ValuesEntry};

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
    /// How new tables are written.
    pub table_options: TableOptions,
}

impl KeyspaceEntry {
    /// A keyspace without data.
    #[must_use]
    pub const fn new(name: String, kind: KeyspaceKind) -> Self {
        Self {
            name,
            kind,
            flushed_below: Seqno::ZERO,
            ingested: Seqno::ZERO,
            tables: BTreeMap::new(),
            values: BTreeMap::new(),
            dictionaries: Vec::new(),
            operator: None,
            table_options: TableOptions { codec: None, level: None, filter_bits: None },
        }
    }
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
    /// The file of the object store with the content of a cold table; none of a local one.
    pub cold: Option<Arc<str>>,
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
    pub(crate) fn whole(entry: Arc<TableEntry>) -> Arc<Self> {
        let TableEntry { range, run, level, .. } = &*entry;
        let pieces = vec![LivePiece { range: range.clone(), run: *run, level: *level }];
        Arc::new(Self { entry, pieces, damaged: false, cold: None })
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
        Self { pieces, ..self.clone() }
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
        if let Some(file) = self.cold.clone() {
            edits.push(Edit::TableCold { keyspace, table, file });
        }
        if self.damaged {
            edits.push(Edit::TableDamaged { keyspace, table });
        }
    }
}

impl LiveValues {
    /// A value file that no table points into yet.
    pub(crate) const fn unused(entry: ValuesEntry) -> Self {
        Self { entry, tables: 0, live_bytes: 0 }
    }
}

impl KeyspaceEntry {
    /// Appends the edits that build this keyspace from nothing.
    pub(crate) fn push_edits(&self, keyspace: KeyspaceId, edits: &mut Vec<Edit>) {
        let (kind, name) = (self.kind.clone(), self.name.clone());
        edits.push(Edit::KeyspaceCreated { keyspace, kind, name });
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
        if self.table_options != TableOptions::default() {
            let options = self.table_options;
            edits.push(Edit::KeyspaceTables { keyspace, options });
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
                LiveValues::unused(entry)
            });
            live.tables += 1;
            live.live_bytes = live.live_bytes.saturating_add(*bytes);
        }
    }

    /// Counts `table` among those that point into its value files.
    pub(crate) fn count_values(&mut self, table: &TableEntry) -> Result<()> {
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

    /// Whether each value file counts exactly the tables that point into it, and their bytes.
    pub(crate) fn counts_its_values(&self) -> bool {
        let mut used: BTreeMap<TableId, (usize, u64)> = BTreeMap::new();
        let pointers = self.tables.values().flat_map(|table| &table.entry.values);
        for (file, bytes) in pointers {
            let (tables, all) = used.entry(*file).or_default();
            (*tables, *all) = (*tables + 1, all.saturating_add(*bytes));
        }
        let is_counted = |(file, live): (&TableId, &LiveValues)| {
            used.get(file).copied().unwrap_or_default() == (live.tables, live.live_bytes)
        };
        self.values.iter().all(is_counted) && used.keys().all(|id| self.values.contains_key(id))
    }

    pub(crate) fn remove_table(&mut self, id: TableId) -> Result<()> {
        let removed = self.tables.remove(&id).ok_or_else(|| unknown_table(id))?;
        self.uncount_values(&removed.entry);
        Ok(())
    }

    pub(crate) fn cut_table(&mut self, id: TableId, range: &KeyRange) -> Result<()> {
        let rest = table_in_range(&self.tables, id, range)?.without(range);
        if rest.pieces.is_empty() {
            self.tables.remove(&id);
            self.uncount_values(&rest.entry);
        } else {
            self.tables.insert(id, Arc::new(rest));
        }
        Ok(())
    }

    pub(crate) fn move_table(
        &mut self,
        id: TableId,
        range: &KeyRange,
        run: RunId,
        level: u8,
    ) -> Result<()> {
        check_run(run)?;
        let mut moved = LiveTable::clone(table_in_range(&self.tables, id, range)?);
        for piece in moved.pieces.iter_mut().filter(|piece| range.covers(&piece.range)) {
            (piece.run, piece.level) = (run, level);
        }
        base::invariant!(
            moved.pieces.iter().all(|piece| moved.entry.range.covers(&piece.range)),
            "the pieces of a table lie within its keys"
        );
        self.tables.insert(id, Arc::new(moved));
        Ok(())
    }

    pub(crate) fn quarantine(&mut self, id: TableId) -> Result<()> {
        let table = self.tables.get_mut(&id).ok_or_else(|| unknown_table(id))?;
        Arc::make_mut(table).damaged = true;
        Ok(())
    }

    pub(crate) fn move_to_cold(&mut self, id: TableId, file: Arc<str>) -> Result<()> {
        let table = self.tables.get_mut(&id).ok_or_else(|| unknown_table(id))?;
        if file.is_empty() || table.cold.is_some() {
            return Err(contradiction("a local table", format_args!("{id}, now `{file}`")));
        }
        Arc::make_mut(table).cold = Some(file);
        Ok(())
    }

    pub(crate) fn raise_flushed(&mut self, below: Seqno) -> Result<()> {
        if below < self.flushed_below {
            return Err(contradiction(
                "a rising flushed sequence number",
                format_args!("{below} after {}", self.flushed_below),
            ));
        }
        self.flushed_below = below;
        Ok(())
    }

    pub(crate) fn set_operator(&mut self, name: String) -> Result<()> {
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
        let run = above.unwrap_or_else(|| RunId(blocked.map_or(1, |run| run.0 + 1)));
        debug_assert!(
            pieces().all(|piece| piece.run < run || !piece.range.overlaps(range)),
            "the newest run with room lies above every table of the same keys (I4)"
        );
        run
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
pub(crate) fn check_run(run: RunId) -> Result<()> {
    if run.0 > u64::MAX / 2 {
        return Err(contradiction("a run that was used", format_args!("{run}")));
    }
    Ok(())
}

fn unknown_table(id: TableId) -> Error {
    contradiction("a table of the keyspace", format_args!("{id}"))
}

pub(crate) fn contradiction(expected: &'static str, got: std::fmt::Arguments<'_>) -> Error {
    Error::corrupt("manifest edit").expected(expected).got(got)
}
