//! The iterator over one table in either direction: a resumable state machine that asks for pages.
//!
//! The caller starts an operation ([`TableCursor::seek`] and the like), and then steps it until it is
//! ready. The cursor keeps its partition's metadata page and its decompressed block, so that an
//! iteration needs each page once.
//!
//! A cursor with bounds is never on an entry outside them. It needs no page that lies entirely outside,
//! except one whose separators do not show that.
//!
//! A forward step within a block costs tens of nanoseconds. A backward step decodes half a restart
//! interval, eight entries, on average.

mod loaded;
mod pass;

use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::Guard;
use base::{Error, Result, Trailer, broken_invariant, invariant};
use bytes::Bytes;

use super::block::{Block, BlockPosition};
use super::meta::MetaPage;
use super::pinned::PinnedMeta;
use super::point::not_supplied;
use super::raw_block::RawBlock;
use super::separator::Separator;
use super::step::{Pages, Span, Step};
use super::table::Table;
use crate::bounds::Bounds;
use loaded::Loaded;

/// A trailer that is before every version of a key.
const BEFORE_ALL: Trailer = Trailer::from_word(u64::MAX);

/// A cursor over the versions of one table: on one version, or on none.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    /// The metadata pages that the table keeps in memory, as of the creation of the cursor.
    pinned: Option<Arc<PinnedMeta>>,
    bounds: Bounds,
    goal: Goal,
    /// The span with the pages that the next step gets.
    waiting: Option<Span>,
    /// The target of a seek; kept to reuse its memory.
    key: Vec<u8>,
    at: Trailer,
    /// The partition that the cursor is in or moves to, and the block in it.
    partition: usize,
    pick: Pick,
    /// The metadata page of a partition, and the number of the partition.
    meta: Option<(usize, Pages)>,
    block: Option<Loaded>,
    position: BlockPosition,
    forward: bool,
    /// The current block as stored, if stored blocks are kept.
    raw: Option<Box<RawBlock>>,
}

/// The rest of the current operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// No operation.
    Idle,
    /// Move to the first entry of the block.
    First,
    /// Move to the last entry of the block.
    Last,
    /// Move to the first entry at or after the target, starting in the block that may contain it.
    Seek,
    /// Move to the last entry before the target.
    SeekBefore,
    Next,
    /// Move to the first entry of the next block.
    NextBlock,
    Prev,
}

/// The choice of a block in the partition, resolved once the metadata page is there.
#[derive(Clone, Copy, Debug)]
enum Pick {
    Number(usize),
    Last,
    Search,
}

impl TableCursor {
    /// A cursor on no entry.
    #[must_use]
    pub fn new(table: Arc<Table>) -> Self {
        Self::with_bounds(table, Bounds::ALL)
    }

    /// A cursor on no entry that sees only entries with keys inside `bounds`.
    #[must_use]
    pub fn with_bounds(table: Arc<Table>, bounds: Bounds) -> Self {
        Self {
            pinned: table.pinned().map(Guard::into_inner),
            table,
            bounds,
            goal: Goal::Idle,
            waiting: None,
            key: Vec::new(),
            at: Trailer::from_word(0),
            partition: 0,
            pick: Pick::Number(0),
            meta: None,
            block: None,
            position: BlockPosition::new(),
            forward: true,
            raw: None,
        }
    }

    /// The table.
    #[must_use]
    pub const fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Starts to move to the first entry.
    pub fn seek_first(&mut self) {
        if let Some(first) = self.bounds.first.clone() {
            self.target(&first, BEFORE_ALL);
            return self.start(Goal::Seek, true);
        }
        self.start(Goal::First, true);
        self.position.clear();
        (self.partition, self.pick) = (0, Pick::Number(0));
    }

    /// Starts to move to the last entry.
    pub fn seek_last(&mut self) {
        if let Some(end) = self.bounds.end.clone() {
            self.target(&end, BEFORE_ALL);
            return self.start(Goal::SeekBefore, false);
        }
        self.start(Goal::Last, false);
        self.position.clear();
        (self.partition, self.pick) = (usize::MAX, Pick::Last);
    }

