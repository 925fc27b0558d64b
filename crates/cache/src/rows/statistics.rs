//! What the row cache counts.

/// The counts at one moment, since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowStatistics {
    /// Rows in the cache now.
    pub rows: u64,
    /// Memory of rows, bytes; the part that none uses now; and that of their index and the memory of
    /// what went.
    pub bytes: u64,
    /// See `bytes`.
    pub free_bytes: u64,
    /// See `bytes`.
    pub index_bytes: u64,
    /// The most bytes of rows for now: what the pages do not need more.
    pub bytes_max: u64,
    /// Rows put in.
    pub fills: u64,
    /// Of these, rows that went lately and were asked for again.
    pub recalled: u64,
    /// Of these and of `renewed`, rows whose value is packed: where memory is short, and packing gains.
    pub packed: u64,
    /// Rows of keys that were written and are asked for, put in as what was written was flushed.
    pub renewed: u64,
    /// Rows that stayed when it was their turn, for they had been asked for.
    pub kept: u64,
    /// Rows that went to make room.
    pub evicted: u64,
    /// Rows asked for soon after they went, for which the device was read, for which the tier below was used,
    /// and for which pages in DRAM sufficed: what a little more memory would have kept.
    pub missed_device: u64,
    /// See `missed_device`.
    pub missed_below: u64,
    /// See `missed_device`.
    pub missed_cached: u64,
    /// Rows not put in, by reason.
    pub refused: Refused,
    /// Chunks of 2 MiB given back.
    pub chunks_given_back: u64,
}

/// Rows not put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Larger than a row may be.
    pub large: u64,
    /// The key, or one with the same bucket, was written while its value was read.
    pub written: u64,
    /// Asked for once, while hardly any row is asked for again.
    pub seldom: u64,
    /// Without memory.
    pub memory: u64,
    /// Another thread was putting in a row.
    pub busy: u64,
}

/// Why a row is not put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is larger than a row may be.
    Large,
    /// The key was written meanwhile.
    Written,
    /// Hardly any row is asked for again.
    Seldom,
    /// There is no memory.
    Memory,
    /// Another thread is putting in a row.
    Busy,
}

impl Refused {
    pub(super) fn count(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Large => self.large += 1,
            Refusal::Written => self.written += 1,
            Refusal::Seldom => self.seldom += 1,
            Refusal::Memory => self.memory += 1,
            Refusal::Busy => self.busy += 1,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.large + self.written + self.seldom + self.memory + self.busy
    }
}
