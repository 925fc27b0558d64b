//! What an operation of a mixed workload does.

use serde::{Serialize, Serializer};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A point lookup.
    Read,
    /// A write of a key that is there, or may be.
    Update,
    /// A write of a new key.
    Insert,
    /// A read of some entries in order.
    Scan,
    /// A point lookup, then a write of the same key: one operation, both latencies.
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
