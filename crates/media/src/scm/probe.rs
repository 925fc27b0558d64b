//! Finds out which medium a path is on, and opens it accordingly.
//!
//! In this order: a file that maps as persistent memory (DAX, `MAP_SYNC`), a file in memory (tmpfs), and any
//! other file as blocks with direct I/O, because a mapped page of it would be in DRAM. Mapped files are
//! allocated first, so that no store meets a full device; open files are locked. A file with other content
//! than the caller's is not changed.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Error, Result, format_bytes};
use rustix::fs::{FallocateFlags, OFlags, fstatfs};
use rustix::io::Errno;

use super::blocks::Blocks;
use super::facts::{Facts, Persistence};
use super::location::ScmLocation;
use super::mapping::Mapping;
use super::node;
use super::open::Scm;
use super::region::{Durability, Region};
use crate::emulated::{Device, Kind, Profile};
use crate::file::{DirectoryHandle, SingleFile};
use crate::locked::{Locked, or_unlock};
use crate::preallocate::preallocate;

/// Name of the file in a directory.
const NAME: &str = "terrace.scm";

/// The `statfs` type of tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// Operations in flight that keep a block device busy; the number of threads without io_uring.
const QUEUE_DEPTH: usize = 32;

/// This much of a file is checked for other content. Images of file systems may begin with zeros, but have
/// their magic number within the first 64 KiB and a page.
const BEGINNING: u64 = 128 << 10;

pub(super) fn open(place: &ScmLocation, len: u64, magic: &[u8]) -> Result<Scm> {
    match place {
        ScmLocation::Numa(node) => node::open(*node, len).map(Scm::Mapped),
        ScmLocation::Path(path) => at(path, len, magic),
        ScmLocation::Emulated(profile, path) => emulated(profile, path.as_deref(), len, magic),
    }
}

/// An emulated device over memory or a file: only its content is kept there, its latencies are the profile's.
fn emulated(profile: &'static Profile, path: Option<&Path>, len: u64, magic: &[u8]) -> Result<Scm> {
    let device = Device::real(profile);
    let region = match (path, profile.kind) {
        (None, Kind::Memory) => Region::anonymous(len)?,
        (None, Kind::Block) => {
            let file = SingleFile::in_memory(len)?;
            return Ok(Scm::Blocks(cached(file, len, Persistence::Process).emulated(device)));
        }
        (Some(path), kind) => {
            let Opened { path, file } = open_at(path)?.must_be_file()?;
            let (path, file) = (&*path, reserved(&path, file, len, magic)?);
            let is_tmpfs = is_tmpfs(&file);
            let persistence = if is_tmpfs { Persistence::Machine } else { Persistence::Power };
            if kind == Kind::Block {
                let inner = file.try_clone().map_err(|e| failed("open", path, e))?;
                let blocks = cached(SingleFile::cached(path, inner), len, persistence);
                let blocks = blocks.guarded_by(Box::new(Locked::new(file)));
                return Ok(Scm::Blocks(blocks.emulated(device)));
            }
            let durability = if is_tmpfs { Durability::Never } else { Durability::Pages };
            in_system_memory(path, len, file, persistence, durability)?
        }
    };
    Ok(Scm::Mapped(region.emulated(device)))
}

/// A file behind the system's page cache as blocks, for an emulated device.
fn cached(file: SingleFile, len: u64, persistence: Persistence) -> Blocks {
    let facts = Facts {
        backend: file.backend(),
        byte_addressable: false,
        persistence,
        write_unit: 4096,
        read_latency: Duration::ZERO,
        numa_node: None,
        emulated: None,
    };
    Blocks::new(file.handle(), len, facts, move |depth| file.queue(depth))
}

/// A file that was opened, and its path for messages.
struct Opened {
    path: PathBuf,
    file: fs::File,
}

impl Opened {
    /// Refuses anything but a regular file.
    fn must_be_file(self) -> Result<Self> {
        if self.kind()?.is_file() { Ok(self) } else { Err(not_memory(&self.path)) }
    }

    fn kind(&self) -> Result<fs::FileType> {
        let metadata = self.file.metadata();
        metadata.map(|it| it.file_type()).map_err(|e| failed("stat", &self.path, e))
    }
}

