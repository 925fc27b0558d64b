//! A file of an emulated block device: another file's content, with the latencies of a profile.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::Result;
use base::limits::PAGE_BYTES;

use super::device::{Device, Stream};
use crate::{Buf, File, Purpose};

/// An open file.
pub(crate) struct EmulatedFile {
    inner: Arc<dyn File>,
    device: Arc<Device>,
    /// The file's first byte on the model's device.
    base: u64,
}

impl EmulatedFile {
    pub(crate) fn new(inner: Arc<dyn File>, device: Arc<Device>, base: u64) -> Self {
        Self { inner, device, base }
    }

    /// Reads now. Also returns the time at which the read completes on the emulated device.
    pub(super) fn start_read(&self, at: u64, buf: Buf, purpose: Purpose) -> (f64, Buf, Result<()>) {
        let done =
            self.device.start(Stream::of_thread(), true, self.base.saturating_add(at), buf.len());
        let (buf, result) = self.inner.read(at, buf, purpose);
        (done, buf, result)
    }

    /// As [`EmulatedFile::start_read`], for a write.
    pub(super) fn start_write(
        &self,
        at: u64,
        buf: Buf,
        purpose: Purpose,
    ) -> (f64, Buf, Result<()>) {
        let done =
            self.device.start(Stream::of_thread(), false, self.base.saturating_add(at), buf.len());
        let (buf, result) = self.inner.write(at, buf, purpose);
        (done, buf, result)
    }
}

impl File for EmulatedFile {
    crate::delegate!(inner: name, size, store, prepare_stores, write_ahead, set_len);

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

    /// Takes as long as a write of one unit, queued behind earlier writes. Byte stores reach the emulated
    /// device only here: until then they are in memory of the system, as on a real device.
    fn sync(&self, purpose: Purpose) -> Result<()> {
        let unit = usize::try_from(self.device.profile().unit).unwrap_or(PAGE_BYTES);
        let done = self.device.start(Stream::of_thread(), false, self.base, unit);
        let result = self.inner.sync(purpose);
        self.device.wait_until(done);
        result
    }

    /// Returns the emulated file, although it decorates another one:
    /// [`EmulatedQueue`](super::queue::EmulatedQueue) needs its latencies.
    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for EmulatedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmulatedFile({:?}, {:?})", self.inner, self.device)
    }
}
