//! Where the memory is: what `terracedb::Statistics` says of it.

use std::fmt;

use base::{AccountUsage, BudgetUsage, format_bytes};

/// What a process's stores hold of their one memory number, by component.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// The memory number, bytes.
    pub limit: u64,
    /// The part of it that components may charge, bytes; the rest is for what no component sees:
    /// code, thread stacks, the allocator's slack.
    pub budget: u64,
    /// Charged by all components, bytes.
    pub used: u64,
    /// The part of `used` that is given back as soon as anything needs it: the page cache, bytes.
    pub spare: u64,
    /// Bytes given back because something needed them, since the start.
    pub reclaimed: u64,
    /// Charges refused because there was no room even so, since the start.
    pub refused: u64,
    /// Filters and separators of the tables of the store that was asked, pinned or read through the
    /// page cache, bytes; 0 where the resources were asked.
    pub metadata: u64,
    /// Every component that ever charged anything.
    pub components: Vec<AccountUsage>,
}

impl Memory {
    pub fn of(limit: u64, usage: BudgetUsage) -> Self {
        let BudgetUsage { limit: budget, used, spare, reclaimed, refused, mut accounts, .. } =
            usage;
        accounts.sort_by_key(|account| std::cmp::Reverse(account.used));
        let metadata = 0;
        Self { limit, budget, used, spare, reclaimed, refused, metadata, components: accounts }
    }

    pub fn with_metadata(self, metadata: u64) -> Self {
        Self { metadata, ..self }
    }

    /// What is wrong, where the memory number is too small for the data: metadata that no longer
    /// fits half of it makes a cold get read two pages where one is enough.
    #[must_use]
    pub fn pressure(&self) -> Option<String> {
        (self.metadata > self.limit / 2).then(|| {
            format!(
                "{} of table metadata no longer fit half of the memory number, {}: gets of cold keys \
                 read metadata, too",
                format_bytes(self.metadata),
                format_bytes(self.limit),
            )
        })
    }

    /// The component called `name`.
    #[must_use]
    pub fn component(&self, name: &str) -> Option<&AccountUsage> {
        self.components.iter().find(|component| component.name == name)
    }
}

/// A table, one component a line, the largest first.
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
        write!(f, "memory number {limit}, {reclaimed} given back when asked for, ")?;
        write!(f, "{} charges refused", self.refused)?;
        self.pressure().map_or(Ok(()), |pressure| write!(f, "\n{pressure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Budget;

    #[test]
    fn the_table_lists_the_largest_first_with_peaks_and_caps() {
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
