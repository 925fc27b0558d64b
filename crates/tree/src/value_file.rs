//! A value file of an open store, shared by the tables that point into it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Account, Error, ErrorKind, Result, StoreId, TableId};
use cache::LiveFile;
use manifest::Manifest;
use media::Medium;
use parking_lot::Mutex;
use table::{Values, values_file_name};

use crate::obsolete_files::{ObsoleteFile, ObsoleteFiles};

/// A value file. After the manifest has dropped it, the last table that points into it hands it to
/// [`ObsoleteFiles`], so it outlives every reader.
pub struct ValueFile {
    id: TableId,
    /// Empty while the file could not be opened; every use tries again.
    opened: OnceLock<Opened>,
    /// Collecting the file's garbage was found impossible; it is not tried again.
    excluded: AtomicBool,
    shared: Arc<Shared>,
}

struct Opened {
    values: Arc<Values>,
    _live: LiveFile,
}

/// What all value files of a store need.
struct Shared {
    store: StoreId,
    medium: Arc<dyn Medium>,
    manifest: Arc<Manifest>,
    obsolete_files: Arc<ObsoleteFiles>,
    /// Charged for values in memory.
    account: Account,
}

impl Shared {
    fn open(&self, id: TableId) -> Result<Opened> {
        let Self { store, medium, manifest, account, .. } = self;
        let values = Values::open(&**medium, *store, id, None, account);
        // The manifest has the content of a damaged footer too.
        let values = values.or_else(|error| match manifest.values(id) {
            Some((keyspace, known)) if error.kind() == ErrorKind::Corrupt => {
                Values::open_known(&**medium, known.footer(*store, keyspace), account)
            }
            _ => Err(error),
        });
        let values = values.map_err(|error| match error.kind() {
            // A missing file is damage of the store, not the caller's mistake.
            ErrorKind::Invalid => Error::corrupt("value file").at(id).caused_by(error),
            _ => error,
        })?;
        let _live = self.obsolete_files.register_live(values.footer().digest);
        Ok(Opened { values, _live })
    }
}

impl ValueFile {
    /// The opened file.
    ///
    /// # Errors
    /// The error of opening it: its values cannot be read for now.
    pub fn values(&self) -> Result<&Arc<Values>> {
        if let Some(opened) = self.opened.get() {
            return Ok(&opened.values);
        }
        let opened = self.shared.open(self.id)?;
        Ok(&self.opened.get_or_init(|| opened).values)
    }

    /// The file's id.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Bytes of its values; 0 if the file could not be opened.
    pub fn value_bytes(&self) -> u64 {
        self.opened.get().map_or(0, |opened| opened.values.footer().value_bytes)
    }

    /// Excludes the file from garbage collection: values are damaged or could not be copied, so it would free
    /// nothing.
    pub fn exclude(&self) {
        self.excluded.store(true, Ordering::Relaxed);
    }

    /// Whether the file is excluded from garbage collection.
    pub fn is_excluded(&self) -> bool {
        self.opened.get().is_none() || self.excluded.load(Ordering::Relaxed)
    }
}

impl Drop for ValueFile {
    fn drop(&mut self) {
        let Shared { manifest, obsolete_files, .. } = &*self.shared;
        if obsolete_files.is_here() && manifest.is_value_file_obsolete(self.id) {
            let values = self.opened.get().map(|opened| &opened.values);
            obsolete_files.add(ObsoleteFile {
                name: values_file_name(self.id),
                cached: values.map(|values| (values.footer().digest, values.footer().pages)),
                open: values.map(|values| Arc::clone(values) as _),
            });
        }
    }
}

impl fmt::Debug for ValueFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueFile({})", self.id)
    }
}

/// The open value files of a store.
pub struct ValueFiles {
    shared: Arc<Shared>,
    open: Mutex<BTreeMap<TableId, Weak<ValueFile>>>,
}

impl ValueFiles {
    /// No open files. Values in memory are charged to `account`.
    pub fn new(
        store: StoreId,
        medium: Arc<dyn Medium>,
        manifest: Arc<Manifest>,
        obsolete_files: Arc<ObsoleteFiles>,
        account: Account,
    ) -> Self {
        let shared = Arc::new(Shared { store, medium, manifest, obsolete_files, account });
        Self { shared, open: Mutex::default() }
    }

    /// The value file `id`, opened on first use.
    pub fn get(&self, id: TableId) -> Arc<ValueFile> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&id).and_then(Weak::upgrade) {
            return file;
        }
        let (shared, excluded) = (Arc::clone(&self.shared), AtomicBool::new(false));
        let file = Arc::new(ValueFile { id, opened: OnceLock::new(), excluded, shared });
        // Readers should find it open. If it cannot be opened, those that need its values get the error.
        let _ = file.values();
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(id, Arc::downgrade(&file));
        file
    }
}

impl fmt::Debug for ValueFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueFiles({} open)", self.open.lock().len())
    }
}