/// Opens what `path` names: a file or device, or the file in that directory, which is created if it is
/// missing.
fn open_at(path: &Path) -> Result<Opened> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => open_in(path),
        Ok(metadata) => open_existing(path, metadata.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // One level only: if a device is not mounted, its mount point is missing or empty, and creating
            // a path below it would silently use space of another device.
            fs::create_dir(path).map_err(|e| failed("create a directory", path, e))?;
            open_in(path)
        }
        Err(error) => Err(failed("open", path, error)),
    }
}

/// Opens the file in the directory at `path`; what another program puts at its name later is not used.
fn open_in(path: &Path) -> Result<Opened> {
    let directory = DirectoryHandle::open(path, false)?;
    let path = directory.path().join(NAME);
    let file = directory.open_file(NAME, OFlags::RDWR | OFlags::CREATE)?;
    let file = file.map_err(|e| failed("open", &path, e))?;
    Ok(Opened { path, file })
}

/// Opens the file or device at `path`, found to be of `kind`.
fn open_existing(path: &Path, kind: fs::FileType) -> Result<Opened> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    if kind.is_block_device() {
        // The kernel opens a block device exclusively only if it is not in use: not mounted, no swap, and no
        // part of a RAID or volume group. It stays exclusive until this handle is closed, except for plain
        // opens of this process.
        options.custom_flags(OFlags::EXCL.bits().cast_signed());
    } else if !kind.is_file() && !kind.is_char_device() {
        return Err(not_memory(path));
    }
    let file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Error::invalid("block device")
            .at(path.display())
            .expected("a block device that is not mounted and not in use")
            .caused_by(error),
        _ => failed("open", path, error),
    })?;
    Ok(Opened { path: path.to_owned(), file })
}

#[cold]
fn not_memory(path: &Path) -> Error {
    Error::invalid("location of storage-class memory")
        .at(path.display())
        .expected("a directory, a file, a block device or a DAX device")
}

fn is_tmpfs(file: &fs::File) -> bool {
    fstatfs(file).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
}

fn at(path: &Path, len: u64, magic: &[u8]) -> Result<Scm> {
    let opened = open_at(path)?;
    let kind = opened.kind()?;
    let Opened { path, file: opened } = opened;
    if kind.is_file() {
        file(&path, opened, len, magic)
    } else if kind.is_block_device() {
        block_device(&path, opened, len)
    } else if kind.is_char_device() {
        dax_device(&path, opened, len)
    } else {
        Err(not_memory(&path))
    }
}

fn file(path: &Path, file: fs::File, len: u64, magic: &[u8]) -> Result<Scm> {
    let file = reserved(path, file, len, magic)?;
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    if let Ok(mapping) = Mapping::shared(&file, bytes, true) {
        return Ok(dax(mapping, file));
    }
    if is_tmpfs(&file) {
        let durability = Durability::Never;
        let region = in_system_memory(path, len, file, Persistence::Machine, durability)?;
        return Ok(Scm::Mapped(region));
    }
    blocks(path, len, file)
}

/// `file`, locked, with at least `len` allocated bytes.
fn reserved(path: &Path, file: fs::File, len: u64, magic: &[u8]) -> Result<fs::File> {
    lock(&file, path)?;
    or_unlock(&file, reserve(path, &file, len, magic))?;
    Ok(file)
}

fn reserve(path: &Path, file: &fs::File, len: u64, magic: &[u8]) -> Result<()> {
    if !is_free(file, magic).map_err(|e| failed("read", path, e))? {
        return Err(Error::invalid("file for storage-class memory")
            .at(path.display())
            .expected("a new file, or one that holds a tier")
            .got("other content, which would be lost"));
    }
    match preallocate(file, FallocateFlags::empty(), len) {
        Ok(()) => {}
        // Without allocation a write may fail for want of space. Files of such file systems are not mapped.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let held = file.metadata().map_err(|e| failed("stat", path, e))?.len();
            file.set_len(held.max(len)).map_err(|e| failed("set the length", path, e))?;
        }
        Err(error) => return Err(failed("reserve space", path, error.into())),
    }
    Ok(())
}

/// Whether overwriting `file` loses nothing: it begins with `magic`, or holds zeros, as a file does that was
/// allocated by a process that died before writing.
fn is_free(file: &fs::File, magic: &[u8]) -> io::Result<bool> {
    let mut beginning = Vec::new();
    file.take(BEGINNING).read_to_end(&mut beginning)?;
    Ok(beginning.starts_with(magic) || beginning.iter().all(|byte| *byte == 0))
}

