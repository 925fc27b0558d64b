//! The farthest tier that a read needed a page from.

/// The farthest tier that a read needed a page from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// No page was needed.
    #[default]
    Memtable,
    /// Cached pages sufficed.
    Page,
    /// A page was used where it lies in the tier below DRAM.
    Below,
    /// A page was read from the tier below DRAM.
    BelowRead,
    /// The device was read.
    Flash,
}
