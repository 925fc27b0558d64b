//! The walk over a keyspace in key order: the newest visible version of each key, merged from
//! memtables and runs, in both directions.

mod fast_step;
mod order;

use std::sync::Arc;

use base::{Account, Charge, EntryKind, Result, Seqno, Trailer};
use bytes::Bytes;
use read::{PageFile, ReadOp};
use table::{Pages, Span, Step, Table, ValueRead};

use super::range_delete_filter::{RangeDeleteFilter, Visibility};
use super::resolver::{Resolution, Resolver};
use super::source::{Seek, Source};

use crate::View;
pub use fast_step::FastStep;

/// A way to move over visible keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move<'a> {
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// To the first key at or after this one.
    AtOrAfter(&'a [u8]),
    /// To the last key before this one.
    Before(&'a [u8]),
    /// To the next key.
    Next,
    /// To the key before.
    Prev,
}

/// What is left to do of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Put the sources from this one on at the start position.
    Position(usize),
    /// Walk to a visible key.
    Settle,
}

/// Where every source goes at the start of a move; the key is `MergingIter::target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    First,
    Last,
    AtOrAfter,
    Before,
}

/// What the cursor stands on.
enum Current {
    Invalid,
    /// On the entry of this source, the first one: it says all of its key's value.
    Entry {
        number: usize,
        /// No other source has a version of the key.
        unique: bool,
    },
    /// On a key and its value, which several versions make, or which lies apart.
    Owned(Vec<u8>, Bytes),
}

/// A version that says its key's value, for ever.
#[inline]
const fn is_put(trailer: Trailer) -> bool {
    trailer.word() & 0xff == EntryKind::Put as u64
}

/// A resumable merging cursor.
///
/// Forward, every source stands at or after the current key; backward, before it. Turning round
/// positions them anew.
pub struct MergingIter {
    at: Seqno,
    sources: Vec<Source>,
    range_deletes: RangeDeleteFilter,
    /// Versions hidden in succession by range deletes of newer sources.
    hidden: u32,
    forward: bool,
    start: Start,
    target: Vec<u8>,
    phase: Phase,
    /// The sources that stand on an entry, as a binary heap: the one to look at next is first.
    heap: Vec<usize>,
    /// The source to look at after the first, if there is one.
    second: Option<usize>,
    /// The source whose move is under way.
    pending: Option<usize>,
    /// Forward: versions of this key are older than the one reported or hidden by a delete.
    skip: Option<Vec<u8>>,
    /// The key whose visible versions are being met, where more than one may count: forward,
    /// operands wait for what lies under them; backward, newer versions may follow.
    resolving: Option<Vec<u8>>,
    /// What these versions come to.
    resolver: Resolver,
    /// The read of the value of the walked key, where that lies apart: it ends the move.
    fetch: Option<Box<ValueRead>>,
    current: Current,
    /// Spare memory for keys.
    spare: Vec<u8>,
    /// Keeps what the sources walk alive.
    view: Arc<View>,
    _charge: Charge,
}

/// What a run under a cursor takes: its present block, decompressed, and the metadata page. A
/// memtable takes next to nothing.
const RUN_BYTES: u64 = 12 << 10;

/// What a cursor takes beside its runs: itself, its keys, the value it stands on.
const CURSOR_BYTES: u64 = 4 << 10;
/// Hidden versions are stepped over, this many in succession; then the walk jumps to their end. A
/// seek costs as much as some ten steps, and reads a page where steps would read many.
const HIDDEN_STEPS: u32 = 4;

