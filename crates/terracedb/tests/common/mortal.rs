//! A device as seen by a process that can die or hang: after its death, none of its operations reaches the
//! device.
//!
//! A dropped store syncs its data; a killed process does not. With a [`Mortal`], a store can be dropped as
//! if its process had died: unsynced data stays unsynced, the next process opens the store, and the power
//! may still fail.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Error, Result};
use media::{Access, Buf, Capabilities, File, Listing, Medium, Purpose, Queue, Space};

use super::gate::Gate;

/// One process's view of a device.
#[derive(Debug)]
pub(crate) struct Mortal {
    device: Arc<dyn Medium>,
    dead: Arc<AtomicBool>,
    /// Blocks syncs of files.
    pub(crate) gate: Arc<Gate>,
}

impl Mortal {
    pub(crate) fn over(device: Arc<dyn Medium>) -> Arc<Self> {
        Arc::new(Self { device, dead: Arc::default(), gate: Arc::default() })
    }

    /// Kills the process: every later operation fails.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    fn living(&self) -> Result<()> {
        living(&self.dead)
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        let (dead, gate) = (Arc::clone(&self.dead), Arc::clone(&self.gate));
        Arc::new(MortalFile { file, dead, gate })
    }
}

fn living(dead: &AtomicBool) -> Result<()> {
    if dead.load(Ordering::SeqCst) {
        return Err(Error::closed("process"));
    }
    Ok(())
}

impl Medium for Mortal {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.living()?;
        self.device.create(name, access, reserve).map(|file| self.file(file))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.living()?;
        self.device.open(name, access).map(|file| self.file(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.living()?;
        self.device.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.living()?;
        self.device.rename(from, to)
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        self.living()?;
        self.device.link(name, to)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        self.living()?;
        self.device.list()
    }

    fn space(&self) -> Result<Option<Space>> {
        self.device.space()
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.living()?;
        self.device.sync_names(names)
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.living()?;
        self.device.lock()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.living()?;
        self.device.queue(depth)
    }

    fn undecorated(&self) -> &dyn Any {
        self.device.undecorated()
    }
}

#[derive(Debug)]
struct MortalFile {
    file: Arc<dyn File>,
    dead: Arc<AtomicBool>,
    gate: Arc<Gate>,
}

impl File for MortalFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn size(&self) -> Result<u64> {
        living(&self.dead)?;
        self.file.size()
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        match living(&self.dead) {
            Ok(()) => self.file.read(at, buf, purpose),
            Err(error) => (buf, Err(error)),
        }
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        match living(&self.dead) {
            Ok(()) => self.file.write(at, buf, purpose),
            Err(error) => (buf, Err(error)),
        }
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        living(&self.dead)?;
        self.file.store(at, bytes, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.gate.pass(&format!("{} {purpose:?}", self.file.name()));
        living(&self.dead)?;
        self.file.sync(purpose)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        living(&self.dead)?;
        self.file.set_len(len)
    }

    fn undecorated(&self) -> &dyn Any {
        self.file.undecorated()
    }
}
