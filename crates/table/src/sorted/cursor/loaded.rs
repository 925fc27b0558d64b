//! The pages that a cursor has loaded.

use std::ops::{Deref, Range};

use arena::FrameBlock;
use base::{Result, broken_invariant};
use bytes::Bytes;

use super::{Pick, TableCursor};
use crate::sorted::block::{Block, Layout};
use crate::sorted::step::{Pages, Span};

/// A decompressed block, and its location.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) partition: usize,
    pub(super) index: usize,
    pub(super) page: u32,
    pub(super) bytes: BlockBytes,
    pub(super) layout: Layout,
}

/// The bytes of a block.
#[derive(Debug)]
pub(super) enum BlockBytes {
    Shared(Bytes),
    /// Attached to a cached page: counted as part of the page's frame.
    Attached(FrameBlock),
}

impl Deref for BlockBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Attached(block) => block,
        }
    }
}

impl BlockBytes {
    /// A slice that the caller keeps.
    #[inline]
    pub(super) fn slice(&self, range: Range<usize>) -> Bytes {
        match self {
            Self::Shared(bytes) => bytes.slice(range),
            Self::Attached(block) => block.slice(range),
        }
    }
}

impl TableCursor {
    /// Loads the pages of `span`. False if they were lost meanwhile. Pages in place are copied, because
    /// a cursor lives longer than they may.
    pub(super) fn load(&mut self, span: Span, pages: Pages) -> Result<bool> {
        let Pages::InPlace(page) = pages else { return self.keep(span, pages).map(|()| true) };
        let kept = match span.meta {
            true => Ok(self.table.copied(&page)),
            false => self.table.decode_page(span, &*page).map(Pages::Block),
        };
        if page.is_lost() {
            return Ok(false);
        }
        self.keep(span, kept?).map(|()| true)
    }

    fn keep(&mut self, span: Span, pages: Pages) -> Result<()> {
        if span.meta {
            self.table.meta(span, &pages)?;
            self.meta = Some((self.partition, pages));
            return Ok(());
        }
        let Pick::Number(index) = self.pick else {
            return Err(broken_invariant!("a block is picked before its pages are read"));
        };
        // The position refers to the previous block.
        self.unload();
        if let Some(raw) = &mut self.raw {
            let kept = raw.stored().keep(&pages, span.pages);
            kept.map_err(|error| self.table.locate_error(error, span.first))?;
        }
        let bytes = match pages {
            Pages::Attached(block) => BlockBytes::Attached(block),
            pages => BlockBytes::Shared(self.table.decode(span, pages)?),
        };
        let locate = |error| self.table.locate_error(error, span.first);
        let block = Block::parse(&bytes, self.table.hash_key()).map_err(locate)?;
        if let Some(meta) = self.meta().filter(|meta| meta.has_bins()) {
            let checked = block.first_head().and_then(|head| meta.check_first(index, &head));
            checked.map_err(locate)?;
        }
        let layout = block.layout();
        self.block =
            Some(Loaded { partition: self.partition, index, page: span.first, bytes, layout });
        Ok(())
    }
}
