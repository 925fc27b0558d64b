//! Dead spans: key ranges of a keyspace in which no key has a value, noted by walks that stepped over many
//! dead keys, so that the next walk jumps. Behind a queue, from which the first key is taken and deleted, the
//! tombstones of a million keys may wait for a merge; without the note every walk from the start steps over
//! all of them.
//!
//! A span is valid for reads at its seqno or later, and at its time or later, as long as no key in it is
//! written. It says nothing about the place of the tombstones: flushes and merges do not change it.
//!
//! Why no walk jumps over a value (I1):
//!
//! - A walk notes a span only if it saw every version in it, in the memtables and tables of its view, and the
//!   newest version of each key that was visible to it is a tombstone or expired. Versions that are not yet
//!   visible to it must be tombstones too. The span's seqno is that of the newest tombstone.
//! - A writer that puts a key inserts it into a memtable, then looks for a span with the key and
//!   cuts it, then makes the put visible ([`DeadSpans::written`]). A walk announces the span, then searches
//!   the memtables once more, then confirms the span. Between the two steps of either is a fence. So the
//!   writer sees the span, or the walk sees the put. The walk searches the sealed memtables too: a writer
//!   that took its sequence number before the memtable was sealed inserts into it after that.
//! - If the active memtable was sealed or tables were ingested since the walk took its view, the span is not
//!   noted. Both are announced before the new view is there ([`DeadSpans::sealed`], [`DeadSpans::ingested`]).
//!
//! Threads: any. Cost: a put takes one fence, and a lock shared with other writers while there are spans. At
//! most [`SPANS_MAX`] spans a keyspace, of short keys, charged once (I10).

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

use base::{Account, Charge, Counter, EntryKind, Seqno, Trailer};
use parking_lot::RwLock;

use crate::{Memtable, View};

/// Most spans of a keyspace.
const SPANS_MAX: usize = 64;

/// Most bytes of the two keys of a span.
const SPAN_KEYS_MAX: usize = 1024;

/// Memory of a keyspace's spans, bytes.
const SPANS_BYTES: u64 = (SPANS_MAX * (SPAN_KEYS_MAX + size_of::<Span>())) as u64;

/// The reads for which a span is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAt {
    /// The read sequence number.
    pub(crate) seqno: Seqno,
    /// The time that expiries are compared with, Unix milliseconds.
    pub(crate) now: u64,
}

/// The keys from `start` up to, and without, `end`.
#[derive(Debug)]
struct Span {
    start: Box<[u8]>,
    end: Box<[u8]>,
    /// The first reads for which it is valid.
    from: ReadAt,
    /// The number of the announcement, until it is confirmed.
    announced: Option<u64>,
    /// Whether a walk jumped over it since the last memtable was sealed.
    used: AtomicBool,
}

impl Span {
    fn holds(&self, key: &[u8]) -> bool {
        *self.start <= *key && *key < *self.end
    }

    fn serves(&self, read: ReadAt) -> bool {
        self.announced.is_none() && self.from.seqno <= read.seqno && self.from.now <= read.now
    }
}

/// The dead spans of one keyspace. See the module.
#[derive(Debug, Default)]
pub struct DeadSpans {
    /// Whether there is a span, announced or confirmed.
    any: AtomicBool,
    state: RwLock<DeadSpansState>,
    /// Jumps of walks over spans.
    pub jumps: Counter,
    /// Spans that walks noted.
    pub noted: Counter,
}

#[derive(Debug, Default)]
struct DeadSpansState {
    /// Ascending by start.
    spans: Vec<Span>,
    /// The active memtable of the newest view, by its address; 0 before the first one was sealed.
    active: usize,
    /// The seqno of the newest ingest.
    ingested: Seqno,
    announcements: u64,
    charge: Option<Charge>,
}

