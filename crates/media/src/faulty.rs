//! A simulated flash device that fails on demand: crash images and injected faults.
//!
//! The device lives in memory, so that it knows which content is synced. It implements the fault model of
//! flash of docs/media.md: unsynced writes lost, torn or reordered by sector ([`platter`]), a failed sync
//! that is final, no space, misdirected and lost writes, flipped bits. Decorators work over it as over any
//! device.
//!
//! A crash test runs a script once to count its sync points, then once for each of them with
//! [`Faulty::freeze`], and opens the image that [`Faulty::crash_image`] returns.
//!
//! Concurrency: one lock; every operation is atomic. Every random choice is determined by the seed.

mod device;
mod platter;
mod rule;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::limits::PAGE_BYTES;
use base::{Error, Result, Rng};
use parking_lot::Mutex;

use crate::immediate::Immediate;
use crate::memory::{self, Guard};
use crate::{
    Access, Buf, Capabilities, File, Listing, Medium, MemoryMedium, Pace, Purpose, Queue, Space,
    check,
};
use device::{Device, Verdict, failed, flip_any};
use platter::{Inode, NameChange, Platter};

pub use device::Freeze;
pub use rule::{Fault, OpKind, Rule};

/// A device in memory that loses, tears and damages content as its rules say.
pub struct Faulty {
    device: Arc<Mutex<Device>>,
    locked: Arc<AtomicBool>,
}

impl Faulty {
    /// An empty device; `seed` determines its random choices.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let device = Device {
            platter: Platter::default(),
            frozen: None,
            freeze: None,
            syncs: 0,
            changes: 0,
            rules: Vec::new(),
            struck: 0,
            capacity: None,
            rng: Rng::new(seed),
            pace: Pace::real(),
        };
        Self { device: Arc::new(Mutex::new(device)), locked: Arc::default() }
    }

    /// The same device as storage-class memory: until a sync, which stands for a fence, each line of 64 bytes
    /// survives a power cut or not by itself, or torn at words of 8 bytes.
    #[must_use]
    pub fn with_lines(self) -> Self {
        self.device.lock().platter.lines = true;
        self
    }

    /// A device that holds the files of `image`, synced: to continue after a crash.
    ///
    /// # Errors
    /// A medium in memory returns none.
    pub fn over(image: &MemoryMedium, seed: u64) -> Result<Self> {
        let faulty = Self::new(seed);
        for Listing { name, .. } in image.list()? {
            let content = image.content(&name).ok_or_else(|| check::missing(&name))?;
            faulty.device.lock().platter.put_durable(&name, content);
        }
        Ok(faulty)
    }

    /// Uses `pace` for delays.
    #[must_use]
    pub fn with_pace(self, pace: Pace) -> Self {
        self.device.lock().pace = pace;
        self
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// `Invalid` if the fault is not possible for operations of that kind.
    pub fn inject(&self, rule: Rule) -> Result<()> {
        rule.check()?;
        self.device.lock().rules.push(rule);
        Ok(())
    }

    /// Removes every rule.
    pub fn heal(&self) {
        self.device.lock().rules.clear();
    }

    /// Number of operations that a rule struck.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.device.lock().struck
    }

    /// Bounds the bytes of all files; content above the bound stays. `None` lifts the bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.device.lock().capacity = bytes;
    }

    /// Cuts the power at a later point. Replaces an earlier call with a point not yet reached.
    pub fn freeze(&self, at: Freeze) {
        self.device.lock().freeze = Some(at);
    }

    /// True once the power was cut: results returned after that do not count as acknowledged.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.device.lock().frozen.is_some()
    }

    /// Syncs of files and names begun so far: the argument of [`Freeze::AtSync`].
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.device.lock().syncs
    }

    /// Changes of content and names so far: the argument of [`Freeze::AtChange`].
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.device.lock().changes
    }

    /// One of the states that a power cut may leave, drawn by `seed`: cut now, or at the frozen point.
    ///
    /// # Errors
    /// A medium in memory returns none.
    pub fn crash_image(&self, seed: u64) -> Result<MemoryMedium> {
        self.device.lock().crash_image(seed)
    }

    /// The state that the death of the process leaves, now or at the frozen point: everything written.
    ///
    /// # Errors
    /// A medium in memory returns none.
    pub fn process_death_image(&self) -> Result<MemoryMedium> {
        self.device.lock().remains().seen()
    }

    /// Flips the bits of `mask` in one stored byte.
    ///
    /// # Errors
    /// `Invalid` if there is no such file, or it ends before the byte.
    pub fn flip(&self, name: &str, at: u64, mask: u8) -> Result<()> {
        let mut device = self.device.lock();
        let inode = device.platter.find(name).ok_or_else(|| check::missing(name))?;
        if at >= device.platter.size(inode) {
            return Err(Error::invalid("byte past the end").at(name).got(at));
        }
        device.platter.flip(inode, memory::file_len(name, at)?, mask);
        Ok(())
    }

    fn file(&self, device: &mut Device, name: &str, access: Access, inode: Inode) -> Arc<dyn File> {
        device.platter.opened(inode);
        let device = Arc::clone(&self.device);
        Arc::new(FaultyFile { name: name.to_owned(), access, inode, device })
    }
}

