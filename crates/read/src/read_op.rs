//! Read operation: a read in progress, as a state machine that asks for pages.

use std::sync::Arc;

use base::{Result, broken_invariant};
use table::{Pages, Step, Table};

use crate::PageFile;

/// A read in progress.
///
/// Call [`ReadOp::step`] until it returns a result; when it needs pages, get them and pass them to the
/// next call. The operation belongs to one thread.
pub trait ReadOp {
    /// The result of the read.
    type Output;

    /// Continues with the pages that the last step asked for (`None` at first), until the read ends or needs
    /// more.
    ///
    /// # Errors
    /// The read's: `Corrupt` for damage.
    fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Self::Output>>;

    /// Told before the step that is supplied with pages which were read from flash for this operation.
    fn device_read(&mut self) {}

    /// The parts of the operation that need nothing of one another, that which asked for the pages of the
    /// last step first; none if there are fewer than two. Called when a device must be waited for, so that
    /// the reads of all parts are in flight at once. The caller runs the parts to their ends, and then steps
    /// the operation without pages.
    ///
    /// # Errors
    /// The read's.
    fn parts(&mut self) -> Result<Vec<&mut dyn ReadOp<Output = ()>>> {
        Ok(Vec::new())
    }

    /// The file with the pages that the last step asked for; `None` before a step asked for pages.
    fn file(&self) -> Option<PageFile>;

    /// The table that is read, if its blocks are worth keeping decompressed.
    fn table(&self) -> Option<&Arc<Table>> {
        None
    }
}

/// The file with the pages that `op` asked for in its last step.
///
/// # Errors
/// `Poisoned` if it names none.
pub(crate) fn file_of<O: ReadOp + ?Sized>(op: &O) -> Result<PageFile> {
    op.file().ok_or_else(|| broken_invariant!("a read that asks for pages has a file"))
}