impl DeadSpans {
    /// The first key at or after `key` that is in no span which serves `read`; `None` if that is `key`.
    pub(crate) fn end(&self, key: &[u8], read: ReadAt) -> Option<Vec<u8>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let state = self.state.read();
        let mut end = None;
        for span in state.spans.iter().filter(|span| span.serves(read)) {
            if span.holds(end.unwrap_or(key)) {
                span.used.store(true, Relaxed);
                end = Some(&*span.end);
            }
        }
        debug_assert!(end.is_none_or(|end| key < end), "a jump goes forward");
        end.inspect(|_| self.jumps.add(1)).map(<[u8]>::to_vec)
    }

    /// The least key such that it and all keys after it up to `key` are in spans which serve `read`; `None`
    /// if `key` is in none.
    pub(crate) fn start(&self, key: &[u8], read: ReadAt) -> Option<Vec<u8>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let state = self.state.read();
        let mut start: Option<&[u8]> = None;
        for span in state.spans.iter().rev().filter(|span| span.serves(read)) {
            let reaches = match start {
                None => span.holds(key),
                Some(start) => *span.start < *start && *start <= *span.end,
            };
            if reaches {
                span.used.store(true, Relaxed);
                start = Some(&span.start);
            }
        }
        debug_assert!(
            start.is_none_or(|start| start <= key),
            "a jump backward does not go forward"
        );
        start.inspect(|_| self.jumps.add(1)).map(<[u8]>::to_vec)
    }

    /// Whether a walk may find spans.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// A write of `kind` to `key` is in the active memtable and not visible yet.
    pub fn written(&self, key: &[u8], kind: EntryKind) {
        if matches!(kind, EntryKind::Delete | EntryKind::DeleteRange) {
            return;
        }
        // The write is in the memtable before the spans are looked at.
        fence(SeqCst);
        if !self.any.load(Relaxed) || !self.state.read().spans.iter().any(|span| span.holds(key)) {
            return;
        }
        let mut state = self.state.write();
        let mut parts = Vec::new();
        for span in state.spans.extract_if(.., |span| span.holds(key)) {
            if span.announced.is_some() {
                continue;
            }
            let after: Box<[u8]> = successor(key).into();
            let used = || AtomicBool::new(span.used.load(Relaxed));
            if *span.start < *key {
                let (start, end) = (span.start.clone(), key.into());
                parts.push(Span { start, end, from: span.from, announced: None, used: used() });
            }
            if after < span.end {
                let (start, end) = (after, span.end.clone());
                parts.push(Span { start, end, from: span.from, announced: None, used: used() });
            }
        }
        parts.into_iter().for_each(|part| state.insert(part));
        self.any.store(!state.spans.is_empty(), Relaxed);
    }

    /// A memtable is about to be sealed; `next` takes the later writes. Called before the view with `next` is
    /// installed. Forgets the spans that no walk used since the memtable before it was sealed.
    pub(crate) fn sealed(&self, next: &Arc<Memtable>) {
        let mut state = self.state.write();
        state.active = address(next);
        state.spans.retain(|span| span.announced.is_some() || span.used.swap(false, Relaxed));
        self.any.store(!state.spans.is_empty(), Relaxed);
    }

    /// Tables of an ingest at `seqno` are about to be added. Called before the view with them is installed.
    pub(crate) fn ingested(&self, seqno: Seqno) {
        let mut state = self.state.write();
        state.ingested = seqno;
        state.spans.clear();
        self.any.store(false, Relaxed);
    }

    /// Notes that a walk of `view`, for a reader at `read`, saw every version from `start` up to `end` and
    /// found no value. `newest` is the seqno of the newest tombstone that it saw.
    pub(crate) fn note(
        &self,
        view: &View,
        (start, end): (&[u8], &[u8]),
        newest: Seqno,
        read: ReadAt,
        account: &Account,
    ) {
        if start >= end || start.len() + end.len() > SPAN_KEYS_MAX {
            return;
        }
        let from = ReadAt { seqno: newest, now: read.now };
        let Some(number) = self.announce(view, (start, end), from, account) else { return };
        // The span is announced before the memtables are searched.
        fence(SeqCst);
        let is_dead = !view
            .memtables()
            .any(|memtable| holds_hidden_value(memtable, (start, end), read.seqno));
        let mut state = self.state.write();
        // A writer may have removed it.
        let at = state.spans.iter().position(|span| span.announced == Some(number));
        if let Some(at) = at {
            let span = state.spans.remove(at);
            if is_dead {
                self.noted.add(1);
                state.insert(Span { announced: None, used: AtomicBool::new(true), ..span });
            }
        }
        self.any.store(!state.spans.is_empty(), Relaxed);
    }

    fn announce(
        &self,
        view: &View,
        (start, end): (&[u8], &[u8]),
        from: ReadAt,
        account: &Account,
    ) -> Option<u64> {
        let mut state = self.state.write();
        let is_current = state.active == 0 || state.active == address(&view.active);
        if !is_current || state.ingested > view.ingested {
            return None;
        }
        if state.charge.is_none() {
            state.charge = Some(account.try_charge(SPANS_BYTES)?);
        }
        state.announcements += 1;
        let (announced, used) = (Some(state.announcements), AtomicBool::new(true));
        state.make_room();
        state.add(Span { start: start.into(), end: end.into(), from, announced, used });
        self.any.store(true, Relaxed);
        announced
    }
}

