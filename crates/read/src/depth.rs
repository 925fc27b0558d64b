//! Depth of a read: the farthest tier that it needed a page from.

/// The farthest tier that a read needed a page from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// No page was needed.
    #[default]
    Memtable,
    /// Cached pages sufficed.
    Page,
    /// A page was used in place in the SCM tier.
    Scm,
    /// A page was read from the SCM tier.
    ScmRead,
    /// Flash was read.
    Flash,
}
