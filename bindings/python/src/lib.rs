//! TerraceDB for Python: the extension module `terracedb._terracedb`, behind the package `terracedb`.
//!
//! Every call that may wait for a device or for a lock runs without the interpreter lock. Locks of this
//! crate are taken and given back within such a section, so that no thread waits for one lock while it holds
//! the other.

mod arguments;
mod batch;
mod database;
mod errors;
mod handle;
mod iterator;
mod keyspace;
mod queue;
mod snapshot;
mod statistics;
mod transaction;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
fn _terracedb(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<keyspace::Keyspace>()?;
    module.add_class::<database::Database>()?;
    module.add_class::<batch::WriteBatch>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<iterator::EntryIterator>()?;
    module.add_class::<queue::ReadQueue>()?;
    module.add_function(wrap_pyfunction!(database::open, module)?)?;
    module.add_function(wrap_pyfunction!(database::list_backups, module)?)?;
    module.add_function(wrap_pyfunction!(database::restore, module)?)?;
    Ok(())
}
