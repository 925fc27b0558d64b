//! Tools that read, copy or mend a whole store: check, repair, scrub, backups and checkpoints.
//!
//! Level 7 (docs/ARCHITECTURE.md). `check` and `repair` work on a closed store and use its formats only; the
//! others work on an open one.

#![expect(
    missing_docs,
    reason = "this crate was cut out of a larger one; its words are written next"
)]

mod backup;
mod capture;
mod check;
mod checkpoint;
mod copier;
mod repair;
mod scrub;
mod store_file;

pub use backup::{Backup, BackupInfo, BackupList, BackupReport, DeleteReport, RestoreReport};
pub use check::{CheckReport, check, is_ours};
pub use checkpoint::{CheckpointOptions, CheckpointReport, checkpoint, checkpoint_on};
pub use repair::{Lost, LostLog, LostRange, RepairOptions, RepairReport, RepairedFile, repair};
pub use scrub::{ScrubReport, ScrubStatistics, ScrubTask, Scrubber};
