//! The merging iterator: walks a keyspace in key order and returns the newest visible version of each key,
//! merged from memtables and runs, in both directions.
//!
//! A resumable operation: [`MergingIter::start`] begins a move, and the page reader runs it until it needs no
//! more pages.

mod backward;
mod dead_run;
mod fast_step;
mod key_error;
mod moves;
mod order;
mod positioning;

use std::sync::Arc;

use base::{Charge, EntryKind, Result, Seqno, Trailer, invariant};
use bytes::Bytes;
use read::{PageFile, ReadOp};
use table::{Pages, Span, Step, Table, ValueRead};

use super::range_delete_filter::{RangeDeleteFilter, Visibility};
use super::resolver::{Resolution, Resolver, Value};
use super::source::{Seek, Source};
use super::walk_bounds::WalkBounds;
use crate::View;
use crate::reads::CursorSource;

use dead_run::DeadRun;
pub use fast_step::FastStep;
pub use moves::Move;
use moves::{Phase, Start};

/// The current entry.
enum Current {
    /// None: before the first move, past either end, or after an error.
    Invalid,
    /// The entry of this source, which is the first in order. It is the key's whole value.
    Entry {
        number: usize,
        /// No other source has a version of the key.
        unique: bool,
    },
    /// A key and its value, if several versions make the value or if it is separated.
    Owned(Vec<u8>, Value),
}

/// Whether the version is a value that does not expire and is stored with its key.
#[inline]
const fn is_put(trailer: Trailer) -> bool {
    trailer.word() & 0xff == EntryKind::Put as u64
}

/// A resumable merging iterator.
///
/// Going forward, every source is at or after the current key; going backward, before it. A change of
/// direction makes all sources seek again.
pub struct MergingIter {
    /// The read sequence number, and the time that expiries are compared with, Unix milliseconds.
    at: Seqno,
    now: u64,
    /// A walk that passes them ends.
    bounds: WalkBounds,
    sources: Vec<Source>,
    range_deletes: RangeDeleteFilter,
    /// The dead keys that the walk steps over.
    dead: DeadRun,
    /// Versions stepped over that are not counted yet.
    stepped_over: u64,
    /// Whether the move is a seek, whose runs are not counted yet.
    seeks: bool,
    /// Consecutive versions that range deletes of newer sources hide.
    hidden: u32,
    forward: bool,
    start: Start,
    target: Vec<u8>,
    phase: Phase,
    /// The sources that have an entry, as a binary heap; the first in order is at the root.
    heap: Vec<usize>,
    /// The second source in order, if there is one.
    second: Option<usize>,
    /// The source with an incomplete move.
    pending: Option<usize>,
    /// Forward: the key whose remaining versions are skipped, since they are older than the one returned, or
    /// deleted.
    skip: Option<Vec<u8>>,
    /// The key whose visible versions are being collected, if more than one may count. Forward: operands need
    /// the versions below them. Backward: newer versions may follow.
    resolving: Option<Vec<u8>>,
    /// Collects these versions.
    resolver: Resolver,
    /// The read of the separated value of the key that is being resolved. It ends the move.
    fetch: Option<Box<ValueRead>>,
    /// The key with the error that ended the last move.
    failed: Option<Vec<u8>>,
    current: Current,
    /// A key buffer for reuse.
    spare: Vec<u8>,
    /// Keeps the memtables and tables of the sources alive.
    view: Arc<View>,
    _charge: Charge,
}

/// Memory of a run's cursor, bytes: its current block, decompressed, and the metadata page. A memtable's
/// cursor needs next to nothing.
const RUN_BYTES: u64 = 12 << 10;

/// Memory of an iterator besides its runs, bytes: itself, its keys, the current value.
const CURSOR_BYTES: u64 = 4 << 10;
/// After this many consecutive hidden versions the source seeks to their end. A seek costs as much as about
/// ten steps, and reads one page instead of many.
const HIDDEN_STEPS: u32 = 4;

