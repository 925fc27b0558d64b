//! The shares of the memory limit: the most that each consumer may take. A pure function.
//!
//! The rule: background work has memory for every accepted write. No sequence of them makes a store that
//! cannot flush, merge, drop or open with the memory limit under which it was written.
//!
//! - A write without such memory is refused at the write with `Invalid`, which names the limit: values
//!   (`value_max`), batches and write sets (`write_buffers`).
//! - A memtable charges nothing before its first write, so sealing needs no memory. All memtables stay within
//!   `write_buffers`, and replay keeps within half of that and one batch, so opening needs no more than
//!   running did.
//! - A flush has [`FLUSH_BYTES`] of its own. What its table keeps is lent ([`base::Account::lending`]): it is
//!   less than the memtable that is given back right after. The same holds for the outputs of a merge.
//! - A merge needs little, because long values are separated from their keys, also ingested ones, and
//!   operands are combined to short ones only. Two tables with the longest operands fit `compaction_cap`; a
//!   merge of more of them that finds too little memory is planned again with fewer runs.
//! - Open tables keep metadata in memory: about 1 KiB each, 20 bytes for 400 KiB of data, and their range
//!   deletes, about 0.1 KiB and two keys each. Puts and deletes of single keys are refused above `tables`,
//!   range deletes above `range_deletes`. A flush may add to both what memtables had accepted before, less
//!   than it gives back. A merge takes no memory for its inputs, which are open, and drops the range deletes
//!   of what it merged. So metadata, a flush, the merges and a memtable fit together whatever was written.
//! - The indexes of resident keyspaces share `tables`: above it they take no new keys. A flush of such a
//!   keyspace takes no memory beside its memtable, because each new key has its slot before it is written.
//! - `Retry` means that other work holds the memory and gives it back when it ends.
//!
//! The budget is the memory limit less [`FIXED_BYTES`]. The caps of the consumers add up to less than the
//! budget, so that none ever waits for another's share. The page cache takes the memory that they do not use,
//! as long as they do not use it. The rest beside the caps is for memory that grows with the data and has no
//! cap: table metadata, dictionaries, the manifest.

use base::limits::{MEMORY_BYTES_MIN, VALUE_BYTES_MAX, VALUE_MEMORY_PART};
use base::{Error, Result, format_bytes, invariant};

/// The shares of a memory limit, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// The memory limit.
    pub memory: u64,
    /// The most that all accounts may charge together.
    pub budget: u64,
    /// The most for all memtables together, sealed ones included; writers stall above it.
    pub write_buffers: u64,
    /// A memtable of this size is sealed; that of a window at twice the size.
    pub memtable: u64,
    /// Open tables with more metadata, and indexes of resident keyspaces, admit no puts and no
    /// deletes of single keys.
    pub tables: u64,
    /// Open tables with more range deletes admit no range deletes. Merges drop range deletes first
    /// above the half of it.
    pub range_deletes: u64,
    /// The most for iterators, read queues and long values in flight.
    pub reads: u64,
    /// The memory of all compaction jobs together.
    pub compaction: u64,
    /// The most that compaction jobs may charge. More than `compaction`: two tables may have operands of
    /// `value_max` where they are merged, as pages and joined.
    pub compaction_cap: u64,
    /// A longer value is refused.
    pub value_max: u64,
}

/// Memory of a process that no account charges: code, thread stacks, the allocator's slack, mapped log
/// windows.
pub(crate) const FIXED_BYTES: u64 = 20 << 20;

/// The most that one flush takes: the fixed buffers of a table writer, and a long value being compressed.
pub(crate) const FLUSH_BYTES: u64 = 6 << 20;

/// Larger memtables only cost cache misses: a flush writes a sorted run of this size anyway.
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;

/// Room for a table writer and a dozen runs to merge.
const COMPACTION_BYTES_MIN: u64 = 7 << 20;

/// More memory would read ahead farther than makes devices faster.
const COMPACTION_BYTES_MAX: u64 = 256 << 20;

impl MemoryPlan {
    /// The plan for a memory limit of `memory` bytes.
    ///
    /// # Errors
    /// `Invalid` if `memory` is below [`MEMORY_BYTES_MIN`].
    pub(crate) fn new(memory: u64) -> Result<Self> {
        if memory < MEMORY_BYTES_MIN {
            return Err(Error::invalid("setting memory")
                .expected(format_args!("at least {}", format_bytes(MEMORY_BYTES_MIN)))
                .got(format_bytes(memory)));
        }
        let plan = Self::of(memory);
        invariant!(plan.capped() < plan.budget, "the caps leave memory for metadata");
        Ok(plan)
    }

    /// The plan for a memory limit that [`MemoryPlan::new`] accepts. Cheap enough for every write.
    #[inline]
    pub(crate) fn of(memory: u64) -> Self {
        let budget = memory - FIXED_BYTES;
        let write_buffers = budget / 4;
        let compaction = (budget / 8).clamp(COMPACTION_BYTES_MIN, COMPACTION_BYTES_MAX);
        let value_max = (memory / VALUE_MEMORY_PART).min(VALUE_BYTES_MAX as u64);
        Self {
            memory,
            budget,
            write_buffers,
            memtable: (write_buffers / 4).min(MEMTABLE_BYTES_MAX),
            tables: budget / 8 * 3,
            range_deletes: budget / 8,
            reads: budget / 8 * 3,
            compaction,
            compaction_cap: compaction + 3 * value_max,
            value_max,
        }
    }

    /// The sum of the caps.
    const fn capped(&self) -> u64 {
        self.write_buffers + self.reads + self.compaction + FLUSH_BYTES
    }

    /// The part of the budget without a cap. Metadata beyond it takes memory of the others.
    #[cfg(test)]
    fn uncapped(&self) -> u64 {
        self.budget.saturating_sub(self.capped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caps_leave_room_for_metadata_and_hold_what_must_fit() {
        for memory in [MEMORY_BYTES_MIN, 100 << 20, 512 << 20, 8 << 30, 1 << 40] {
            let plan = MemoryPlan::new(memory).unwrap();
            assert!(plan.uncapped() >= plan.budget / 13, "{plan:?}");
            assert!(plan.memtable * 4 <= plan.write_buffers && plan.budget < memory);
            // The longest value fits twice: as pages, and decompressed.
            assert!(plan.reads >= 2 * plan.value_max, "{plan:?}");
            // With all metadata that is admitted, a flush, a memtable and the smallest merges fit.
            let least = FLUSH_BYTES + 2 * plan.memtable + COMPACTION_BYTES_MIN;
            assert!(plan.tables + plan.range_deletes + least <= plan.budget, "{plan:?}");
            // A merge of twelve runs with 256 KiB of read-ahead each fits, and a table writer.
            assert!(plan.compaction >= 12 * (292 << 10) + (2 << 20), "{plan:?}");
        }
        assert!(MemoryPlan::new(MEMORY_BYTES_MIN - 1).is_err());
    }
}
