//! One input run of a job: its pieces in key order, entry by entry.

use std::cmp::Ordering;
use std::sync::Arc;

use base::{
    Error, ErrorKind, KeyspaceId, Result, StoreId, TableId, Trailer, broken_invariant, invariant,
};
use table::{
    Accounts, BlockEngine, Bounds, Pages, PinnedRangeDeletes, RangeDeletes, RawBlock, Step, Table,
    TableCursor, decode_with,
};

use super::env::Env;
use super::read_ahead::ReadAhead;
use super::read_queue::ReadQueue;
use crate::KeyRange;
use crate::job::Input;

/// A part of an input table that is open already.
#[derive(Clone, Debug)]
pub struct OpenInput {
    /// The keys of the part.
    pub range: KeyRange,
    /// The table.
    pub table: Arc<Table>,
    /// Its range deletes, at least those of `range`.
    pub range_deletes: Arc<PinnedRangeDeletes>,
}

/// What all sources of a job share.
pub(super) struct Reading {
    /// Inputs that need not be opened.
    pub(super) open_inputs: Vec<OpenInput>,
    pub(super) env: Env,
    pub(super) store: StoreId,
    pub(super) keyspace: KeyspaceId,
    /// The keys that are merged.
    pub(super) bounds: KeyRange,
    pub(super) chunk_pages: u32,
    /// Length of the common prefix of all keys of the job, bytes.
    pub(super) common_prefix_bytes: usize,
}

/// An open piece: its table, and the keys of it that are merged.
pub(super) type Opened = (Arc<Table>, KeyRange);

impl Reading {
    /// Opens a piece.
    ///
    /// # Errors
    /// `Corrupt` if it is not the table that the job names; otherwise the errors of [`Table::open`].
    pub(super) fn open(&self, piece: &Input) -> Result<Opened> {
        let Input { id, file_bytes, digest, bounds, seqno } = piece;
        let Env { medium, dictionaries, account, tables, .. } = &self.env;
        let accounts = Accounts {
            pinned: tables.clone(),
            range_deletes: tables.clone(),
            values: account.clone(),
            filters: None,
        };
        let dictionaries = Arc::clone(dictionaries);
        let (store, bytes) = (self.store, Some(*file_bytes));
        let table = match self.open_input(piece) {
            Some(input) => Arc::clone(&input.table),
            None => Table::open(&**medium, store, *id, bytes, *seqno, dictionaries, accounts)?,
        };
        let (found, keyspace) = (table.footer().digest, table.properties().keyspace);
        // Tables of format version 1 do not store their keyspace.
        let is_foreign = keyspace != self.keyspace && keyspace != KeyspaceId::default();
        if found != *digest || is_foreign {
            return Err(Error::corrupt("input of a job")
                .at(table::file_name(*id))
                .expected(format_args!("digest {digest:016x}, keyspace {}", self.keyspace))
                .got(format_args!("digest {found:016x}, keyspace {keyspace}")));
        }
        Ok((table, bounds.intersection(&self.bounds)))
    }

    fn open_input(&self, piece: &Input) -> Option<&OpenInput> {
        let is_of = |it: &&OpenInput| it.table.id() == piece.id && it.range.covers(&piece.bounds);
        self.open_inputs.iter().find(is_of)
    }

    /// The range deletes of `piece` within `bounds`; `table` is its table.
    ///
    /// # Errors
    /// Those of [`Table::range_deletes`].
    pub(super) fn range_deletes(
        &self,
        piece: &Input,
        table: &Table,
        bounds: &KeyRange,
    ) -> Result<RangeDeletes> {
        let all = match self.open_input(piece) {
            Some(input) => Arc::clone(&input.range_deletes),
            None => table.range_deletes()?,
        };
        Ok(all.clipped(&Bounds::from(bounds)))
    }
}

