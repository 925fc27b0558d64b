//! Counts of versions by what a flush or a merge did with them.

use std::ops::AddAssign;

use base::Result;

/// Versions read, kept and dropped. Between keys, `read` is the sum of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionCounts {
    /// Versions read.
    pub read: u64,
    /// Versions written, including results of merged operands.
    pub kept: u64,
    /// Dropped: every read sees a newer version.
    pub superseded: u64,
    /// Dropped: every read sees a newer range delete.
    pub range_deleted: u64,
    /// Dropped: tombstones with no older version below.
    pub deleted: u64,
    /// Dropped: expired values with no older version below.
    pub expired: u64,
    /// Operands and base values that were merged into another version.
    pub merged: u64,
    /// Dropped: a partial discard of a window did not retain them. Not part of an encoded outcome, because
    /// no worker runs such a merge.
    pub evicted: u64,
}

impl VersionCounts {
    /// Versions that were read and not written, for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let Self { superseded, range_deleted, deleted, expired, merged, evicted, .. } = *self;
        let gone = [superseded, range_deleted, deleted, expired, merged, evicted];
        // Saturates because decoded counts may be arbitrary.
        gone.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether every version read is either kept or dropped.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.read == self.kept.saturating_add(self.dropped())
    }
}

impl VersionCounts {
    /// The counts, in encoding order.
    pub(crate) const fn list(&self) -> [u64; 7] {
        let Self { read, kept, superseded, range_deleted, deleted, expired, merged, .. } = *self;
        [read, kept, superseded, range_deleted, deleted, expired, merged]
    }

    /// Decodes the counts in encoding order.
    pub(crate) fn from_list(mut next: impl FnMut() -> Result<u64>) -> Result<Self> {
        Ok(Self {
            read: next()?,
            kept: next()?,
            superseded: next()?,
            range_deleted: next()?,
            deleted: next()?,
            expired: next()?,
            merged: next()?,
            evicted: 0,
        })
    }
}

impl AddAssign for VersionCounts {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.kept += other.kept;
        self.superseded += other.superseded;
        self.range_deleted += other.range_deleted;
        self.deleted += other.deleted;
        self.expired += other.expired;
        self.merged += other.merged;
        self.evicted += other.evicted;
    }
}
