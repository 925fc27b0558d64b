//! Iteration over a range as a transaction sees it: the store at its snapshot, overlaid with its own writes.

use std::cmp::Ordering;
use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use base::{Result, broken_invariant};
use bytes::Bytes;
use parking_lot::Mutex;
use tree::Tree;
use tree::reads::{Entry, Iter, KeyEntry};

use super::key_set::{KeySpan, successor};
use super::read_set::{ReadSet, ScanId, Side};
use super::write_set::WriteSet;

/// The entries of a range in key order, as the transaction saw them when it made the iterator. `next_back`
/// and `.rev()` iterate from the back.
///
/// The part of the range that was iterated over counts as read by the transaction. An error ends the
/// iterator, unless it is that of one key and [`TransactionIter::continue_after_key_errors`] was called.
pub struct TransactionIter {
    tree: Arc<Tree>,
    store: Stored,
    writes: Arc<WriteSet>,
    reads: Arc<Mutex<ReadSet>>,
    scan: ScanId,
    /// The part of the range that is left.
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// The keys without a value that the last steps from either side passed.
    front: Passed,
    back: Passed,
    continues: bool,
    ended: bool,
}

/// Keys without a value, one behind the other, that an iterator passed on one side.
#[derive(Default)]
struct Passed {
    /// The bound of the iterator before it passed the first of them; `None` before it passed any.
    from: Option<Option<Vec<u8>>>,
    /// Keys that it stepped over, without those that it jumped over.
    steps: u32,
    has_jumped: bool,
}

/// Keys without a value that are worth a note. A note that extends an older one costs no memory.
const STEPS_NOTED_MIN: u32 = 8;

impl Passed {
    const fn is_worth_a_note(&self) -> bool {
        self.steps >= STEPS_NOTED_MIN || (self.has_jumped && self.steps > 0)
    }
}

/// The store's entries, with at most one peeked entry at either end.
struct Stored {
    iter: Iter,
    front: Option<KeyEntry>,
    back: Option<KeyEntry>,
}

impl WriteSet {
    /// Overlays `stored`, the entries of `range` in the store, with these writes, and notes its reads in
    /// `reads`.
    ///
    /// # Errors
    /// Those of `ReadSet::add_scan`.
    pub fn overlay(
        self: &Arc<Self>,
        tree: &Arc<Tree>,
        range: KeySpan<'_>,
        stored: Iter,
        reads: &Arc<Mutex<ReadSet>>,
    ) -> Result<TransactionIter> {
        let scan = reads.lock().add_scan(tree, range)?;
        Ok(TransactionIter {
            tree: Arc::clone(tree),
            store: Stored { iter: stored, front: None, back: None },
            writes: Arc::clone(self),
            reads: Arc::clone(reads),
            scan,
            start: range.start.to_vec(),
            end: range.end.map(<[u8]>::to_vec),
            front: Passed::default(),
            back: Passed::default(),
            continues: false,
            ended: false,
        })
    }
}

impl TransactionIter {
    /// Goes on with the next key after the error of one key, as [`Iter::continue_after_key_errors`].
    #[must_use]
    pub fn continue_after_key_errors(mut self) -> Self {
        self.continues = true;
        self
    }

    /// The next key from `side`, with its value or the error of that key alone.
    fn step(&mut self, side: Side) -> Result<Option<KeyEntry>> {
        loop {
            self.jump(side);
            let range = KeySpan { start: &self.start, end: self.end.as_deref() };
            let own = match side {
                Side::Front => self.writes.first(&self.tree, range),
                Side::Back => self.writes.last(&self.tree, range),
            };
            let own = own.map(|(key, write)| (key.clone(), write.clone()));
            let stored = if range.is_empty() { None } else { self.store.peek(side)? };
            // An own write hides the stored value of the same key.
            let order = match (&own, &stored) {
                (None, None) => {
                    self.note_passed(side, None);
                    self.reads.lock().visited_all(self.scan);
                    return Ok(None);
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((own, _)), Some(stored)) if side == Side::Front => own.cmp(stored),
                (Some((own, _)), Some(stored)) => stored.cmp(own),
            };
            let stored = if order.is_ge() { self.store.take(side) } else { None };
            let own = own.filter(|_| order.is_le());
            let key = own.as_ref().map(|(key, _)| key).or(stored.as_ref().map(|(key, _)| key));
            let key = key.cloned().ok_or_else(|| {
                broken_invariant!("a step takes an own write, a stored entry or both")
            })?;
            let stored = stored.map(|(_, value)| value);
            // An own put or delete replaces the stored value, also one that cannot be read.
            let is_replaced = own.as_ref().is_some_and(|(_, pending)| !pending.needs_stored());
            let stored =
                stored.filter(|_| !is_replaced && !self.writes.hides(&self.tree, &key)).transpose();
            let value = match own {
                Some((_, pending)) => {
                    stored.and_then(|stored| pending.value(&self.tree, &key, stored))
                }
                None => stored,
            };
            let value = value.transpose();
            match &value {
                Some(_) => self.note_passed(side, Some(&key)),
                None => self.count_passed(side),
            }
            self.pass(side, &key)?;
            if let Some(value) = value {
                return Ok(Some((key, value)));
            }
        }
    }

