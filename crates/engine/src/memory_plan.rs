//! How one memory number is shared out: the most each consumer may take, as a pure function.
//!
//! The budget is `memory` less [`FIXED_BYTES`]. Consumers have caps that add up to less than the
//! budget, so that none ever waits for another's part, and the page cache takes what they do not
//! use for as long as they do not use it. What is left beside the caps is for what grows with the
//! data and has no cap: table metadata, dictionaries, the manifest.

use base::limits::{MEMORY_BYTES_MIN, VALUE_BYTES_MAX, VALUE_MEMORY_PART};
use base::{Error, Result, format_bytes};

/// How one memory number is shared out, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    pub memory: u64,
    /// What accounts may charge together.
    pub budget: u64,
    /// All memtables together, sealed ones too; writers wait above it.
    pub write_buffers: u64,
    /// A memtable is sealed at this size.
    pub memtable: u64,
    /// Iterators, read queues and long values in flight.
    pub reads: u64,
    /// All compaction jobs together.
    pub compaction: u64,
    /// A longer value is refused.
    pub value_max: u64,
}

/// What a process takes that no account sees: code, thread stacks, the allocator's slack, mapped
/// log windows.
pub(crate) const FIXED_BYTES: u64 = 20 << 20;

/// What one flush takes at most: a table writer's fixed buffers, and a long value being compressed.
pub(crate) const FLUSH_BYTES: u64 = 6 << 20;

/// Larger memtables gain nothing but misses: a flush writes a sorted run of this size anyway.
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;

/// A table writer, and a dozen runs to merge.
const COMPACTION_BYTES_MIN: u64 = 7 << 20;

/// More would read ahead farther than devices get faster.
const COMPACTION_BYTES_MAX: u64 = 256 << 20;

impl MemoryPlan {
    /// The plan for `memory` bytes.
    ///
    /// # Errors
    /// `Invalid` where that is under the least.
    pub(crate) fn new(memory: u64) -> Result<Self> {
        if memory < MEMORY_BYTES_MIN {
            return Err(Error::invalid("setting memory")
                .expected(format_args!("at least {}", format_bytes(MEMORY_BYTES_MIN)))
                .got(format_bytes(memory)));
        }
        let budget = memory - FIXED_BYTES;
        let write_buffers = budget / 4;
        Ok(Self {
            memory,
            budget,
            write_buffers,
            memtable: (write_buffers / 4).min(MEMTABLE_BYTES_MAX),
            reads: budget / 8 * 3,
            compaction: (budget / 8).clamp(COMPACTION_BYTES_MIN, COMPACTION_BYTES_MAX),
            value_max: (memory / VALUE_MEMORY_PART).min(VALUE_BYTES_MAX as u64),
        })
    }

    /// The part of the budget that no cap claims: metadata beyond it takes from the others.
    #[cfg(test)]
    fn unclaimed(&self) -> u64 {
        let claimed = self.write_buffers + self.reads + self.compaction + FLUSH_BYTES;
        self.budget.saturating_sub(claimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caps_leave_room_for_metadata_and_hold_what_must_fit() {
        for memory in [MEMORY_BYTES_MIN, 100 << 20, 512 << 20, 8 << 30, 1 << 40] {
            let plan = MemoryPlan::new(memory).unwrap();
            assert!(plan.unclaimed() >= plan.budget / 13, "{plan:?}");
            assert!(plan.memtable * 4 <= plan.write_buffers && plan.budget < memory);
            // The longest value: as pages, and as one piece.
            assert!(plan.reads >= 2 * plan.value_max, "{plan:?}");
            // A merge of twelve runs that reads 256 KiB of each ahead, and a table writer.
            assert!(plan.compaction >= 12 * (292 << 10) + (2 << 20), "{plan:?}");
        }
        assert!(MemoryPlan::new(MEMORY_BYTES_MIN - 1).is_err());
    }
}
