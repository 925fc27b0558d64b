//! Creation of a backup.
//!
//! The order is that of a checkpoint: the store is captured and the log copied; then each file that the
//! manifest names is copied and released; then the manifest is written; then the copy of the log is read as
//! recovery would read it. Last the index is written, which makes the backup exist.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, ErrorKind, Result};
use engine::{Components as _, Store};
use media::{Access, Buf, FileMedium, Medium, Purpose};
use table::Dictionary;
use tree::events::Event;
use wal::Extent;

use super::index::{Index, IndexEntry, LABEL_BYTES_MAX, file_name};
use super::objects::{self, Objects, unfinished};
use super::report::BackupReport;
use super::view::View;
use super::{Backup, ProgressMeter};
use crate::capture::Capture;
use crate::copier::{Content, Copier, Part, recorded_digest};
use crate::store_file::StoreFile;

impl Backup {
    /// Backs up the present content of `store`: everything acknowledged before the call, in whole batches.
    /// Copies only the files that the repository does not have. Writes go on meanwhile. Memtables are flushed
    /// first if that is possible, so that the next backup shares their content.
    ///
    /// # Errors
    /// `Corrupt` if a file of the store is damaged, naming its pages and keys: damaged data is never backed
    /// up, and older backups stay as they are. `Poisoned` if a failed sync lost writes of the log. `NoSpace`.
    /// `Invalid` if the label is longer than 255 bytes, if the directory is that of a store or has other
    /// files and no backups, or if another operation on the repository is in progress. The next backup uses
    /// the objects that were copied.
    pub fn create(&self, store: &Store, label: &str) -> Result<BackupReport> {
        store.owner.check()?;
        if label.len() > LABEL_BYTES_MAX {
            return Err(Error::invalid("label of a backup")
                .expected(format_args!("at most {LABEL_BYTES_MAX} bytes"))
                .got(label.len()));
        }
        let clock = store.resources.clock();
        let start = clock.monotonic();
        // Before the lock, which writes a file.
        self.must_be_repository(&Objects::of(&*self.medium)?)?;
        let _lock = self.medium.lock()?;
        let mut objects = Objects::of(&*self.medium)?;
        self.must_be_repository(&objects)?;
        objects.remove_unfinished(&*self.medium)?;
        // If the store cannot flush, the backup has more log to copy, and is needed the more. The log does
        // not have unlogged writes: without their flush there is no whole backup.
        if store.flush_for_copy().is_err() {
            store.flush_unlogged()?;
        }
        let capture = Capture::take(store, None)?;
        let mut making = Making::new(self, store, &capture, objects)?;
        for extent in &capture.log {
            making.segment(extent)?;
        }
        capture.log_is_copied();
        for name in &capture.files {
            making.file(name)?;
            capture.is_copied(name);
        }
        making.manifest()?;
        self.sync_objects()?;
        let mut report = making.report;
        let mut index = Index {
            id: making.objects.next_id()?,
            store: capture.store,
            lineage: capture.lineage,
            created: clock.unix_millis(),
            label: label.to_owned(),
            files: making.files,
        };
        let captured = capture.log.len() + capture.files.len() + 1;
        base::invariant!(
            index.files.len() == captured,
            "a backup has every captured file, and the manifest"
        );
        index.files.sort_by(|one, other| one.name.cmp(&other.name));
        capture.check_log(store, &(Arc::new(View::new(&self.medium, &index)) as _))?;
        self.add(&index)?;
        report.id = index.id;
        report.files = index.files.len();
        report.bytes = index.bytes();
        report.elapsed = clock.monotonic().saturating_sub(start);
        let BackupReport { id, bytes_copied, .. } = report;
        store.events.tell(|| Event::BackupEnded { id, bytes_copied });
        Ok(report)
    }

    /// Refuses the directory of a store, and one that has other files and no backups, so that nothing is
    /// written to a mistyped path.
    pub(super) fn must_be_repository(&self, objects: &Objects) -> Result<()> {
        let refused = |expected: &str, name: &str| {
            let error = Error::invalid("directory of backups").expected(expected);
            Err(error.got(format_args!("`{}` in it", name.escape_debug())))
        };
        if let Some(name) = objects.of_store.first() {
            return refused("a directory without the files of a store", name);
        }
        let foreign = match &self.directory {
            _ if objects.is_repository() => None,
            Some(directory) => foreign_entry(directory)?,
            None => objects.foreign.first().cloned(),
        };
        match foreign {
            Some(name) => refused("an empty directory, or one with backups", &name),
            None => Ok(()),
        }
    }

    /// Makes the names of objects durable. A failed sync of names is final: a later sync succeeds without the
    /// names that the first one lost. So objects that no backup uses are removed, and the next backup copies
    /// them again; if one cannot be removed, the next backup renames it.
    fn sync_objects(&self) -> Result<()> {
        self.medium.sync_names(&[]).inspect_err(|_| self.collect())
    }

    /// Writes the index, which makes the backup exist, and removes objects that no backup uses.
    fn add(&self, index: &Index) -> Result<()> {
        let added = objects::add(&*self.medium, index);
        // A backup that may not survive a power cut is not listed.
        added.inspect_err(|_| drop(self.medium.remove(&file_name(index.id))))?;
        self.collect();
        Ok(())
    }

    /// Removes objects that no backup uses. The next backup removes those that cannot be removed now.
    fn collect(&self) {
        let _ = Objects::of(&*self.medium).and_then(|mut objects| objects.collect(&*self.medium));
    }
}

