//! The device seam: what the engine may ask of a storage device, and nothing about how.
//!
//! A [`Medium`] is a flat set of named [`File`]s. Buffers move into an operation and come back
//! with its completion, so a device may use them for as long as it likes without a copy. One
//! thread keeps many reads in flight through a [`Queue`].
//!
//! Durability: a write is visible to every reader at once and survives the death of the process;
//! it survives a power cut once a later [`File::sync`] returned `Ok`. A created, renamed or
//! removed name is durable after [`Medium::sync_names`]. A failed sync is final: what was unsynced
//! may be lost, and the caller must stop writing that file.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::Result;

use crate::{Buf, Purpose};

/// What a device promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Offsets, lengths and buffers of [`File::read`] and [`File::write`] are multiples of this.
    pub block_bytes: usize,
    /// Loads and stores reach it directly: SCM, DRAM.
    pub byte_addressable: bool,
    /// Content survives a power cut once synced.
    pub persistent: bool,
    /// How many reads in flight keep it busy; a queue need not be deeper.
    pub queue_depth: usize,
    /// How operations reach the device, for statistics: `memory`, `io_uring`, `pread pool`.
    pub backend: &'static str,
}

/// How a file's content is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Block-aligned reads and writes that bypass the operating system's cache. For tables.
    Direct,
    /// Byte-granular writes through memory shared with the file. For the log and the manifest.
    Bytes,
}

/// A file's name and length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The name.
    pub name: String,
    /// The length, bytes.
    pub len: u64,
}

/// How much a device holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it, bytes.
    pub total: u64,
    /// What may still be written, bytes; others who use the device take of it too.
    pub free: u64,
}

/// A storage device: a flat set of named files.
pub trait Medium: Send + Sync + fmt::Debug {
    /// What the device promises.
    fn capabilities(&self) -> Capabilities;

    /// Creates an empty file, with space for `reserve` bytes set aside where the device can.
    /// A file reserved for `Access::Bytes` reads as zeros up to `reserve` and has that length.
    ///
    /// # Errors
    /// `Invalid` where the name exists, `NoSpace` where the device is full.
    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>>;

    /// Removes a name. Files that are open stay readable.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames atomically, replacing `to` if it exists.
    ///
    /// # Errors
    /// `Invalid` where `from` does not exist.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Gives the file a second name on the medium `to`, where both are kept so that one file can
    /// have both; whether it did. Content that was synced is durable under either name, and stays
    /// as long as it has one; neither may be written again. `false` where the file must be copied
    /// instead: another file system, another kind of device.
    ///
    /// # Errors
    /// `Invalid` where there is no such file, or `to` has one of that name.
    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool>;

    /// Every file, by name.
    ///
    /// # Errors
    /// As the device's.
    fn list(&self) -> Result<Vec<Listing>>;

    /// How much the device holds now; none where nothing bounds it, or it does not say.
    ///
    /// # Errors
    /// As the device's.
    fn space(&self) -> Result<Option<Space>>;

    /// Makes every earlier create, rename and remove durable. The caller is about to rely on `names`: where
    /// one of them may be lost, by another's sync that failed, it is refused ([`crate::Naming`] knows).
    ///
    /// # Errors
    /// As the device's; final, as a failed [`File::sync`].
    fn sync_names(&self, names: &[&str]) -> Result<()>;

    /// Takes the device for this process until the guard is dropped or the process dies.
    ///
    /// # Errors
    /// `Invalid` where another process, or another open store of this one, has it.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>>;

    /// A queue for one thread, at most `depth` operations in flight.
    ///
    /// # Errors
    /// `Retry` where the device has no queue to give.
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>>;

    /// The device itself under any decorators, for [`Medium::link`].
    fn undecorated(&self) -> &dyn Any;
}

/// An open file.
///
/// Thread-safe. Overlapping writes, or a write and an overlapping read, must not be in flight at
/// once; the callers see to it.
pub trait File: Send + Sync + fmt::Debug {
    /// The name it was opened by.
    fn name(&self) -> &str;

    /// The length, bytes.
    ///
    /// # Errors
    /// As the device's.
    fn size(&self) -> Result<u64>;

