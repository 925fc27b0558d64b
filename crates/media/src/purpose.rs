//! The purpose of an operation: statistics are kept by purpose, priorities by its class.

/// The reason for a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The write-ahead log, written for a caller.
    Log,
    /// The write-ahead log, read at recovery.
    Replay,
    /// The manifest, and other small files that name the files of the store.
    Manifest,
    /// A data page that a read waits for.
    Data,
    /// A metadata page (separators, filter, table footer) that a read waits for.
    Meta,
    /// A data page read ahead of an iterator.
    ReadAhead,
    /// A table written by a flush.
    Flush,
    /// Tables read and written by a merge.
    Compaction,
    /// Tables written from sorted data that the caller supplies (ingest).
    Ingest,
    /// Files verified, copied or inspected by a tool: scrub, backup, check.
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
}

/// Priority at the device, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A caller waits for its write to be durable.
    Log,
    /// A caller waits for data.
    Read,
    /// A flush: frees memory.
    Flush,
    /// A merge: restores the shape of the tree and frees space.
    Compaction,
    /// No caller waits.
    Scrub,
}

impl Class {
    /// The class of an operation for `purpose` at a busy device.
    #[must_use]
    pub const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Log | Purpose::Manifest => Self::Log,
            Purpose::Replay | Purpose::Data | Purpose::Meta | Purpose::ReadAhead => Self::Read,
            Purpose::Flush => Self::Flush,
            Purpose::Compaction | Purpose::Ingest => Self::Compaction,
            Purpose::Scrub => Self::Scrub,
        }
    }
}
