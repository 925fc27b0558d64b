//! The kinds of operations of a mixed workload.

use serde::{Serialize, Serializer};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A point lookup.
    Read,
    /// A write of a key that exists or may exist.
    Update,
    /// A write of a new key.
    Insert,
    /// A read of consecutive entries.
    Scan,
    /// A point lookup and a write of the same key, counted as one operation with the time of both.
    ReadModifyWrite,
}

impl Kind {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "rmw",
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