/// A sorted source of entries: it stands on an entry or at its end.
pub(super) struct Source {
    /// Pieces to read, the next one last.
    pieces: Vec<Input>,
    /// The next piece, if it is open already.
    opened: Option<Opened>,
    table: Option<OpenTable>,
    /// The table opened last.
    read_last: Option<TableId>,
    /// The abbreviated key: eight bytes of the current key behind the common prefix, as a number with the
    /// same order. `u64::MAX` at the end.
    head: u64,
    trailer: Trailer,
    bytes_read: u64,
}

/// The table being read.
struct OpenTable {
    cursor: TableCursor,
    pages: ReadAhead,
    /// Entries read so far, and the entries of the table if no bounds cut it.
    entries_read: u64,
    entries_expected: Option<u64>,
    keeps_stored: bool,
    /// Whether blocks that are retained as stored sum the hashes of their entries.
    sums_entries: bool,
    /// Decompresses blocks that are not kept as stored.
    engine: Option<Arc<dyn BlockEngine>>,
    /// Entries of the current block that the next advance skips; 0: it moves to the next entry.
    skip_entries: u64,
}

impl Source {
    /// A source of `pieces`, before its first entry.
    pub(super) fn new(mut pieces: Vec<Input>) -> Self {
        pieces.reverse();
        let (head, trailer) = (u64::MAX, Trailer::from_word(0));
        Self { pieces, opened: None, table: None, read_last: None, head, trailer, bytes_read: 0 }
    }

    /// Supplies the first piece if it is open already.
    pub(super) fn set_opened(&mut self, first: Option<Opened>) {
        invariant!(
            first.as_ref().map(|(table, _)| table.id()) == self.pieces.last().map(|piece| piece.id),
            "the piece left open is the first of its run"
        );
        self.opened = first;
    }

    /// The table being read, if `error` says that its data is corrupt.
    pub(super) fn blame(&self, error: &Error) -> Option<TableId> {
        self.read_last.filter(|_| error.kind() == ErrorKind::Corrupt)
    }

    /// Bytes read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read + self.table.as_ref().map_or(0, |it| it.pages.bytes_read())
    }

    /// Moves to the next entry; the first call moves to the first entry.
    ///
    /// # Errors
    /// The errors of [`Reading::open`], [`ReadAhead::pages`] and [`TableCursor::step`], naming the table.
    pub(super) fn advance(&mut self, reading: &Reading, reads: &mut ReadQueue) -> Result<()> {
        loop {
            if let Some(table) = &mut self.table {
                if table.advance(reads)? {
                    self.head = head(table.cursor.key(), reading.common_prefix_bytes);
                    let trailer = table.cursor.trailer();
                    self.trailer = trailer.ok_or_else(|| {
                        broken_invariant!("a cursor that moved to an entry has its trailer")
                    })?;
                    return Ok(());
                }
                table.finish(reads)?;
                self.bytes_read += table.pages.bytes_read();
                self.table = None;
            }
            let Some(piece) = self.pieces.pop() else {
                self.head = u64::MAX;
                return Ok(());
            };
            self.read_last = Some(piece.id);
            let (table, bounds) = match self.opened.take() {
                Some(opened) => opened,
                None => reading.open(&piece)?,
            };
            if table.properties().entries > 0 && !bounds.is_empty() {
                self.table = Some(OpenTable::new(&table, &bounds, reading)?);
            }
        }
    }

    /// Whether it stands on the first entry of a block.
    #[inline]
    pub(super) fn is_at_block_start(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.cursor.is_at_block_start())
    }

    /// Sets whether the following blocks are retained as stored, for [`Source::block`].
    pub(super) fn keep_stored(&mut self, keep: bool) {
        if let Some(table) = &mut self.table
            && table.keeps_stored != keep
        {
            table.keeps_stored = keep;
            table.cursor.keep_stored(keep);
            if table.sums_entries {
                table.cursor.sum_entries();
            }
        }
    }

    /// The block with the first entry that it stands on, if that was retained and lies within the bounds.
    ///
    /// # Errors
    /// The errors of [`TableCursor::raw_block`].
    pub(super) fn block(&mut self) -> Result<Option<&RawBlock>> {
        match &mut self.table {
            Some(table) if table.keeps_stored => table.cursor.raw_block(),
            _ => Ok(None),
        }
    }

    /// Moves behind the current block, which has `entries` entries.
    ///
    /// # Errors
    /// The errors of [`Source::advance`].
    pub(super) fn pass_block(
        &mut self,
        entries: u64,
        reading: &Reading,
        reads: &mut ReadQueue,
    ) -> Result<()> {
        let Some(table) = &mut self.table else {
            return Err(broken_invariant!("a passed block belongs to an open table"));
        };
        invariant!(entries > 0, "a block holds entries");
        table.skip_entries = entries;
        self.advance(reading, reads)
    }

    /// The current entry; `None` at the end.
    #[inline]
    pub(super) fn entry(&self) -> Option<(&[u8], Trailer, &[u8])> {
        let cursor = &self.table.as_ref()?.cursor;
        Some((cursor.key(), self.trailer, cursor.value_bytes()))
    }

    /// The abbreviated key of the current entry.
    #[inline]
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// The order of two current entries with equal abbreviated keys: by key, then newest first.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (&self.table, &other.table) {
            (Some(one), Some(another)) => {
                let keys = one.cursor.key().cmp(another.cursor.key());
                keys.then_with(|| other.trailer.cmp(&self.trailer))
            }
            // A source at its end orders last.
            (one, another) => another.is_some().cmp(&one.is_some()),
        }
    }
}

