//! The one read path. A read is a resumable [`ReadOp`]: it asks for pages and never touches a
//! device itself. [`Lookup`] finds one key, [`MergingIter`] walks many sources in key order; both get
//! their pages from one [`PageReader`], one at a time ([`PageReader::run`]) or many in flight
//! ([`ReadQueue`]).

mod below;
mod covers;
mod curves;
mod lookup;
mod merging_iter;
mod page_file;
mod pages;
mod queue;
mod read_ahead;
mod resolver;
mod rows;
mod source;

use std::sync::Arc;

use base::Result;
use table::{Pages, Step, Table};

pub(crate) use curves::Curves;
pub(crate) use lookup::Lookup;
pub(crate) use merging_iter::{FastStep, MergingIter, Move};
pub(crate) use page_file::PageFile;
pub(crate) use pages::{CACHED_RUN_PAGES_MAX, Depth, PageReader};
pub(crate) use queue::QueuePool;
pub use queue::{Completed, ReadQueue};
pub(crate) use read_ahead::ReadAhead;
pub(crate) use resolver::Value;
pub(crate) use rows::{Probe, Rows};

/// A read in progress.
pub(crate) trait ReadOp {
    /// What the read ends with.
    type Output;

    /// Goes on with the pages asked for last (none at first), until done or in need of more.
    fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Self::Output>>;

    /// The file whose pages the last step asked for.
    fn file(&self) -> Option<PageFile>;

    /// The table, where that is one whose blocks are worth keeping decompressed.
    fn table(&self) -> Option<&Arc<Table>> {
        None
    }
}