/// The name of something in `directory` that an empty file system does not have either. Hidden files are
/// allowed.
fn foreign_entry(directory: &FileMedium) -> Result<Option<String>> {
    let allowed =
        |name: &String| ["LOCK", "lost+found"].contains(&&**name) || name.starts_with('.');
    Ok(directory.entries()?.into_iter().find(|name| !allowed(name)))
}

/// A backup in progress.
struct Making<'a> {
    repository: &'a dyn Medium,
    /// The store's files, read at the configured rate.
    source: Arc<dyn Medium>,
    store: &'a Store,
    capture: &'a Capture,
    objects: Objects,
    copier: Copier,
    files: Vec<IndexEntry>,
    report: BackupReport,
    steps: ProgressMeter<'a>,
}

impl<'a> Making<'a> {
    fn new(
        backup: &'a Backup,
        store: &'a Store,
        capture: &'a Capture,
        objects: Objects,
    ) -> Result<Self> {
        let mut total: u64 = capture.log.iter().map(|extent| extent.bytes).sum();
        for name in &capture.files {
            total += capture.len(name)?;
        }
        Ok(Self {
            repository: &*backup.medium,
            source: backup.limited(&capture.medium),
            store,
            capture,
            objects,
            copier: Copier::new(&store.resources.account("copies"), &backup.cancel)?,
            files: Vec::new(),
            report: BackupReport::default(),
            steps: ProgressMeter::new(backup, total),
        })
    }

    /// Copies a segment of the log.
    fn segment(&mut self, extent: &Extent) -> Result<()> {
        self.copy(&extent.name, extent.bytes, extent.len, Content::Plain)?;
        self.report.log_bytes += extent.bytes;
        Ok(())
    }

    /// Adds an immutable file, and copies it unless the repository has it.
    fn file(&mut self, name: &str) -> Result<()> {
        let len = self.capture.len(name)?;
        let store = self.capture.store;
        let content = Content::of(name, store);
        let (len, digest) = match content {
            Content::Table(..) | Content::Values(..) => {
                let recorded = recorded_digest(&*self.source, name, content);
                recorded.map_err(|error| self.explain(name, error))?
            }
            Content::Plain => {
                if let Some(StoreFile::Dictionary(id)) = StoreFile::of(name) {
                    let account = self.store.resources.account("copies");
                    Dictionary::read(&*self.source, store, id, &account)?;
                }
                let file = (&*self.source, name);
                (len, self.copier.digest(file, len, Content::Plain, &mut |_| ())?)
            }
        };
        let entry = IndexEntry { name: name.to_owned(), bytes: len, len, digest };
        if self.objects.has(&entry) {
            if !self.objects.is_named(&entry) {
                self.rename_again(&entry)?;
            }
            self.steps.step(len);
            self.files.push(entry);
            return Ok(());
        }
        let copied = self.copy(name, len, len, content);
        copied.map_err(|error| self.explain(name, error))
    }

    /// Renames an object that no backup uses to an unfinished name and back. A sync of names may have failed
    /// in the backup that copied it, which then could not remove it; a later sync would not make its name
    /// durable.
    fn rename_again(&self, entry: &IndexEntry) -> Result<()> {
        let (name, temporary) = (entry.object(), unfinished(&entry.name));
        self.repository.rename(&name, &temporary)?;
        self.repository.rename(&temporary, &name)
    }

    /// Writes the captured manifest.
    fn manifest(&mut self) -> Result<()> {
        let name = Capture::manifest_name();
        let bytes = &self.capture.manifest;
        let temporary = unfinished(&name);
        let mut buf = Buf::pages(bytes.len() / PAGE_BYTES);
        for (to, from) in buf.iter_mut().zip(bytes) {
            *to = *from;
        }
        let digest = bytes.chunks(PAGE_BYTES).fold(0, base::hash64);
        let len = bytes.len() as u64;
        let file = self.repository.create(&temporary, Access::Direct, len)?;
        file.write(0, buf, Purpose::Scrub).1?;
        file.sync(Purpose::Scrub)?;
        self.keep(IndexEntry { name, bytes: len, len, digest }, &temporary)
    }

    /// Copies a file of the store: its first `bytes` bytes; the rest up to `len` is zeros and not stored.
    fn copy(&mut self, name: &str, bytes: u64, len: u64, content: Content) -> Result<()> {
        let stored = bytes.next_multiple_of(PAGE_BYTES as u64);
        let part = Part { bytes, len: stored };
        let temporary = unfinished(name);
        let (from, to) = ((&*self.source, name), (self.repository, &*temporary));
        let steps = &mut self.steps;
        let copied = self.copier.copy(from, part, content, to, &mut |bytes| steps.step(bytes));
        let digest = copied.inspect_err(|_| {
            // The next backup removes it if this fails.
            let _ = self.repository.remove(&temporary);
        })?;
        self.keep(IndexEntry { name: name.to_owned(), bytes: stored, len, digest }, &temporary)
    }

    /// Gives a complete copy its name and adds it to the index.
    fn keep(&mut self, entry: IndexEntry, temporary: &str) -> Result<()> {
        self.repository.rename(temporary, &entry.object())?;
        self.report.files_copied += 1;
        self.report.bytes_copied += entry.bytes;
        self.files.push(entry);
        Ok(())
    }

    /// Adds to the error of a damaged table the keys that it concerns.
    fn explain(&self, name: &str, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let account = self.store.resources.account("copies");
        super::verify::explain(&self.capture.medium, name, self.capture.store, &account, error)
    }
}
