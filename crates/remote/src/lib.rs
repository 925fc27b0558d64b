//! Backups in an object store that speaks S3.
//!
//! [`ObjectMedium`] is a [`media::Medium`] whose files are objects, so that the code of backups reads and
//! writes a repository in a bucket as it does one in a directory. Level 2 (docs/ARCHITECTURE.md).
//!
//! Objects never change and their keys are never used twice. The names of the files are in a numbered
//! manifest (`manifest`), which is created only if its number is free: this publishes a
//! change of names as a whole, and stops a writer that another one has replaced
//! (`history`).

mod client;
mod credentials;
mod download;
mod history;
mod location;
mod manifest;
mod medium;
mod objects;
mod options;
mod response;
mod retry;
mod session;
mod shared;
mod sweep;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod upload;

pub use credentials::Credentials;
pub use location::Location;
pub use manifest::{Manifest, ObjectEntry};
pub use medium::ObjectMedium;
pub use options::Options;
