//! The moves of a merging iterator, and how far one is.

/// A move to another visible key.
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
    /// To the previous key.
    Prev,
}

/// The rest of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Seek with the sources from this one on.
    Position(usize),
    /// Walk to a visible key.
    Settle,
}

/// The target of the sources' seeks at the start of a move. Its key is `MergingIter::target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    First,
    Last,
    AtOrAfter,
    Before,
}
