//! A version that survives a flush or a merge, on its way from [`Retention`](crate::Retention) to the
//! writer of a table.

use base::{Result, Seqno, Trailer};
use table::{Pointer, Writer};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct RetainedVersion<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its number and kind.
    pub trailer: Trailer,
    /// What is stored of it.
    pub value: &'a [u8],
    /// Where something newer over its key says all by itself, a version or a range delete: the number of
    /// that. Only readers from the version's own number on and below this one need it.
    pub superseded_by: Option<Seqno>,
}

impl RetainedVersion<'_> {
    /// Adds it to `writer`, in the form that [`ValueSeparator`](crate::ValueSeparator) gave it, if any.
    ///
    /// # Errors
    /// As the writer's.
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
