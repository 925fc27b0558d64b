//! The receiver of the keys of a source.

use super::stopped::Stopped;
use crate::value::Kind;

/// Bytes of one string or element that a source may have: those that the server takes.
pub(crate) const STRING_BYTES_MAX: usize = crate::value::STRING_BYTES_MAX;

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
