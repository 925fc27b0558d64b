//! The Python class `Database`: an open store, and its keyspace `default`. And the functions of backups.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use terracedb::tools::Backup;
use terracedb::{Db, Error};

use crate::arguments::{codec_of, durability_of, keyspace_options, size_of, write_options};
use crate::errors::detached;
use crate::handle::Handle;
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;
use crate::statistics::{as_dict, miss_ratio};
use crate::transaction::Transaction;

/// The keyspace that a database is itself.
const DEFAULT: &str = "default";

/// An open store. As a mapping it is its keyspace ``'default'``. Close it, or use it as a context manager:
/// the directory is locked until then.
#[pyclass(frozen, extends = Keyspace, mapping, module = "terracedb", name = "Database")]
pub(crate) struct Database {
    handle: Arc<Handle>,
    path: PathBuf,
}

/// Opens the store in the directory `path`.
///
/// `memory`: the limit of everything that the store keeps in memory, an `int` or text such as ``'64MiB'``.
/// `create`: create the store if the directory has none. `durability`: when a write returns, unless it says
/// otherwise: ``'none'`` (a power cut may lose the last writes, a killed process none), ``'interval'`` or
/// ``'sync'``. `codec`: ``'none'``, ``'lz4'``, ``'zstd'`` or ``'deflate'``. `recover_damaged_log`: open
/// although the log is damaged, without the writes behind the damage. `read_only`: read the store as it is
/// now, without a lock: another process may have it open and write to it; `refresh` shows later writes.
#[pyfunction]
#[pyo3(signature = (path, *, memory=None, create=true, durability=None, codec=None,
    background_threads=None, recover_damaged_log=false, read_only=false))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments")]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    memory: Option<&Bound<'_, PyAny>>,
    create: bool,
    durability: Option<&str>,
    codec: Option<&str>,
    background_threads: Option<usize>,
    recover_damaged_log: bool,
    read_only: bool,
) -> PyResult<Py<Database>> {
    let mut builder = Db::builder(&path).create_if_missing(create);
    if let Some(memory) = memory {
        builder = builder.memory(size_of(memory, "memory")?);
    }
    if let Some(name) = durability {
        builder = builder.durability(durability_of(name)?);
    }
    if let Some(name) = codec {
        builder = builder.codec(codec_of(name)?);
    }
    if let Some(threads) = background_threads {
        builder = builder.background_threads(threads);
    }
    builder = builder.recover_damaged_log(recover_damaged_log).read_only(read_only);
    let db = detached(py, || builder.open())?;
    database(py, db, path)
}

/// The object of an open store.
fn database(py: Python<'_>, db: Db, path: PathBuf) -> PyResult<Py<Database>> {
    let (handle, slot) = detached(py, || {
        let handle = Handle::new(db);
        let slot = handle.slot(|db| match db.is_read_only() {
            true => db.keyspace(DEFAULT),
            false => db.open_or_create_keyspace(DEFAULT),
        })?;
        Ok((handle, slot))
    })?;
    let keyspace = Keyspace::new(Arc::clone(&handle), slot, DEFAULT.to_owned());
    let database = Database { handle, path };
    let object = Py::new(py, PyClassInitializer::from(keyspace).add_subclass(database))?;
    py.import("terracedb._atexit")?.call_method1("register", (&object,))?;
    Ok(object)
}

#[pymethods]
impl Database {
    /// The directory of the store.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// A new object with the present state of a store that is open with ``read_only=True``. This one goes on
    /// with the state that it has.
    fn refresh(&self, py: Python<'_>) -> PyResult<Py<Self>> {
        let db = detached(py, || self.handle.with(Db::refresh))?;
        database(py, db, self.path.clone())
    }

