//! Counters of reads, by the tier that served them.

use base::Counter;

use crate::Depth;

/// Counts of reads, by the tier that served them.
#[derive(Debug, Default)]
pub struct ReadCounters {
    /// Steps of read operations: gets, queued gets and cursor moves.
    pub steps: Counter,
    /// Lookups served by a row in DRAM.
    pub row: Counter,
    /// Lookups that found a value in a memtable, without a page.
    pub memtable: Counter,
    /// Lookups served by pages cached in DRAM.
    pub page: Counter,
    /// Lookups served by the SCM tier, by a page or a row.
    pub scm: Counter,
    /// Lookups that read flash.
    pub flash: Counter,
    /// Lookups that found no value.
    pub absent: Counter,
    /// Lookups that found no value and needed a page to know it.
    pub absent_searched: Counter,
    /// Pages that failed their checksum or could not be read.
    pub damaged: Counter,
}

impl ReadCounters {
    /// Counts a lookup that needed pages from tiers as far as `depth`, and found a value or none.
    pub fn lookup_ended(&self, depth: Depth, found: bool) {
        if !found {
            self.absent.add(1);
            self.absent_searched.add(u64::from(depth > Depth::Memtable));
            return;
        }
        match depth {
            Depth::Memtable => self.memtable.add(1),
            Depth::Page => self.page.add(1),
            Depth::Scm | Depth::ScmRead => self.scm.add(1),
            Depth::Flash => self.flash.add(1),
        }
    }
}
