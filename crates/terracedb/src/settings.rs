//! What can be set, as plain data, and the sizes that follow from it.

use std::time::Duration;

use base::limits::{MEMORY_BYTES_MIN, VALUE_BYTES_MAX, VALUE_MEMORY_PART};
use base::{Codec, Durability, Error, Result, format_bytes};

/// How one store behaves. Everything has a default that is right for most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// When writes are acknowledged unless a write says otherwise.
    pub(crate) durability: Durability,
    /// The longest time an acknowledged `Interval` write stays at the mercy of a power cut.
    pub(crate) sync_interval: Duration,
    /// How table pages are compressed.
    pub(crate) codec: Codec,
    /// The Zstandard level, where `codec` is Zstandard: -7 to 22.
    pub(crate) zstd_level: i32,
    /// Open even where the log is damaged, giving up what cannot be read in order. What was lost
    /// is in [`crate::Recovery`].
    pub(crate) recover_damaged_log: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: Durability::None,
            sync_interval: Duration::from_millis(100),
            codec: Codec::Lz4,
            zstd_level: 3,
            recover_damaged_log: false,
        }
    }
}

impl Settings {
    pub(crate) fn validate(&self) -> Result<()> {
        if !(-7..=22).contains(&self.zstd_level) {
            return Err(Error::invalid("setting zstd_level")
                .expected("-7..=22")
                .got(self.zstd_level));
        }
        if self.sync_interval < Duration::from_millis(1) {
            return Err(Error::invalid("setting sync_interval")
                .expected("at least 1 ms")
                .got(format_args!("{:?}", self.sync_interval)));
        }
        Ok(())
    }
}

/// How one memory number is shared out, bytes.
///
/// The budget is `memory` less [`FIXED_BYTES`], what a process takes that no account sees: code,
/// thread stacks, the allocator's slack, mapped log windows. Write buffers get a quarter. An eighth,
/// or the longest value and what a flush works with, is for what is charged as it comes: pinned
/// table metadata, flush buffers, iterators, values in flight. The page cache gets the rest, about
/// five eighths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    pub(crate) budget: u64,
    pub(crate) page_cache: u64,
    /// All memtables together, sealed ones too; writers wait above it.
    pub(crate) write_buffers: u64,
    /// A memtable is sealed at this size.
    pub(crate) memtable: u64,
    /// A longer value is refused.
    pub(crate) value_max: u64,
}

/// A process that opens a store for one get peaks at 5.5 MiB with `--memory 64MiB` and 9.4 MiB with
/// `--memory 512MiB` (`/usr/bin/time -f %M terrace get DIR KEY`); the rest is for thread stacks and
/// the allocator's slack under load.
pub(crate) const FIXED_BYTES: u64 = 20 << 20;

/// What one flush takes at most: a table writer's fixed buffers, and a long value being compressed.
pub(crate) const FLUSH_BYTES: u64 = 6 << 20;

/// Larger memtables gain nothing but misses: a flush writes a sorted run of this size anyway.
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;

impl MemoryPlan {
    pub(crate) fn new(memory: u64) -> Result<Self> {
        if memory < MEMORY_BYTES_MIN {
            return Err(Error::invalid("setting memory")
                .expected(format_args!("at least {}", format_bytes(MEMORY_BYTES_MIN)))
                .got(format_bytes(memory)));
        }
        let budget = memory - FIXED_BYTES;
        let write_buffers = budget / 4;
        let value_max = (memory / VALUE_MEMORY_PART).min(VALUE_BYTES_MAX as u64);
        let as_it_comes = (budget / 8).max(value_max + FLUSH_BYTES);
        Ok(Self {
            budget,
            page_cache: budget - write_buffers - as_it_comes,
            write_buffers,
            memtable: (write_buffers / 4).min(MEMTABLE_BYTES_MAX),
            value_max,
        })
    }
}

/// A quarter of what this process may use: of the cgroup's limit, or of the machine's memory.
pub(crate) fn default_memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let cgroup = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
    });
    let limit = cgroup.into_iter().chain(machine).min().unwrap_or(4 << 30);
    (limit / 4).max(MEMORY_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_stay_within_the_whole() {
        for memory in [MEMORY_BYTES_MIN, 512 << 20, 64 << 30] {
            let plan = MemoryPlan::new(memory).unwrap();
            assert!(plan.page_cache + plan.write_buffers <= plan.budget / 8 * 7 + 8);
            assert!(plan.page_cache > plan.budget / 4);
            assert!(plan.memtable * 4 <= plan.write_buffers);
            assert!(plan.budget < memory);
        }
        assert!(MemoryPlan::new(MEMORY_BYTES_MIN - 1).is_err());
        assert!(default_memory() >= MEMORY_BYTES_MIN);
    }
}
