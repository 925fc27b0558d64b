//! A medium that is a directory: its files are files of the operating system.
//!
//! Operations in flight go through io_uring; if the kernel refuses it, through a bounded pool of threads
//! ([`FileMedium::notice`] reports that once). Direct I/O bypasses the page cache of the operating system if
//! the file system supports it.
//!
//! Invariants: a name is checked before it becomes part of a path; space is allocated before it is mapped; a
//! buffer belongs to the kernel from submission to completion. Concurrency: files and queues share only the
//! counters of [`permits`]. Cost: docs/media.md.

mod backend;
mod directory;
mod handle;
mod idle_rings;
mod mapped;
mod permits;
mod poll_queues;
mod pool;
mod queue;
mod ring;
mod single_file;
mod staging;
mod strategy;
mod system;
mod transfer;

pub use directory::{FileMedium, FileOptions};
pub(crate) use single_file::SingleFile;
pub use staging::Staging;
