//! The tables a job writes: cut between keys, range deletes cut with them; and its value file.
//!
//! Until they are handed over, dropping them removes their files.

use std::ops::Range;
use std::sync::Arc;

use base::{Account, Result, TableId};
use bytes::Bytes;
use media::Medium;
use table::{Bounds, Fragment, RangeDeletes, RawBlock, Spec, Summary, ValuesSummary, Writer};

use crate::{RetainedVersion, ValueSeparator};

/// The tables that were written, and the one that is.
pub(super) struct Outputs {
    medium: Arc<dyn Medium>,
    account: Account,
    /// What every table is written by; its id is that of the next.
    spec: Spec,
    ids: Range<TableId>,
    table_bytes_max: u64,
    writer: Option<Writer>,
    /// The key at which the table that is written became long enough; it ends before the next.
    full_at: Option<Vec<u8>>,
    done: Vec<Summary>,
    /// Long values, and those of files that are collected.
    separator: ValueSeparator,
    values: Option<ValuesSummary>,
    /// The keys that were read much.
    hot: Arc<[Bounds]>,
    /// The range deletes that survive, and how many of their fragments lie in earlier tables.
    range_deletes: RangeDeletes,
    fragments_done: usize,
    /// Where the table that is written begins; what it covers of a fragment begins there too.
    begins_at: Option<Bytes>,
}

impl Outputs {
    pub(super) fn new(
        medium: &Arc<dyn Medium>,
        spec: Spec,
        ids: Range<TableId>,
        table_bytes_max: u64,
        separator: ValueSeparator,
        account: &Account,
    ) -> Self {
        Self {
            medium: Arc::clone(medium),
            account: account.clone(),
            spec,
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
            begins_at: None,
        }
    }

    /// The value of `key` that the entry `stored` points at, for operands over it; none where they
    /// wait.
    pub(super) fn operand_base(&mut self, key: &[u8], stored: &[u8]) -> Result<Option<Bytes>> {
        self.separator.operand_base(key, stored)
    }

    /// Has outputs say which of their pages hold keys of `ranges`, which ascend; before the first version.
    pub(super) fn set_hot(&mut self, ranges: Arc<[Bounds]>) {
        self.hot = ranges;
    }

    /// Takes the range deletes that survive, before the first version.
    pub(super) fn set_range_deletes(&mut self, range_deletes: RangeDeletes) {
        self.range_deletes = range_deletes;
    }

    /// Adds a version that survives.
    #[inline]
    pub(super) fn add(&mut self, kept: RetainedVersion<'_>) -> Result<()> {
        // The table's writer comes first: that of long values does with the memory it leaves.
        self.writer(kept.key)?;
        let placed = self.separator.separate(kept.key, kept.trailer, kept.value)?;
        kept.add_to(self.writer(kept.key)?, placed)?;
        self.note_if_full(kept.key);
        Ok(())
    }

    /// Adds a whole block. False where it cannot be passed, or may not because that would leave part of
    /// a page empty.
    pub(super) fn add_block(&mut self, block: &RawBlock, may_pad: bool) -> Result<bool> {
        // An entry of a block with others is shorter than any that is put separator.
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

    /// The writer of the table that `key`, the next one, belongs to.
    #[inline]
    fn writer(&mut self, key: &[u8]) -> Result<&mut Writer> {
        if self.full_at.as_ref().is_some_and(|last| **last != *key) {
            self.cut(key)?;
        }
        Ok(match &mut self.writer {
            Some(writer) => writer,
            none => {
                let mut writer = create(&self.medium, &mut self.ids, &self.spec, &self.account)?;
                writer.set_hot(Arc::clone(&self.hot));
                none.insert(writer)
            }
        })
    }

    /// Notes whether the table became long enough with `key`.
    #[inline]
    fn note_if_full(&mut self, key: &[u8]) {
        // The last id takes all that is left.
        let is_full = |writer: &Writer| writer.file_bytes() >= self.table_bytes_max;
        if self.full_at.is_none()
            && self.writer.as_ref().is_some_and(is_full)
            && !self.ids.is_empty()
        {
            self.full_at = Some(key.to_vec());
        }
    }

    /// Ends the table that is written: the next one begins at `key`.
    fn cut(&mut self, key: &[u8]) -> Result<()> {
        let key = Bytes::copy_from_slice(key);
        self.end_table(Some(&key))?;
        self.begins_at = Some(key);
        self.full_at = None;
        Ok(())
    }

    /// Gives the table that is written its range deletes, up to where the next begins, and ends it.
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
        self.done.push(writer.finish()?);
        Ok(())
    }

    /// Ends the last table, makes the names of all durable (I3), and hands them over: from now on
    /// their files are the caller's.
    pub(super) fn finish(&mut self) -> Result<(Vec<Summary>, Option<ValuesSummary>)> {
        if self.writer.is_none() && self.fragments_done < self.range_deletes.len() {
            self.writer = Some(create(&self.medium, &mut self.ids, &self.spec, &self.account)?);
        }
        self.end_table(None)?;
        self.values = self.separator.finish()?;
        if !self.done.is_empty() {
            let tables = self.done.iter().map(|table| table::file_name(table.table));
            let values = self.values.iter().map(|values| table::values_file_name(values.file));
            let names: Vec<String> = tables.chain(values).collect();
            self.medium.sync_names(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok((std::mem::take(&mut self.done), self.values.take()))
    }

    /// Removes what was written and not handed over.
    pub(super) fn remove(&mut self) {
        // A table that is being written removes itself. What cannot be removed now is found when
        // the store is opened: nobody names it.
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

/// A writer for the next table.
fn create(
    medium: &Arc<dyn Medium>,
    ids: &mut Range<TableId>,
    spec: &Spec,
    account: &Account,
) -> Result<Writer> {
    let table = ids.start;
    ids.start = TableId(table.0.saturating_add(1));
    Writer::create(medium, Spec { table, ..spec.clone() }, account)
}

impl Drop for Outputs {
    fn drop(&mut self) {
        self.remove();
    }
}