    /// True once the store is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.handle.is_closed())
    }

    /// The keyspace `name`; created if there is none, unless `create` is false, where `NotFoundError` (a
    /// `KeyError`) is raised. The other arguments say of which kind it is: `hashed` is ``'keep'`` or
    /// ``'window=8GiB'``, `merge_operator` a name such as ``'i64-add'``, ``'append'``, ``'u64-max'``.
    #[pyo3(signature = (name, *, create=true, hashed=None, merge_operator=None,
        base_filter_bits=None))]
    fn keyspace(
        &self,
        py: Python<'_>,
        name: &str,
        create: bool,
        hashed: Option<&str>,
        merge_operator: Option<&str>,
        base_filter_bits: Option<u8>,
    ) -> PyResult<Keyspace> {
        let says_kind = hashed.is_some() || merge_operator.is_some() || base_filter_bits.is_some();
        let options = keyspace_options(py, hashed, merge_operator, base_filter_bits)?;
        let slot = detached(py, || {
            self.handle.slot(|db| match db.keyspace(name) {
                Ok(keyspace) if !says_kind => Ok(keyspace),
                Err(error) if !create => Err(error),
                _ => db.open_or_create_keyspace_opt(name, &options),
            })
        })?;
        Ok(Keyspace::new(Arc::clone(&self.handle), slot, name.to_owned()))
    }

    /// The names of the keyspaces.
    fn keyspaces(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        detached(py, || {
            self.handle.with(|db| {
                let mut names: Vec<_> =
                    db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect();
                names.sort();
                Ok(names)
            })
        })
    }

    /// Drops the keyspace `name` and all its entries. False if there was none.
    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        detached(py, || self.handle.with(|db| db.drop_keyspace(name)))
    }

    /// A transaction, which reads the state of now.
    #[pyo3(signature = (*, durability=None))]
    fn transaction(slf: PyRef<'_, Self>, durability: Option<&str>) -> PyResult<Transaction> {
        let options = write_options(durability)?;
        let (py, handle) = (slf.py(), Arc::clone(&slf.handle));
        Transaction::new(py, handle, Arc::clone(&slf.as_super().slot), options)
    }

    /// Runs ``work(transaction)`` and commits, again from the start after every conflict, with growing random
    /// pauses of up to about 10 ms; returns its result. Raises the conflict of the last of `attempts`.
    #[pyo3(signature = (work, *, attempts=100, durability=None))]
    fn transact<'py>(
        slf: PyRef<'py, Self>,
        work: &Bound<'py, PyAny>,
        attempts: u32,
        durability: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = write_options(durability)?;
        let (py, handle) = (slf.py(), Arc::clone(&slf.handle));
        let default = Arc::clone(&slf.as_super().slot);
        let conflict = py.import("terracedb._errors")?.getattr("ConflictError")?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (handle, default) = (Arc::clone(&handle), Arc::clone(&default));
            let transaction = Bound::new(py, Transaction::new(py, handle, default, options)?)?;
            let done = work.call1((&transaction,)).and_then(|result| {
                transaction.call_method0("commit")?;
                Ok(result)
            });
            match done {
                Err(error) if attempt < attempts && error.is_instance(py, &conflict) => {
                    transaction.call_method0("rollback")?;
                    py.detach(|| std::thread::sleep(pause_after(attempt)));
                }
                Err(error) => {
                    transaction.call_method0("rollback")?;
                    return Err(error);
                }
                result => return result,
            }
        }
    }

    /// The state of now, for reads.
    fn snapshot(slf: PyRef<'_, Self>) -> PyResult<Snapshot> {
        let (py, handle) = (slf.py(), Arc::clone(&slf.handle));
        Snapshot::new(py, handle, Arc::clone(&slf.as_super().slot))
    }

    /// Makes every write before it durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.handle.with(Db::sync))
    }

    /// Writes the memtables into tables.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.handle.with(Db::flush))
    }

    /// Merges all tables: deleted and overwritten entries give their space back.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.handle.with(Db::compact))
    }

    /// Changes the memory limit while the store is open. Returns the bytes above a lower limit that are still
    /// in use: new memory is refused until they come back.
    fn set_memory(&self, py: Python<'_>, memory: &Bound<'_, PyAny>) -> PyResult<u64> {
        let bytes = size_of(memory, "memory")?;
        detached(py, || self.handle.with(|db| db.resources().set_memory(bytes)))
    }

    /// Counters and sizes, as a `dict` of plain values. Counters start at 0 when the store is opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = detached(py, || self.handle.with(|db| Ok(db.statistics())))?;
        as_dict(py, &statistics)
    }

    /// The estimated miss ratio of this store's reads at sizes of the page cache: a list of `(bytes,
    /// ratio)`.
    fn miss_ratio<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let statistics = detached(py, || self.handle.with(|db| Ok(db.statistics())))?;
        miss_ratio(py, &statistics.page_curve)
    }

    /// Draws `miss_ratio()` with matplotlib, on `axes` or on new ones; returns the axes.
    #[pyo3(signature = (axes=None))]
    fn plot_miss_ratio<'py>(
        slf: Bound<'py, Self>,
        axes: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terracedb._plot")?.call_method1("miss_ratio", (&slf, axes))
    }

    /// Makes a checkpoint in the directory `path`: a store of its own, which shares files by hard links if
    /// it is on the same file system.
    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || self.handle.with(|db| db.checkpoint(path).map(drop)))
    }

    /// Adds a backup to the directory `path`; returns its number. Files that an earlier backup has are not
    /// copied again.
    #[pyo3(signature = (path, *, label=""))]
    fn backup(&self, py: Python<'_>, path: PathBuf, label: &str) -> PyResult<u64> {
        detached(py, || {
            self.handle.with(|db| Backup::open(path)?.create(db, label).map(|report| report.id))
        })
    }

    /// Closes the store: waits for running calls and makes every write durable. Its keyspaces, iterators,
    /// snapshots and transactions raise `ClosedError` from then on. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = detached(py, || self.handle.close());
        // Gets that wait in event loops end with `ClosedError`. Without asyncio there are none.
        let modules = py.import("sys")?.getattr("modules")?;
        if let Ok(aio) = modules.get_item("terracedb._aio") {
            aio.call_method1("closed", (Arc::as_ptr(&self.handle) as usize,))?;
        }
        closed
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<terracedb.Database {:?}>", self.path)
    }
}

