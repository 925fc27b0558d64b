//! The block that a cursor is in.

use std::ops::{Deref, Range};

use arena::FrameBlock;
use bytes::Bytes;

use crate::sorted::block::Layout;

/// A decompressed block, and which it is.
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
    /// Where they hang on a cached page: nothing is counted but the page's frame.
    Hung(FrameBlock),
}

impl Deref for BlockBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Hung(block) => block,
        }
    }
}

impl BlockBytes {
    /// A part of them, to keep.
    pub(super) fn slice(&self, range: Range<usize>) -> Bytes {
        match self {
            Self::Shared(bytes) => bytes.slice(range),
            Self::Hung(block) => block.shared().slice(range),
        }
    }
}