impl Medium for Faulty {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            block_bytes: PAGE_BYTES,
            byte_addressable: false,
            // As far as its users can see: they must sync as on flash.
            persistent: true,
            queue_depth: 32,
            backend: "faulty",
            open_files_max: None,
        }
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        check::name(name)?;
        let reserve = if access == Access::Bytes { reserve } else { 0 };
        let len = memory::file_len(name, reserve)?;
        let mut device = self.device.lock();
        if device.platter.find(name).is_some() {
            return Err(check::exists(name));
        }
        device.fault_names(name)?;
        device.reserve(name, reserve)?;
        let inode = device.platter.create(name, len);
        device.changed();
        Ok(self.file(&mut device, name, access, inode))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        check::name(name)?;
        let mut device = self.device.lock();
        let inode = device.platter.find(name).ok_or_else(|| check::missing(name))?;
        Ok(self.file(&mut device, name, access, inode))
    }

    fn remove(&self, name: &str) -> Result<()> {
        check::name(name)?;
        let mut device = self.device.lock();
        device.platter.find(name).ok_or_else(|| check::missing(name))?;
        device.fault_names(name)?;
        device.change_name(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check::name(from)?;
        check::name(to)?;
        let mut device = self.device.lock();
        let inode = device.platter.find(from).ok_or_else(|| check::missing(from))?;
        device.fault_names(from)?;
        device.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        check::name(name)?;
        let Some(to) = to.undecorated().downcast_ref::<Self>() else { return Ok(false) };
        // Two devices stand for two directories of one file system; their locks are never held together.
        let content = {
            let device = self.device.lock();
            let inode = device.platter.find(name).ok_or_else(|| check::missing(name))?;
            device.platter.content(inode)
        };
        let mut device = to.device.lock();
        if device.platter.find(name).is_some() {
            return Err(check::exists(name));
        }
        device.fault_names(name)?;
        device.platter.adopt(name, content);
        device.changed();
        Ok(true)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let device = self.device.lock();
        let listing = |(name, len): (&String, u64)| Listing { name: name.clone(), len };
        Ok(device.platter.list().map(listing).collect())
    }

    /// Bounded by [`Faulty::set_capacity`]; none without it.
    fn space(&self) -> Result<Option<Space>> {
        let device = self.device.lock();
        let space = |total: u64| Space { total, free: total.saturating_sub(device.platter.used()) };
        Ok(device.capacity.map(space))
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        self.device.lock().sync_names()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Guard::take(&self.locked).map(|guard| Box::new(guard) as Box<dyn Any + Send + Sync>)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Immediate::of::<FaultyFile>(depth)))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.lock();
        write!(f, "Faulty({} syncs, {} changes)", device.syncs, device.changes)
    }
}

struct FaultyFile {
    name: String,
    access: Access,
    inode: Inode,
    device: Arc<Mutex<Device>>,
}

impl File for FaultyFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        Ok(self.device.lock().platter.size(self.inode))
    }

    fn read(&self, at: u64, mut buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let mut device = self.device.lock();
        let verdict = device.verdict(OpKind::Read, &self.name, Some(purpose));
        let mut result = memory::read(&self.name, device.platter.visible(self.inode), at, &mut buf);
        match verdict {
            Verdict::Proceed => {}
            Verdict::Fault(Fault::Flip) => flip_any(&mut buf, &mut device.rng),
            Verdict::Fault(_) => {
                device.rng.fill(&mut buf);
                result = Err(failed("read", &self.name).at(format_args!("offset {at}")));
            }
        }
        (buf, result)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let result = check::aligned(&self.name, at, buf.len()).and_then(|()| {
            self.device.lock().write(&self.name, self.inode, at, &buf, purpose, false)
        });
        (buf, result)
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        if self.access != Access::Bytes {
            return Err(check::not_bytes(&self.name));
        }
        self.device.lock().write(&self.name, self.inode, at, bytes, purpose, true)
    }

    /// Reserved bytes already are zeros here; they are reported as written, so that the caller syncs.
    fn write_ahead(&self, at: u64, len: u64, _purpose: Purpose) -> u64 {
        let size = self.device.lock().platter.size(self.inode);
        at.saturating_add(len).min(size).saturating_sub(at)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.device.lock().sync(&self.name, self.inode, purpose)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.device.lock().set_len(&self.name, self.inode, len)
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        self.device.lock().platter.closed(self.inode);
    }
}

impl fmt::Debug for FaultyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyFile({})", self.name)
    }
}

#[cfg(test)]
mod tests;