impl MergingIter {
    /// An iterator without a current entry. A walk that passes `bounds` ends. Fast steps do not compare with
    /// them, so the caller leaves out entries outside.
    ///
    /// # Errors
    /// `Retry` if there is no memory for its blocks (I10).
    pub(super) fn new(source: &CursorSource, bounds: &WalkBounds) -> Result<Self> {
        let CursorSource { reader, view, at, now } = source;
        let (view, at, now) = (Arc::clone(view), *at, *now);
        let runs = view.version.runs().len() as u64;
        let charge = reader.account().charge(runs * RUN_BYTES + CURSOR_BYTES)?;
        // Checked once: an empty memtable may be written to at any time.
        let memtables: Vec<_> = view.memtables().filter(|table| !table.is_empty()).collect();
        let mut sources: Vec<_> = memtables.iter().map(|table| Source::memtable(table)).collect();
        sources.extend(view.version.runs().iter().map(|run| Source::run(run, bounds)));
        let range_deletes = RangeDeleteFilter::of(&memtables, view.version.runs(), at);
        Ok(Self {
            at,
            now,
            bounds: bounds.clone(),
            dead: DeadRun::default(),
            stepped_over: 0,
            seeks: false,
            heap: Vec::with_capacity(sources.len()),
            range_deletes,
            hidden: 0,
            second: None,
            sources,
            forward: true,
            start: Start::First,
            target: Vec::new(),
            phase: Phase::Settle,
            pending: None,
            skip: None,
            resolving: None,
            resolver: Resolver::new(Some(now)),
            fetch: None,
            failed: None,
            current: Current::Invalid,
            spare: Vec::new(),
            view,
            _charge: charge,
        })
    }

    /// Whether it has a current entry: false before the first move and past either end.
    #[inline]
    pub const fn is_valid(&self) -> bool {
        !matches!(self.current, Current::Invalid)
    }

