//! The output tables and value file of a run. Tables are cut between keys, and range deletes are cut with
//! them.
//!
//! Dropped before [`Outputs::finish`], it removes the files it wrote.

use std::ops::Range;
use std::sync::Arc;

use base::{Account, KeyForm, Result, TableId, broken_invariant, invariant};
use bytes::Bytes;
use media::Medium;
use table::{
    BlockEngine, Bounds, Fragment, RangeDeletes, RawBlock, Spec, Summary, ValuesSummary, Writer,
};

use super::env::Env;
use crate::{EntrySums, RetainedVersion, ValueSeparator};

/// The finished tables and the table being written.
pub(super) struct Outputs {
    medium: Arc<dyn Medium>,
    account: Account,
    engine: Option<Arc<dyn BlockEngine>>,
    /// The form of every table; the id is replaced.
    spec: Spec,
    /// How the keyspace stores its keys: as the inputs state it.
    key_form: KeyForm,
    /// The policy of its window: as the inputs state it.
    window: Vec<u8>,
    ids: Range<TableId>,
    table_bytes_max: u64,
    writer: Option<Writer>,
    /// The key at which the current table reached its maximum length: it ends before the next key.
    full_at: Option<Vec<u8>>,
    done: Vec<Summary>,
    /// Moves long values, and live values of collected files, to the value file.
    separator: ValueSeparator,
    values: Option<ValuesSummary>,
    /// The job's hot ranges.
    hot: Arc<[Bounds]>,
    /// The surviving range deletes, and how many of their fragments lie wholly in finished tables.
    range_deletes: RangeDeletes,
    fragments_done: usize,
    /// The sums of entries whose values moved to a value file: of the entries as they were, and as pointers.
    /// `None` if entries are not summed.
    moved: Option<EntrySums>,
    /// First key of the current table; fragments are cut there. `None` in the first table.
    begins_at: Option<Bytes>,
}

impl Outputs {
    pub(super) fn new(
        env: &Env,
        spec: Spec,
        ids: Range<TableId>,
        table_bytes_max: u64,
        separator: ValueSeparator,
    ) -> Self {
        Self {
            medium: Arc::clone(&env.medium),
            account: env.account.clone(),
            engine: env.engine.clone(),
            spec,
            key_form: KeyForm::Plain,
            window: Vec::new(),
            ids,
            table_bytes_max,
            writer: None,
            full_at: None,
            done: Vec::new(),
            separator,
            values: None,
            hot: Arc::default(),
            range_deletes: RangeDeletes::default(),
            fragments_done: 0,
            moved: env.sums_entries.then(EntrySums::default),
            begins_at: None,
        }
    }

    /// The value that pointer entry `stored` of `key` leads to, as the base of operands; `None` if they stay
    /// unmerged.
    pub(super) fn operand_base(&mut self, key: &[u8], stored: &[u8]) -> Result<Option<Bytes>> {
        self.separator.operand_base(key, stored)
    }

    /// Sets the hot ranges (ascending) that tables report pages of. Call it before the first version.
    pub(super) fn set_hot(&mut self, ranges: Arc<[Bounds]>) {
        invariant!(self.writer.is_none(), "hot ranges are set before the first version");
        self.hot = ranges;
    }

    /// States how the keyspace stores its keys, and the policy of its window. Call it before the first
    /// version.
    pub(super) fn set_kind(&mut self, form: KeyForm, window: &[u8]) {
        self.key_form = form;
        self.window = window.to_vec();
    }

    /// Sets the surviving range deletes. Call it before the first version.
    pub(super) fn set_range_deletes(&mut self, range_deletes: RangeDeletes) {
        invariant!(self.writer.is_none(), "range deletes are set before the first version");
        self.range_deletes = range_deletes;
    }

    /// Writes a surviving version.
    #[inline]
    pub(super) fn add(&mut self, kept: RetainedVersion<'_>) -> Result<()> {
        // The table's writer is made first, because the value file's writer adapts to the memory that is
        // left.
        self.writer(kept.key)?;
        let placed = self.separator.separate(kept.key, kept.trailer, kept.value)?;
        if let (Some(moved), Some((trailer, pointer))) = (&mut self.moved, &placed) {
            moved.dropped(kept.key, kept.trailer, kept.value);
            moved.made(kept.key, *trailer, pointer.encode().as_slice());
        }
        kept.add_to(self.writer(kept.key)?, placed)?;
        self.note_if_full(kept.key);
        Ok(())
    }

    /// Copies a whole block. False if the block cannot be copied, or if that would pad a page and `may_pad`
    /// is false.
    pub(super) fn add_block(&mut self, block: &RawBlock, may_pad: bool) -> Result<bool> {
        // Only a block of one entry can hold a value long enough to be separated.
        let bytes = if block.entries() == 1 { block.raw_bytes() } else { 0 };
        if self.separator.may_separate(bytes, block.value_files()) {
            return Ok(false);
        }
        let writer = self.writer(block.first().0)?;
        if !writer.accepts(block) || (writer.open_bytes() > 0 && !may_pad) {
            return Ok(false);
        }
        writer.add_block(block)?;
        self.note_if_full(block.last().0);
        Ok(true)
    }

