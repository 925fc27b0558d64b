//! The interface of resumable reads: how a read asks for pages and gets them.
//!
//! A read never touches a device. A step returns the span that it needs. The caller finds the pages, in
//! a cache or on the medium, verifies them, and passes them to the next step. So one thread can keep
//! many reads in flight, and all callers share one read path.

use std::sync::Arc;

use arena::{Frame, FrameBlock};
use base::limits::PAGE_BYTES;
use base::{TableId, invariant};
use bytes::Bytes;
use media::Buf;
use media::scm::Pinned;

/// Consecutive pages of one table that a read needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The table.
    pub table: TableId,
    /// The digest of the file, which identifies its content.
    pub file: u64,
    /// The first page.
    pub first: u32,
    /// Number of pages, at least one.
    pub pages: u32,
    /// Whether the pages are metadata (a partition's separators and filter) or data.
    pub meta: bool,
}

/// The content of a [`Span`], verified by the supplier (I8).
#[derive(Debug)]
pub enum Pages {
    /// A single page, cached or not.
    Frame(Frame),
    /// A single page in place, in storage-class memory. After reading it, check [`Pages::are_lost`].
    InPlace(Pinned),
    /// The decompressed block of the span's only page.
    Block(Bytes),
    /// As `Block`, attached to the page's frame.
    Attached(FrameBlock),
    /// The pages of a run that were cached separately, in order.
    Frames(Vec<Frame>),
    /// The pages of a run as read from a device. The buffer may be longer than the span.
    Run(Buf),
    /// Pages within a longer read, which other readers share.
    Part {
        /// The read.
        buf: Arc<Buf>,
        /// Offset of the span in it, bytes.
        at: usize,
        /// Number of pages in the span.
        pages: u32,
    },
}

impl Pages {
    /// The page, if there is exactly one.
    #[must_use]
    pub fn one(&self) -> Option<&[u8; PAGE_BYTES]> {
        self.iter().next()?.first_chunk()
    }

    /// Whether the medium withdrew the pages, so that the bytes read may not be theirs. The read then
    /// asks for them again.
    #[must_use]
    pub fn are_lost(&self) -> bool {
        matches!(self, Self::InPlace(page) if page.is_lost())
    }

    /// The pages in order; none for a block. At most as many as the span has, even if the buffer is
    /// longer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (one, many, run) = match self {
            Self::Frame(frame) => (Some(&**frame as &[u8]), None, None),
            Self::InPlace(page) => (Some(&**page as &[u8]), None, None),
            Self::Frames(frames) => (None, Some(frames), None),
            Self::Block(_) | Self::Attached(_) => (None, None, None),
            Self::Run(buf) => (None, None, Some(buf.chunks_exact(PAGE_BYTES))),
            Self::Part { buf, at, pages } => {
                let part = buf.get(*at..*at + *pages as usize * PAGE_BYTES);
                invariant!(part.is_some(), "a part lies in the read that it is of");
                (None, None, Some(part.unwrap_or_default().chunks_exact(PAGE_BYTES)))
            }
        };
        let many = many.into_iter().flatten().map(|frame| &**frame as &[u8]);
        one.into_iter().chain(many).chain(run.into_iter().flatten())
    }
}

/// The result of a step of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The read is done.
    Ready(T),
    /// The read needs these pages next; the same span again if its pages were lost.
    Need(Span),
}
