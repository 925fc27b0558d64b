//! The location of storage-class memory, parsed from a string. Pure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use base::{Error, Result};

use crate::emulated::{PROFILES, Profile};

/// The location of storage-class memory.
#[derive(Clone, Debug)]
pub enum ScmLocation {
    /// A directory, a file, a block device or a DAX device.
    Path(PathBuf),
    /// `numa:N`: the memory of that node.
    Numa(u32),
    /// `emulated:PROFILE`, in memory, or `emulated:PROFILE@PATH`, in a file.
    Emulated(&'static Profile, Option<PathBuf>),
}

impl FromStr for ScmLocation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |expected: &str| {
            Err(Error::invalid("location of storage-class memory")
                .expected(expected)
                .got(format_args!("{text:?}")))
        };
        if let Some(node) = text.strip_prefix("numa:") {
            return match node.parse() {
                Ok(node) => Ok(Self::Numa(node)),
                Err(_) => refused("numa: and the number of a node, as in numa:1"),
            };
        }
        if let Some(rest) = text.strip_prefix("emulated:") {
            let (name, path) = match rest.split_once('@') {
                Some((name, path)) => (name, Some(path)),
                None => (rest, None),
            };
            let names = PROFILES.map(|profile| profile.name).join(", ");
            let Some(profile) = Profile::named(name) else {
                return refused(&format!("emulated: and one of {names}"));
            };
            if path.is_some_and(|path| path.is_empty() || path.contains('\0')) {
                return refused("a directory or file behind the @");
            }
            return Ok(Self::Emulated(profile, path.map(PathBuf::from)));
        }
        if text.is_empty() || text.contains('\0') {
            return refused("a directory, a file, a device, numa:N or emulated:PROFILE");
        }
        Ok(Self::Path(text.into()))
    }
}

impl fmt::Display for ScmLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Numa(node) => write!(f, "numa:{node}"),
            Self::Emulated(profile, None) => write!(f, "emulated:{}", profile.name),
            Self::Emulated(profile, Some(path)) => {
                write!(f, "emulated:{}@{}", profile.name, path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;

    #[test]
    fn locations_parse_and_print_unchanged() {
        let paths = ["/mnt/pmem0/terrace", "relative", "/dev/dax0.0"];
        let others = ["numa:0", "numa:17", "emulated:cxl-dram", "emulated:nvme@/dev/shm/x@y"];
        for text in paths.into_iter().chain(others) {
            assert_eq!(text.parse::<ScmLocation>().unwrap().to_string(), text);
        }
        let nodes = ["numa:", "numa:x", "numa:-1", "numa:99999999999"];
        let emulated = ["emulated:", "emulated:none", "emulated:nvme@", "emulated:nvme@a\0"];
        for bad in nodes.into_iter().chain(emulated).chain(["", "a\0b"]) {
            assert_eq!(bad.parse::<ScmLocation>().unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
