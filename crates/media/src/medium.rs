//! The interface of a storage device: the operations that the engine may request.
//!
//! A [`Medium`] is a flat set of named [`File`]s. A buffer moves into an operation and comes back with its
//! completion, so a device may use it for the duration of the operation without a copy. One thread keeps
//! many operations in flight through a [`Queue`].
//!
//! Durability: a write is visible to every reader at once and survives the death of the process; it
//! survives a power cut once a later [`File::sync`] has returned `Ok`. A created, renamed or removed name is
//! durable after [`Medium::sync_names`]. A failed sync is final: unsynced content may be lost, and the
//! caller must stop writing that file.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::{Error, Result};

use crate::{Buf, Purpose};

/// The properties of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Offsets, lengths and buffers of [`File::read`] and [`File::write`] are multiples of this.
    pub block_bytes: usize,
    /// Loads and stores reach the device directly: SCM, DRAM.
    pub byte_addressable: bool,
    /// Content survives a power cut once it is synced.
    pub persistent: bool,
    /// The number of reads in flight that keeps the device busy; a deeper queue gains nothing.
    pub queue_depth: usize,
    /// How operations reach the device, for statistics: `memory`, `io_uring`, `pread pool`.
    pub backend: &'static str,
    /// Most files that may be open at a time; `None` if there is no limit.
    pub open_files_max: Option<u64>,
}

/// The way a file's content is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Block-aligned reads and writes that bypass the operating system's page cache (direct I/O). For tables.
    Direct,
    /// Writes of any offset and length, through memory shared with the file. For the log and the manifest.
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

/// The most space that tables leave to deletes, bytes: several short segments of the log, and their flush.
const DELETES_SPACE_BYTES: u64 = 256 << 10;

/// At most this fraction of a device, as a divisor, is left to deletes.
const DELETES_SPACE_FRACTION: u64 = 64;

/// The capacity of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Capacity, bytes.
    pub total: u64,
    /// Free space, bytes. Other users of the device share it.
    pub free: u64,
}

impl Space {
    /// Free space that tables leave on the device, bytes: for the log's records of deletes and their flush,
    /// with which a full device comes back.
    #[must_use]
    pub fn for_deletes(&self) -> u64 {
        DELETES_SPACE_BYTES.min(self.total / DELETES_SPACE_FRACTION)
    }
}

/// A storage device: a flat set of named files.
pub trait Medium: Send + Sync + fmt::Debug {
    /// The properties of the device.
    fn capabilities(&self) -> Capabilities;

    /// Creates an empty file, with `reserve` bytes allocated if the device can allocate.
    /// A file created for `Access::Bytes` has the length `reserve` and reads as zeros.
    ///
    /// # Errors
    /// `Invalid` if the name exists, `NoSpace` if the device is full.
    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// `Invalid` if there is no such file.
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>>;

    /// Removes a name. Open handles of the file stay readable.
    ///
    /// # Errors
    /// `Invalid` if there is no such file.
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames atomically, replacing `to` if it exists.
    ///
    /// # Errors
    /// `Invalid` if `from` does not exist.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Links the file under the same name on the medium `to` (a hard link). Returns whether it did: `false`
    /// if the file must be copied instead, because the media are on different file systems or of different
    /// kinds. Synced content is durable under either name and exists until both are removed. Neither name
    /// may be written again.
    ///
    /// # Errors
    /// `Invalid` if there is no such file, or `to` has a file of that name.
    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool>;

    /// Every file, ordered by name.
    ///
    /// # Errors
    /// Errors of the device.
    fn list(&self) -> Result<Vec<Listing>>;

    /// Capacity and free space now; none if the device has no bound or does not report it.
    ///
    /// # Errors
    /// Errors of the device.
    fn space(&self) -> Result<Option<Space>>;

    /// As [`Medium::space`], of the device that a file with this name belongs to.
    ///
    /// # Errors
    /// Errors of the device.
    fn space_for(&self, name: &str) -> Result<Option<Space>> {
        let _ = name;
        self.space()
    }

    /// Makes every earlier create, rename and remove durable. `names` are those that the caller is about to
    /// rely on: if an earlier failed sync may have lost one of them, the call fails ([`crate::Naming`]).
    ///
    /// # Errors
    /// Errors of the device; final, as those of [`File::sync`].
    fn sync_names(&self, names: &[&str]) -> Result<()>;

    /// Locks the device for this process until the guard is dropped or the process dies.
    ///
    /// # Errors
    /// `Locked` if another process, or another open store of this process, holds the lock.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>>;

    /// A queue for one thread, with at most `depth` operations in flight.
    ///
    /// # Errors
    /// `Retry` if the device has no queue to give.
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>>;

    /// The device without its decorators, for [`Medium::link`].
    fn undecorated(&self) -> &dyn Any;
}

/// An open file.
///
/// Thread-safe. Callers must not have two overlapping writes, or a write and an overlapping read, in flight
/// at once.
pub trait File: Send + Sync + fmt::Debug {
    /// The name it was opened with.
    fn name(&self) -> &str;

