//! Restore: copies the files of a backup under their own names, and verifies them as they are read. The
//! manifest is written anew, with a lineage of its own: a repository tells the backups of the restored store
//! and of its origin apart by it.

use std::path::Path;
use std::sync::Arc;

use base::{Clock, Error, ErrorKind, LineageId, Result, StoreId, SystemClock};
use media::{Medium, Staging};

use super::index::{Index, IndexEntry};
use super::report::RestoreReport;
use super::verify::explain;
use super::view::View;
use super::{Backup, ProgressMeter};
use crate::capture::{Capture, encode_manifest, write_manifest};
use crate::copier::{Copier, Part};
use crate::store_file::is_manifest;

impl Backup {
    /// Restores the store of backup `id` to the directory `path`.
    ///
    /// # Errors
    /// `Invalid` if there is no such backup, or if `path` exists and is not an empty directory; `Corrupt` if
    /// a file of the backup is damaged or missing, naming it, its pages and keys; `NoSpace`. After an error
    /// nothing is left at `path`. A process that dies leaves `<path>.terrace-unfinished`, or
    /// `.terrace-unfinished` in an empty directory that existed; the next restore to `path` removes it.
    pub fn restore(&self, id: u64, path: impl AsRef<Path>) -> Result<RestoreReport> {
        let _lock = self.medium.lock()?;
        // Fails for a missing backup before anything is created.
        self.index(id)?;
        let staging = Staging::begin(path)?;
        let report = self.restore_files(id, &*staging.medium())?;
        staging.finish(is_manifest)?;
        Ok(report)
    }

    /// As [`Backup::restore`], to a medium of the caller's. The medium must be empty, and is empty again
    /// after an error. A process that dies leaves files there that are not a store, because the manifest is
    /// missing.
    ///
    /// # Errors
    /// As [`Backup::restore`].
    pub fn restore_on(&self, id: u64, medium: &Arc<dyn Medium>) -> Result<RestoreReport> {
        let _locks = (self.medium.lock()?, medium.lock()?);
        self.restore_files(id, &**medium)
    }

    fn restore_files(&self, id: u64, to: &dyn Medium) -> Result<RestoreReport> {
        let mut index = self.index(id)?;
        if let Some(file) = to.list()?.first() {
            return Err(Error::invalid("directory to restore to")
                .expected("no files")
                .got(format_args!("`{}`", file.name)));
        }
        // The manifest is copied last.
        index.files.sort_by_key(|entry| is_manifest(&entry.name));
        let view = Arc::new(View::new(&self.medium, &index)) as Arc<dyn Medium>;
        let listed = view.list()?;
        let is_there =
            |name: &str| listed.binary_search_by(|file| file.name.as_str().cmp(name)).is_ok();
        if let Some(lost) = index.files.iter().find(|entry| !is_there(&entry.name)) {
            let error = Error::corrupt("file of a backup").at(lost.object());
            return Err(error.expected("to be there").got("none"));
        }
        let copied = self.copy_files(&index, &view, to);
        copied.inspect_err(|_| {
            // The manifest is removed first, so that the rest is not a store; a failing device may keep
            // files.
            let _ = to.remove(&Capture::manifest_name());
            for entry in index.files.iter().rev() {
                let _ = to.remove(&entry.name);
            }
            let _ = to.sync_names(&[]);
        })
    }

    fn copy_files(
        &self,
        index: &Index,
        view: &Arc<dyn Medium>,
        to: &dyn Medium,
    ) -> Result<RestoreReport> {
        let clock = SystemClock::new();
        let source = self.limited(view);
        let mut copier = Copier::new(&self.account, &self.cancel)?;
        let mut steps = ProgressMeter::new(self, index.bytes());
        let mut report = RestoreReport::default();
        for entry in &index.files {
            let mut step = |bytes| steps.step(bytes);
            let restored = restore(&mut copier, &*source, index.store, entry, to, &mut step);
            restored.map_err(|error| match error.kind() {
                ErrorKind::Corrupt => explain(view, &entry.name, index.store, &self.account, error),
                _ => error,
            })?;
            report.files += 1;
            report.bytes += entry.bytes;
        }
        to.sync_names(&[])?;
        report.elapsed = clock.monotonic();
        Ok(report)
    }
}

/// Writes the manifest of the backup `from` to `to`, as that of a copy that goes its own way.
fn begin_lineage(from: &dyn Medium, store: StoreId, to: &dyn Medium) -> Result<()> {
    let found = manifest::recover(from, false)?.map_err(|_| {
        Error::corrupt("backup").expected("a manifest").got("none with an intact first record")
    })?;
    if found.store != store {
        let error = Error::corrupt("store of a backup's manifest");
        return Err(error.expected(store).got(found.store));
    }
    let mut state = found.state;
    state.lineage = Some(LineageId::random()?);
    write_manifest(to, &encode_manifest(store, &state)?)
}

fn restore(
    copier: &mut Copier,
    from: &dyn Medium,
    store: StoreId,
    entry: &IndexEntry,
    to: &dyn Medium,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let (from, content) = ((from, &*entry.name), entry.content(store));
    if is_manifest(&entry.name) {
        // The manifest makes the directory a store: it is verified first, and everything that it names is
        // durable (I3).
        to.sync_names(&[])?;
        entry.expect(copier.digest(from, entry.bytes, content, &mut |_| ())?)?;
        return begin_lineage(from.0, store, to);
    }
    let part = Part { bytes: entry.bytes, len: entry.len };
    entry.expect(copier.copy(from, part, content, (to, &entry.name), progress)?)
}
