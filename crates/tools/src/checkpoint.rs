//! Checkpoints: a directory that is the store as of one moment, made while writes go on.
//!
//! Tables never change, so the checkpoint shares them with the store, by second names of the same
//! files, and takes no space of its own but for the log; where the two directories cannot share
//! files, they are copied and verified. The log is copied up to the moment, and the copy read as
//! recovery would. The manifest comes last: before it is there, the directory is no store (I3), and
//! nobody sees it under its name.
//!
//! Both stores go on on their own. They have one store id, which seeds the checksums of the pages
//! they share; the cache tells them apart by the number each gets when it is opened.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Error, Result};
use media::{Medium, Staging};

use crate::capture::Capture;
use crate::copier::{Content, Copier, Part};
use engine::Store;
use tree::events::Event;

/// How to make a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckpointOptions {
    flush: bool,
}

impl CheckpointOptions {
    /// Writes memtables to tables first, so that there is little log to copy and to replay. Not so
    /// by default.
    #[must_use]
    pub const fn flush(mut self, flush: bool) -> Self {
        self.flush = flush;
        self
    }
}

/// What a checkpoint took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Files shared with the store, and their bytes: no space is taken while the store has them.
    pub files_linked: u64,
    /// Bytes of the files shared.
    pub bytes_linked: u64,
    /// Files copied, because the two directories cannot share them.
    pub files_copied: u64,
    /// Bytes of the files copied.
    pub bytes_copied: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Makes `path` a store of its own that holds what `store` does now.
///
/// # Errors
/// As `Db::checkpoint`.
pub fn checkpoint(
    store: &Store,
    path: impl AsRef<Path>,
    options: CheckpointOptions,
) -> Result<CheckpointReport> {
    let staging = Staging::begin(path)?;
    let report = write(store, options, &staging.medium())?;
    staging.finish()?;
    Ok(report)
}

/// As [`checkpoint`], on an empty storage device of the caller's.
///
/// # Errors
/// As [`checkpoint`].
pub fn checkpoint_on(
    store: &Store,
    medium: &Arc<dyn Medium>,
    options: CheckpointOptions,
) -> Result<CheckpointReport> {
    let _lock = medium.lock()?;
    write(store, options, medium)
}

fn write(
    store: &Store,
    options: CheckpointOptions,
    copy: &Arc<dyn Medium>,
) -> Result<CheckpointReport> {
    let to = &**copy;
    let start = store.resources.clock().monotonic();
    if let Some(file) = to.list()?.first() {
        return Err(Error::invalid("place of a checkpoint")
            .expected("no files")
            .got(format_args!("`{}`", file.name)));
    }
    let mut copier = Copier::new(&store.resources.account("copies"))?;
    if options.flush {
        store.flush_for_copy()?;
    }
    let capture = Capture::take(store)?;
    let mut report = CheckpointReport::default();
    for extent in &capture.log {
        let part = Part { bytes: extent.bytes, len: extent.len };
        let (from, to) = ((&*capture.medium, &*extent.name), (to, &*extent.name));
        copier.copy(from, part, Content::Plain, to, &mut |_| ())?;
        report.log_bytes += extent.bytes;
    }
    capture.log_is_copied();
    for name in &capture.files {
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
        // Its name may be durable though syncing it failed.
        let _ = to.remove(&Capture::manifest_name());
        let _ = to.sync_names(&[]);
    })?;
    report.elapsed = store.resources.clock().monotonic().saturating_sub(start);
    let CheckpointReport { files_linked, files_copied, bytes_copied, .. } = report;
    let files = files_linked + files_copied;
    store.events.tell(|| Event::CheckpointEnded { files, bytes_copied });
    Ok(report)
}
