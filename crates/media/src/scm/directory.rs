//! Files on storage-class memory: a directory on a DAX file system or in memory (tmpfs) as a medium.
//!
//! Names are those of the file system. A file that is created for byte stores with reserved space is mapped
//! as a whole: a store is a copy, and a sync is a fence behind the lines that the stores flushed; no page of
//! the operating system's cache is written. Loads copy from a mapping too. Page reads, and stores to files
//! that are opened again, use system calls.
//!
//! The durability of a sync: on DAX its bytes survive a power cut; on tmpfs they survive the process, not the
//! machine ([`Persistence`]). A directory on any other file system is refused, because its mapped pages lie
//! in DRAM until they are synced.

mod file;

use std::fmt;
use std::sync::Arc;

use base::{Error, Result};

use self::file::ScmFile;
use super::facts::Persistence;
use super::location::ScmLocation;
use super::mapping::Mapping;
use super::node::must_exist;
use crate::Space;
use crate::emulated::{Device, Kind};
use crate::file::descriptor;
use crate::{Access, Capabilities, File, FileMedium, FileOptions, Listing, Medium, MemoryMedium};

/// A file that shows whether the directory maps as persistent memory.
const PROBE: &str = "terrace-probe";

/// See the module.
pub struct ScmDirectory {
    files: Arc<dyn Medium>,
    kind: FileKind,
    emulated: Option<Arc<Device>>,
}

/// How stores become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    /// By flushing lines (DAX).
    Lines,
    /// At once, as far as they do: memory of the system.
    Memory,
}

impl ScmDirectory {
    /// Opens the files at `place`. With `create`, the directory is created if it is missing, but not the one
    /// above it: if a device is not mounted, the files would use space of another one.
    ///
    /// # Errors
    /// `Invalid` if there is no such directory, NUMA node or profile, and for a directory on a file system
    /// that is neither DAX nor memory.
    pub fn open(place: &ScmLocation, create: bool) -> Result<Self> {
        match place {
            ScmLocation::Path(path) => {
                let options = FileOptions {
                    create,
                    direct: false,
                    io_uring: false,
                    ..FileOptions::default()
                };
                if create && !path.exists() && !path.parent().is_none_or(has_directory) {
                    return Err(Error::invalid("directory on storage-class memory")
                        .at(path.display())
                        .expected("the directory above it to exist"));
                }
                let files = FileMedium::open(path, options)?;
                let kind = kind_of(&files)?.ok_or_else(|| {
                    Error::invalid("directory on storage-class memory")
                        .at(path.display())
                        .expected("a DAX or tmpfs file system")
                        .got("another one, whose files are in the system's page cache")
                })?;
                Ok(Self { files: Arc::new(files), kind, emulated: None })
            }
            // The memory of this process: for measurements, because it ends with the process.
            ScmLocation::Numa(node) => {
                must_exist(*node).map_err(|error| error.at(place))?;
                Err(Error::invalid("files on storage-class memory").at(place).expected(
                    "a directory: bind a tmpfs to the node, as in `mount -t tmpfs -o mpol=bind:N`",
                ))
            }
            ScmLocation::Emulated(profile, path) => {
                if profile.kind != Kind::Memory {
                    return Err(Error::invalid("files on storage-class memory")
                        .at(place)
                        .expected("the profile of a memory"));
                }
                let device = Some(Arc::new(Device::real(profile)));
                let (files, kind) = match path {
                    None => (Arc::new(MemoryMedium::new()) as Arc<dyn Medium>, FileKind::Memory),
                    Some(path) => {
                        let inner = Self::open(&ScmLocation::Path(path.clone()), create)?;
                        (inner.files, inner.kind)
                    }
                };
                Ok(Self { files, kind, emulated: device })
            }
        }
    }

    /// The event that synced content survives.
    #[must_use]
    pub fn persistence(&self) -> Persistence {
        match self.kind {
            FileKind::Lines => Persistence::Power,
            FileKind::Memory if self.files.capabilities().persistent => Persistence::Machine,
            FileKind::Memory => Persistence::Process,
        }
    }

    fn file(&self, inner: Arc<dyn File>, mapped: u64) -> Arc<dyn File> {
        let mapping = descriptor(&*inner).filter(|_| mapped > 0).and_then(|file| {
            let len = usize::try_from(mapped).ok()?;
            let mapping = Mapping::shared(file, len, self.kind == FileKind::Lines).ok()?;
            // Stores then take no page fault. If the system refuses it, they do.
            let _ = mapping.populate();
            Some(mapping)
        });
        let flushes = self.kind == FileKind::Lines;
        Arc::new(ScmFile::new(inner, mapping, flushes, self.emulated.clone()))
    }
}

fn has_directory(path: &std::path::Path) -> bool {
    path.as_os_str().is_empty() || path.is_dir()
}

/// How stores into files of this directory become durable; `None` if only a sync of the file makes them so.
fn kind_of(files: &FileMedium) -> Result<Option<FileKind>> {
    if files.is_in_memory() {
        return Ok(Some(FileKind::Memory));
    }
    // Left by a process that died.
    let _ = files.remove(PROBE);
    let probe = files.create(PROBE, Access::Bytes, base::limits::PAGE_BYTES as u64)?;
    let mapped = descriptor(&*probe)
        .map(|file| Mapping::shared(file, base::limits::PAGE_BYTES, true))
        .is_some_and(|mapping| mapping.is_ok());
    files.remove(PROBE)?;
    Ok(mapped.then_some(FileKind::Lines))
}

