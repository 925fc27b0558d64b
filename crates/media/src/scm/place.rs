//! The string that names a place. Pure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use base::{Error, Result};

/// Where storage-class memory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory, a file, a block device or a DAX device.
    Path(PathBuf),
    /// `numa:N`: the memory of that node.
    Numa(u32),
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |expected: &str| {
            Err(Error::invalid("place of storage-class memory")
                .expected(expected)
                .got(format_args!("{text:?}")))
        };
        if let Some(node) = text.strip_prefix("numa:") {
            return match node.parse() {
                Ok(node) => Ok(Self::Numa(node)),
                Err(_) => refused("numa: and the number of a node, as in numa:1"),
            };
        }
        if text.is_empty() || text.contains('\0') {
            return refused("a directory, a file, a device or numa:N");
        }
        Ok(Self::Path(text.into()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Numa(node) => write!(f, "numa:{node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;

    #[test]
    fn places_read_as_they_are_written() {
        for text in ["/mnt/pmem0/terrace", "relative", "/dev/dax0.0", "numa:0", "numa:17"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for bad in ["", "numa:", "numa:x", "numa:-1", "numa:99999999999", "a\0b"] {
            assert_eq!(bad.parse::<Place>().unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
