//! Validation of a transaction: a search for writes to the keys that it read, after its snapshot.
//!
//! Versions are compared by seqno and not by value, so a value that was overwritten with itself counts as
//! written. Memtables are searched first, then the tables with a largest seqno above the transaction's
//! snapshot: only those cost device reads, which happen outside every lock.
//!
//! A merge may drop a write that was superseded within the searched seqnos: the version that superseded it is
//! found instead. A tombstone that hides nothing any more is kept while a snapshot below it exists
//! (`compact::Retention`), because the version that it hid may have expired meanwhile.

use std::sync::Arc;

use base::{Error, Result, Seqno, Trailer, key_hash};
use read::{PageFile, PageReader, ReadOp};
use table::{Pages, PointRead, Step, TableCursor};
use tree::{Piece, Tree, View};

use super::key_set::{KeySet, KeySpan};

/// The most entries of one table that are searched for one read range. A range with more counts as written.
const ENTRIES_MAX: usize = 1 << 16;

/// The seqnos of the searched writes: above `since`, up to `upto`.
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

/// Searches for writes to the read keys within `span`. `span.upto` must be visible.
///
/// # Errors
/// `Conflict` if there is one, `Closed` if a keyspace was dropped, those of reads.
pub(super) fn validate(
    reader: &PageReader,
    reads: &[(Arc<Tree>, KeySet)],
    span: Span,
) -> Result<()> {
    debug_assert!(
        reads.iter().enumerate().all(|(at, (tree, _))| {
            reads.iter().skip(at + 1).all(|(other, _)| !Arc::ptr_eq(tree, other))
        }),
        "a keyspace has one set of read keys"
    );
    for (tree, read) in reads {
        // The view is taken after `upto` became visible, so it has all writes of the span.
        let view = tree.view_owned();
        if tree.is_dropped() {
            return Err(Error::closed("keyspace").at(format_args!("`{}`", tree.name())));
        }
        if span.upto <= span.since {
            continue;
        }
        // After the view: an evicted table that the view lacks is counted.
        let evicted = tree.evicted_up_to();
        if evicted > span.since && read.iter().next().is_some() {
            // The evicted table may have had a write of the span.
            return Err(Error::conflict("transaction")
                .at(format_args!("keyspace `{}`", tree.name()))
                .expected("no eviction of writes after its snapshot")
                .got(format_args!("one up to sequence number {evicted}")));
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

/// The error of a transaction that read `key`, or a range that begins with `key`, if the write at `seqno`
/// changed it after the snapshot.
pub(super) fn conflict(tree: &Tree, key: &[u8], seqno: Seqno) -> Error {
    let key = key.get(..40).unwrap_or(key).escape_ascii();
    Error::conflict("transaction")
        .at(format_args!("`{key}` in keyspace `{}`", tree.name()))
        .expected("no write to a key that it read")
        .got(format_args!("a write with sequence number {seqno}"))
}

/// A search for writes to one keyspace.
struct Probe<'a> {
    reader: &'a PageReader,
    view: &'a View,
    span: Span,
}

impl Probe<'_> {
    /// The seqno of a write to `key` within the span.
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
        if let Some(resident) = self.view.read_context.resident() {
            let newest = resident.newest(key)?;
            return Ok(newest.filter(|seqno| self.span.contains(*seqno)));
        }
        let candidates = self.view.version.runs().iter().filter_map(|run| run.find(key));
        for piece in candidates.filter(|piece| self.may_hold(piece)) {
            let table = piece.table()?;
            let deleted = piece.range_deletes().newest_covering(key, self.span.upto);
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

    /// The seqno of a write to a key of `keys` within the span.
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
                // Older memtables have no write of the span.
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

    /// The seqno of a write to a key of `keys` within the span, in one piece of a table.
    fn keys_of(&self, piece: &Piece, keys: KeySpan<'_>) -> Result<Option<Seqno>> {
        let (table, range) = (piece.table()?, piece.range());
        let start = keys.start.max(&range.first);
        let ends = [keys.end, range.end.as_deref()];
        let keys = KeySpan { start, end: ends.into_iter().flatten().min() };
        let fragments = piece.range_deletes().iter_from(start);
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

    /// Whether the piece's table has seqnos of the span.
    fn may_hold(&self, piece: &Piece) -> bool {
        let entry = piece.entry();
        entry.seqno_max > self.span.since && entry.seqno_min <= self.span.upto
    }
}

/// Reads the seqno of a key's newest version in one table.
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

/// Searches a table for the first version within a range of keys and a span of seqnos.
struct Walk<'a> {
    cursor: TableCursor,
    keys: KeySpan<'a>,
    span: Span,
    /// How many more entries may be searched.
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
