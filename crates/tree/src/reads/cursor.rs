//! A cursor: one position in a keyspace, moved by key.

use std::fmt;
use std::sync::Arc;

use base::{Result, Seqno};
use bytes::Bytes;
use cache::Stage;
use table::Span;

use super::{FastStep, MergingIter, Move};
use crate::View;
use read::{Depth, PageReader, ReadAhead};

/// What cursors over one moment of a keyspace are made from.
#[derive(Clone)]
pub struct CursorSource {
    pub reader: Arc<PageReader>,
    pub view: Arc<View>,
    pub at: Seqno,
    /// The time that expiries are held against, Unix milliseconds.
    pub now: u64,
}

impl CursorSource {
    pub fn cursor(&self) -> Result<Cursor> {
        Ok(Cursor {
            reader: Arc::clone(&self.reader),
            merge: MergingIter::new(
                Arc::clone(&self.view),
                self.at,
                self.now,
                self.reader.account(),
            )?,
            ahead: ReadAhead::default(),
            next_block: NextBlock::Unknown,
            fast_steps: 0,
        })
    }
}

/// Steps at hand between two stages of asking for the next block: a miss takes as long.
const STAGE_STEPS: u32 = 4;

/// How far the processor was asked for the block after the present one.
#[derive(Debug)]
enum NextBlock {
    /// Not at all: the present one is new.
    Unknown,
    Asking {
        span: Span,
        next: Stage,
        /// Steps until then.
        steps: u32,
    },
    /// All the way, or it is not known which it is.
    Asked,
}

/// A position in a keyspace as of one moment: also what expires later is seen until the cursor is
/// dropped.
///
/// It stands on an entry or nowhere: before the first move, past either end, and after an error,
/// from which a seek recovers. It keeps the memtables and tables it reads alive.
pub struct Cursor {
    reader: Arc<PageReader>,
    merge: MergingIter,
    ahead: ReadAhead,
    next_block: NextBlock,
    /// Steps that needed no page and are not counted yet.
    fast_steps: u64,
}

impl Cursor {
    /// Moves to the first key; whether there is one.
    ///
    /// # Errors
    /// `Corrupt` where a page in the way is damaged.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.go(Move::First)
    }

    /// Moves to the last key; whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.go(Move::Last)
    }

    /// Moves to the first key at or after `key`; whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go(Move::AtOrAfter(key.as_ref()))
    }

    /// Moves to the last key before `key`; whether there is one.
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`].
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go(Move::Before(key.as_ref()))
    }

    /// Moves to the next key; whether there is one. Stays where it is if that is nowhere.
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

    /// Moves to the key before; whether there is one. Stays where it is if that is nowhere.
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

    /// Goes on asking the processor for the block after the present one, now and then a stage: each is a
    /// miss of its own, and waits for the one before.
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

    /// True where it stands on an entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.merge.is_valid()
    }

    /// The key it stands on.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.merge.key()
    }

    /// The value it stands on.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.merge.value()
    }

    /// The value it stands on, to keep: where it lies in a page, without a copy; the bytes keep what
    /// they point into alive.
    #[must_use]
    pub fn shared_value(&self) -> Option<Bytes> {
        self.merge.shared_value()
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
