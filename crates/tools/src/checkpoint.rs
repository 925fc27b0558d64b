//! Checkpoints: a copy of an open store at one instant, in another directory, made while writes go on.
//!
//! Tables never change, so the checkpoint shares them with the store by hard links, and takes no space of its
//! own except for the log. If the two directories cannot share files, the files are copied and verified. The
//! log is copied up to the captured end, and the copy is read as recovery would read it. The manifest comes
//! last: before it exists, the directory is not a store (I3), and the directory is not visible under its
//! name.
//!
//! Both stores then go on independently. They have the same store id, because it seeds the checksums of the
//! pages that they share; the copy begins a lineage of its own, by which a repository tells their backups
//! apart. A cache tells them apart by the number that each store gets when it is opened.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Cancel, Error, LineageId, Result};
use engine::{Components as _, Store};
use media::{Medium, Staging};
use tree::events::Event;

use crate::capture::Capture;
use crate::copier::{Content, Copier, Part};
use crate::store_file::is_manifest;

/// Options of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct CheckpointOptions {
    flush: bool,
    cancel: Cancel,
}

impl CheckpointOptions {
    /// Flushes the memtables first, so that there is little log to copy and to replay. Off by default.
    #[must_use]
    pub fn flush(mut self, flush: bool) -> Self {
        self.flush = flush;
        self
    }

    /// Ends the checkpoint early once `cancel` asks for it, with an error of kind `Cancelled`. `path` is then
    /// as before.
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }
}

/// Result of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Files shared with the store by hard links; they take no space while the store has them.
    pub files_linked: u64,
    /// Bytes of the shared files.
    pub bytes_linked: u64,
    /// Files copied, because the two directories cannot share them.
    pub files_copied: u64,
    /// Bytes of the copied files.
    pub bytes_copied: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// Duration of the checkpoint.
    pub elapsed: Duration,
}

/// Makes `path` a store that holds the present content of `store`.
///
/// # Errors
/// As `Db::checkpoint`.
pub fn checkpoint(
    store: &Store,
    path: impl AsRef<Path>,
    options: &CheckpointOptions,
) -> Result<CheckpointReport> {
    store.owner.check()?;
    let staging = Staging::begin(path)?;
    let report = write(store, options, &staging.medium())?;
    staging.finish(is_manifest)?;
    Ok(report)
}

/// As [`checkpoint`], on an empty medium of the caller's.
///
/// # Errors
/// As [`checkpoint`].
pub fn checkpoint_on(
    store: &Store,
    medium: &Arc<dyn Medium>,
    options: &CheckpointOptions,
) -> Result<CheckpointReport> {
    let _lock = medium.lock()?;
    write(store, options, medium)
}

fn write(
    store: &Store,
    options: &CheckpointOptions,
    copy: &Arc<dyn Medium>,
) -> Result<CheckpointReport> {
    store.owner.check()?;
    let to = &**copy;
    let start = store.resources.clock().monotonic();
    if let Some(file) = to.list()?.first() {
        return Err(Error::invalid("directory of a checkpoint")
            .expected("no files")
            .got(format_args!("`{}`", file.name)));
    }
    let mut copier = Copier::new(&store.resources.account("copies"), &options.cancel)?;
    match options.flush {
        true => store.flush_for_copy()?,
        // The log that is copied does not have these writes.
        false => store.flush_unlogged()?,
    }
    let capture = Capture::take(store, Some(LineageId::random()?))?;
    let mut report = CheckpointReport::default();
    for extent in &capture.log {
        let part = Part { bytes: extent.bytes, len: extent.len };
        let (from, to) = ((&*capture.medium, &*extent.name), (to, &*extent.name));
        copier.copy(from, part, Content::Plain, to, &mut |_| ())?;
        report.log_bytes += extent.bytes;
    }
    capture.log_is_copied();
    for name in &capture.files {
        options.cancel.check("checkpoint")?;
        let len = capture.len(name)?;
        if capture.medium.link(name, to)? {
            report.files_linked += 1;
            report.bytes_linked += len;
        } else {
            let content = Content::of(name, capture.store);
            let from = (&*capture.medium, &**name);
            copier.copy(from, Part { bytes: len, len }, content, (to, name), &mut |_| ())?;
            report.files_copied += 1;
            report.bytes_copied += len;
        }
        capture.is_copied(name);
    }
    to.sync_names(&[])?;
    capture.check_log(store, copy)?;
    capture.write_manifest(to).inspect_err(|_| {
        // The name may be durable although its sync failed.
        let _ = to.remove(&Capture::manifest_name());
        let _ = to.sync_names(&[]);
    })?;
    report.elapsed = store.resources.clock().monotonic().saturating_sub(start);
    let CheckpointReport { files_linked, files_copied, bytes_copied, .. } = report;
    let files = files_linked + files_copied;
    store.events.tell(|| Event::CheckpointEnded { files, bytes_copied });
    Ok(report)
}
