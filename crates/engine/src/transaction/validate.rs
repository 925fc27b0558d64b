//! Whether anyone wrote to what a transaction read, since it read it.
//!
//! A version's sequence number tells: no value is compared, so that a value that went and came back
//! counts as a write. Memtables are asked first, then the tables whose largest number is past the
//! transaction's: only those cost device reads, which happen outside every lock.
//!
//! A write may be gone again before it is looked for: superseded within the span. The version that superseded
//! it tells as well. A delete with nothing left to hide stays as long as anyone reads from before it
//! (`compact::Retention`): what it hid may have expired meanwhile.

use std::sync::Arc;

use base::{Error, Result, Seqno, Trailer, key_hash};
use table::{Pages, PointRead, Step, TableCursor};

use super::key_set::{KeySet, KeySpan};
use read::{PageFile, PageReader, ReadOp};
use tree::{Piece, Tree, View};

/// Entries of one table looked through for one range that was read, where the table holds older ones
/// too. A range with more is taken for written to.
const ENTRIES_MAX: usize = 1 << 16;

/// The numbers of the writes looked for: past `since`, up to `upto`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub since: Seqno,
    pub upto: Seqno,
}

impl Span {
    fn contains(self, seqno: Seqno) -> bool {
        self.since < seqno && seqno <= self.upto
    }
}

/// Looks for writes to what was read. `span.upto` must be visible.
///
/// # Errors
/// `Conflict` where there is one, `Closed` where a keyspace was dropped, and what reads fail with.
pub(super) fn validate(
    reader: &PageReader,
    reads: &[(Arc<Tree>, KeySet)],
    span: Span,
) -> Result<()> {
    for (tree, read) in reads {
        // Taken after `upto` became visible: all of the span is in it.
        let view = tree.view_owned();
        if tree.is_dropped() {
            return Err(Error::closed("keyspace").at(format_args!("`{}`", tree.name())));
        }
        if span.upto <= span.since {
            continue;
        }
        let probe = Probe { reader, view: &view, span };
        for keys in read.iter() {
            let written = match keys.single() {
                Some(key) => probe.key(key)?,
                None => probe.keys(keys)?,
            };
            if let Some(seqno) = written {
                return Err(conflict(tree, keys.start, seqno));
            }
        }
    }
    Ok(())
}

/// The error of a transaction that read `key`, or a range from `key` on, before it was written.
pub(super) fn conflict(tree: &Tree, key: &[u8], seqno: Seqno) -> Error {
    let key = key.get(..40).unwrap_or(key).escape_ascii();
    Error::conflict("transaction")
        .at(format_args!("`{key}` in keyspace `{}`", tree.name()))
        .expected("no write to what it read")
        .got(format_args!("one with sequence number {seqno}"))
}

struct Probe<'a> {
    reader: &'a PageReader,
    view: &'a View,
    span: Span,
}

