//! Devices of a log as parts of one simulated device, so that one power cut ends all of them at one moment.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, Result};
use media::{Access, File, Listing, Medium, Space};
use parking_lot::Mutex;

/// The devices of a log, each a part of `device`: the files whose names begin with its place.
#[derive(Debug)]
pub(crate) struct Views {
    pub(crate) device: Arc<dyn Medium>,
    /// Places that cannot be opened.
    pub(crate) missing: Mutex<BTreeSet<String>>,
}

impl Views {
    pub(crate) fn of(device: Arc<dyn Medium>) -> Arc<Self> {
        Arc::new(Self { device, missing: Mutex::default() })
    }

    pub(crate) fn at(&self, place: &str) -> View {
        View { device: Arc::clone(&self.device), prefix: format!("{place}.") }
    }
}

impl wal::OpenDevices for Views {
    fn open(&self, place: &str, _create: bool) -> Result<Arc<dyn Medium>> {
        if self.missing.lock().contains(place) {
            return Err(Error::invalid("directory")
                .at(place)
                .expected("one that exists")
                .got("none"));
        }
        Ok(Arc::new(self.at(place)))
    }
}

#[derive(Debug)]
pub(crate) struct View {
    device: Arc<dyn Medium>,
    prefix: String,
}

impl View {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn file(&self, name: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ViewedFile { inner, name: name.to_owned() })
    }
}

impl Medium for View {
    media::delegate!(device: capabilities, queue, undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        Ok(self.file(name, self.device.create(&self.name(name), access, reserve)?))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.file(name, self.device.open(&self.name(name), access)?))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.device.remove(&self.name(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.device.rename(&self.name(from), &self.name(to))
    }

    fn link(&self, _: &str, _: &dyn Medium) -> Result<bool> {
        Ok(false)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let own = |file: Listing| {
            let name = file.name.strip_prefix(&self.prefix)?.to_owned();
            Some(Listing { name, ..file })
        };
        Ok(self.device.list()?.into_iter().filter_map(own).collect())
    }

    fn space(&self) -> Result<Option<Space>> {
        self.device.space()
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        let names: Vec<String> = names.iter().map(|name| self.name(name)).collect();
        self.device.sync_names(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        // The lock of the store's directory is that of the whole device.
        Ok(Box::new(()))
    }
}

#[derive(Debug)]
struct ViewedFile {
    inner: Arc<dyn File>,
    name: String,
}

impl File for ViewedFile {
    media::delegate!(inner: size, read, write, store, prepare_stores, write_ahead, sync, set_len);
    media::delegate!(inner: undecorated);

    fn name(&self) -> &str {
        &self.name
    }
}