    /// Starts to move to the first entry at or after (`key`, `at`): a version of `key` with a trailer of
    /// at most `at`, or else the newest version of the next key.
    pub fn seek(&mut self, key: &[u8], at: Trailer) {
        if self.bounds.is_after(key) {
            return self.seek_first();
        }
        self.target(key, at);
        self.start(Goal::Seek, true);
    }

    /// Starts to move to the last entry before (`key`, `at`).
    pub fn seek_before(&mut self, key: &[u8], at: Trailer) {
        if self.bounds.is_before(key) {
            return self.seek_last();
        }
        self.target(key, at);
        self.start(Goal::SeekBefore, false);
    }

    /// Starts to move to the next entry. From no entry it stays on none.
    pub fn next(&mut self) {
        self.start(Goal::Next, true);
    }

    /// Starts to move to the previous entry. From no entry it stays on none.
    pub fn prev(&mut self) {
        self.start(Goal::Prev, false);
    }

    /// Moves to the next entry if it lies in the current block. Returns false, without a move, if it
    /// does not. Must not be called during an operation.
    ///
    /// # Errors
    /// As [`TableCursor::step`].
    #[inline]
    pub fn fast_next(&mut self) -> Result<bool> {
        Ok(self.bounds.is_all() && self.next_in_block()? == Some(true))
    }

    /// Moves to the next entry if it lies in the current block, whether or not it is inside the bounds.
    /// Returns whether it is inside; if not, the cursor is on no entry. `None`, without a move, if the
    /// next entry is not in the block. Must not be called during an operation.
    ///
    /// # Errors
    /// As [`TableCursor::step`].
    #[inline]
    pub fn next_in_block(&mut self) -> Result<Option<bool>> {
        let Some(loaded) = &self.block else { return Ok(None) };
        let block = Block::with_layout(&loaded.bytes, loaded.layout);
        if !self.is_valid() || self.position.index() + 1 >= block.count() {
            return Ok(None);
        }
        self.forward = true;
        self.position.next(block).map_err(|error| self.fail(error))?;
        let is_inside = !self.bounds.is_before(self.position.key());
        if !is_inside {
            self.position.clear();
        }
        Ok(Some(is_inside))
    }

    /// The span that a forward iteration needs after the current block, if it is known.
    #[must_use]
    pub fn next_block_span(&self) -> Option<Span> {
        let loaded = self.block.as_ref().filter(|loaded| loaded.partition == self.partition)?;
        let meta = self.meta()?;
        let (first, pages) = meta.block_pages(meta.after(loaded.index).ok()??).ok()?;
        Some(self.table.data_span(first, pages))
    }