impl Medium for ScmDirectory {
    crate::delegate!(files: remove, rename, link, lock, queue, undecorated);

    fn capabilities(&self) -> Capabilities {
        let backend = match (&self.emulated, self.kind) {
            (Some(device), _) => device.profile().backend,
            (None, FileKind::Lines) => "dax",
            (None, FileKind::Memory) => "tmpfs",
        };
        let persistent = self.persistence() == Persistence::Power;
        Capabilities { byte_addressable: true, persistent, backend, ..self.files.capabilities() }
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let inner = self.files.create(name, access, reserve)?;
        Ok(self.file(inner, if access == Access::Bytes { reserve } else { 0 }))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.file(self.files.open(name, access)?, 0))
    }

    fn list(&self) -> Result<Vec<Listing>> {
        self.files.list()
    }

    fn space(&self) -> Result<Option<Space>> {
        self.files.space()
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.files.sync_names(names)
    }
}

impl fmt::Debug for ScmDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScmDirectory({:?}, {})", self.files, self.capabilities().backend)
    }
}

#[cfg(test)]
mod tests {
    use base::ErrorKind;

    use super::*;
    use crate::Purpose;

    fn in_memory() -> Option<(ScmDirectory, tempfile::TempDir)> {
        let directory = tempfile::tempdir_in("/dev/shm").ok()?;
        let place = ScmLocation::Path(directory.path().join("log"));
        Some((ScmDirectory::open(&place, true).unwrap(), directory))
    }

    #[test]
    fn stores_of_a_process_are_read_by_the_next_without_a_sync() {
        let Some((medium, directory)) = in_memory() else { return };
        let file = medium.create("a", Access::Bytes, 3 * 4096).unwrap();
        file.store(100, &[7; 5000], Purpose::Log).unwrap();
        let place = ScmLocation::Path(directory.path().join("log"));
        let next = ScmDirectory::open(&place, false).unwrap();
        let (buf, read) =
            next.open("a", Access::Bytes).unwrap().read(0, crate::Buf::pages(2), Purpose::Replay);
        read.unwrap();
        assert!(buf[..100].iter().all(|byte| *byte == 0));
        assert!(buf[100..5100].iter().all(|byte| *byte == 7));
        assert_eq!(medium.persistence(), Persistence::Machine);
    }

    #[test]
    fn a_file_that_is_cut_under_its_writer_is_an_error_and_no_signal() {
        let Some((medium, directory)) = in_memory() else { return };
        let file = medium.create("a", Access::Bytes, 16 * 4096).unwrap();
        file.store(0, &[1; 64], Purpose::Log).unwrap();
        let path = directory.path().join("log").join("a");
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
        let stored = file.store(8 * 4096, &[1; 64], Purpose::Log);
        assert!(stored.is_err() || file.sync(Purpose::Log).is_err());
        assert!(file.sync(Purpose::Log).is_err(), "the loss is final");
    }

    #[test]
    fn loads_see_the_stores_of_every_handle_and_a_cut_file_is_an_error_and_no_signal() {
        let Some((medium, directory)) = in_memory() else { return };
        let writer = medium.create("a", Access::Bytes, 3 * 4096).unwrap();
        let reader = medium.open("a", Access::Bytes).unwrap();
        let mut expected = vec![0; 3 * 4096];
        for round in 1..20 {
            let (at, len) = (round * 601, 1 + (round * 37) % 90);
            expected[at..at + len].fill(round as u8);
            writer.store(at as u64, &expected[at..at + len], Purpose::Log).unwrap();
            for (at, len) in [(at - 3, len + 11), (at, len), (at + 1, 1), (at, 0), (0, 3 * 4096)] {
                for file in [&writer, &reader] {
                    let mut bytes = vec![9; len];
                    file.load(at as u64, &mut bytes, Purpose::Data).unwrap();
                    assert!(bytes == expected[at..at + len], "{at}, {len}");
                }
            }
        }
        let past = reader.load(3 * 4096 - 8, &mut [0; 9], Purpose::Data).unwrap_err();
        assert_eq!(past.kind(), ErrorKind::Corrupt);
        let path = directory.path().join("log").join("a");
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
        let mut bytes = [0; 100];
        assert!(reader.load(5000, &mut bytes, Purpose::Data).is_err(), "these bytes are gone");
        reader.load(1200, &mut bytes, Purpose::Data).unwrap();
        assert!(bytes == expected[1200..1300], "the others are not");
    }

    #[test]
    fn other_places_are_refused_by_name() {
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let missing = disk.path().join("no").join("such");
        let cases = [
            (disk.path().display().to_string(), "DAX or tmpfs"),
            (missing.display().to_string(), "such"),
            ("numa:1000".to_owned(), "numa:1000"),
            ("emulated:nvme".to_owned(), "profile of a memory"),
        ];
        for (place, names) in cases {
            let error = ScmDirectory::open(&place.parse().unwrap(), true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains(names), "{place}: {error}");
        }
    }
}
