//! The source of rows and pages for the reads of a store.

use std::sync::Arc;

use base::Seqno;
use read::PageReader;

use super::rows::RowValue;
use super::{Probe, Rows, Value};
use crate::View;

/// The row cache and the page reader of a store, shared by all of its reads.
#[derive(Debug)]
pub struct Reader {
    /// Gets pages from DRAM, SCM or flash.
    pub pages: Arc<PageReader>,
    /// The row cache.
    pub rows: Rows,
}

impl Reader {
    /// A reader of these pages and rows.
    pub fn new(pages: Arc<PageReader>, rows: Rows) -> Self {
        Self { pages, rows }
    }

    /// The value of `key` at the read sequence number `at`, if a row in DRAM or SCM has it. Counts the hit.
    #[inline]
    pub fn row(
        &self,
        view: &View,
        key: &[u8],
        probe: Probe,
        at: Seqno,
        now: Option<u64>,
    ) -> Option<Value> {
        let RowValue { value, from_scm } = self.rows.get(view, key, probe, at, now)?;
        let counters = &self.pages.counters;
        let counter = if from_scm { &counters.scm } else { &counters.row };
        counter.add(1);
        Some(value)
    }
}
