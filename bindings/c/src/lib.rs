//! TerraceDB for C: opaque handles, `tdb_error *` for failures, `tdb_bytes` for results.
//!
//! A panic does not cross the boundary: it ends the process, since `extern "C"` functions abort on unwinding.

#![expect(non_camel_case_types, reason = "names of C types")]

mod batch;
mod bytes;
mod error;
mod iterator;
mod store;

pub use batch::*;
pub use bytes::*;
pub use error::*;
pub use iterator::*;
pub use store::*;
