//! One source of a merging iterator: a memtable, or a run of tables. Moves within a run are resumable: they
//! ask for pages.

use std::sync::Arc;

use base::{EntryKind, Result, Trailer};
use bytes::Bytes;
use read::{PageFile, ReadOp};
use table::{Pages, Span, Step, Table, TableCursor};

use super::walk_bounds::WalkBounds;
use crate::{Memtable, Piece, Run, TableFile};

/// A move of a source. `AtOrAfter` goes to the first entry at or after the position, `Before` to the last
/// entry before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seek<'a> {
    First,
    Last,
    AtOrAfter(&'a [u8], Trailer),
    Before(&'a [u8], Trailer),
    Next,
    Prev,
}

pub(super) enum Source {
    Memtable(arena::Cursor),
    Run(Box<RunCursor>),
}

impl Source {
    pub(super) fn memtable(memtable: &Memtable) -> Self {
        Self::Memtable(memtable.map().cursor())
    }

    /// A run, whose walks end at the first piece outside `bounds`.
    pub(super) fn run(run: &Arc<Run>, bounds: &WalkBounds) -> Self {
        let (run, bounds) = (Arc::clone(run), bounds.clone());
        Self::Run(Box::new(RunCursor { run, bounds, at: 0, cursor: None, forward: true }))
    }

    /// Starts a move; call [`Source::step`] until it is `Ready`.
    pub(super) fn start(&mut self, seek: Seek<'_>) -> Result<()> {
        match self {
            Self::Memtable(cursor) => match seek {
                Seek::First => cursor.seek_first(),
                Seek::Last => cursor.seek_last(),
                Seek::AtOrAfter(key, at) => cursor.seek(key, at),
                Seek::Before(key, at) => cursor.seek_before(key, at),
                Seek::Next => cursor.next(),
                Seek::Prev => cursor.prev(),
            },
            Self::Run(cursor) => cursor.start(seek)?,
        }
        Ok(())
    }

    /// Continues the move.
    pub(super) fn step(&mut self, supplied: Option<Pages>) -> Result<Step<()>> {
        match self {
            Self::Memtable(_) => Ok(Step::Ready(())),
            Self::Run(cursor) => cursor.step(supplied),
        }
    }

    /// The walk of a run, whose moves ask for pages.
    pub(super) fn run_cursor(&mut self) -> Option<&mut RunCursor> {
        match self {
            Self::Memtable(_) => None,
            Self::Run(cursor) => Some(cursor),
        }
    }

    /// Whether a key may have several versions in the source.
    #[inline]
    pub(super) fn repeats_keys(&self) -> bool {
        self.table().is_none_or(|table| table.properties().keys < table.properties().entries)
    }

    /// Goes to the next entry if its page is in memory, and returns whether it did. A memtable always does,
    /// also past its last entry.
    #[inline]
    pub(super) fn fast_next(&mut self) -> Result<bool> {
        match self {
            Self::Memtable(cursor) => {
                cursor.next();
                Ok(true)
            }
            Self::Run(run) => match &mut run.cursor {
                Some(cursor) => cursor.fast_next(),
                None => Ok(false),
            },
        }
    }

    /// The span that a forward walk needs after the current block, if it is known.
    pub(super) fn next_block_span(&self) -> Option<Span> {
        match self {
            Self::Memtable(_) => None,
            Self::Run(run) => run.cursor.as_ref()?.next_block_span(),
        }
    }

    /// The file of the current entry, if that is in a table.
    pub(super) fn file(&self) -> Option<&Arc<TableFile>> {
        match self {
            Self::Memtable(_) => None,
            Self::Run(cursor) => cursor.run.pieces().get(cursor.at).map(|piece| piece.file()),
        }
    }

    pub(super) fn table(&self) -> Option<&Arc<Table>> {
        match self {
            Self::Memtable(_) => None,
            Self::Run(cursor) => cursor.table(),
        }
    }

    /// The current entry; `None` past either end.
    #[inline]
    pub(super) fn entry(&self) -> Option<(&[u8], Trailer)> {
        match self {
            Self::Memtable(cursor) => cursor.valid().then(|| (cursor.key(), cursor.trailer())),
            Self::Run(run) => {
                let cursor = run.cursor.as_ref()?;
                cursor.trailer().map(|trailer| (cursor.key(), trailer))
            }
        }
    }

    /// The value of the current entry, as stored and borrowed.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        match self {
            Self::Memtable(cursor) => cursor.value(),
            Self::Run(run) => run.cursor.as_ref().map(TableCursor::value_bytes).unwrap_or_default(),
        }
    }

    /// The value of the current entry, as stored. `trailer` is the entry's.
    pub(super) fn stored(&self, trailer: Trailer) -> Bytes {
        match trailer.kind() {
            // A tombstone has no value, and its page need not be kept for it.
            Ok(EntryKind::Delete) => Bytes::new(),
            _ => self.shared_value(),
        }
    }

    /// The value of the current entry, as stored, for keeping.
    #[inline]
    pub(super) fn shared_value(&self) -> Bytes {
        match self {
            Self::Memtable(cursor) => Bytes::copy_from_slice(cursor.value()),
            Self::Run(run) => run.cursor.as_ref().map(TableCursor::value).unwrap_or_default(),
        }
    }
}

