//! Making a backup.
//!
//! The order is a checkpoint's: the moment is captured, the log copied, then what the manifest
//! names, each file let go when it is copied; then the manifest; then the log's copy is read as
//! recovery would; then the index is written, and the backup is.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, ErrorKind, Result};
use media::{Access, Buf, Medium, Purpose};
use table::Dictionary;
use wal::Extent;

use super::index::{Index, IndexEntry, LABEL_BYTES_MAX, file_name};
use super::objects::{self, Objects, unfinished};
use super::report::BackupReport;
use super::view::View;
use super::{Backup, Steps};
use crate::capture::Capture;
use crate::copier::{Content, Copier, Part, recorded_digest};
use crate::store_file::StoreFile;
use engine::Store;
use tree::events::Event;

impl Backup {
    /// Backs `db` up as it is now, copying the files that the repository has not got: everything
    /// acknowledged before the call, batches whole. Writes go on meanwhile. Memtables are flushed
    /// first where that is possible, so that the next backup shares their content.
    ///
    /// # Errors
    /// `Corrupt` where a file of the store is damaged, naming its pages and keys: nothing damaged
    /// is ever backed up, and older backups stay as they are. `Poisoned` where the device dropped what a
    /// failed sync of the log was to make durable. `NoSpace`. `Invalid` where the label is over 255
    /// bytes, or another operation on the repository is under way. What was copied stays for the next one.
    pub fn create(&self, db: &impl AsRef<Store>, label: &str) -> Result<BackupReport> {
        if label.len() > LABEL_BYTES_MAX {
            return Err(Error::invalid("label of a backup")
                .expected(format_args!("at most {LABEL_BYTES_MAX} bytes"))
                .got(label.len()));
        }
        let store = db.as_ref();
        let clock = store.resources.clock();
        let start = clock.monotonic();
        let _lock = self.medium.lock()?;
        let mut objects = Objects::of(&*self.medium)?;
        objects.remove_unfinished(&*self.medium)?;
        // A store that cannot flush has the more log, and needs a backup the more.
        let _ = store.flush_for_copy();
        let capture = Capture::take(store)?;
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
            created: clock.unix_millis(),
            label: label.to_owned(),
            files: making.files,
        };
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

    /// Makes the names of objects durable. A sync of names that failed is final: a later one succeeds
    /// without those it lost. So what no backup has goes, and the next one copies it anew; or names it anew,
    /// where it could not be removed.
    fn sync_objects(&self) -> Result<()> {
        self.medium.sync_names(&[]).inspect_err(|_| self.collect())
    }

    /// Makes the backup exist, and removes objects that no backup came to need.
    fn add(&self, index: &Index) -> Result<()> {
        let added = objects::add(&*self.medium, index);
        // One that may not outlive a power cut is not shown.
        added.inspect_err(|_| drop(self.medium.remove(&file_name(index.id))))?;
        self.collect();
        Ok(())
    }

    /// Removes what no backup has. What cannot be removed now goes with the next one.
    fn collect(&self) {
        let _ = Objects::of(&*self.medium).and_then(|mut objects| objects.collect(&*self.medium));
    }
}

/// A backup being made.
struct Making<'a> {
    repository: &'a dyn Medium,
    /// The store's files, at the rate asked for.
    source: Arc<dyn Medium>,
    store: &'a Store,
    capture: &'a Capture,
    objects: Objects,
    copier: Copier,
    files: Vec<IndexEntry>,
    report: BackupReport,
    steps: Steps<'a>,
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
            copier: Copier::new(&store.resources.account("copies"))?,
            files: Vec::new(),
            report: BackupReport::default(),
            steps: Steps::new(backup, total),
        })
    }

    /// Copies a segment of the log.
    fn segment(&mut self, extent: &Extent) -> Result<()> {
        self.copy(&extent.name, extent.bytes, extent.len, Content::Plain)?;
        self.report.log_bytes += extent.bytes;
        Ok(())
    }

    /// Takes a file that never changes, copying it unless the repository has it.
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
                self.name_anew(&entry)?;
            }
            self.steps.step(len);
            self.files.push(entry);
            return Ok(());
        }
        let copied = self.copy(name, len, len, content);
        copied.map_err(|error| self.explain(name, error))
    }

    /// Gives an object that no backup has its name once more. The backup that copied it may have failed
    /// since a sync of names did, and could not remove it then: a later sync knows nothing of its name.
    fn name_anew(&self, entry: &IndexEntry) -> Result<()> {
        let (name, passing) = (entry.object(), unfinished(&entry.name));
        self.repository.rename(&name, &passing)?;
        self.repository.rename(&passing, &name)
    }

    fn manifest(&mut self) -> Result<()> {
        let name = Capture::manifest_name();
        let bytes = &self.capture.manifest;
        let passing = unfinished(&name);
        let mut buf = Buf::pages(bytes.len() / PAGE_BYTES);
        for (to, from) in buf.iter_mut().zip(bytes) {
            *to = *from;
        }
        let digest = bytes.chunks(PAGE_BYTES).fold(0, base::hash64);
        let len = bytes.len() as u64;
        let file = self.repository.create(&passing, Access::Direct, len)?;
        file.write(0, buf, Purpose::Scrub).1?;
        file.sync(Purpose::Scrub)?;
        self.keep(IndexEntry { name, bytes: len, len, digest }, &passing)
    }

    /// Copies the first `bytes` of a file of the store, which are all of its `len` but zeros.
    fn copy(&mut self, name: &str, bytes: u64, len: u64, content: Content) -> Result<()> {
        let stored = bytes.next_multiple_of(PAGE_BYTES as u64);
        let part = Part { bytes, len: stored };
        let passing = unfinished(name);
        let (from, to) = ((&*self.source, name), (self.repository, &*passing));
        let steps = &mut self.steps;
        let copied = self.copier.copy(from, part, content, to, &mut |bytes| steps.step(bytes));
        let digest = copied.inspect_err(|_| {
            // Whatever stays goes when the next backup begins.
            let _ = self.repository.remove(&passing);
        })?;
        self.keep(IndexEntry { name: name.to_owned(), bytes: stored, len, digest }, &passing)
    }

    /// Gives a whole copy its name.
    fn keep(&mut self, entry: IndexEntry, passing: &str) -> Result<()> {
        self.repository.rename(passing, &entry.object())?;
        self.report.files_copied += 1;
        self.report.bytes_copied += entry.bytes;
        self.files.push(entry);
        Ok(())
    }

    /// Adds to a damaged table's error which keys it costs.
    fn explain(&self, name: &str, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let account = self.store.resources.account("copies");
        super::verify::explain(&self.capture.medium, name, self.capture.store, &account, error)
    }
}
