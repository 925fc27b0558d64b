//! The object store of a store that a tool opens without it: nothing in it can be read or changed.
//!
//! A tool opens a store to write its log's records to tables. The store opens with the pages of its cold
//! tables that are local, and needs no others for that; no table becomes cold.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Cancel, Error, Result};
use engine::{ColdConfig, StoreMedia};
use media::{Access, Capabilities, File, Immediate, Listing, Medium, Queue, Space};

/// The store in `directory`, with its cold tables out of reach.
pub(crate) fn without_object_store(directory: &Arc<dyn Medium>) -> StoreMedia {
    let object_store = ColdConfig {
        medium: Arc::new(Unreachable),
        after: Duration::MAX,
        read_only: false,
        cancel: Cancel::new(),
    };
    StoreMedia { directory: Arc::clone(directory), object_store: Some(object_store) }
}

/// See the module.
#[derive(Debug)]
struct Unreachable;

fn refused<T>() -> Result<T> {
    let error = Error::retry("object store of cold tables").never_heals();
    Err(error.expected("a command that opens the store with it (`[remote] url`)"))
}

impl Medium for Unreachable {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            block_bytes: PAGE_BYTES,
            byte_addressable: false,
            persistent: true,
            queue_depth: 1,
            backend: "out of reach",
            open_files_max: None,
        }
    }

    fn create(&self, _name: &str, _access: Access, _reserve: u64) -> Result<Arc<dyn File>> {
        refused()
    }

    fn open(&self, _name: &str, _access: Access) -> Result<Arc<dyn File>> {
        refused()
    }

    fn remove(&self, _name: &str) -> Result<()> {
        refused()
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<()> {
        refused()
    }

    fn link(&self, _name: &str, _to: &dyn Medium) -> Result<bool> {
        refused()
    }

    fn list(&self) -> Result<Vec<Listing>> {
        refused()
    }

    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        refused()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        refused()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Immediate::new(depth)))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}
