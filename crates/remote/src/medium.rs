//! The medium: a prefix of an object store as a flat set of files, of backups or of a store's cold tables.
//!
//! A file is an object. It has a name once it is complete, and other processes see the name once the names
//! are synced. Names are synced together, by one manifest ([`crate::history`]). The lock makes this process
//! the writer, and the writer before it is refused at its next sync.
//!
//! Threads: any. Cost: opening a file and listing are free, because the manifest is in memory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::limits::PAGE_BYTES;
use base::{Error, Result};
use media::{Access, Capabilities, File, Immediate, Listing, Medium, Queue, Space};
use parking_lot::Mutex;

use crate::Location;
use crate::client::Client;
use crate::download::ObjectFile;
use crate::manifest;
use crate::options::Options;
use crate::session::Session;
use crate::shared::Shared;
use crate::upload::UploadFile;

/// A repository in an object store. See the module.
pub struct ObjectMedium {
    shared: Arc<Shared>,
    read_only: bool,
    names_later: bool,
    published_every_bytes: u64,
}

impl ObjectMedium {
    /// Reads the names of the repository at `location`; it has none if it does not exist. With
    /// `options.names_later` nothing is read yet, and listing or opening a file has the errors below.
    ///
    /// # Errors
    /// `Invalid` if the store refuses, with its reason: the bucket does not exist, the credentials are wrong
    /// or expired, the region is another one. `Retry` if the store does not answer. `Corrupt` if the newest
    /// manifest is damaged.
    pub fn open(location: &Location, options: &Options) -> Result<Self> {
        let client = Client::new(location, options)?;
        let reads = match options.reads_ignore_cancel {
            true => client.never_cancelled(),
            false => client.clone(),
        };
        let session = Mutex::new(Session::begun(&client, options.names_later)?);
        let (account, part_bytes) = (options.account.clone(), options.part_bytes.max(1));
        let range_bytes_max = options.range_bytes_max.max(PAGE_BYTES as u64);
        let shared = Shared {
            client,
            reads,
            account,
            part_bytes,
            range_bytes_max,
            session,
            tries: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        let Options { read_only, published_every_bytes, names_later, .. } = *options;
        Ok(Self { shared, read_only, names_later, published_every_bytes })
    }
}

impl fmt::Debug for ObjectMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectMedium({})", self.shared.client.location())
    }
}

impl Medium for ObjectMedium {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            block_bytes: PAGE_BYTES,
            byte_addressable: false,
            persistent: true,
            queue_depth: 8,
            backend: "object store",
            open_files_max: None,
        }
    }

    fn create(&self, name: &str, _access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        if !manifest::is_name(name) {
            let error = Error::invalid("file name").expected("letters, digits, '.', '-' and '_'");
            return Err(error.got(format_args!("`{}`", name.escape_debug())));
        }
        let begun = self.shared.session.lock().create(name)?;
        let file = UploadFile::new(&self.shared, name, begun, reserve);
        let file = file.inspect_err(|_| self.shared.session.lock().give_up(name))?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str, _access: Access) -> Result<Arc<dyn File>> {
        let session = self.shared.named()?;
        let entry = session.files().get(name);
        let entry = entry.ok_or_else(|| Error::invalid("no such file").at(name))?;
        Ok(Arc::new(ObjectFile::new(&self.shared, name, entry)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.shared.session.lock().remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let session = &mut *self.shared.session.lock();
        session.rename(from, to)?;
        if session.unpublished_bytes() < self.published_every_bytes {
            return Ok(());
        }
        session.publish(&self.shared.client)
    }

    fn link(&self, _name: &str, _to: &dyn Medium) -> Result<bool> {
        Ok(false)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let session = self.shared.named()?;
        let files = session.files().iter();
        Ok(files.map(|(name, entry)| Listing { name: name.clone(), len: entry.len }).collect())
    }

    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        self.shared.session.lock().publish(&self.shared.client)
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        let session = &mut *self.shared.for_writer()?;
        if self.read_only {
            *session = Session::begun(&self.shared.client, self.names_later)?;
            return Ok(Box::new(()));
        }
        session.begin(&self.shared.client)?;
        Ok(Box::new(Writing(Arc::clone(&self.shared))))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Immediate::new(depth)))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

/// Ends writing when it is dropped.
struct Writing(Arc<Shared>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.session.lock().end(&self.0.client);
    }
}
