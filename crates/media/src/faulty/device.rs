//! The state of a faulty device: its content, its rules, and the point at which its power is cut.

use base::{Error, Result, Rng, format_bytes};

use super::platter::{Inode, NameChange, Platter, SECTOR_BYTES};
use super::rule::{Fault, OpKind, Rule};
use crate::{MemoryMedium, Pace, Purpose};

/// The point at which the power is cut: no later change is in a crash image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// At the beginning of a sync of a file or of the names, after this many syncs.
    AtSync(u64),
    /// During a change of content or names, after this many changes. This change is the last one that may
    /// survive.
    AtChange(u64),
}

/// The state behind the device's one lock.
pub(super) struct Device {
    pub(super) platter: Platter,
    pub(super) frozen: Option<Platter>,
    pub(super) freeze: Option<Freeze>,
    pub(super) syncs: u64,
    pub(super) changes: u64,
    pub(super) rules: Vec<Rule>,
    pub(super) struck: u64,
    pub(super) capacity: Option<u64>,
    pub(super) rng: Rng,
    pub(super) pace: Pace,
}

/// The outcome that the rules give an operation.
pub(super) enum Verdict {
    /// The operation is performed as requested.
    Proceed,
    /// The operation suffers this fault.
    Fault(Fault),
}

impl Device {
    /// Applies the rules to an operation. Waits for a delay here, with the lock held: every other operation
    /// waits too, as at a stalled device.
    pub(super) fn verdict(&mut self, on: OpKind, name: &str, purpose: Option<Purpose>) -> Verdict {
        // The first rule that strikes wins; later rules do not count the operation.
        let fault = self.rules.iter_mut().find_map(|rule| rule.strike(on, name, purpose));
        let Some(fault) = fault else { return Verdict::Proceed };
        self.struck += 1;
        if let Fault::Delay(time) = fault {
            self.pace.wait(time);
            return Verdict::Proceed;
        }
        Verdict::Fault(fault)
    }

    pub(super) fn fault_names(&mut self, name: &str) -> Result<()> {
        match self.verdict(OpKind::Names, name, None) {
            Verdict::Proceed => Ok(()),
            Verdict::Fault(Fault::NoSpace) => Err(full(name)),
            Verdict::Fault(_) => Err(failed("names", name)),
        }
    }

    /// `NoSpace` if `more` bytes would exceed the capacity.
    pub(super) fn reserve(&self, name: &str, more: u64) -> Result<()> {
        let (used, capacity) = (self.platter.used(), self.capacity.unwrap_or(u64::MAX));
        if more == 0 || used.saturating_add(more) <= capacity {
            return Ok(());
        }
        Err(full(name)
            .expected(format_args!("at most {}", format_bytes(capacity)))
            .got(format_args!("{} in use and {} more", format_bytes(used), format_bytes(more))))
    }

    pub(super) fn change_name(&mut self, change: NameChange) {
        self.platter.change_name(change);
        self.changed();
    }

    /// Writes `bytes`, with the fault of the first rule that strikes.
    pub(super) fn write(
        &mut self,
        name: &str,
        inode: Inode,
        at: u64,
        bytes: &[u8],
        purpose: Purpose,
        is_store: bool,
    ) -> Result<()> {
        let end = crate::check::end(name, at, bytes.len())?;
        self.reserve(name, end.saturating_sub(self.platter.size(inode)))?;
        let result = match self.verdict(OpKind::Write, name, Some(purpose)) {
            Verdict::Proceed => self.platter.write(name, inode, at, bytes, is_store),
            Verdict::Fault(Fault::Io) => {
                self.write_some_sectors(name, inode, at, bytes)?;
                Err(failed("write", name).at(format_args!("offset {at}")))
            }
            Verdict::Fault(Fault::NoSpace) => {
                let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
                self.platter.write(name, inode, at, half, is_store)?;
                Err(full(name).at(format_args!("offset {at}")))
            }
            Verdict::Fault(Fault::Torn) => self.write_some_sectors(name, inode, at, bytes),
            Verdict::Fault(Fault::Misdirected { name: other, at }) => {
                let target = other.as_deref().map_or(Some(inode), |other| self.platter.find(other));
                let target = target.ok_or_else(|| crate::check::missing(name))?;
                self.platter.write(name, target, at, bytes, is_store)
            }
            Verdict::Fault(Fault::Flip) => {
                let mut bytes = bytes.to_vec();
                flip_any(&mut bytes, &mut self.rng);
                self.platter.write(name, inode, at, &bytes, is_store)
            }
            Verdict::Fault(Fault::Lost | Fault::Delay(_)) => Ok(()),
        };
        self.changed();
        result
    }