impl Probe<'_> {
    /// A write to `key` within the span.
    fn key(&self, key: &[u8]) -> Result<Option<Seqno>> {
        let at = Trailer::seek(self.span.upto);
        for memtable in self.view.memtables() {
            let deleted = memtable.deleted().newest_covering(key, self.span.upto);
            if let Some(seqno) = deleted.filter(|seqno| self.span.contains(*seqno)) {
                return Ok(Some(seqno));
            }
            let newest = memtable.map().get(key, at).map(|(trailer, _)| trailer.seqno());
            if let Some(seqno) = newest.filter(|seqno| self.span.contains(*seqno)) {
                return Ok(Some(seqno));
            }
        }
        let candidates = self.view.version.runs().iter().filter_map(|run| run.find(key));
        for piece in candidates.filter(|piece| self.may_hold(piece)) {
            let table = piece.table()?;
            let deleted = table.range_deletes().newest_covering(key, self.span.upto);
            if let Some(seqno) = deleted.filter(|seqno| self.span.contains(*seqno)) {
                return Ok(Some(seqno));
            }
            let read = PointRead::new(Arc::clone(table), key, key_hash(key), at);
            let (newest, _) = self.reader.run(&mut KeyProbe(read), None)?;
            if let Some(seqno) = newest.filter(|seqno| self.span.contains(*seqno)) {
                return Ok(Some(seqno));
            }
        }
        Ok(None)
    }

    /// A write to a key of `keys` within the span.
    fn keys(&self, keys: KeySpan<'_>) -> Result<Option<Seqno>> {
        for memtable in self.view.memtables() {
            let within = |seqno| self.span.contains(seqno);
            if let Some(seqno) = memtable.deleted().find(keys.start, keys.end, within) {
                return Ok(Some(seqno));
            }
            let mut cursor = memtable.map().cursor();
            cursor.seek(keys.start, Trailer::seek(Seqno::MAX));
            while cursor.valid() && keys.end.is_none_or(|end| cursor.key() < end) {
                let seqno = cursor.trailer().seqno();
                if self.span.contains(seqno) {
                    return Ok(Some(seqno));
                }
                cursor.next();
            }
            if memtable.first() <= self.span.since.plus(1) {
                // The memtables below hold what is older still.
                break;
            }
        }
        for run in self.view.version.runs() {
            let pieces = run.pieces().get(run.at_or_after(keys.start)..).unwrap_or_default();
            let is_within = |piece: &&Arc<Piece>| {
                let first = &piece.range().first;
                keys.end.is_none_or(|end| **first < *end)
            };
            let pieces = pieces.iter().take_while(is_within);
            for piece in pieces.filter(|piece| self.may_hold(piece)) {
                let written = self.keys_of(piece, keys)?;
                if written.is_some() {
                    return Ok(written);
                }
            }
        }
        Ok(None)
    }

    /// A write to a key of `keys` within the span, in one piece of a table.
    fn keys_of(&self, piece: &Piece, keys: KeySpan<'_>) -> Result<Option<Seqno>> {
        let (table, range) = (piece.table()?, piece.range());
        let start = keys.start.max(&range.first);
        let ends = [keys.end, range.end.as_deref()];
        let keys = KeySpan { start, end: ends.into_iter().flatten().min() };
        let fragments = table.range_deletes().iter_from(start);
        let mut fragments = fragments.take_while(|it| keys.end.is_none_or(|end| **it.start < *end));
        let deleted =
            fragments.find_map(|it| it.newest(self.span.upto).filter(|at| self.span.contains(*at)));
        if deleted.is_some() {
            return Ok(deleted);
        }
        let mut cursor = TableCursor::new(Arc::clone(table));
        cursor.seek(start, Trailer::seek(Seqno::MAX));
        let mut walk = Walk { cursor, keys, span: self.span, left: ENTRIES_MAX };
        Ok(self.reader.run(&mut walk, None)?.0)
    }

    fn may_hold(&self, piece: &Piece) -> bool {
        let entry = piece.entry();
        entry.seqno_max > self.span.since && entry.seqno_min <= self.span.upto
    }
}

/// The number of a key's newest version in one table.
struct KeyProbe<'a>(PointRead<&'a [u8]>);

impl ReadOp for KeyProbe<'_> {
    type Output = Option<Seqno>;

    fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Option<Seqno>>> {
        Ok(match self.0.step(supplied)? {
            Step::Need(span) => Step::Need(span),
            Step::Ready(found) => Step::Ready(found.map(|found| found.trailer.seqno())),
        })
    }

    fn file(&self) -> Option<PageFile> {
        Some(self.0.table().into())
    }
}

/// The number of the first version of a table that lies within spans of keys and of numbers.
struct Walk<'a> {
    cursor: TableCursor,
    keys: KeySpan<'a>,
    span: Span,
    /// How many entries may yet be looked at.
    left: usize,
}

impl ReadOp for Walk<'_> {
    type Output = Option<Seqno>;

    fn step(&mut self, mut supplied: Option<Pages>) -> Result<Step<Option<Seqno>>> {
        loop {
            if let Step::Need(span) = self.cursor.step(supplied.take())? {
                return Ok(Step::Need(span));
            }
            let Some(trailer) = self.cursor.trailer() else { return Ok(Step::Ready(None)) };
            if self.keys.end.is_some_and(|end| self.cursor.key() >= end) {
                return Ok(Step::Ready(None));
            }
            if self.span.contains(trailer.seqno()) || self.left == 0 {
                return Ok(Step::Ready(Some(trailer.seqno())));
            }
            self.left -= 1;
            self.cursor.next();
        }
    }

    fn file(&self) -> Option<PageFile> {
        Some(self.cursor.table().into())
    }
}