    /// Fills `buf` from offset `at`, waiting for it. The buffer comes back either way.
    ///
    /// A file whose length is not whole blocks is read to its end all the same: the rest of its
    /// last block reads as zeros.
    ///
    /// # Errors
    /// `Corrupt` where the device cannot read, or the file ends in a block before the buffer's
    /// last one.
    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>);

    /// Writes `buf` at offset `at`, waiting until the device took it. Extends the file.
    ///
    /// # Errors
    /// `NoSpace` where the device is full; part of the buffer may be written.
    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>);

    /// Stores `bytes` at `at`, any offset and length: `Access::Bytes` only. Survives the death of
    /// the process from the moment it returns. Within the reserved length it cannot fail for want
    /// of space.
    ///
    /// # Errors
    /// As [`File::write`].
    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Has stores around offset `at`, within the reserved length, cost no more than a copy, where the
    /// device can do something about it ahead: for a background task, before a writer gets there.
    /// [`u64::MAX`] says that no stores follow; what else lies past the reserved length has no effect.
    /// Only a hint.
    fn prepare_stores(&self, _at: u64) {}

    /// Has the device hold zeros where nothing was stored yet, from offset `at` on, for `len` bytes within
    /// the reserved length, so that syncs of what is stored there write that alone and nothing of the
    /// file system's; how many bytes were written, to be made durable by a [`File::sync`]. Changes no
    /// byte, whoever stores meanwhile. For a background task. Only a hint.
    fn write_ahead(&self, _at: u64, _len: u64, _purpose: Purpose) -> u64 {
        0
    }

    /// Makes every completed write of this file durable, its length too.
    ///
    /// # Errors
    /// Any error is final: unsynced content may be lost and the file must not be written again.
    fn sync(&self, purpose: Purpose) -> Result<()>;

    /// Sets the length: cuts the end off, or extends with zeros. Gives reserved space past the
    /// new end back. A file that is stored into is cut only through the handle that stores.
    ///
    /// # Errors
    /// As [`File::write`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// The device's own file under any decorators, for its queue.
    fn undecorated(&self) -> &dyn Any;
}

/// What to do in a [`Request`].
#[derive(Debug)]
pub enum Op {
    /// As [`File::read`].
    Read {
        /// The offset, bytes.
        at: u64,
        /// Filled by the read.
        buf: Buf,
    },
    /// As [`File::write`].
    Write {
        /// The offset, bytes.
        at: u64,
        /// The content.
        buf: Buf,
    },
}

impl Op {
    /// The buffer, which also says how many bytes are read or written.
    #[must_use]
    pub const fn buf(&self) -> &Buf {
        match self {
            Self::Read { buf, .. } | Self::Write { buf, .. } => buf,
        }
    }

    /// The buffer back.
    #[must_use]
    pub fn into_buf(self) -> Buf {
        match self {
            Self::Read { buf, .. } | Self::Write { buf, .. } => buf,
        }
    }
}

/// One operation to put in flight.
#[derive(Debug)]
pub struct Request {
    /// The file; kept open until the completion.
    pub file: Arc<dyn File>,
    /// What to do.
    pub op: Op,
    /// What it is for.
    pub purpose: Purpose,
    /// Comes back with the completion.
    pub token: u64,
}

/// A request that did not fit in the queue, handed back.
#[derive(Debug)]
pub struct Refused(pub Request);

/// The end of one operation.
#[derive(Debug)]
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// The request's buffer.
    pub buf: Buf,
    /// As [`File::read`] and [`File::write`].
    pub result: Result<()>,
}

/// Operations in flight for one thread.
///
/// Dropping a queue waits for what is in flight.
pub trait Queue: Send {
    /// Puts an operation in flight. The device may not see it before [`Queue::complete`].
    ///
    /// # Errors
    /// The request comes back where the queue is full: complete something first.
    fn submit(&mut self, request: Request) -> Result<(), Refused>;

    /// Hands everything submitted to the device, waits until at least `least` operations are
    /// complete (or none is in flight), and appends their completions to `out`. Further ones that
    /// are there may come with a later call, so that the device is refilled before it runs dry.
    ///
    /// # Errors
    /// Only where the queue itself broke; a failed operation is a completion with an error.
    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()>;

    /// Operations submitted and not completed.
    fn in_flight(&self) -> usize;

    /// The most operations in flight at once.
    fn depth(&self) -> usize;
}
