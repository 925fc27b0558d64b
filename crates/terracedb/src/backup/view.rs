//! A backup as the store it was: its files under the names that the store gave them.
//!
//! So that whatever reads a store, a check above all, reads a backup in place. Nothing can be
//! changed through it. The repository is locked by whoever made the view.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, Result};
use media::{Access, Capabilities, File, Listing, Medium, Queue};

use super::index::Index;

/// See the module.
#[derive(Debug)]
pub(super) struct View {
    repository: Arc<dyn Medium>,
    /// Objects by the names of the files they hold.
    objects: BTreeMap<String, String>,
}

impl View {
    pub(super) fn new(repository: &Arc<dyn Medium>, index: &Index) -> Self {
        let object = |entry: &super::index::Entry| (entry.name.clone(), entry.object());
        let objects = index.files.iter().map(object).collect();
        Self { repository: Arc::clone(repository), objects }
    }
}

fn read_only() -> Error {
    Error::invalid("backup").expected("to be read only")
}

impl Medium for View {
    fn capabilities(&self) -> Capabilities {
        self.repository.capabilities()
    }

    fn create(&self, _name: &str, _access: Access, _reserve: u64) -> Result<Arc<dyn File>> {
        Err(read_only())
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let object = self.objects.get(name).ok_or_else(|| {
            Error::invalid("file of a backup").at(name).expected("one that exists")
        })?;
        self.repository.open(object, access)
    }

    fn remove(&self, _name: &str) -> Result<()> {
        Err(read_only())
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<()> {
        Err(read_only())
    }

    fn link(&self, _name: &str, _to: &dyn Medium) -> Result<bool> {
        Ok(false)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let listed = self.repository.list()?;
        let len = |object: &String| {
            let at = listed.binary_search_by(|file| file.name.cmp(object)).ok()?;
            listed.get(at).map(|file| file.len)
        };
        // A file whose object is lost is not there.
        let listing = |(name, object): (&String, &String)| {
            len(object).map(|len| Listing { name: name.clone(), len })
        };
        Ok(self.objects.iter().filter_map(listing).collect())
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.repository.queue(depth)
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}