/// A file that is mapped from the page cache.
fn in_system_memory(
    path: &Path,
    len: u64,
    file: fs::File,
    persistence: Persistence,
    durability: Durability,
) -> Result<Region> {
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    let mapping = Mapping::shared(&file, bytes, false).map_err(|e| failed("map", path, e))?;
    let facts = Facts {
        backend: if durability == Durability::Never { "tmpfs" } else { "file" },
        byte_addressable: true,
        persistence,
        write_unit: 64,
        read_latency: Duration::from_nanos(100),
        numa_node: None,
        emulated: None,
    };
    Ok(Region::new(mapping, durability, facts, Some(Box::new(Locked::new(file)))))
}

/// Persistent memory: a store is durable once its cache lines are flushed.
fn dax(mapping: Mapping, guard: fs::File) -> Scm {
    let facts = Facts {
        backend: "dax",
        byte_addressable: true,
        persistence: Persistence::Power,
        // The unit of Optane modules, the only such medium widely sold. On a medium with a smaller unit it
        // only wastes space.
        write_unit: 256,
        read_latency: Duration::from_nanos(300),
        numa_node: None,
        emulated: None,
    };
    Scm::Mapped(Region::new(mapping, Durability::Lines, facts, Some(Box::new(Locked::new(guard)))))
}

/// Opens a DAX device. Its length and alignment are in sysfs; it has no file system.
fn dax_device(path: &Path, file: fs::File, len: u64) -> Result<Scm> {
    let id = file.metadata().map_err(|e| failed("stat", path, e))?.rdev();
    let (major, minor) = (rustix::fs::major(id), rustix::fs::minor(id));
    let folder = format!("/sys/dev/char/{major}:{minor}");
    let attribute = |name: &str| {
        let text = fs::read_to_string(format!("{folder}/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let Some(held) = attribute("size") else {
        return Err(Error::invalid("character device")
            .at(path.display())
            .expected("a DAX device, with its size in sysfs"));
    };
    let align = attribute("align").unwrap_or(2 << 20).max(4096);
    let len = len.checked_next_multiple_of(align).unwrap_or(u64::MAX);
    fits(path, len, held)?;
    lock(&file, path)?;
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    let mapping = Mapping::shared(&file, bytes, true)
        .or_else(|_| Mapping::shared(&file, bytes, false))
        .map_err(|e| failed("map", path, e));
    Ok(dax(or_unlock(&file, mapping)?, file))
}

fn block_device(path: &Path, mut file: fs::File, len: u64) -> Result<Scm> {
    let end = io::Seek::seek(&mut file, io::SeekFrom::End(0));
    fits(path, len, end.map_err(|e| failed("seek", path, e))?)?;
    lock(&file, path)?;
    blocks(path, len, file)
}

fn blocks(path: &Path, len: u64, guard: fs::File) -> Result<Scm> {
    // The same opening, so that the locked file is the one that is read and written.
    let inner = guard.try_clone().map_err(|e| failed("open", path, e))?;
    let file = SingleFile::direct(path, inner, QUEUE_DEPTH);
    let facts = Facts {
        backend: file.backend(),
        byte_addressable: false,
        persistence: Persistence::Power,
        write_unit: 4096,
        read_latency: Duration::from_micros(80),
        numa_node: None,
        emulated: None,
    };
    let handle = file.handle();
    let blocks = Blocks::new(handle, len, facts, move |depth| file.queue(depth));
    Ok(Scm::Blocks(blocks.guarded_by(Box::new(Locked::new(guard)))))
}

fn fits(path: &Path, len: u64, held: u64) -> Result<()> {
    if len <= held {
        return Ok(());
    }
    Err(Error::invalid("device is smaller than its size in the settings")
        .at(path.display())
        .expected(format_bytes(len))
        .got(format_bytes(held)))
}

/// Locks the file for this process, until its [`Locked`] is dropped or its last handle closed.
fn lock(file: &fs::File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => {
            Err(Error::locked("storage-class memory is in use by another open store")
                .at(path.display()))
        }
        Err(fs::TryLockError::Error(error)) => Err(failed("lock", path, error)),
    }
}

#[cold]
fn failed(what: &'static str, path: &Path, error: io::Error) -> Error {
    Error::io(what, path.display(), error)
}

#[cfg(test)]
mod tests;
