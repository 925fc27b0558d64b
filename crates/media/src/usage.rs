//! Counts of the operations and bytes requested of a device, by purpose.

use std::ops::{Add, Sub};

use crate::Purpose;

/// Operations and bytes of one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub read_ops: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Writes and byte stores.
    pub write_ops: u64,
    /// Bytes passed to writes and byte stores.
    pub write_bytes: u64,
    /// File syncs.
    pub syncs: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read_ops: self.read_ops + other.read_ops,
            read_bytes: self.read_bytes + other.read_bytes,
            write_ops: self.write_ops + other.write_ops,
            write_bytes: self.write_bytes + other.write_bytes,
            syncs: self.syncs + other.syncs,
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    /// Saturates, because the counters are read one by one while other threads count.
    fn sub(self, earlier: Self) -> Self {
        Self {
            read_ops: self.read_ops.saturating_sub(earlier.read_ops),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_ops: self.write_ops.saturating_sub(earlier.write_ops),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            syncs: self.syncs.saturating_sub(earlier.syncs),
        }
    }
}

/// Counts by purpose, and operations on names. The difference of two snapshots is the usage between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub(crate) counts: [Counts; Purpose::ALL.len()],
    /// Creates, renames and removes.
    pub name_ops: u64,
    /// Syncs of the names.
    pub name_syncs: u64,
}

impl Usage {
    /// The counts of one purpose.
    #[must_use]
    pub fn of(&self, purpose: Purpose) -> Counts {
        let counts = self.counts.get(purpose as usize);
        base::invariant!(counts.is_some(), "every purpose has its counts");
        counts.copied().unwrap_or_default()
    }

    /// Every purpose with its counts.
    pub fn by_purpose(&self) -> impl Iterator<Item = (Purpose, Counts)> {
        Purpose::ALL.into_iter().zip(self.counts)
    }

    /// The sum over all purposes.
    #[must_use]
    pub fn total(&self) -> Counts {
        self.counts.into_iter().fold(Counts::default(), Add::add)
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(mut self, earlier: Self) -> Self {
        for (later, earlier) in self.counts.iter_mut().zip(earlier.counts) {
            *later = *later - earlier;
        }
        self.name_ops = self.name_ops.saturating_sub(earlier.name_ops);
        self.name_syncs = self.name_syncs.saturating_sub(earlier.name_syncs);
        self
    }
}
