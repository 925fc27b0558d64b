//! The read of one key in one table: a resumable state machine that asks for pages.
//!
//! It needs at most one metadata page and one data block, even if the versions of the key span blocks or
//! partitions. If the filter rules the key out, it needs only the metadata page. In a table with bins the
//! metadata pages are in memory, so it needs at most the data block.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result, Trailer};
use bytes::Bytes;

use super::block::Block;
use super::layout::FirstBin;
use super::meta::MetaPage;
use super::read::stored_payload;
use super::step::{Pages, Span, Step};
use super::straddle::{Part, Sought};
use super::table::Table;
use crate::page::{PAYLOAD_BYTES, PageKind};

/// A version of the requested key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVersion {
    /// Its seqno and kind.
    pub trailer: Trailer,
    /// Its value: a slice of its block, which the slice keeps in memory, or a copy.
    pub value: Bytes,
}

/// Reads the newest version of a key with a trailer of at most a given one.
///
/// `K` is the caller's type of key (`&[u8]`, `Bytes`, `Arc<[u8]>`), so that reads of many tables share
/// one key. Allocates only the decompressed block.
#[derive(Debug)]
pub struct PointRead<K> {
    table: Arc<Table>,
    key: K,
    hash: u64,
    at: Trailer,
    /// Whether the filter admits the key, and is not asked again.
    is_admitted: bool,
    /// The only partition that may contain the key, if a probe found it.
    partition: Option<usize>,
    state: PointState,
}

#[derive(Clone, Copy, Debug)]
enum PointState {
    Start,
    Meta(Span),
    /// The block's first bin, in a table with bins.
    Data(Span, Option<FirstBin>),
    /// A part of a straddled block.
    Part(Span, Sought),
    Done,
}

impl PointState {
    /// The pages that the read needs.
    const fn needed(self) -> Option<Span> {
        match self {
            Self::Data(span, _) | Self::Part(span, _) | Self::Meta(span) => Some(span),
            Self::Start | Self::Done => None,
        }
    }
}

impl<K: AsRef<[u8]>> PointRead<K> {
    /// A read of `key`, which has the [`base::key_hash`] `hash`, in `table`.
    #[must_use]
    pub const fn new(table: Arc<Table>, key: K, hash: u64, at: Trailer) -> Self {
        let (is_admitted, partition) = (false, None);
        Self { table, key, hash, at, is_admitted, partition, state: PointState::Start }
    }

    /// The same read, of a key that a filter did not rule out. `partition` is that of a
    /// [`super::FilterProbe`] for the same key and position.
    #[must_use]
    pub fn admitted(self, partition: Option<usize>) -> Self {
        Self { is_admitted: true, partition, ..self }
    }

    /// The table being read.
    #[must_use]
    pub const fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Continues the read: first without pages, then with the pages that the last step needed.
    ///
    /// # Errors
    /// `Corrupt` if pages are damaged, `Invalid` if a newer version wrote them or no pages are supplied,
    /// `Retry` if memory for a long value is short. The read then ends.
    pub fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Option<FoundVersion>>> {
        let key = self.key.as_ref();
        // A failed step ends the read.
        match (std::mem::replace(&mut self.state, PointState::Done), supplied) {
            (PointState::Start, _) => {
                let Some(at) =
                    self.table.stored_trailer(self.at).filter(|_| self.table.covers(key))
                else {
                    return Ok(Step::Ready(None));
                };
                self.at = at;
                let top = self.table.top()?;
                let number = match self.partition {
                    Some(number) => {
                        debug_assert!(
                            top.search(key, self.at).is_ok_and(|found| found == number),
                            "a probe and the read after it are of one position"
                        );
                        number
                    }
                    None => top.search(key, self.at)?,
                };
                let held = self.table.filters.held().filter(|_| !self.is_admitted);
                if let Some(probe) = held.and_then(|held| held.probe(number, self.hash)) {
                    if !probe.may_contain() {
                        return Ok(Step::Ready(None));
                    }
                    self.is_admitted = true;
                }
                let partition = top.partition(number)?;
                let span = self.table.meta_span(partition);
                let pinned = self.table.pinned();
                if let Some(meta) = pinned.as_ref().and_then(|pinned| pinned.get(number)) {
                    let state = self.block(span, meta)?;
                    return Ok(self.go_on(state));
                }
                self.state = PointState::Meta(span);
                Ok(Step::Need(span))
            }
            (PointState::Meta(span), Some(pages)) => {
                let block = self.table.meta(span, &pages).and_then(|meta| self.block(span, meta));
                if pages.are_lost() {
                    self.state = PointState::Meta(span);
                    return Ok(Step::Need(span));
                }
                let state = block?;
                if matches!(state, PointState::Done) {
                    self.table.hold_filter(span, &pages);
                }
                Ok(self.go_on(state))
            }
            (PointState::Part(span, sought), Some(pages)) => {
                let found = self.found_in_part(span, &sought, &pages);
                if pages.are_lost() {
                    self.state = PointState::Part(span, sought);
                    return Ok(Step::Need(span));
                }
                found.map(Step::Ready)
            }
            (PointState::Data(span, bin), Some(Pages::InPlace(page))) => {
                let found = self.found_in_place(span, bin, &*page);
                if page.is_lost() {
                    self.state = PointState::Data(span, bin);
                    return Ok(Step::Need(span));
                }
                found.map(Step::Ready)
            }
            (PointState::Data(span, bin), Some(pages)) => {
                let bytes = self.table.decode(span, pages)?;
                self.found(span, bin, &bytes, |value| bytes.slice(value)).map(Step::Ready)
            }
            (
                PointState::Meta(span) | PointState::Data(span, _) | PointState::Part(span, _),
                None,
            ) => Err(not_supplied(span)),
            (PointState::Done, _) => Ok(Step::Ready(None)),
        }
    }