    /// Moves `side` of the range over keys that are known to have no value.
    fn jump(&mut self, side: Side) {
        let range = KeySpan { start: &self.start, end: self.end.as_deref() };
        if range.is_empty() {
            return;
        }
        let Some(to) = self.writes.jump(&self.tree, side, range) else { return };
        let from = self.bound(side);
        let passed = self.passed(side);
        passed.from.get_or_insert(from);
        passed.has_jumped = true;
        match (side, to) {
            (Side::Front, Some(to)) => self.start = to,
            // Nothing is left.
            (Side::Front, None) => self.end = Some(self.start.clone()),
            (Side::Back, to) => self.end = Some(to.unwrap_or_default().max(self.start.clone())),
        }
        self.store.narrow(side, &self.start, self.end.as_deref());
    }

    fn bound(&self, side: Side) -> Option<Vec<u8>> {
        match side {
            Side::Front => Some(self.start.clone()),
            Side::Back => self.end.clone(),
        }
    }

    const fn passed(&mut self, side: Side) -> &mut Passed {
        match side {
            Side::Front => &mut self.front,
            Side::Back => &mut self.back,
        }
    }

    /// Counts a key without a value, before the iterator passes it.
    fn count_passed(&mut self, side: Side) {
        if self.passed(side).from.is_none() {
            let from = self.bound(side);
            self.passed(side).from = Some(from);
        }
        self.passed(side).steps += 1;
    }

    /// Notes the keys without a value that `side` passed, up to `key`, which has one, or up to the other
    /// side.
    fn note_passed(&mut self, side: Side, key: Option<&[u8]>) {
        let passed = std::mem::take(self.passed(side));
        let Some(from) = passed.from.as_ref().filter(|_| passed.is_worth_a_note()) else { return };
        let after = key.map(successor);
        let range = match side {
            Side::Front => {
                let start = from.as_deref().unwrap_or_default();
                KeySpan { start, end: key.or(self.end.as_deref()) }
            }
            Side::Back => {
                let start = after.as_deref().unwrap_or(&self.start);
                KeySpan { start, end: from.as_deref() }
            }
        };
        let is_ordered = range.end.is_none_or(|end| range.start <= end);
        base::invariant!(is_ordered, "an iterator passes keys towards its other side");
        self.writes.note_empty(&self.tree, range);
    }

    /// Moves `side` of the range past `key`.
    fn pass(&mut self, side: Side, key: &Bytes) -> Result<()> {
        base::invariant!(
            *self.start <= **key && self.end.as_ref().is_none_or(|end| **key < **end),
            "an iterator returns keys that it has not passed"
        );
        self.reads.lock().visited(self.scan, side, key)?;
        match side {
            Side::Front => self.start = successor(key),
            Side::Back => self.end = Some(key.to_vec()),
        }
        Ok(())
    }

    /// Ends the iterator after its last entry, and after an error unless it goes on after errors of keys.
    fn end_unless(&mut self, step: Result<Option<KeyEntry>>) -> Option<Result<Entry>> {
        let step = step.transpose();
        self.ended = match &step {
            Some(Ok((_, Ok(_)))) => false,
            Some(Ok((_, Err(_)))) => !self.continues,
            Some(Err(_)) | None => true,
        };
        step.map(|entry| entry.and_then(|(key, value)| Ok((key, value?))))
    }
}

impl Stored {
    /// The key of the next entry from `side`.
    fn peek(&mut self, side: Side) -> Result<Option<Bytes>> {
        // The entry that was peeked from the other end may be the last one.
        let entry = match side {
            Side::Front if self.front.is_none() => {
                let next = self.iter.next_key()?;
                self.front = next.or_else(|| self.back.take());
                &self.front
            }
            Side::Front => &self.front,
            Side::Back if self.back.is_none() => {
                let next = self.iter.next_key_back()?;
                self.back = next.or_else(|| self.front.take());
                &self.back
            }
            Side::Back => &self.back,
        };
        Ok(entry.as_ref().map(|(key, _)| key.clone()))
    }

    /// Leaves out the entries outside of `start..end`, whose bound on `side` is new.
    fn narrow(&mut self, side: Side, start: &[u8], end: Option<&[u8]>) {
        base::invariant!(
            end.is_none_or(|end| start <= end),
            "the sides of an iterator do not cross"
        );
        let is_out =
            |(key, _): &mut KeyEntry| **key < *start || end.is_some_and(|end| **key >= *end);
        drop((self.front.take_if(is_out), self.back.take_if(is_out)));
        // The cursor of an entry that stays is where it belongs.
        match (side, end) {
            (Side::Front, _) if self.front.is_none() => self.iter.skip_to(start),
            (Side::Back, Some(end)) if self.back.is_none() => self.iter.skip_back_to(end),
            _ => {}
        }
    }

    fn take(&mut self, side: Side) -> Option<KeyEntry> {
        match side {
            Side::Front => self.front.take(),
            Side::Back => self.back.take(),
        }
    }
}

impl Iterator for TransactionIter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let step = self.step(Side::Front);
        self.end_unless(step)
    }
}

impl DoubleEndedIterator for TransactionIter {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let step = self.step(Side::Back);
        self.end_unless(step)
    }
}

impl FusedIterator for TransactionIter {}

impl fmt::Debug for TransactionIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.end.as_deref().map(<[u8]>::escape_ascii);
        write!(f, "TransactionIter({}..", self.start.escape_ascii())?;
        end.map_or(Ok(()), |end| end.fmt(f))?;
        f.write_str(")")
    }
}