    /// The current key.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.current {
            Current::Invalid => None,
            Current::Entry { number, .. } => Some(self.sources.get(*number)?.entry()?.0),
            Current::Owned(key, _) => Some(key),
        }
    }

    /// The current value.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        match &self.current {
            Current::Invalid => None,
            Current::Entry { number, .. } => self.sources.get(*number).map(Source::value),
            Current::Owned(_, value) => Some(&value.bytes),
        }
    }

    /// The current key, and its value for keeping. A value in a block is shared, not copied.
    #[inline]
    pub fn shared_entry(&self) -> Option<(&[u8], Bytes)> {
        match &self.current {
            Current::Invalid => None,
            Current::Entry { number, .. } => {
                let source = self.sources.get(*number)?;
                source.entry().map(|(key, _)| (key, source.shared_value()))
            }
            Current::Owned(key, value) => Some((key, value.bytes.clone())),
        }
    }

    /// When the current value expires, Unix milliseconds; 0: never, or there is no current value.
    pub const fn expiry(&self) -> u64 {
        match &self.current {
            Current::Owned(_, value) => value.expiry,
            // A put that does not expire.
            Current::Entry { .. } | Current::Invalid => 0,
        }
    }

    /// The span that the current source needs after its current block, going forward.
    pub fn next_block_span(&self) -> Option<Span> {
        let Current::Entry { number, .. } = self.current else { return None };
        self.sources.get(number).filter(|_| self.forward)?.next_block_span()
    }

    /// Starts a move; run the operation until it is ready. `Next` and `Prev` without a current entry do not
    /// move.
    pub fn start(&mut self, to: Move<'_>) {
        self.pending = None;
        self.resolving = None;
        self.fetch = None;
        self.failed = None;
        self.resolver.clear();
        let (start, target, forward) = match to {
            Move::First => (Start::First, &[][..], true),
            Move::Last => (Start::Last, &[][..], false),
            Move::AtOrAfter(key) => (Start::AtOrAfter, key, true),
            Move::Before(key) => (Start::Before, key, false),
            Move::Next | Move::Prev => return self.start_step(to == Move::Next),
        };
        self.view.read_context.walks().seeks.add(1);
        self.seeks = true;
        self.current = Current::Invalid;
        self.skip = None;
        self.target.clear();
        self.target.extend_from_slice(target);
        self.start = start;
        self.forward = forward;
        self.phase = Phase::Position(0);
        self.begin_seek();
    }

    fn start_step(&mut self, forward: bool) {
        self.dead.begin();
        self.phase = Phase::Settle;
        let key = match std::mem::replace(&mut self.current, Current::Invalid) {
            Current::Invalid => None,
            Current::Entry { number, .. } => {
                let entry = self.sources.get(number).and_then(Source::entry);
                entry.map(|(key, _)| Self::key_of(&mut self.spare, key))
            }
            Current::Owned(key, _) => Some(key),
        };
        let Some(key) = key else {
            // Past an end: nothing moves.
            self.phase = Phase::Position(usize::MAX);
            return;
        };
        if forward != self.forward {
            self.target.clear();
            self.target.extend_from_slice(&key);
            self.start = if forward { Start::AtOrAfter } else { Start::Before };
            self.phase = Phase::Position(0);
        }
        self.forward = forward;
        if forward {
            if let Some(old) = self.skip.replace(key) {
                self.spare = old;
            }
        } else {
            self.skip = None;
            self.spare = key;
        }
    }

    fn advance(&mut self, number: usize) -> Result<()> {
        let seek = if self.forward { Seek::Next } else { Seek::Prev };
        if let Some(source) = self.sources.get_mut(number) {
            source.start(seek)?;
            self.pending = Some(number);
        }
        Ok(())
    }

    /// Moves source `number` past a hidden version, by a step or by a seek to the end of the hidden range.
    fn skip_hidden(&mut self, number: usize, visibility: Visibility) -> Result<()> {
        self.hidden += 1;
        // A reader before the range delete sees the version.
        self.dead.leave_gap();
        let (Visibility::HiddenTo(bound), true) = (visibility, self.hidden > HIDDEN_STEPS) else {
            return self.advance(number);
        };
        self.hidden = 0;
        let newest = Trailer::seek(Seqno::MAX);
        if let Some(source) = self.sources.get_mut(number) {
            source.start(match self.forward {
                true => Seek::AtOrAfter(&bound, newest),
                false => Seek::Before(&bound, newest),
            })?;
            self.pending = Some(number);
        }
        Ok(())
    }

    fn key_of(spare: &mut Vec<u8>, key: &[u8]) -> Vec<u8> {
        let mut owned = std::mem::take(spare);
        owned.clear();
        owned.extend_from_slice(key);
        owned
    }

    /// Ends the key that was being resolved, with its value. Returns whether it has one.
    fn set_current(&mut self, value: Option<Value>) -> bool {
        invariant!(self.resolving.is_some(), "a value is resolved for a key");
        let key = self.resolving.take().unwrap_or_default();
        match value {
            Some(value) => {
                self.current = Current::Owned(key, value);
                true
            }
            None => {
                self.spare = key;
                false
            }
        }
    }

    /// Resolves the key, of which every version was added. `Some` if that ends the move.
    fn finish_resolving(&mut self) -> Result<Option<bool>> {
        invariant!(self.resolving.is_some(), "a key is resolved after its versions");
        let key = self.resolving.as_deref().unwrap_or_default();
        let resolution = self.resolver.end(&self.view.read_context, key);
        match resolution.map_err(|error| self.key_failed(error))? {
            Resolution::Value(value) => {
                let is_current = self.set_current(value);
                if !is_current && !self.forward {
                    self.step_over(self.newest_resolved());
                }
                Ok(is_current.then_some(true))
            }
            Resolution::Separated(read) => {
                self.fetch = Some(read);
                Ok(None)
            }
        }
    }

    /// Handles the first source's entry, forward. `Some` once the move is complete.
    fn settle_forward(&mut self) -> Result<Option<bool>> {
        let first = self.first();
        let source = first.and_then(|number| self.sources.get(number));
        let entry = source.and_then(Source::entry);
        if let Some(resolving) = &self.resolving
            && entry.is_none_or(|(key, _)| key != resolving.as_slice())
        {
            return self.finish_resolving();
        }
        let (Some(number), Some(source), Some((key, trailer))) = (first, source, entry) else {
            return Ok(Some(false));
        };
        if self.bounds.is_passed(key, true) {
            return Ok(Some(false));
        }
        if trailer.seqno() > self.at || self.skip.as_deref() == Some(key) {
            if trailer.seqno() > self.at {
                self.dead.meet_invisible(key, trailer);
            }
            self.advance(number)?;
            return Ok(None);
        }
        debug_assert!(
            self.skip.as_deref().is_none_or(|last| last < key),
            "a forward walk returns keys in ascending order"
        );
        if !self.range_deletes.is_empty() {
            match self.range_deletes.visibility(number, key, trailer.seqno(), true) {
                Visibility::Visible => self.hidden = 0,
                visibility => return self.skip_hidden(number, visibility).map(|()| None),
            }
        }
        if self.resolving.is_none() && is_put(trailer) {
            // Older versions of the key are skipped when the next move starts.
            let unique = self.second_key() != Some(key);
            self.current = Current::Entry { number, unique };
            return Ok(Some(true));
        }
        let stored = source.stored(trailer);
        let resolution =
            self.resolver.older(&self.view.read_context, key, trailer, stored, source.file());
        if self.resolving.is_none() {
            self.resolving = Some(Self::key_of(&mut self.spare, key));
        }
        match resolution.map_err(|error| self.key_failed(error))? {
            // Older versions of the key are skipped when the next move starts.
            Some(Resolution::Value(Some(value))) => {
                return Ok(Some(self.set_current(Some(value))));
            }
            Some(Resolution::Separated(read)) => {
                self.fetch = Some(read);
                return Ok(None);
            }
            Some(Resolution::Value(None)) => {
                if let Some(old) = std::mem::replace(&mut self.skip, self.resolving.take()) {
                    self.spare = old;
                }
                if self.step_over(trailer.seqno()) {
                    return Ok(None);
                }
            }
            None => {}
        }
        self.advance(number)?;
        Ok(None)
    }
}

