//! What became of versions, by reason.

use std::ops::AddAssign;

use base::Result;

/// Versions read, kept and left out. `read` is always the sum of all the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionCounts {
    /// Versions met.
    pub read: u64,
    /// Versions kept, also those that took the place of merged ones.
    pub kept: u64,
    /// Dropped: a newer version hides them from every reader.
    pub superseded: u64,
    /// Dropped: a range delete hides them from every reader.
    pub range_deleted: u64,
    /// Dropped: deletes with nothing under them.
    pub deleted: u64,
    /// Dropped: values that have expired, with nothing under them.
    pub expired: u64,
    /// Operands and the values under them that others took in.
    pub merged: u64,
}

impl VersionCounts {
    /// The numbers of versions dropped or taken in, for whatever reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let gone = [self.superseded, self.range_deleted, self.deleted, self.expired, self.merged];
        // Bytes from outside may claim anything.
        gone.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether every version read is accounted for.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.read == self.kept.saturating_add(self.dropped())
    }
}

impl VersionCounts {
    /// The numbers, in the order stored.
    pub(crate) const fn list(&self) -> [u64; 7] {
        let Self { read, kept, superseded, range_deleted, deleted, expired, merged } = *self;
        [read, kept, superseded, range_deleted, deleted, expired, merged]
    }

    /// Reads the numbers in the order stored.
    pub(crate) fn from_list(mut next: impl FnMut() -> Result<u64>) -> Result<Self> {
        Ok(Self {
            read: next()?,
            kept: next()?,
            superseded: next()?,
            range_deleted: next()?,
            deleted: next()?,
            expired: next()?,
            merged: next()?,
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
    }
}