    /// The length, bytes.
    ///
    /// # Errors
    /// Errors of the device.
    fn size(&self) -> Result<u64>;

    /// Fills `buf` from offset `at` and waits. The buffer comes back in either case.
    ///
    /// If the length of the file is not a multiple of the block, the rest of its last block reads as zeros.
    ///
    /// # Errors
    /// `Corrupt` if the device cannot read, or if the file ends before the last block of the buffer.
    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>);

    /// Writes `buf` at offset `at` and waits until the device accepts it. Extends the file.
    ///
    /// # Errors
    /// `NoSpace` if the device is full; part of the buffer may be written.
    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>);

    /// Stores `bytes` at `at`, of any offset and length: `Access::Bytes` only. The bytes survive the death
    /// of the process once the call returns. Within the reserved length a store cannot run out of space.
    ///
    /// # Errors
    /// As [`File::write`].
    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Fills `bytes` from offset `at`, of any offset and length, and waits. On storage-class memory only
    /// these bytes are read, in place; other devices read the pages around them.
    ///
    /// # Errors
    /// As [`File::read`]; `Corrupt` if the file ends before the last byte.
    fn load(&self, at: u64, bytes: &mut [u8], purpose: Purpose) -> Result<()> {
        const PAGE: u64 = base::limits::PAGE_BYTES as u64;
        let short = || {
            Error::corrupt("file").at(self.name()).expected("its bytes").got("an end before them")
        };
        let end = at.checked_add(bytes.len() as u64).ok_or_else(short)?;
        let first = at / PAGE;
        let pages = usize::try_from(end.div_ceil(PAGE) - first).map_err(|_| short())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (buf, read) = self.read(first * PAGE, Buf::pages(pages), purpose);
        read?;
        let from = (at % PAGE) as usize;
        bytes.copy_from_slice(buf.get(from..from + bytes.len()).ok_or_else(short)?);
        Ok(())
    }

    /// Prepares the range around offset `at`, within the reserved length, so that stores there cost no more
    /// than a copy. For a background task, ahead of the writers. [`u64::MAX`] means that no stores follow;
    /// any other offset past the reserved length has no effect. Only a hint.
    fn prepare_stores(&self, _at: u64) {}

    /// Writes zeros to the device in the range of `len` bytes from `at`, within the reserved length, except
    /// where bytes were stored already, so that a later sync of stores there writes only the stored pages
    /// and no metadata of the file system. Returns the number of bytes written; a [`File::sync`] makes them
    /// durable. Changes no stored byte, even if other threads store meanwhile. For a background task. Only
    /// a hint.
    fn write_ahead(&self, _at: u64, _len: u64, _purpose: Purpose) -> u64 {
        0
    }

    /// Makes every completed write of this file durable, and its length.
    ///
    /// # Errors
    /// Every error is final: unsynced content may be lost and the file must not be written again.
    fn sync(&self, purpose: Purpose) -> Result<()>;

    /// Sets the length: cuts the end off, or extends with zeros. Frees reserved space past the new end. Only
    /// the handle that stores into a file may cut it.
    ///
    /// # Errors
    /// As [`File::write`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// The device's own file without decorators, for its queue.
    fn undecorated(&self) -> &dyn Any;
}

/// The operation of a [`Request`].
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
    /// The buffer; its length is the number of bytes read or written.
    #[must_use]
    pub const fn buf(&self) -> &Buf {
        match self {
            Self::Read { buf, .. } | Self::Write { buf, .. } => buf,
        }
    }

    /// Returns the buffer.
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
    /// The operation.
    pub op: Op,
    /// The purpose it is counted under.
    pub purpose: Purpose,
    /// Returned with the completion.
    pub token: u64,
}

/// A request that did not fit in the queue, returned to the caller.
#[derive(Debug)]
pub struct Refused(pub Request);

/// The result of one operation.
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
/// Dropping a queue waits for the operations in flight.
pub trait Queue: Send {
    /// Adds an operation. The device may not see it before [`Queue::complete`].
    ///
    /// # Errors
    /// Returns the request if the queue is full; the caller must complete operations first.
    fn submit(&mut self, request: Request) -> Result<(), Refused>;

    /// Passes everything submitted to the device, waits until at least `least` operations are complete (or
    /// none is in flight), and appends their completions to `out`. Other complete operations may be returned
    /// by a later call, so that the device gets new requests before it runs idle.
    ///
    /// # Errors
    /// Only if the queue itself is broken; a failed operation is a completion with an error.
    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()>;

    /// A descriptor that is readable while [`Queue::complete`] has a completion to return without waiting, of
    /// operations that were passed to the device. It may be readable without one. It is valid as long as the
    /// queue. `None`: the queue cannot tell; its completions are found by calling [`Queue::complete`].
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Number of operations submitted and not completed.
    fn in_flight(&self) -> usize;

    /// The greatest number of operations in flight.
    fn depth(&self) -> usize;
}