    /// Writes a random half of the sectors.
    fn write_some_sectors(
        &mut self,
        name: &str,
        inode: Inode,
        at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if self.rng.one_in(2) {
                let sector_at = at + (number * SECTOR_BYTES) as u64;
                self.platter.write(name, inode, sector_at, sector, false)?;
            }
        }
        Ok(())
    }

    pub(super) fn set_len(&mut self, name: &str, inode: Inode, len: u64) -> Result<()> {
        self.reserve(name, len.saturating_sub(self.platter.size(inode)))?;
        self.platter.set_len(inode, crate::memory::file_len(name, len)?);
        self.changed();
        Ok(())
    }

    pub(super) fn sync(&mut self, name: &str, inode: Inode, purpose: Purpose) -> Result<()> {
        self.begin_sync();
        match self.verdict(OpKind::Sync, name, Some(purpose)) {
            Verdict::Proceed => self.platter.sync(inode),
            Verdict::Fault(Fault::Lost) => {}
            Verdict::Fault(_) => {
                let seen = self.rng.one_in(2);
                self.platter.fail_sync(inode, seen, &mut self.rng);
                return Err(failed("sync", name));
            }
        }
        Ok(())
    }

    pub(super) fn sync_names(&mut self) -> Result<()> {
        self.begin_sync();
        let result = self.fault_names("directory");
        match result {
            Ok(()) => self.platter.sync_names(),
            Err(_) => self.platter.fail_sync_names(&mut self.rng),
        }
        result
    }

    /// Counts a sync, and cuts the power if this is the point.
    fn begin_sync(&mut self) {
        if self.freeze == Some(Freeze::AtSync(self.syncs)) {
            self.freeze_now();
        }
        self.syncs += 1;
    }

    /// Counts a change that was made, and cuts the power if this is the point.
    pub(super) fn changed(&mut self) {
        if self.freeze == Some(Freeze::AtChange(self.changes)) {
            self.freeze_now();
        }
        self.changes += 1;
    }

    fn freeze_now(&mut self) {
        self.freeze = None;
        self.frozen = Some(self.platter.clone());
    }

    /// The content that crash images are drawn from.
    pub(super) fn remains(&self) -> &Platter {
        self.frozen.as_ref().unwrap_or(&self.platter)
    }

    pub(super) fn crash_image(&self, seed: u64) -> Result<MemoryMedium> {
        self.remains().image(&mut Rng::new(seed))
    }
}

/// Flips one random bit.
pub(super) fn flip_any(bytes: &mut [u8], rng: &mut Rng) {
    let (place, bit) = (rng.below(bytes.len() as u64), rng.below(8));
    if let Some(byte) = bytes.get_mut(place as usize) {
        *byte ^= 1 << bit;
    }
}

/// An I/O error of the device, worded as the operating system words it.
pub(super) fn failed(what: &'static str, name: &str) -> Error {
    const EIO: i32 = 5;
    Error::io(what, name, std::io::Error::from_raw_os_error(EIO))
}

fn full(name: &str) -> Error {
    const ENOSPC: i32 = 28;
    Error::io("write", name, std::io::Error::from_raw_os_error(ENOSPC))
}
