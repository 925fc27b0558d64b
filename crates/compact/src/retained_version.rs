//! A version that survives a flush or a merge, passed from [`Retention`](crate::Retention) to a table writer.

use base::{Result, Seqno, Trailer};
use table::{Pointer, Writer};

/// A surviving version and the version that supersedes it, if any.
#[derive(Clone, Copy, Debug)]
pub struct RetainedVersion<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Sequence number and kind.
    pub trailer: Trailer,
    /// The stored value bytes of this kind of entry.
    pub value: &'a [u8],
    /// Sequence number of the next newer put, delete or range delete of the key; `None` if this is the
    /// newest. Only reads from this version's seqno up to, but without, that number need it.
    pub superseded_by: Option<Seqno>,
}

impl RetainedVersion<'_> {
    /// Adds the version to `writer`; as the pointer `placed` if [`ValueSeparator`](crate::ValueSeparator)
    /// moved its value to a value file.
    ///
    /// # Errors
    /// The error of the writer.
    #[inline]
    pub fn add_to(&self, writer: &mut Writer, placed: Option<(Trailer, Pointer)>) -> Result<()> {
        let encoded = placed.map(|(trailer, pointer)| (trailer, pointer.encode()));
        let (trailer, value) = match &encoded {
            None => (self.trailer, self.value),
            Some((trailer, value)) => (*trailer, value.as_slice()),
        };
        match self.superseded_by {
            None => writer.add(self.key, trailer, value),
            Some(by) => writer.add_superseded(self.key, trailer, value, by),
        }
    }
}