    /// Continues with `state`, and asks for its pages.
    const fn go_on(&mut self, state: PointState) -> Step<Option<FoundVersion>> {
        self.state = state;
        match state.needed() {
            Some(span) => Step::Need(span),
            None => Step::Ready(None),
        }
    }

    /// The state that asks for the key's block, or the part of it that may contain the key, according to the
    /// metadata page `meta` of `span`; `Done` if the key is absent.
    fn block(&self, span: Span, meta: MetaPage<'_>) -> Result<PointState> {
        let locate = |error| self.table.locate_error(error, span.first);
        if !self.is_admitted && !meta.may_contain(self.hash) {
            return Ok(PointState::Done);
        }
        if let Some((first, pages, sought)) = meta.part(self.key.as_ref()).map_err(locate)? {
            return Ok(PointState::Part(self.table.data_span(first, pages), sought));
        }
        let block = meta.search(self.key.as_ref(), self.at).map_err(locate)?;
        let (first, pages) = meta.block_pages(block).map_err(locate)?;
        let bin = meta.first_bin(block).map_err(locate)?;
        Ok(PointState::Data(self.table.data_span(first, pages), bin))
    }

    /// The version in the part of a straddled block on `pages` of `span`. The value is a copy, because the
    /// pages may be lost while the caller holds the value.
    fn found_in_part(
        &self,
        span: Span,
        sought: &Sought,
        pages: &Pages,
    ) -> Result<Option<FoundVersion>> {
        let locate = |error| self.table.locate_error(error, span.first);
        let damaged = || Error::corrupt("pages of a straddled block");
        let Some(hash_key) = self.table.hash_key() else {
            return Err(locate(damaged().expected("a hash key")));
        };
        let mut joined = Vec::with_capacity(span.pages as usize * PAYLOAD_BYTES);
        let some = pages.iter().take(span.pages as usize);
        let part = Part::join(some, Some(sought), &mut joined).map_err(locate)?;
        let key = (self.key.as_ref(), self.at);
        let found = part.get(&joined, key, hash_key, sought).map_err(locate)?;
        Ok(found.map(|entry| {
            let value = joined.get(entry.value()).unwrap_or_default();
            let trailer = self.table.visible_trailer(entry.trailer);
            FoundVersion { trailer, value: Bytes::copy_from_slice(value) }
        }))
    }

    /// The version in the block `bytes` of `span`; `value` makes a value from its range in the block.
    fn found(
        &self,
        span: Span,
        bin: Option<FirstBin>,
        bytes: &[u8],
        value: impl FnOnce(Range<usize>) -> Bytes,
    ) -> Result<Option<FoundVersion>> {
        let locate = |error| self.table.locate_error(error, span.first);
        let block = Block::parse(bytes, self.table.hash_key()).map_err(locate)?;
        let entry = block.get(self.key.as_ref(), self.at).map_err(locate)?;
        if let (None, Some(bin)) = (&entry, bin) {
            // A key that is not in the block that a wrong index names may be in another.
            let checked = block.first_head().and_then(|head| bin.check(&head));
            checked.map_err(locate)?;
        }
        Ok(entry.map(|entry| {
            let trailer = self.table.visible_trailer(entry.trailer);
            FoundVersion { trailer, value: value(entry.value()) }
        }))
    }

    /// The version in the block of `span`, which lies on `page`. The value is a copy, because `page` may
    /// be lost while the caller holds the value.
    fn found_in_place(
        &self,
        span: Span,
        bin: Option<FirstBin>,
        page: &[u8],
    ) -> Result<Option<FoundVersion>> {
        let stored = stored_payload(PageKind::Data, page);
        let Some(payload) = stored.map_err(|error| self.table.locate_error(error, span.first))?
        else {
            let bytes = self.table.decode_page(span, page)?;
            return self.found(span, bin, &bytes, |value| bytes.slice(value));
        };
        let bytes = page.get(payload).unwrap_or_default();
        let copy = |value| Bytes::copy_from_slice(bytes.get(value).unwrap_or_default());
        self.found(span, bin, bytes, copy)
    }
}

/// A bug of the caller.
#[cold]
pub(crate) fn not_supplied(span: Span) -> Error {
    Error::invalid("step of a read").expected(format_args!("{span:?} supplied")).got("nothing")
}