    /// Leaves the block after `error`, and adds its location to the error.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        let error = match &self.block {
            // The damage is within a block with a valid checksum: a writer's bug.
            Some(loaded) if error.place().is_none() => self.table.locate_error(error, loaded.page),
            _ => error,
        };
        self.unload();
        error
    }

    fn start(&mut self, goal: Goal, forward: bool) {
        debug_assert_ne!(goal, Goal::Idle, "an operation has a goal");
        (self.goal, self.forward, self.waiting) = (goal, forward, None);
    }

    fn target(&mut self, key: &[u8], at: Trailer) {
        self.position.clear();
        self.key.clear();
        self.key.extend_from_slice(key);
        self.at = self.table.stored_trailer(at).unwrap_or_else(|| {
            // After all versions of the key is before all versions of the smallest following key.
            self.key.push(0);
            BEFORE_ALL
        });
        (self.partition, self.pick) = (usize::MAX, Pick::Search);
    }

    /// Continues the operation: first without pages, then with the pages that the last step needed.
    /// Ready with whether the cursor is on an entry.
    ///
    /// # Errors
    /// `Corrupt` if pages are damaged, `Invalid` if a newer version wrote them or no pages are supplied,
    /// `Retry` if memory for a long value is short. The cursor is then on no entry.
    pub fn step(&mut self, supplied: Option<Pages>) -> Result<Step<bool>> {
        let mut stepped = self.advance(supplied);
        if let Ok(Step::Ready(valid)) = &mut stepped
            && *valid
            && !self.bounds.contains(self.position.key())
        {
            self.position.clear();
            *valid = false;
        }
        if !matches!(stepped, Ok(Step::Need(_))) {
            self.goal = Goal::Idle;
        }
        stepped.map_err(|error| self.fail(error))
    }

    fn advance(&mut self, supplied: Option<Pages>) -> Result<Step<bool>> {
        if let Some(span) = self.waiting.take()
            && !self.load(span, supplied.ok_or_else(|| not_supplied(span))?)?
        {
            self.waiting = Some(span);
            return Ok(Step::Need(span));
        }
        if self.table.properties().entries == 0 {
            return Ok(Step::Ready(false));
        }
        match self.goal {
            Goal::Idle => return Ok(Step::Ready(self.is_valid())),
            Goal::Next | Goal::NextBlock | Goal::Prev if !self.is_valid() => {
                return Ok(Step::Ready(false));
            }
            Goal::NextBlock => {
                if let ControlFlow::Break(valid) = self.select_neighbour(true)? {
                    return Ok(Step::Ready(valid));
                }
            }
            Goal::Next | Goal::Prev => {
                if let ControlFlow::Break(valid) = self.step_in_block()? {
                    return Ok(Step::Ready(valid));
                }
            }
            _ => {}
        }
        // At most two blocks: the one that may contain the target, and its neighbour.
        for _ in 0..3 {
            if let Some(span) = self.missing_span()? {
                self.waiting = Some(span);
                return Ok(Step::Need(span));
            }
            if let ControlFlow::Break(valid) = self.move_to_goal()? {
                return Ok(Step::Ready(valid));
            }
        }
        Err(broken_invariant!("a cursor reaches its goal within two blocks"))
    }

    /// Moves within the block, or selects the neighbouring block.
    fn step_in_block(&mut self) -> Result<ControlFlow<bool>> {
        let Some(loaded) = &self.block else {
            return Err(broken_invariant!("a cursor on an entry has a block"));
        };
        let block = Block::with_layout(&loaded.bytes, loaded.layout);
        let forward = self.goal == Goal::Next;
        let moved = if forward { self.position.next(block)? } else { self.position.prev(block)? };
        if moved {
            return Ok(ControlFlow::Break(true));
        }
        self.select_neighbour(forward)
    }

    /// Selects the neighbouring block. Breaks if there is none.
    fn select_neighbour(&mut self, forward: bool) -> Result<ControlFlow<bool>> {
        let Some(Loaded { partition, index, .. }) = self.block else {
            return Err(broken_invariant!("a neighbour is that of a loaded block"));
        };
        self.position.clear();
        self.goal = if forward { Goal::First } else { Goal::Last };
        let within = match self.meta() {
            Some(meta) if forward => meta.after(index)?,
            Some(meta) => meta.before(index)?,
            None => None,
        };
        (self.partition, self.pick) = match within {
            Some(next) => (partition, Pick::Number(next)),
            None if forward => (partition + 1, Pick::Number(0)),
            None => match partition.checked_sub(1) {
                Some(before) => (before, Pick::Last),
                None => return Ok(ControlFlow::Break(false)),
            },
        };
        if self.partition >= self.table.top()?.partitions() || self.is_outside()? {
            return Ok(ControlFlow::Break(false));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether the selected block lies entirely outside the bounds, as far as the separator before it
    /// shows.
    fn is_outside(&self) -> Result<bool> {
        if self.bounds.is_all() {
            return Ok(false);
        }
        let top = self.table.top()?;
        let between = match (self.pick, self.meta()) {
            (Pick::Number(0), _) if self.forward => {
                top.separators().get(self.partition.saturating_sub(1)).map(Some)
            }
            (Pick::Number(next), Some(meta)) if self.forward => meta.separator(next),
            (Pick::Number(next), Some(meta)) => match meta.after(next)? {
                Some(after) => meta.separator(after),
                None => Ok(None),
            },
            (Pick::Last, _) => top.separators().get(self.partition).map(Some),
            _ => Ok(None),
        };
        Ok(between?.is_some_and(|between| self.ends_at(&between)))
    }

    /// Whether all keys beyond `separator`, in the direction of the operation, are outside the bounds.
    fn ends_at(&self, separator: &Separator) -> bool {
        if self.forward {
            return self.bounds.is_before(&separator.key);
        }
        // If the separator has a trailer, versions of its key lie on both sides.
        self.bounds.first.as_ref().is_some_and(|first| match separator.trailer {
            None => separator.key <= *first,
            Some(_) => separator.key < *first,
        })
    }

    /// The metadata page of the current partition, if it is loaded.
    fn meta(&self) -> Option<MetaPage<'_>> {
        let pinned = self.pinned.as_ref();
        if let Some(meta) = pinned.and_then(|pinned| pinned.get(self.partition)) {
            return Some(meta);
        }
        let (partition, pages) = self.meta.as_ref()?;
        let page = (*partition == self.partition).then(|| pages.iter().next())??;
        let meta = MetaPage::parse(page);
        invariant!(meta.is_ok(), "a metadata page was parsed when it was loaded");
        meta.ok()
    }

    /// The span of the pages that the goal needs and that are not loaded.
    fn missing_span(&mut self) -> Result<Option<Span>> {
        let top = self.table.top()?;
        if self.partition == usize::MAX {
            self.partition = match self.pick {
                Pick::Search => top.search(&self.key, self.at)?,
                _ => top.partitions() - 1,
            };
        }
        let partition = top.partition(self.partition)?;
        let Some(meta) = self.meta() else {
            return Ok(Some(self.table.meta_span(partition)));
        };
        let locate = |error| self.table.locate_error(error, partition.meta_page);
        let index = match self.pick {
            Pick::Number(index) => index,
            Pick::Last => meta.last().map_err(locate)?,
            Pick::Search => meta.search(&self.key, self.at).map_err(locate)?,
        };
        let (first, pages) = meta.block_pages(index).map_err(locate)?;
        self.pick = Pick::Number(index);
        let loaded = self.block.as_ref().map(|loaded| (loaded.partition, loaded.index));
        if loaded == Some((self.partition, index)) {
            return Ok(None);
        }
        Ok(Some(self.table.data_span(first, pages)))
    }

    /// Moves to the goal within the block, or selects the neighbour if the goal is not in the block.
    fn move_to_goal(&mut self) -> Result<ControlFlow<bool>> {
        let Some(loaded) = &self.block else {
            return Err(broken_invariant!("no page is missing once the block is loaded"));
        };
        let block = Block::with_layout(&loaded.bytes, loaded.layout);
        match self.goal {
            Goal::First => self.position.first(block)?,
            Goal::Last => self.position.last(block)?,
            Goal::Seek => {
                if !self.position.seek(block, &self.key, self.at)? {
                    return self.select_neighbour(true);
                }
            }
            Goal::SeekBefore => {
                // Past the last entry if all entries are before the target.
                self.position.seek(block, &self.key, self.at)?;
                if !self.position.prev(block)? {
                    return self.select_neighbour(false);
                }
            }
            Goal::Idle | Goal::Next | Goal::NextBlock | Goal::Prev => {}
        }
        Ok(ControlFlow::Break(self.is_valid()))
    }

    fn unload(&mut self) {
        self.position.clear();
        self.block = None;
    }

    /// Whether the cursor is on an entry.
    #[inline]
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.position.entry().is_some()
    }

    /// The entry's key; empty if on no entry.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        if self.is_valid() { self.position.key() } else { &[] }
    }

    /// The entry's seqno and kind; `None` if on no entry.
    #[inline]
    #[must_use]
    pub fn trailer(&self) -> Option<Trailer> {
        self.position.entry().map(|entry| self.table.visible_trailer(entry.trailer))
    }

    /// The entry's value: a slice of its block, which the slice keeps in memory.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Bytes {
        match (&self.block, self.position.entry()) {
            (Some(loaded), Some(entry)) => loaded.bytes.slice(entry.value()),
            _ => Bytes::new(),
        }
    }

    /// The entry's value, borrowed.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self) -> &[u8] {
        match (&self.block, self.position.entry()) {
            (Some(loaded), Some(entry)) => loaded.bytes.get(entry.value()).unwrap_or_default(),
            _ => &[],
        }
    }
}
