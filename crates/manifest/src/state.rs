//! The state that a manifest's edits add up to.
//!
//! Every append copies the state, so that a failed append changes nothing. Keyspaces and tables are shared
//! between copies: a copy and a change of one keyspace with 5,000 tables costs 5,000 pointers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::limits::KEYSPACES_MAX;
use base::{
    DictionaryId, KeyspaceId, LaneId, LineageId, Result, SegmentId, Seqno, StoreId, TableId,
};
use table::{Dictionary, file_name, values_file_name};

use crate::keyspace::{KeyspaceEntry, LiveTable, LiveValues, check_run, contradiction};
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
    /// How far the log was durable when that was last recorded.
    pub log_reached: Option<wal::Reached>,
    /// The place of the log.
    pub log_place: wal::LogPlace,
    /// The lineage that the store began as a copy of another; `None` if it was created.
    pub lineage: Option<LineageId>,
    /// How often the store was about to use its prefix of the object store; 0: never.
    pub cold_opened: u64,
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
            Edit::TableCold { keyspace, table, file } => {
                self.entry(keyspace)?.move_to_cold(table, file)
            }
            Edit::TableDamaged { keyspace, table } => self.entry(keyspace)?.quarantine(table),
            Edit::Flushed { keyspace, below } => self.entry(keyspace)?.raise_flushed(below),
            Edit::Ingested { keyspace, last } => {
                let entry = self.entry(keyspace)?;
                entry.ingested = entry.ingested.max(last);
                Ok(())
            }
            Edit::KeyspaceOperator { keyspace, name } => self.entry(keyspace)?.set_operator(name),
            Edit::KeyspaceTables { keyspace, options } => {
                self.entry(keyspace)?.table_options = options;
                Ok(())
            }
            Edit::DictionaryAdded { keyspace, dictionary } => {
                self.add_dictionary(keyspace, dictionary)
            }
            Edit::DictionaryIdsUsed { last } => self.use_dictionary_ids(last),
            Edit::TableIdsReserved { below } => self.reserve_table_ids(below),
            Edit::LogBegins { lane, segment } => self.begin_log(lane, segment),
            Edit::LogReached { reached } => self.reach_log(reached),
            Edit::LogPlaced { place } => {
                self.log_place = place;
                // The recorded point was one of the log that is given up.
                self.log_reached = None;
                Ok(())
            }
            Edit::ColdOpened { number } => {
                self.cold_opened = self.cold_opened.max(number);
                Ok(())
            }
            Edit::LineageBegan { lineage } => {
                self.lineage = Some(lineage);
                Ok(())
            }
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

    /// Checks that no id used in `before` is free in this state, and that neither its clock nor a bound
    /// of its log went back.
    ///
    /// # Errors
    /// `Poisoned` if one did.
    pub(crate) fn check_successor_of(&self, before: &Self) -> Result<()> {
        let keeps_ids = self.tables_below >= before.tables_below
            && self.keyspaces_below >= before.keyspaces_below
            && self.last_dictionary >= before.last_dictionary;
        let is_later = self.clock_ms >= before.clock_ms
            && before.log_start.iter().all(|(lane, segment)| self.log_start.of(lane) >= segment)
            && (before.log_place != self.log_place
                || before.log_reached.is_none_or(|it| self.log_reaches(&it)));
        if !keeps_ids {
            return Err(base::broken_invariant!("an edit frees no id that was used"));
        }
        if !is_later {
            return Err(base::broken_invariant!(
                "an edit moves neither the clock nor the bounds of the log back"
            ));
        }
        base::invariant!(
            before.lineage.is_none() || self.lineage == before.lineage,
            "a store keeps its lineage"
        );
        for (id, entry) in &self.keyspaces {
            let old = before.keyspaces.get(id);
            if old.is_some_and(|old| Arc::ptr_eq(old, entry)) {
                continue;
            }
            base::invariant!(*id < self.keyspaces_below, "the id of a keyspace is a used one");
            debug_assert!(
                entry.counts_its_values(),
                "a value file counts the tables that point into it, and their bytes"
            );
            if let Some(old) = old {
                base::invariant!(
                    entry.flushed_below >= old.flushed_below && entry.ingested >= old.ingested,
                    "what is flushed or ingested stays so (I9)"
                );
                base::invariant!(
                    entry.name == old.name && entry.kind == old.kind,
                    "a keyspace keeps its name and kind"
                );
            }
        }
        Ok(())
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
        let entry = KeyspaceEntry::new(name, kind);
        self.keyspaces.insert(keyspace, Arc::new(entry));
        Ok(())
    }

    fn add_values(&mut self, keyspace: KeyspaceId, values: ValuesEntry) -> Result<()> {
        let id = values.id;
        if id >= self.tables_below || self.has_table(id) || self.has_values(id) {
            return Err(contradiction("a reserved, new id", format_args!("values {id}")));
        }
        self.entry(keyspace)?.values.insert(id, LiveValues::unused(values));
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

    /// Whether the log is known to have been durable up to `point`.
    pub(crate) fn log_reaches(&self, point: &wal::Reached) -> bool {
        self.log_reached.is_some_and(|known| known.sequence >= point.sequence)
    }

    fn reach_log(&mut self, reached: wal::Reached) -> Result<()> {
        // As for the first segment. A lane has fewer records than it has bytes.
        if reached.segment.0 > u64::MAX / 2 || reached.sequence > u64::MAX / 2 {
            let got = format_args!("record {} of segment {}", reached.sequence, reached.segment);
            return Err(contradiction("records that were written", got));
        }
        if !self.log_reaches(&reached) {
            self.log_reached = Some(reached);
        }
        base::invariant!(
            self.log_reaches(&reached),
            "the state keeps the farthest point that the log reached"
        );
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

    /// Returns the lineage of the store with this state and the id `store`.
    pub fn lineage_of(&self, store: StoreId) -> LineageId {
        self.lineage.unwrap_or(LineageId::of_origin(store))
    }

    /// Returns the highest sequence number that the tables account for. No later write may have it.
    pub fn floor(&self) -> Seqno {
        self.highest(|_| true)
    }

    /// Returns the highest sequence number that the log must reach. A window's tables may have writes that no
    /// log had.
    fn logged(&self) -> Seqno {
        self.highest(|kind| !kind.is_window())
    }

    /// The highest sequence number of flushed writes of any keyspace, and of table entries of the keyspaces
    /// whose kind `counts` accepts.
    fn highest(&self, counts: impl Fn(&KeyspaceKind) -> bool) -> Seqno {
        let highest = self.keyspaces.values().flat_map(|entry| {
            let tables = entry.tables.values().filter(|_| counts(&entry.kind));
            tables.map(|table| table.entry.seqno_max).chain([entry.flushed_below.before()])
        });
        highest.max().unwrap_or(Seqno::ZERO)
    }

    /// What the manifest knows of the log.
    pub fn known_log(&self) -> wal::Known {
        let (start, logged) = (self.log_start.clone(), self.logged());
        let has_keyspaces = self.keyspaces_below > KeyspaceId::default();
        let (reached, lanes) = (self.log_reached, self.log_place.lanes());
        wal::Known { start, logged, has_keyspaces, reached, lanes }
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

    /// Returns the cold tables: the name that each has as a local file, its length in bytes, and the file of
    /// the object store with its content.
    pub fn cold_tables(&self) -> impl Iterator<Item = (TableId, u64, &Arc<str>)> {
        let tables = self.keyspaces.values().flat_map(|entry| entry.tables.values());
        tables.filter_map(|table| {
            Some((table.entry.id, table.entry.file_bytes, table.cold.as_ref()?))
        })
    }

    /// Whether the table `id` is cold.
    pub fn is_cold(&self, id: TableId) -> bool {
        let mut tables = self.keyspaces.values().filter_map(|entry| entry.tables.get(&id));
        tables.any(|table| table.cold.is_some())
    }

    /// Makes every table a local one, as in a copy that has their content and no prefix in an object store.
    pub fn warm_all(&mut self) {
        self.cold_opened = 0;
        for entry in self.keyspaces.values_mut() {
            if entry.tables.values().any(|table| table.cold.is_some()) {
                for table in Arc::make_mut(entry).tables.values_mut() {
                    Arc::make_mut(table).cold = None;
                }
            }
        }
        debug_assert!(self.cold_tables().next().is_none(), "a copy names no object");
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
        if self.log_place.is_on_devices() {
            edits.push(Edit::LogPlaced { place: self.log_place.clone() });
        }
        edits.extend(self.log_reached.map(|reached| Edit::LogReached { reached }));
        if self.cold_opened > 0 {
            edits.push(Edit::ColdOpened { number: self.cold_opened });
        }
        edits.extend(self.lineage.map(|lineage| Edit::LineageBegan { lineage }));
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