impl DeadSpansState {
    /// Adds a confirmed span; leaves it out if another one says as much, and joins short chains of spans if
    /// there are too many.
    fn insert(&mut self, span: Span) {
        let says_more = |one: &Span, other: &Span| {
            one.announced.is_none()
                && one.start <= other.start
                && other.end <= one.end
                && one.from.seqno <= other.from.seqno
                && one.from.now <= other.from.now
        };
        if self.spans.iter().any(|other| says_more(other, &span)) {
            return;
        }
        self.spans.retain(|other| other.announced.is_some() || !says_more(&span, other));
        self.make_room();
        self.add(span);
    }

    fn add(&mut self, span: Span) {
        debug_assert!(span.start < span.end, "a span has keys");
        debug_assert!(self.spans.len() < SPANS_MAX, "there is room for a span");
        let at = self.spans.partition_point(|other| other.start <= span.start);
        self.spans.insert(at, span);
        debug_assert!(
            self.spans.is_sorted_by(|one, next| one.start <= next.start),
            "spans are in the order of their starts"
        );
    }

    /// Makes room for one more span: joins the two neighbours that are valid for the longest time, or drops
    /// the one that was valid first.
    fn make_room(&mut self) {
        if self.spans.len() < SPANS_MAX {
            return;
        }
        let joins = |at: &usize| {
            let (one, next) = (self.spans.get(*at)?, self.spans.get(*at + 1)?);
            let is_chain = one.announced.is_none() && next.announced.is_none();
            (is_chain && one.end == next.start).then(|| one.from.seqno.max(next.from.seqno))
        };
        let places = 0..self.spans.len();
        let oldest = places.clone().filter_map(|at| joins(&at).map(|seqno| (seqno, at))).min();
        if let Some((_, at)) = oldest {
            let next = self.spans.remove(at + 1);
            if let Some(one) = self.spans.get_mut(at) {
                one.end = next.end;
                one.from.seqno = one.from.seqno.max(next.from.seqno);
                one.from.now = one.from.now.max(next.from.now);
                one.used.fetch_or(next.used.load(Relaxed), Relaxed);
            }
            return;
        }
        let first = places.min_by_key(|at| self.spans.get(*at).map(|span| span.from.seqno));
        if let Some(at) = first {
            self.spans.remove(at);
        }
    }
}

/// The least key above `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn address(memtable: &Arc<Memtable>) -> usize {
    Arc::as_ptr(memtable).addr()
}

/// Whether `memtable` has a version from `start` up to `end` that is no tombstone and newer than `at`.
fn holds_hidden_value(memtable: &Memtable, (start, end): (&[u8], &[u8]), at: Seqno) -> bool {
    let mut cursor = memtable.map().cursor();
    match start {
        [] => cursor.seek_first(),
        start => cursor.seek(start, Trailer::seek(Seqno::MAX)),
    }
    while cursor.valid() && cursor.key() < end {
        let trailer = cursor.trailer();
        if trailer.seqno() > at && !matches!(trailer.kind(), Ok(EntryKind::Delete)) {
            return true;
        }
        cursor.next();
    }
    false
}

#[cfg(test)]
mod tests;
