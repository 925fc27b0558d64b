//! Where the reads of a store get rows and pages.

use std::sync::Arc;

use base::Seqno;
use read::PageReader;

use super::rows::RowValue;
use super::{Probe, Rows, Value};
use crate::View;

/// The row cache and the page reader of a store. Shared by all of its reads.
#[derive(Debug)]
pub struct Reader {
    pub pages: Arc<PageReader>,
    pub rows: Rows,
}

impl Reader {
    pub fn new(pages: Arc<PageReader>, rows: Rows) -> Self {
        Self { pages, rows }
    }

    /// The value of `key` at the read sequence number `at`, if a row in DRAM or SCM has it; counted.
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
        let counter = if from_scm { &counters.below } else { &counters.row };
        counter.add(1);
        Some(value)
    }
}
