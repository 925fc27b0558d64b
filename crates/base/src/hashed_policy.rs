//! How long a hashed keyspace keeps its entries.

use std::fmt;
use std::str::FromStr;

use crate::limits::OPERATOR_NAME_BYTES_MAX;
use crate::{Error, Result, parse_bytes};

/// Which entries a hashed keyspace keeps, and so how it merges.
///
/// `Keep` follows SILT (Lim et al., SOSP 2011), `Window` follows BufferHash (Anand et al., NSDI 2010),
/// `Resident` follows TyrantKV (Ponnapalli et al.).
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
    /// Keeps every entry in the log on storage-class memory, where reads find it through an index in DRAM.
    Resident,
}

/// Which entries a window discards when it is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discard {
    /// The oldest, whole runs at a time.
    Fifo,
    /// Of the oldest, those that were not read lately. Those that were take at most a quarter of the window.
    Clock,
    /// Of the oldest, those to which the named function gives priority 0, and the lowest others if more than
    /// a quarter of the window would stay.
    Priority(String),
}

impl fmt::Display for HashedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Resident => f.write_str("resident"),
            Self::Window { bytes, discard } => {
                write!(f, "window={}", crate::format_bytes(*bytes))?;
                match discard {
                    Discard::Fifo => Ok(()),
                    Discard::Clock => f.write_str(",clock"),
                    Discard::Priority(name) => write!(f, ",priority={}", name.escape_debug()),
                }
            }
        }
    }
}

/// Parses the form that is displayed: `keep`, `resident`, `window=8GiB`, `window=8GiB,clock`,
/// `window=8GiB,priority=NAME`; `priority:NAME` means the same.
impl FromStr for HashedPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            Error::invalid("policy of a hashed keyspace")
                .expected(
                    "keep, resident, window=SIZE, window=SIZE,clock or window=SIZE,priority=NAME",
                )
                .got(format_args!("`{}`", text.escape_debug()))
        };
        if text == "keep" {
            return Ok(Self::Keep);
        }
        if text == "resident" {
            return Ok(Self::Resident);
        }
        let window = text.strip_prefix("window=").ok_or_else(refused)?;
        let (size, discard) = window.split_once(',').unwrap_or((window, "fifo"));
        let priority = discard.strip_prefix("priority:");
        let discard = match (discard, priority.or_else(|| discard.strip_prefix("priority="))) {
            ("fifo", _) => Discard::Fifo,
            ("clock", _) => Discard::Clock,
            (_, Some(name)) if (1..=OPERATOR_NAME_BYTES_MAX).contains(&name.len()) => {
                Discard::Priority(name.to_owned())
            }
            _ => return Err(refused()),
        };
        Ok(Self::Window { bytes: parse_bytes(size)?, discard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_parse_as_they_are_displayed() {
        for text in [
            "keep",
            "resident",
            "window=8.0 GiB",
            "window=8.0 GiB,clock",
            "window=1.0 MiB,priority=score",
        ] {
            assert_eq!(text.parse::<HashedPolicy>().unwrap().to_string(), text);
        }
        let fifo = HashedPolicy::Window { bytes: 8 << 30, discard: Discard::Fifo };
        assert_eq!("window=8GiB".parse::<HashedPolicy>().unwrap(), fifo);
        assert_eq!("window=8GiB,fifo".parse::<HashedPolicy>().unwrap(), fifo);
        let named =
            HashedPolicy::Window { bytes: 1 << 20, discard: Discard::Priority("score".to_owned()) };
        assert_eq!("window=1MiB,priority:score".parse::<HashedPolicy>().unwrap(), named);
        for text in
            ["", "Keep", "window", "window=", "window=8GiB,", "window=8GiB,priority:", "8GiB"]
        {
            assert!(text.parse::<HashedPolicy>().is_err(), "{text}");
        }
    }
}
