//! Statistics of the row cache.

/// Statistics since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowStatistics {
    /// Rows in the cache now.
    pub rows: u64,
    /// Memory of rows; the unused part of it; and memory of the index, the ghost lists
    /// and the contest of the rules. Bytes.
    pub bytes: u64,
    /// See `bytes`.
    pub free_bytes: u64,
    /// See `bytes`.
    pub index_bytes: u64,
    /// Limit of the rows' memory for now, bytes.
    pub bytes_max: u64,
    /// Rows inserted.
    pub fills: u64,
    /// How many of `fills` the ghost list had.
    pub recalled: u64,
    /// How many of `fills` and `renewed` were stored compressed, because memory is short and compression
    /// saves some.
    pub packed: u64,
    /// Stale or expected rows that a flush renewed.
    pub renewed: u64,
    /// Rows that were hot before the store was opened, and were read ahead.
    pub ahead: u64,
    /// Rows that got another turn, because they were used.
    pub kept: u64,
    /// Rows evicted.
    pub evicted: u64,
    /// Rows that were read again soon after they were evicted or refused, by the place of their pages: the
    /// device, the lower tier, DRAM. A little more memory would have kept them.
    pub missed_device: u64,
    /// See `missed_device`.
    pub missed_below: u64,
    /// See `missed_device`.
    pub missed_cached: u64,
    /// Rows refused, by reason.
    pub refused: RowRefusals,
    /// Chunks of 2 MiB given back.
    pub chunks_given_back: u64,
}

/// Rows refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowRefusals {
    /// Larger than a row may be.
    pub large: u64,
    /// The key, or another one of its bucket, was written while the value was read.
    pub written: u64,
    /// The row was used once, and hardly any row of late was used again.
    pub seldom: u64,
    /// No memory.
    pub memory: u64,
    /// Another thread was inserting a row.
    pub busy: u64,
}

/// Why a row is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The row is longer than the cache accepts.
    Large,
    /// The key was written while the value was read.
    Written,
    /// The row was used once, and hardly any row of late was used again.
    Seldom,
    /// There is no memory.
    Memory,
    /// Another thread is inserting a row.
    Busy,
}

impl RowRefusals {
    pub(super) fn count(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Large => self.large += 1,
            Refusal::Written => self.written += 1,
            Refusal::Seldom => self.seldom += 1,
            Refusal::Memory => self.memory += 1,
            Refusal::Busy => self.busy += 1,
        }
    }

    /// All refused rows.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.large + self.written + self.seldom + self.memory + self.busy
    }
}
