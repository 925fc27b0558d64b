//! A medium that is a directory: its files are files of the operating system.
//!
//! Operations in flight go through io_uring; if the kernel refuses it, through a bounded pool of threads
//! ([`FileMedium::notice`] reports that once). Direct I/O bypasses the page cache of the operating system if
//! the file system supports it.
//!
//! Invariants: the directory is the one that was opened, whatever its path means later; a name is checked
//! before it is used; a process forked from the one that opened a file neither uses it nor waits for it;
//! space is allocated before it is mapped; a buffer belongs to the kernel from submission to completion.
//! Concurrency: files and queues share only the counters of [`permits`]. Cost: docs/decisions/013.

mod backend;
mod directory;
mod directory_handle;
mod handle;
mod idle_rings;
mod lock;
mod mapped;
mod open_files;
mod open_limit;
mod permits;
mod poll_queues;
mod pool;
mod queue;
mod ring;
mod single_file;
mod staging;
mod strategy;
mod system;
mod tick;
mod transfer;

pub use directory::{FileMedium, FileOptions};
pub(crate) use directory_handle::DirectoryHandle;
pub(crate) use handle::descriptor;
pub use open_limit::raise_open_files_limit;
pub(crate) use single_file::SingleFile;
pub use staging::Staging;
pub(crate) use tick::Tick;
