//! Moving data sets between Redis and this store: `terrace import` and `terrace export`.
//!
//! [`rdb`] reads a dump file and [`source`] a running server; both hand keys and their elements, one by one,
//! to a [`Sink`]. [`Importer`] is the sink that stages them in batches of bounded size; [`export`] writes a
//! store as commands of the protocol. One thread; a key replaces the key of its name.

mod export;
mod importer;
mod packed;
pub(crate) mod rdb;
mod source;
#[cfg(test)]
mod tests;

pub use export::{Exported, export};
pub(crate) use importer::Importer;
pub use importer::Tally;
pub use rdb::import_rdb;
pub use source::{Source, import_from};

use crate::value::Kind;

/// Bytes of one string or element that a source may have: those that the server takes.
pub(crate) const STRING_BYTES_MAX: usize = crate::value::STRING_BYTES_MAX;

/// Why an import or export ends.
#[derive(Debug)]
pub struct Stopped {
    text: String,
    /// The error of the store, if it is one.
    store: Option<terracedb::Error>,
}

impl Stopped {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), store: None }
    }

    /// With the place in front.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self { text: format!("{place}: {}", self.text), ..self }
    }

    /// As an error about `object`, which was at `place`; an error of the store stays one.
    #[must_use]
    pub fn error(self, object: &'static str, place: impl std::fmt::Display) -> terracedb::Error {
        let own = || terracedb::Error::invalid(object).at(place).got(&self.text);
        self.store.unwrap_or_else(own)
    }
}

impl From<crate::reply::Fail> for Stopped {
    fn from(fail: crate::reply::Fail) -> Self {
        Self::new(fail.0)
    }
}

impl From<terracedb::Error> for Stopped {
    fn from(error: terracedb::Error) -> Self {
        Self { text: error.to_string(), store: Some(error) }
    }
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// A key of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceKey {
    pub(crate) database: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    /// Unix milliseconds; 0: it does not expire.
    pub(crate) expiry: u64,
}

/// The keys of a source, in its order.
pub(crate) trait Sink {
    /// Begins a key.
    fn begin(&mut self, key: SourceKey) -> Result<(), Stopped>;
    /// The next element of the key: the string, a list's element, a set's member, a field and its value, or a
    /// member and its score (8 bytes, as stored).
    fn element(&mut self, member: &[u8], payload: &[u8]) -> Result<(), Stopped>;
    /// Ends the key.
    fn end(&mut self) -> Result<(), Stopped>;
    /// A key of a type that this store has not.
    fn skipped(&mut self, kind: &'static str);
    /// The source was read up to here: of the bytes of a file, or the keys of a server.
    fn progress(&mut self, done: u64);
}

/// The number of elements of a dump file, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub(crate) fn elements_for_fuzzing(input: &[u8]) -> u64 {
    struct Counted(u64);
    impl Sink for Counted {
        fn begin(&mut self, _key: SourceKey) -> Result<(), Stopped> {
            Ok(())
        }
        fn element(&mut self, _member: &[u8], _payload: &[u8]) -> Result<(), Stopped> {
            self.0 += 1;
            Ok(())
        }
        fn end(&mut self) -> Result<(), Stopped> {
            Ok(())
        }
        fn skipped(&mut self, _kind: &'static str) {}
        fn progress(&mut self, _done: u64) {}
    }
    let mut counted = Counted(0);
    // A damaged file is an error; its elements up to there count.
    let _outcome = rdb::parse(input, &mut counted);
    counted.0
}