impl OpenTable {
    fn new(table: &Arc<Table>, bounds: &KeyRange, reading: &Reading) -> Result<Self> {
        let pages = ReadAhead::new(table, bounds, reading.chunk_pages, &reading.env.account)?;
        let properties = table.properties();
        let whole = bounds.holds(&properties.first_key) && bounds.holds(&properties.last_key);
        let expected = whole.then_some(properties.entries);
        let mut cursor = TableCursor::with_bounds(Arc::clone(table), Bounds::from(bounds));
        cursor.seek_first();
        Ok(Self {
            cursor,
            pages,
            entries_read: 0,
            entries_expected: expected,
            keeps_stored: false,
            sums_entries: reading.env.sums_entries,
            engine: reading.env.engine.clone(),
            skip_entries: 0,
        })
    }

    fn advance(&mut self, reads: &mut ReadQueue) -> Result<bool> {
        match std::mem::take(&mut self.skip_entries) {
            0 if self.entries_read == 0 => {}
            0 => match self.cursor.next_in_block()? {
                Some(valid) => {
                    self.entries_read += u64::from(valid);
                    return Ok(valid);
                }
                None => self.cursor.next(),
            },
            // The first entry of the block was counted when it was reached.
            skip_entries => {
                self.entries_read += skip_entries - 1;
                self.cursor.next_block();
            }
        }
        let mut supplied = None;
        loop {
            match self.cursor.step(supplied.take())? {
                Step::Need(span) => {
                    let pages = self.pages.pages(span, reads)?;
                    let engine = self.engine.as_ref().filter(|_| !span.meta && !self.keeps_stored);
                    let block = match engine {
                        Some(engine) => decode_with(&**engine, &pages, span.pages)?,
                        None => None,
                    };
                    supplied = Some(block.map_or(pages, Pages::Block));
                }
                Step::Ready(valid) => {
                    self.entries_read += u64::from(valid);
                    return Ok(valid);
                }
            }
        }
    }

    /// Checks that the scan returned every entry of the table.
    fn finish(&mut self, reads: &mut ReadQueue) -> Result<()> {
        self.pages.finish(reads)?;
        match self.entries_expected {
            Some(expected) if expected != self.entries_read => {
                Err(Error::corrupt("number of entries in a table")
                    .at(table::file_name(self.cursor.table().id()))
                    .expected(expected)
                    .got(self.entries_read))
            }
            _ => Ok(()),
        }
    }
}

/// Eight bytes of `key` behind its first `skip`, big-endian, padded with zeros.
#[inline]
fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(bytes)
        }
    }
}
