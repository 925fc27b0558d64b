//! Counters of reads, by the tier that answered them.

use base::Counter;

use crate::Depth;

/// What reads did, by where they ended.
#[derive(Debug, Default)]
pub struct ReadCounters {
    /// Steps of read operations: gets, queued gets and cursor moves alike.
    pub steps: Counter,
    /// Lookups answered by a row in DRAM.
    pub row: Counter,
    /// Lookups that found a value without a page.
    pub memtable: Counter,
    /// Lookups answered from cached pages.
    pub page: Counter,
    /// Lookups answered from the tier below DRAM, by a page or a row.
    pub below: Counter,
    /// Lookups that read the device.
    pub flash: Counter,
    /// Lookups that found no value, and those of them that needed a page to know.
    pub absent: Counter,
    /// See `absent`.
    pub absent_searched: Counter,
    /// Pages that failed their checksum or could not be read.
    pub damaged: Counter,
}

impl ReadCounters {
    /// A lookup that went as far as `depth` ended, and `found` a value or none.
    pub fn lookup_ended(&self, depth: Depth, found: bool) {
        if !found {
            self.absent.add(1);
            self.absent_searched.add(u64::from(depth > Depth::Memtable));
            return;
        }
        match depth {
            Depth::Memtable => self.memtable.add(1),
            Depth::Page => self.page.add(1),
            Depth::Below | Depth::BelowRead => self.below.add(1),
            Depth::Flash => self.flash.add(1),
        }
    }
}
