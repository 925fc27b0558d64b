//! The words in which a resumable read asks for pages and gets them.
//!
//! A read is a machine that never touches a device: a step says what it needs, its driver finds
//! the pages (in a cache, or on the medium, verifying them) and hands them to the next step. So
//! one thread can keep many reads in flight, and every caller shares one read path.

use std::sync::Arc;

use arena::{Frame, FrameBlock};
use base::TableId;
use base::limits::PAGE_BYTES;
use bytes::Bytes;
use media::Buf;
use media::scm::Pinned;

/// Consecutive pages of one table that a read needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The table.
    pub table: TableId,
    /// The digest of the file they lie in, which stands for its content.
    pub file: u64,
    /// The first page.
    pub first: u32,
    /// How many pages, at least one.
    pub pages: u32,
    /// Whether they are metadata (a partition's separators and filter) rather than data.
    pub meta: bool,
}

/// The content of a [`Span`]: verified by whoever supplies it (I8).
#[derive(Debug)]
pub enum Pages {
    /// A single page, cached or not.
    Frame(Frame),
    /// A single page where it lies in storage-class memory. Whoever read it asks [`Pages::are_lost`].
    InPlace(Pinned),
    /// The block that the one page holds, decompressed before.
    Block(Bytes),
    /// As `Block`, where it hangs on the page's frame.
    Attached(FrameBlock),
    /// The pages of a run that were cached each for itself, in order.
    Frames(Vec<Frame>),
    /// The pages of a run as a device returned them. The buffer may be longer than the span.
    Run(Buf),
    /// Pages that lie in a longer read, shared with whoever made it.
    Part {
        /// The read.
        buf: Arc<Buf>,
        /// Where in it the span begins, bytes.
        at: usize,
        /// How many pages it has.
        pages: u32,
    },
}

impl Pages {
    /// The page, where it is one.
    #[must_use]
    pub fn one(&self) -> Option<&[u8; PAGE_BYTES]> {
        self.iter().next()?.first_chunk()
    }

    /// Whether what was read of them may not have been theirs, since their medium took them away: a read
    /// asks for them again.
    #[must_use]
    pub fn are_lost(&self) -> bool {
        matches!(self, Self::InPlace(page) if page.is_lost())
    }

    /// The pages in order, none of a block; no more than the span has where the supplier sent a longer
    /// buffer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (one, many, run) = match self {
            Self::Frame(frame) => (Some(&**frame as &[u8]), None, None),
            Self::InPlace(page) => (Some(&**page as &[u8]), None, None),
            Self::Frames(frames) => (None, Some(frames), None),
            Self::Block(_) | Self::Attached(_) => (None, None, None),
            Self::Run(buf) => (None, None, Some(buf.chunks_exact(PAGE_BYTES))),
            Self::Part { buf, at, pages } => {
                let part = buf.get(*at..*at + *pages as usize * PAGE_BYTES).unwrap_or_default();
                (None, None, Some(part.chunks_exact(PAGE_BYTES)))
            }
        };
        let many = many.into_iter().flatten().map(|frame| &**frame as &[u8]);
        one.into_iter().chain(many).chain(run.into_iter().flatten())
    }
}

/// What a step of a read came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The read is done.
    Ready(T),
    /// The read goes on once these pages are supplied; the same as the last time where those were lost.
    Need(Span),
}
