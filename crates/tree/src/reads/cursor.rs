//! A cursor: one position in a keyspace, moved by key.

use std::fmt;
use std::sync::Arc;

use base::{Result, Seqno};
use bytes::Bytes;
use cache::Stage;
use read::{Depth, PageReader, ReadAhead};
use table::Span;

use super::walk_bounds::WalkBounds;
use super::{FastStep, MergingIter, Move};
use crate::View;

/// The input of cursors over a keyspace at one sequence number.
#[derive(Clone)]
pub struct CursorSource {
    /// Gets pages.
    pub reader: Arc<PageReader>,
    /// The read view.
    pub view: Arc<View>,
    /// The read sequence number.
    pub at: Seqno,
    /// The time that expiries are compared with, Unix milliseconds.
    pub now: u64,
}

impl CursorSource {
    /// A cursor without a current entry.
    ///
    /// # Errors
    /// `Retry` if there is no memory for its blocks.
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_within(&WalkBounds::default())
    }

    /// As [`CursorSource::cursor`], for a caller that leaves out keys outside `bounds`: a move there may end
    /// the walk.
    pub(super) fn cursor_within(&self, bounds: &WalkBounds) -> Result<Cursor> {
        let reader = Arc::clone(&self.reader);
        Ok(Cursor {
            merge: MergingIter::new(self, bounds)?,
            reader,
            ahead: ReadAhead::default(),
            next_block: NextBlock::Unknown,
            fast_steps: 0,
        })
    }
}

/// Fast steps between two stages of the next block's prefetch: a cache miss takes about as long.
const STAGE_STEPS: u32 = 4;

/// Progress of the prefetch of the next block into the processor's cache.
#[derive(Debug)]
enum NextBlock {
    /// Not started: the current block is new.
    Unknown,
    Asking {
        span: Span,
        next: Stage,
        /// Fast steps until the next stage.
        steps: u32,
    },
    /// Complete, or the next block is not known.
    Asked,
}

/// A position in a keyspace at one sequence number. Values that expire later stay visible until the cursor is
/// dropped.
///
/// The cursor has a current entry or none: before the first move, past either end, and after an error, from
/// which a seek recovers. It keeps the memtables and tables that it reads alive.
pub struct Cursor {
    reader: Arc<PageReader>,
    merge: MergingIter,
    ahead: ReadAhead,
    next_block: NextBlock,
    /// Fast steps that are not counted yet.
    fast_steps: u64,
}

impl Cursor {
    /// Moves to the first key. Returns whether there is one.
    ///
    /// # Errors
    /// `Corrupt` if a page on the way is damaged.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.go(Move::First)
    }

    /// Moves to the last key. Returns whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.go(Move::Last)
    }

    /// Moves to the first key at or after `key`. Returns whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go(Move::AtOrAfter(key.as_ref()))
    }

    /// Moves to the last key before `key`. Returns whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go(Move::Before(key.as_ref()))
    }

    /// Moves to the next key. Returns whether there is one. Does not move without a current entry.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    #[expect(clippy::should_implement_trait, reason = "a cursor lends its entry and can fail")]
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        match self.merge.fast_next()? {
            FastStep::Done => {
                self.fast_steps += 1;
                if !matches!(self.next_block, NextBlock::Asked) {
                    self.ask_ahead();
                }
                Ok(true)
            }
            FastStep::Unsettled => self.run(),
            FastStep::NotApplicable => self.go(Move::Next),
        }
    }

    /// Moves to the previous key. Returns whether there is one. Does not move without a current entry.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn prev(&mut self) -> Result<bool> {
        self.go(Move::Prev)
    }

    fn go(&mut self, to: Move<'_>) -> Result<bool> {
        self.merge.start(to);
        self.run()
    }

    fn run(&mut self) -> Result<bool> {
        let (valid, depth) = self.reader.run(&mut self.merge, Some(&mut self.ahead))?;
        if depth > Depth::Memtable {
            self.next_block = NextBlock::Unknown;
        }
        Ok(valid)
    }

    /// Continues the prefetch of the next block, one stage every few steps: each stage is a cache miss that
    /// depends on the stage before.
    fn ask_ahead(&mut self) {
        let (span, stage, steps) = match &mut self.next_block {
            NextBlock::Asked => return,
            NextBlock::Unknown => match self.merge.next_block_span() {
                None => return self.next_block = NextBlock::Asked,
                Some(span) => (span, Stage::Index, STAGE_STEPS),
            },
            NextBlock::Asking { steps, .. } if *steps > 1 => return *steps -= 1,
            NextBlock::Asking { span, next, .. } => (*span, *next, STAGE_STEPS),
        };
        self.reader.prefetch(span, stage);
        self.next_block = match stage {
            Stage::Index => NextBlock::Asking { span, next: Stage::Frame, steps },
            Stage::Frame => NextBlock::Asking { span, next: Stage::Content, steps },
            Stage::Content => NextBlock::Asked,
        };
    }

    /// The key with the error that ended the last move: its merge operands cannot be merged, or its long
    /// value is damaged. A seek behind it goes on with the keys after it. `None` if the last move did not
    /// fail, or failed for a reason that is not that of one key.
    #[must_use]
    pub fn failed_key(&self) -> Option<&[u8]> {
        self.merge.failed_key()
    }

    /// Whether there is a current entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.merge.is_valid()
    }

    /// The current key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.merge.key()
    }

    /// The current value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.merge.value()
    }

    /// The current value, for keeping. A value in a page is shared, not copied: the bytes keep that page in
    /// memory.
    #[must_use]
    pub fn shared_value(&self) -> Option<Bytes> {
        self.shared_entry().map(|(_, value)| value)
    }

    /// The current key, and its value for keeping.
    #[inline]
    pub(super) fn shared_entry(&self) -> Option<(&[u8], Bytes)> {
        self.merge.shared_entry()
    }

    /// When the current value expires, Unix milliseconds; 0 if it does not expire, and without a current
    /// entry.
    #[must_use]
    pub const fn expiry_unix_ms(&self) -> u64 {
        self.merge.expiry()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.reader.counters.steps.add(self.fast_steps);
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?})", self.key())
    }
}
