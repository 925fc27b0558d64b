//! The read of one key in one table, as a machine that asks for pages.
//!
//! At most one metadata page and one data block are needed, also where versions of the key span
//! blocks or partitions; a key that the filter rules out needs the metadata page only.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result, Trailer};
use bytes::Bytes;

use super::block::Block;
use super::read::stored_payload;
use super::step::{Pages, Span, Step};
use super::table::Table;
use crate::page::PageKind;

/// A version of the key that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVersion {
    /// Its sequence number and kind.
    pub trailer: Trailer,
    /// Its value: a slice of its block, which it keeps in memory, or a copy.
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
    state: PointState,
}

#[derive(Clone, Copy, Debug)]
enum PointState {
    Start,
    Meta(Span),
    Data(Span),
    Done,
}

impl<K: AsRef<[u8]>> PointRead<K> {
    /// A read of `key`, whose [`base::key_hash`] is `hash`, in `table`.
    #[must_use]
    pub const fn new(table: Arc<Table>, key: K, hash: u64, at: Trailer) -> Self {
        Self { table, key, hash, at, state: PointState::Start }
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
    pub fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Option<FoundVersion>>> {
        let key = self.key.as_ref();
        // A failed step ends the read.
        match (std::mem::replace(&mut self.state, PointState::Done), supplied) {
            (PointState::Start, _) => {
                let Some(at) = self.table.stored(self.at).filter(|_| self.table.covers(key)) else {
                    return Ok(Step::Ready(None));
                };
                self.at = at;
                let top = self.table.top()?;
                let partition = top.partition(top.search(key, self.at)?)?;
                let span = self.table.meta_span(partition);
                self.state = PointState::Meta(span);
                Ok(Step::Need(span))
            }
            (PointState::Meta(span), Some(pages)) => {
                let block = self.block(span, &pages);
                if pages.are_lost() {
                    self.state = PointState::Meta(span);
                    return Ok(Step::Need(span));
                }
                let Some(span) = block? else { return Ok(Step::Ready(None)) };
                self.state = PointState::Data(span);
                Ok(Step::Need(span))
            }
            (PointState::Data(span), Some(Pages::InPlace(page))) => {
                let found = self.found_in_place(span, &*page);
                if page.is_lost() {
                    self.state = PointState::Data(span);
                    return Ok(Step::Need(span));
                }
                found.map(Step::Ready)
            }
            (PointState::Data(span), Some(pages)) => {
                let bytes = self.table.decode(span, pages)?;
                self.found(span, &bytes, |value| bytes.slice(value)).map(Step::Ready)
            }
            (PointState::Meta(span) | PointState::Data(span), None) => Err(not_supplied(span)),
            (PointState::Done, _) => Ok(Step::Ready(None)),
        }
    }

    /// Where the key's block is, by the metadata page that `pages` of `span` are; none where the key is not
    /// there.
    fn block(&self, span: Span, pages: &Pages) -> Result<Option<Span>> {
        let place = |error| self.table.place(error, span.first);
        let meta = self.table.meta(span, pages)?;
        if !meta.may_contain(self.hash) {
            return Ok(None);
        }
        let block = meta.search(self.key.as_ref(), self.at).map_err(place)?;
        let (first, pages) = meta.block_pages(block).map_err(place)?;
        Ok(Some(self.table.data_span(first, pages)))
    }

    /// What the block of `span` has, which is `bytes`; `value` makes a value of its place there.
    fn found(
        &self,
        span: Span,
        bytes: &[u8],
        value: impl FnOnce(Range<usize>) -> Bytes,
    ) -> Result<Option<FoundVersion>> {
        let place = |error| self.table.place(error, span.first);
        let block = Block::parse(bytes).map_err(place)?;
        let entry = block.get(self.key.as_ref(), self.at).map_err(place)?;
        Ok(entry.map(|entry| {
            let trailer = self.table.seen(entry.trailer);
            FoundVersion { trailer, value: value(entry.value()) }
        }))
    }

    /// What the block of `span` has, which lies on `page`. The value is a copy: `page` may be lost while a
    /// caller holds it.
    fn found_in_place(&self, span: Span, page: &[u8]) -> Result<Option<FoundVersion>> {
        let stored = stored_payload(PageKind::Data, page);
        let Some(payload) = stored.map_err(|error| self.table.place(error, span.first))? else {
            let bytes = self.table.decode_page(span, page)?;
            return self.found(span, &bytes, |value| bytes.slice(value));
        };
        let bytes = page.get(payload).unwrap_or_default();
        let copy = |value| Bytes::copy_from_slice(bytes.get(value).unwrap_or_default());
        self.found(span, bytes, copy)
    }
}

/// A driver's mistake.
#[cold]
pub(crate) fn not_supplied(span: Span) -> Error {
    Error::invalid("step of a read").expected(format_args!("{span:?} supplied")).got("nothing")
}
