//! An image of a store's files, for tests that change single bytes or files.

use std::collections::BTreeMap;
use std::sync::Arc;

use media::{Medium, MemoryMedium};

/// File contents by file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image(pub(crate) BTreeMap<String, Vec<u8>>);

impl Image {
    pub(crate) fn of(medium: &MemoryMedium) -> Self {
        let content = |name: String| (name.clone(), medium.content(&name).unwrap());
        Self(medium.list().unwrap().into_iter().map(|file| content(file.name)).collect())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.values().map(|content| content.len() as u64).sum()
    }

    /// The files whose names contain `part`; at least one.
    pub(crate) fn named(&self, part: &str) -> Vec<&String> {
        let names: Vec<_> = self.0.keys().filter(|name| name.contains(part)).collect();
        assert!(!names.is_empty(), "no file is named {part}");
        names
    }

    /// A new device with these files, but with file `name` replaced by `changed`, or removed if that is
    /// `None`.
    pub(crate) fn with(&self, name: &str, changed: Option<Vec<u8>>) -> Arc<MemoryMedium> {
        let medium = MemoryMedium::new();
        for (other, content) in self.0.iter().filter(|(other, _)| *other != name) {
            medium.insert(other, content.clone()).unwrap();
        }
        if let Some(content) = changed {
            medium.insert(name, content).unwrap();
        }
        Arc::new(medium)
    }

    /// A new device with these files, with the bits of `mask` flipped in byte `at` of file `name`.
    pub(crate) fn flipped(&self, name: &str, at: usize, mask: u8) -> Arc<MemoryMedium> {
        let mut content = self.0[name].clone();
        content[at] ^= mask;
        self.with(name, Some(content))
    }
}

/// The length of `content` without its trailing zeros.
pub(crate) fn used(content: &[u8]) -> usize {
    content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}
