//! A read in progress, as a state machine that asks for pages.

use std::sync::Arc;

use base::Result;
use table::{Pages, Step, Table};

use crate::PageFile;

/// A read in progress.
pub trait ReadOp {
    /// The result of the read.
    type Output;

    /// Continues with the pages asked for last (none at first), until done or in need of more.
    ///
    /// # Errors
    /// The read's: `Corrupt` for damage.
    fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Self::Output>>;

    /// The file whose pages the last step asked for.
    fn file(&self) -> Option<PageFile>;

    /// The table that is read, if its blocks are worth keeping decompressed.
    fn table(&self) -> Option<&Arc<Table>> {
        None
    }
}