impl MergingIter {
    /// A cursor that stands nowhere. It reads as of `at`, at the time `now`, Unix milliseconds.
    ///
    /// # Errors
    /// `Retry` where there is no memory for its blocks (I10).
    pub fn new(view: Arc<View>, at: Seqno, now: u64, account: &Account) -> Result<Self> {
        let runs = view.version.runs().len() as u64;
        let charge = account.charge(runs * RUN_BYTES + CURSOR_BYTES)?;
        // Looked at once: an empty one may be written to at any moment.
        let memtables: Vec<_> = view.memtables().filter(|table| !table.is_empty()).collect();
        let mut sources: Vec<_> = memtables.iter().map(|table| Source::memtable(table)).collect();
        sources.extend(view.version.runs().iter().map(Source::run));
        let range_deletes = RangeDeleteFilter::of(&memtables, view.version.runs(), at);
        Ok(Self {
            at,
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
            current: Current::Invalid,
            spare: Vec::new(),
            view,
            _charge: charge,
        })
    }

    /// Whether it stands on an entry; not so before the first move and past either end.
    #[inline]
    pub const fn is_valid(&self) -> bool {
        !matches!(self.current, Current::Invalid)
    }

    /// The key it stands on.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.current {
            Current::Invalid => None,
            Current::Entry { number, .. } => Some(self.sources.get(*number)?.entry()?.0),
            Current::Owned(key, _) => Some(key),
        }
    }

    /// The value it stands on.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        match &self.current {
            Current::Invalid => None,
            Current::Entry { number, .. } => self.sources.get(*number).map(Source::value),
            Current::Owned(_, value) => Some(value),
        }
    }

    /// The value it stands on, to keep: where it lies in a block, without a copy.
    pub fn shared_value(&self) -> Option<Bytes> {
        match &self.current {
            Current::Invalid => None,
            Current::Entry { number, .. } => {
                let source = self.sources.get(*number)?;
                source.entry().map(|(_, trailer)| source.stored(trailer))
            }
            Current::Owned(_, value) => Some(value.clone()),
        }
    }

    /// The span that the source it stands on needs after its present block, going forward.
    pub fn next_block_span(&self) -> Option<Span> {
        let Current::Entry { number, .. } = self.current else { return None };
        self.sources.get(number).filter(|_| self.forward)?.next_block_span()
    }

    /// Starts a move; run the operation until it is ready.
    ///
    /// `Next` and `Prev` without a current entry stay where they are: past an end.
    pub fn start(&mut self, to: Move<'_>) {
        self.pending = None;
        self.resolving = None;
        self.fetch = None;
        self.resolver.clear();
        let (start, target, forward) = match to {
            Move::First => (Start::First, &[][..], true),
            Move::Last => (Start::Last, &[][..], false),
            Move::AtOrAfter(key) => (Start::AtOrAfter, key, true),
            Move::Before(key) => (Start::Before, key, false),
            Move::Next | Move::Prev => return self.start_step(to == Move::Next),
        };
        self.view.read_context.seeks().add(1);
        self.current = Current::Invalid;
        self.skip = None;
        self.target.clear();
        self.target.extend_from_slice(target);
        self.start = start;
        self.forward = forward;
        self.phase = Phase::Position(0);
    }

    fn start_step(&mut self, forward: bool) {
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

    /// Leaves what `fate` says is hidden, where the first source stands.
    fn skip_hidden(&mut self, number: usize, visibility: Visibility) -> Result<()> {
        self.hidden += 1;
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

    /// Puts source `number` where the move starts, past what newer sources have deleted there.
    fn position(&mut self, number: usize) -> Result<()> {
        let newest = Trailer::seek(Seqno::MAX);
        let left = match self.start {
            Start::First | Start::AtOrAfter => {
                self.range_deletes.first_undeleted(number, &self.target)
            }
            Start::Last | Start::Before => None,
        };
        let Some(source) = self.sources.get_mut(number) else { return Ok(()) };
        source.start(match (self.start, &left) {
            (Start::First | Start::AtOrAfter, Some(left)) => Seek::AtOrAfter(left, newest),
            (Start::First, None) => Seek::First,
            (Start::Last, _) => Seek::Last,
            (Start::AtOrAfter, None) => Seek::AtOrAfter(&self.target, newest),
            (Start::Before, _) => Seek::Before(&self.target, newest),
        })
    }

    fn key_of(spare: &mut Vec<u8>, key: &[u8]) -> Vec<u8> {
        let mut owned = std::mem::take(spare);
        owned.clear();
        owned.extend_from_slice(key);
        owned
    }

    /// Stands on the walked key with what its versions came to; whether that is a value.
    fn set_current(&mut self, bytes: Option<Bytes>) -> bool {
        let key = self.resolving.take().unwrap_or_default();
        match bytes {
            Some(bytes) => {
                self.current = Current::Owned(key, bytes);
                true
            }
            None => {
                self.spare = key;
                false
            }
        }
    }

    /// Ends the walked key: every version of it was met. `Some` where that ends the move.
    fn finish_resolving(&mut self) -> Result<Option<bool>> {
        let key = self.resolving.as_deref().unwrap_or_default();
        match self.resolver.end(&self.view.read_context, key)? {
            Resolution::Value(value) => {
                Ok(self.set_current(value.map(|value| value.bytes)).then_some(true))
            }
            Resolution::Separated(read) => {
                self.fetch = Some(read);
                Ok(None)
            }
        }
    }

    /// One look at the sources, forward. `Some` where the move is done.
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
        if trailer.seqno() > self.at || self.skip.as_deref() == Some(key) {
            self.advance(number)?;
            return Ok(None);
        }
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
            self.resolver.older(&self.view.read_context, key, trailer, stored, source.file())?;
        if self.resolving.is_none() {
            self.resolving = Some(Self::key_of(&mut self.spare, key));
        }
        match resolution {
            // Older versions of the key are skipped when the next move starts.
            Some(Resolution::Value(Some(value))) => {
                return Ok(Some(self.set_current(Some(value.bytes))));
            }
            Some(Resolution::Separated(read)) => {
                self.fetch = Some(read);
                return Ok(None);
            }
            Some(Resolution::Value(None)) => {
                if let Some(old) = std::mem::replace(&mut self.skip, self.resolving.take()) {
                    self.spare = old;
                }
            }
            None => {}
        }
        self.advance(number)?;
        Ok(None)
    }

    /// One look at the sources, backward. `Some` where the move is done.
    fn settle_backward(&mut self) -> Result<Option<bool>> {
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
        if trailer.seqno() <= self.at {
            if !self.range_deletes.is_empty() {
                match self.range_deletes.visibility(number, key, trailer.seqno(), false) {
                    Visibility::Visible => self.hidden = 0,
                    visibility => return self.skip_hidden(number, visibility).map(|()| None),
                }
            }
            if self.resolving.is_none() {
                self.resolving = Some(Self::key_of(&mut self.spare, key));
            }
            let stored = source.stored(trailer);
            self.resolver.newer(&self.view.read_context, trailer, stored, source.file())?;
        }
        self.advance(number)?;
        Ok(None)
    }
}

impl ReadOp for MergingIter {
    /// Whether it stands on an entry.
    type Output = bool;

    fn step(&mut self, mut supplied: Option<Pages>) -> Result<Step<bool>> {
        loop {
            if let Some(read) = &mut self.fetch {
                let key = self.resolving.as_deref().unwrap_or_default();
                let bytes = match read.step(key, supplied.take())? {
                    Step::Need(span) => return Ok(Step::Need(span)),
                    Step::Ready(bytes) => bytes,
                };
                let value = self.resolver.fetched(&self.view.read_context, key, bytes)?;
                self.fetch = None;
                if self.set_current(value.map(|value| value.bytes)) {
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
                    self.phase = Phase::Settle;
                }
                Phase::Settle => {
                    let settled =
                        if self.forward { self.settle_forward()? } else { self.settle_backward()? };
                    if let Some(valid) = settled {
                        return Ok(Step::Ready(valid));
                    }
                }
            }
        }
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
