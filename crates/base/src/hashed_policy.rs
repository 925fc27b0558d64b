//! How long a hashed keyspace keeps its entries.

use std::fmt;

/// The merge policy of a hashed keyspace.
///
/// `Keep` follows SILT (Lim et al., SOSP 2011), `Window` follows BufferHash (Anand et al., NSDI 2010).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashedPolicy {
    /// Keeps every entry until it is deleted, overwritten or expires.
    Keep,
    /// Keeps the newest entries, about `bytes` of them on the device, and discards older ones.
    Window {
        /// The size of the window on the device, bytes.
        bytes: u64,
        /// Which entries are discarded.
        discard: Discard,
    },
}

/// Which entries a window discards when it is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discard {
    /// The oldest, whole runs at a time.
    Fifo,
    /// Of the oldest, those that were not read lately.
    Clock,
    /// Of the oldest, those that the named priority does not retain.
    Priority(String),
}

impl fmt::Display for HashedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Window { bytes, discard } => {
                write!(f, "window={}", crate::format_bytes(*bytes))?;
                match discard {
                    Discard::Fifo => Ok(()),
                    Discard::Clock => f.write_str(",clock"),
                    Discard::Priority(name) => write!(f, ",priority:{}", name.escape_debug()),
                }
            }
        }
    }
}
