//! What an operation is for: the unit of metering, and of priority by class.

/// Why the device is touched. Statistics are kept by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The commit log, written on behalf of a caller.
    Log,
    /// The commit log, read at recovery.
    Replay,
    /// The manifest and other small files that name what exists.
    Manifest,
    /// A data page some reader waits for.
    Data,
    /// A metadata page (separators, filter, table footer) some reader waits for.
    Meta,
    /// A data page read ahead of an iterator.
    ReadAhead,
    /// A table written from a memtable.
    Flush,
    /// Tables merged into others.
    Compaction,
    /// Tables written from sorted data that a caller brought.
    Ingest,
    /// Files verified, copied or inspected by a tool.
    Scrub,
}

impl Purpose {
    /// Every purpose, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Log,
        Self::Replay,
        Self::Manifest,
        Self::Data,
        Self::Meta,
        Self::ReadAhead,
        Self::Flush,
        Self::Compaction,
        Self::Ingest,
        Self::Scrub,
    ];

    /// The name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Replay => "replay",
            Self::Manifest => "manifest",
            Self::Data => "data",
            Self::Meta => "meta",
            Self::ReadAhead => "read_ahead",
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Ingest => "ingest",
            Self::Scrub => "scrub",
        }
    }

    /// The class whose turn it is when the device is busy.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Log | Self::Manifest => Class::Log,
            Self::Replay | Self::Data | Self::Meta | Self::ReadAhead => Class::Read,
            Self::Flush => Class::Flush,
            Self::Compaction | Self::Ingest => Class::Compaction,
            Self::Scrub => Class::Scrub,
        }
    }
}

/// Priority at the device, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A caller waits for durability.
    Log,
    /// A caller waits for data.
    Read,
    /// Memory is freed by it.
    Flush,
    /// Shape and space are won by it.
    Compaction,
    /// Nobody waits.
    Scrub,
}
