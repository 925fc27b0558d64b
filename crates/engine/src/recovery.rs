//! The report of an open: the log that was replayed, and the damage that was found.

use std::time::Duration;

use base::Error;

use crate::lost_records::LostRecords;

/// The damage and leftovers that opening a store found and repaired.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// True if the store was created.
    pub created: bool,
    /// Log records replayed.
    pub log_records: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Length of the checkpoint of the indexes of resident keyspaces that was read, by which the older part
    /// of the log needed no reading, bytes; 0 without one.
    pub index_checkpoint_bytes: u64,
    /// When that checkpoint was begun, Unix seconds; 0 without one, or if its file does not say.
    pub index_checkpoint_begun: u32,
    /// Damage of a checkpoint of the indexes, in whose place an older one or more of the log was read.
    pub index_checkpoint_damage: Option<Error>,
    /// File and offset at which the log's tail was cut, if a crash left a torn tail. The cut writes were
    /// never acknowledged as synced.
    pub log_torn: Option<String>,
    /// The first damage in the log. Only with `recover_damaged_log`.
    pub log_damage: Option<Error>,
    /// The records lost to that damage and to any after it.
    pub log_lost: Vec<LostRecords>,
    /// Tables that could not be opened: reads of keys in their ranges fail with `Corrupt`.
    pub damaged_tables: Vec<Error>,
    /// Tables with a damaged page that was read from its copy. They lost no key, and merges rewrite them.
    pub read_by_copy: Vec<Error>,
    /// Removed files of unfinished flushes, merges and ingests.
    pub orphans_removed: usize,
    /// Damaged manifest records that were read from their copy.
    pub manifest_repairs: usize,
    /// Duration of the open.
    pub elapsed: Duration,
}
