//! A problem: damaged, missing or contradictory stored data, found by a check, a scrub or a merge.

use std::fmt;

use crate::Error;

/// Stored data that is damaged, missing or contradicts other data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The damaged pages of a table or value file: the first, and how many.
    pub pages: Option<(u32, u32)>,
    /// The keyspace of the keys that it concerns.
    pub keyspace: Option<String>,
    /// The keys it concerns: from the first to the second. The second is excluded, unless both are equal or
    /// it is the last key of the file.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// The error.
    pub error: Error,
}

impl Problem {
    /// A problem of a whole file.
    #[must_use]
    pub fn of(file: &str, error: Error) -> Self {
        let error = error.without_place(file);
        Self { file: file.to_owned(), pages: None, keyspace: None, keys: None, error }
    }

    /// Adds the pages that the problem concerns: the first and how many.
    #[must_use]
    pub fn on_pages(mut self, pages: Option<(u32, u32)>) -> Self {
        self.pages = pages;
        self
    }

    /// Adds the keyspace of the keys that the problem concerns.
    #[must_use]
    pub fn in_keyspace(mut self, name: impl Into<String>) -> Self {
        self.keyspace = Some(name.into());
        self
    }

    /// Adds the keys that the problem concerns, as in [`Problem::keys`].
    #[must_use]
    pub fn of_keys(mut self, keys: Option<(Vec<u8>, Vec<u8>)>) -> Self {
        self.keys = keys;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, pages, keyspace, keys, error } = self;
        write!(f, "{file}")?;
        match pages {
            Some((page, 1)) => write!(f, ", page {page}")?,
            Some((first, count)) => write!(f, ", pages {first}..={}", first + count.max(&1) - 1)?,
            None => {}
        }
        if let Some(keyspace) = keyspace {
            write!(f, ", keyspace `{}`", keyspace.escape_debug())?;
        }
        if let Some((from, to)) = keys {
            write!(f, ", keys `{}` to `{}`", from.escape_ascii(), to.escape_ascii())?;
        }
        write!(f, ": {error}")
    }
}