/// The pause after attempt number `attempt`: none at first, since the conflicting write has usually ended by
/// then, and later a random part of a time that doubles up to about 10 ms.
fn pause_after(attempt: u32) -> Duration {
    if attempt < 4 {
        return Duration::ZERO;
    }
    let longest = 10_u64 << (attempt - 4).min(10);
    let random = RandomState::new().build_hasher().finish();
    Duration::from_micros(random % longest)
}

/// The backups in the directory `path`, the oldest first: a list of dicts.
#[pyfunction]
pub(crate) fn list_backups(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyList>> {
    let list = detached(py, || Backup::open_read_only(path)?.list())?;
    let backups = PyList::empty(py);
    for backup in &list.backups {
        let dict = PyDict::new(py);
        dict.set_item("id", backup.id)?;
        dict.set_item("label", &backup.label)?;
        dict.set_item("created", backup.created_unix_ms as f64 / 1e3)?;
        dict.set_item("files", backup.files)?;
        dict.set_item("bytes", backup.bytes)?;
        backups.append(dict)?;
    }
    Ok(backups)
}

/// Restores a backup of the directory `path`, by default the newest, to the new directory `to`.
#[pyfunction]
#[pyo3(signature = (path, to, *, id=None))]
pub(crate) fn restore(py: Python<'_>, path: PathBuf, to: PathBuf, id: Option<u64>) -> PyResult<()> {
    detached(py, || {
        let backups = Backup::open_read_only(&path)?;
        let newest = || Ok(backups.list()?.backups.iter().map(|backup| backup.id).max());
        let id = match id {
            Some(id) => Some(id),
            None => newest()?,
        };
        let id = id.ok_or_else(|| Error::not_found("backup").at(path.display()))?;
        backups.restore(id, to).map(drop)
    })
}