    /// The writer of the table that the next entry, of `key`, goes to.
    #[inline]
    fn writer(&mut self, key: &[u8]) -> Result<&mut Writer> {
        if self.full_at.as_ref().is_some_and(|last| **last != *key) {
            self.cut(key)?;
        }
        if self.writer.is_none() {
            let mut writer = self.create()?;
            writer.set_hot(Arc::clone(&self.hot));
            self.writer = Some(writer);
        }
        self.writer.as_mut().ok_or_else(|| broken_invariant!("a writer that was created is there"))
    }

    /// Records that the current table reached its maximum length with `key`.
    #[inline]
    fn note_if_full(&mut self, key: &[u8]) {
        // The table with the last id takes all remaining entries.
        let is_full = |writer: &Writer| writer.file_bytes() >= self.table_bytes_max;
        if self.full_at.is_none()
            && self.writer.as_ref().is_some_and(is_full)
            && !self.ids.is_empty()
        {
            self.full_at = Some(key.to_vec());
        }
    }

    /// Ends the current table; the next one begins at `key`.
    fn cut(&mut self, key: &[u8]) -> Result<()> {
        invariant!(
            self.begins_at.as_ref().is_none_or(|begin| **begin < *key),
            "output tables ascend"
        );
        let key = Bytes::copy_from_slice(key);
        self.end_table(Some(&key))?;
        self.begins_at = Some(key);
        self.full_at = None;
        Ok(())
    }

    /// Adds the range deletes before `next` to the current table and finishes it.
    fn end_table(&mut self, next: Option<&Bytes>) -> Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let begin = self.begins_at.as_ref();
        for Fragment { start, end, seqnos } in self.range_deletes.iter().skip(self.fragments_done) {
            let from = begin.map_or(start, |begin| begin.max(start));
            let to = next.map_or(end, |next| next.min(end));
            if from >= to {
                break;
            }
            writer.add_range_delete(from, to, seqnos)?;
            if to < end {
                break;
            }
            self.fragments_done += 1;
        }
        let summary = writer.finish()?;
        invariant!(
            begin.is_none_or(|begin| **begin <= *summary.properties.first_key),
            "an output table begins at its cut"
        );
        invariant!(
            next.is_none_or(|next| *summary.properties.end_key() <= **next),
            "an output table ends before the next one begins (I4)"
        );
        self.done.push(summary);
        Ok(())
    }

    /// Adds the sums of entries whose values moved.
    pub(super) fn add_moved(&self, sums: &mut EntrySums) {
        let moved = self.moved.unwrap_or_default();
        sums.dropped = sums.dropped.wrapping_add(moved.dropped);
        sums.made = sums.made.wrapping_add(moved.made);
    }

    /// Finishes the last table and syncs the names of all files (I3). The caller owns the files from then on.
    pub(super) fn finish(&mut self) -> Result<(Vec<Summary>, Option<ValuesSummary>)> {
        if self.writer.is_none() && self.fragments_done < self.range_deletes.len() {
            self.writer = Some(self.create()?);
        }
        self.end_table(None)?;
        invariant!(
            self.fragments_done == self.range_deletes.len(),
            "every surviving range delete is written"
        );
        self.values = self.separator.finish()?;
        if !self.done.is_empty() {
            let tables = self.done.iter().map(|table| table::file_name(table.table));
            let values = self.values.iter().map(|values| table::values_file_name(values.file));
            let names: Vec<String> = tables.chain(values).collect();
            self.medium.sync_names(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok((std::mem::take(&mut self.done), self.values.take()))
    }

    /// A writer for the table with the next id.
    fn create(&mut self) -> Result<Writer> {
        if self.ids.is_empty() {
            return Err(broken_invariant!("every output has a reserved id"));
        }
        invariant!(
            self.done.last().is_none_or(|last| last.table < self.ids.start),
            "every output has an id of its own"
        );
        let table = self.ids.start;
        self.ids.start = TableId(table.0.saturating_add(1));
        let spec = Spec { table, ..self.spec.clone() };
        let mut writer = Writer::create(&self.medium, spec, &self.account)?;
        writer.keys_are(&self.key_form);
        writer.window_is(&self.window);
        let writer = if self.moved.is_some() { writer.summing_entries() } else { writer };
        Ok(match &self.engine {
            Some(engine) => writer.compressing_with(&**engine, &self.account),
            None => writer,
        })
    }

    /// Removes all files that were not handed over.
    pub(super) fn remove(&mut self) {
        // A dropped writer removes its file. A file that cannot be removed now is an orphan, which opening
        // the store removes.
        self.writer = None;
        self.separator.abort();
        if let Some(values) = self.values.take() {
            let _ = self.medium.remove(&table::values_file_name(values.file));
        }
        for table in self.done.drain(..) {
            let _ = self.medium.remove(&table::file_name(table.table));
        }
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        self.remove();
    }
}
