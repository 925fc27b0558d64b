//! A file of an emulated block device: another file, whose reads and writes take as long as the profile
//! says.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::Result;

use super::device::Device;
use crate::{Buf, File, Purpose};

/// An open file.
pub(crate) struct EmulatedFile {
    inner: Arc<dyn File>,
    device: Arc<Device>,
    /// Where on the device it begins, as far as the model is concerned.
    base: u64,
}

impl EmulatedFile {
    pub(crate) fn new(inner: Arc<dyn File>, device: Arc<Device>, base: u64) -> Self {
        Self { inner, device, base }
    }

    /// Does it at once; when it is over on the device.
    pub(super) fn start_read(&self, at: u64, buf: Buf, purpose: Purpose) -> (f64, Buf, Result<()>) {
        let done = self.device.start(true, self.base.saturating_add(at), buf.len());
        let (buf, result) = self.inner.read(at, buf, purpose);
        (done, buf, result)
    }

    /// As [`EmulatedFile::start_read`].
    pub(super) fn start_write(
        &self,
        at: u64,
        buf: Buf,
        purpose: Purpose,
    ) -> (f64, Buf, Result<()>) {
        let done = self.device.start(false, self.base.saturating_add(at), buf.len());
        let (buf, result) = self.inner.write(at, buf, purpose);
        (done, buf, result)
    }
}

impl File for EmulatedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let (done, buf, result) = self.start_read(at, buf, purpose);
        self.device.wait_until(done);
        (buf, result)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let (done, buf, result) = self.start_write(at, buf, purpose);
        self.device.wait_until(done);
        (buf, result)
    }

    /// Through memory of the system, as on any device: what reaches the medium is the sync's.
    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.inner.store(at, bytes, purpose)
    }

    fn prepare_stores(&self, at: u64) {
        self.inner.prepare_stores(at);
    }

    fn write_ahead(&self, at: u64, len: u64, purpose: Purpose) -> u64 {
        self.inner.write_ahead(at, len, purpose)
    }

    /// One write of a unit, which waits for what was written before it.
    fn sync(&self, purpose: Purpose) -> Result<()> {
        let unit = usize::try_from(self.device.profile().unit).unwrap_or(4096);
        let done = self.device.start(false, self.base, unit);
        let result = self.inner.sync(purpose);
        self.device.wait_until(done);
        result
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    /// Itself: its queue needs the device's time, which lies no deeper.
    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for EmulatedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmulatedFile({:?}, {:?})", self.inner, self.device)
    }
}
