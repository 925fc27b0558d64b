//! Tools that read, copy or repair a whole store: check, repair, scrub, backups and checkpoints.
//!
//! Level 7 (docs/ARCHITECTURE.md). `check` and `repair` work on a closed store and use only its formats; the
//! others work on an open one.

mod backup;
mod capture;
mod check;
mod checkpoint;
mod copier;
mod dump;
mod log_move;
mod repair;
mod resident;
mod scrub;
mod store_file;
mod unreachable;

pub use backup::{
    Backup, BackupInfo, BackupList, BackupReport, DeleteReport, PruneOptions, RestoreReport,
};
pub use check::{CheckReport, LostKeys, check, check_with, is_ours};
pub use checkpoint::{CheckpointOptions, CheckpointReport, checkpoint, checkpoint_on};
pub use dump::{DumpItem, DumpReader, DumpWriter, DumpedKeyspace};
pub use log_move::{LogMoveReport, move_log};
pub use repair::{
    Lost, LostLog, LostRange, RepairOptions, RepairReport, RepairedFile, repair, repair_with,
};
pub use scrub::{ScrubReport, ScrubStatistics, Scrubber};
