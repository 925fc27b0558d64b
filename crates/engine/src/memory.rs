//! Memory use by component, as `terracedb::stats::Statistics` reports it.

use std::fmt;

use base::{AccountUsage, BudgetUsage, format_bytes};

/// Memory of a process's stores, by component, against their memory limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// The memory limit, bytes.
    pub limit: u64,
    /// The part of the limit that components may charge, bytes. No component charges the rest: code, thread
    /// stacks, the allocator's slack.
    pub budget: u64,
    /// Charged by all components, bytes.
    pub used: u64,
    /// The part of `used` that is reclaimed as soon as another component needs it: the caches, bytes.
    pub spare: u64,
    /// Bytes reclaimed because another component needed them, since the start.
    pub reclaimed: u64,
    /// Charges refused because reclaiming did not make room, since the start.
    pub refused: u64,
    /// Filters and separators of the store's tables, pinned or read through the page cache, bytes. 0 in the
    /// report of `Resources`, which knows no store.
    pub metadata: u64,
    /// Every component that has charged memory, the largest first.
    pub components: Vec<AccountUsage>,
}

impl Memory {
    pub(crate) fn of(limit: u64, usage: BudgetUsage) -> Self {
        let BudgetUsage { limit: budget, used, spare, reclaimed, refused, mut accounts, .. } =
            usage;
        accounts.sort_by_key(|account| std::cmp::Reverse(account.used));
        let metadata = 0;
        Self { limit, budget, used, spare, reclaimed, refused, metadata, components: accounts }
    }

    /// The same report with the metadata of one store, bytes.
    #[must_use]
    pub fn with_metadata(self, metadata: u64) -> Self {
        Self { metadata, ..self }
    }

    /// A warning if the memory limit is too small for the data. If metadata exceeds half of the limit, a cold
    /// get reads two pages instead of one.
    #[must_use]
    pub fn pressure(&self) -> Option<String> {
        (self.metadata > self.limit / 2).then(|| {
            format!(
                "{} of table metadata no longer fit half of the memory limit, {}: gets of cold keys \
                 also read metadata",
                format_bytes(self.metadata),
                format_bytes(self.limit),
            )
        })
    }

    /// The component with this name.
    #[must_use]
    pub fn component(&self, name: &str) -> Option<&AccountUsage> {
        self.components.iter().find(|component| component.name == name)
    }
}

/// A table with one line per component, the largest first.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20} {:>12} {:>12} {:>12}", "memory", "now", "peak", "at most")?;
        for component in &self.components {
            let cap = component.cap.map_or_else(|| "-".to_owned(), format_bytes);
            let (now, peak) = (format_bytes(component.used), format_bytes(component.peak));
            writeln!(f, "{:<20} {now:>12} {peak:>12} {cap:>12}", component.name)?;
        }
        let (used, budget) = (format_bytes(self.used), format_bytes(self.budget));
        writeln!(f, "{:<20} {used:>12} {:>12} {budget:>12}", "all", "")?;
        let (limit, reclaimed) = (format_bytes(self.limit), format_bytes(self.reclaimed));
        write!(f, "memory limit {limit}, {reclaimed} reclaimed, ")?;
        write!(f, "{} charges refused", self.refused)?;
        self.pressure().map_or(Ok(()), |pressure| write!(f, "\n{pressure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Budget;

    #[test]
    fn the_report_lists_the_largest_component_first_with_peaks_and_caps() {
        let budget = Budget::new(44 << 20);
        let (small, large) = (budget.account("reads"), budget.account("memtables"));
        small.set_cap(16 << 20);
        let _held = (small.charge(1 << 20).unwrap(), large.charge(8 << 20).unwrap());
        drop(large.charge(3 << 20).unwrap());
        let memory = Memory::of(64 << 20, budget.usage());
        assert_eq!(memory.component("reads").map(|reads| reads.used), Some(1 << 20));
        let text = memory.to_string();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["memtables", "8.0", "MiB", "11.0", "MiB", "-"], "{text}");
        assert_eq!(lines[2], ["reads", "1.0", "MiB", "1.0", "MiB", "16.0", "MiB"], "{text}");
        assert!(memory.pressure().is_none() && !text.contains("metadata"));
        let tight = memory.with_metadata(33 << 20);
        assert!(tight.to_string().contains("33.0 MiB of table metadata"), "{tight}");
        assert_eq!(lines[3], ["all", "9.0", "MiB", "44.0", "MiB"], "{text}");
    }
}
