//! The read of one key in one table, as a machine that asks for pages.
//!
//! At most one metadata page and one data block are needed, also where versions of the key span
//! blocks or partitions; a key that the filter rules out needs the metadata page only.

use std::sync::Arc;

use base::{Error, Result, Trailer};
use bytes::Bytes;

use super::block::Block;
use super::step::{Pages, Span, Step};
use super::table::Table;

/// A version of the key that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its sequence number and kind.
    pub trailer: Trailer,
    /// Its value: a slice of its block, which it keeps in memory.
    pub value: Bytes,
}

/// Searches the newest version of a key whose trailer is at most a given one.
///
/// `K` is the key as the caller holds it (`&[u8]`, `Bytes`, `Arc<[u8]>`): reads of many tables
/// share one. Nothing is allocated but the decompressed block.
#[derive(Debug)]
pub struct PointRead<K> {
    table: Arc<Table>,
    key: K,
    hash: u64,
    at: Trailer,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Start,
    Meta(Span),
    Data(Span),
    Done,
}

impl<K: AsRef<[u8]>> PointRead<K> {
    /// A read of `key`, whose [`base::key_hash`] is `hash`, in `table`.
    #[must_use]
    pub const fn new(table: Arc<Table>, key: K, hash: u64, at: Trailer) -> Self {
        Self { table, key, hash, at, state: State::Start }
    }

    /// The table it reads.
    #[must_use]
    pub const fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Goes on: first with nothing, then with the pages that the last step needed.
    ///
    /// # Errors
    /// `Corrupt` where pages are damaged, `Invalid` where a newer version wrote them or nothing is
    /// supplied, `Retry` where memory for a long value is short. The read is then over.
    pub fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Option<Found>>> {
        let key = self.key.as_ref();
        // A failed step ends the read.
        match (std::mem::replace(&mut self.state, State::Done), supplied) {
            (State::Start, _) => {
                let Some(at) = self.table.stored(self.at).filter(|_| self.table.covers(key)) else {
                    return Ok(Step::Ready(None));
                };
                self.at = at;
                let top = self.table.top()?;
                let partition = top.partition(top.search(key, self.at)?)?;
                let span = self.table.meta_span(partition);
                self.state = State::Meta(span);
                Ok(Step::Need(span))
            }
            (State::Meta(span), Some(pages)) => {
                let place = |error| self.table.place(error, span.first);
                let meta = self.table.meta(span, &pages)?;
                if !meta.may_contain(self.hash) {
                    return Ok(Step::Ready(None));
                }
                let block = meta.search(key, self.at).map_err(place)?;
                let (first, pages) = meta.block_pages(block).map_err(place)?;
                let span = self.table.data_span(first, pages);
                self.state = State::Data(span);
                Ok(Step::Need(span))
            }
            (State::Data(span), Some(pages)) => {
                let place = |error| self.table.place(error, span.first);
                let bytes = self.table.decode(span, pages)?;
                let block = Block::parse(&bytes).map_err(place)?;
                let found = block.get(key, self.at).map_err(place)?.map(|entry| Found {
                    trailer: self.table.seen(entry.trailer),
                    value: bytes.slice(entry.value()),
                });
                Ok(Step::Ready(found))
            }
            (State::Meta(span) | State::Data(span), None) => Err(not_supplied(span)),
            (State::Done, _) => Ok(Step::Ready(None)),
        }
    }
}

/// A driver's mistake.
#[cold]
pub(crate) fn not_supplied(span: Span) -> Error {
    Error::invalid("step of a read").expected(format_args!("{span:?} supplied")).got("nothing")
}