impl ReadOp for MergingIter {
    /// Whether there is a current entry.
    type Output = bool;

    fn step(&mut self, mut supplied: Option<Pages>) -> Result<Step<bool>> {
        loop {
            if let Some(read) = &mut self.fetch {
                let key = self.resolving.as_deref().unwrap_or_default();
                let value = match read.step(key, supplied.take()) {
                    Ok(Step::Need(span)) => return Ok(Step::Need(span)),
                    Ok(Step::Ready(bytes)) => {
                        self.resolver.fetched(&self.view.read_context, key, bytes)
                    }
                    Err(error) => Err(error),
                };
                let value = value.map_err(|error| self.key_failed(error))?;
                self.fetch = None;
                if self.set_current(value) {
                    self.end_walk(true);
                    return Ok(Step::Ready(true));
                }
            }
            if let Some(source) = self.pending.and_then(|number| self.sources.get_mut(number)) {
                if let Step::Need(span) = source.step(supplied.take())? {
                    return Ok(Step::Need(span));
                }
                self.pending = None;
                if self.phase == Phase::Settle {
                    self.after_first_moved();
                }
            }
            match self.phase {
                Phase::Position(usize::MAX) => return Ok(Step::Ready(false)),
                Phase::Position(number) if number < self.sources.len() => {
                    self.position(number)?;
                    self.pending = Some(number);
                    self.phase = Phase::Position(number + 1);
                }
                Phase::Position(_) => {
                    self.build_heap();
                    self.count_seek();
                    self.phase = Phase::Settle;
                }
                Phase::Settle => {
                    let settled =
                        if self.forward { self.settle_forward()? } else { self.settle_backward()? };
                    if let Some(valid) = settled {
                        self.end_walk(valid);
                        return Ok(Step::Ready(valid));
                    }
                    self.stepped_over += 1;
                }
            }
        }
    }

    fn parts(&mut self) -> Result<Vec<&mut dyn ReadOp<Output = ()>>> {
        self.unpositioned()
    }

    fn device_read(&mut self) {
        self.view.read_context.walks().device_reads.add(1);
    }

    fn file(&self) -> Option<PageFile> {
        if let Some(read) = &self.fetch {
            return Some(read.values().into());
        }
        self.table().map(PageFile::from)
    }

    fn table(&self) -> Option<&Arc<Table>> {
        let source = self.pending.filter(|_| self.fetch.is_none())?;
        self.sources.get(source)?.table()
    }
}