/// Walks the tables of a run as one sorted sequence.
pub(super) struct RunCursor {
    run: Arc<Run>,
    bounds: WalkBounds,
    /// Index of the current piece.
    at: usize,
    cursor: Option<TableCursor>,
    /// Direction: which piece follows when the current one ends.
    forward: bool,
}

impl RunCursor {
    /// The piece at `at`, unless the walk has passed its bound there.
    fn piece(&self, at: usize) -> Option<&Arc<Piece>> {
        let piece = self.run.pieces().get(at)?;
        (!self.bounds.is_passed_at_all(piece.range(), self.forward)).then_some(piece)
    }

    fn start(&mut self, seek: Seek<'_>) -> Result<()> {
        let tables = self.run.pieces();
        match seek {
            Seek::Next | Seek::Prev => {
                self.forward = seek == Seek::Next;
                if let Some(cursor) = &mut self.cursor {
                    if self.forward { cursor.next() } else { cursor.prev() }
                }
                return Ok(());
            }
            Seek::First => (self.at, self.forward) = (0, true),
            Seek::Last => (self.at, self.forward) = (tables.len().wrapping_sub(1), false),
            Seek::AtOrAfter(key, _) => (self.at, self.forward) = (self.run.at_or_after(key), true),
            Seek::Before(key, _) => {
                // The first piece that ends after `key` may begin after it too. Then it has no entry before
                // `key`, and the walk continues with the piece before it.
                let at = self.run.at_or_after(key);
                self.at = at.min(tables.len().wrapping_sub(1));
                self.forward = false;
            }
        }
        self.cursor = match self.piece(self.at) {
            None => None,
            Some(handle) => {
                let mut cursor = handle.cursor()?;
                match seek {
                    Seek::Last => cursor.seek_last(),
                    Seek::AtOrAfter(key, at) => cursor.seek(key, at),
                    Seek::Before(key, at) => cursor.seek_before(key, at),
                    _ => cursor.seek_first(),
                }
                Some(cursor)
            }
        };
        Ok(())
    }
}

/// A move of a run. A step after its end does nothing.
impl ReadOp for RunCursor {
    type Output = ();

    fn step(&mut self, mut supplied: Option<Pages>) -> Result<Step<()>> {
        loop {
            let Some(cursor) = &mut self.cursor else { return Ok(Step::Ready(())) };
            match cursor.step(supplied.take())? {
                Step::Need(span) => return Ok(Step::Need(span)),
                Step::Ready(true) => return Ok(Step::Ready(())),
                Step::Ready(false) => {}
            }
            // The piece ended: go to its neighbour, or past the end of the run.
            let next = if self.forward { self.at + 1 } else { self.at.wrapping_sub(1) };
            self.cursor = match self.piece(next) {
                None => None,
                Some(handle) => {
                    let mut cursor = handle.cursor()?;
                    if self.forward {
                        cursor.seek_first()
                    } else {
                        cursor.seek_last()
                    }
                    Some(cursor)
                }
            };
            self.at = next;
        }
    }

    fn file(&self) -> Option<PageFile> {
        self.table().map(PageFile::from)
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.cursor.as_ref().map(TableCursor::table)
    }
}
