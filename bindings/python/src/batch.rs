//! The Python class `WriteBatch`.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use terracedb::polling::TryWrite;
use terracedb::{Keyspace as Engine, WriteOptions};

use crate::arguments::{BytesLike, KeyBounds, entry_options};
use crate::errors::detached;
use crate::handle::{Handle, Slot};
use crate::keyspace::{Keyspace, check_same_store};

/// Writes to any keyspaces of a store that are applied together or not at all. A method without `keyspace`
/// writes to the one that the batch was made for.
#[pyclass(frozen, module = "terracedb", name = "WriteBatch")]
pub(crate) struct WriteBatch {
    handle: Arc<Handle>,
    default: Arc<Slot<Engine>>,
    batch: Arc<Slot<Mutex<terracedb::WriteBatch>>>,
    options: WriteOptions,
}

impl WriteBatch {
    pub(crate) fn new(
        py: Python<'_>,
        handle: Arc<Handle>,
        default: Arc<Slot<Engine>>,
        options: WriteOptions,
    ) -> PyResult<Self> {
        let make = |_: &terracedb::Db| Ok(Mutex::new(terracedb::WriteBatch::new()));
        let batch = detached(py, || handle.slot(make))?;
        Ok(Self { handle, default, batch, options })
    }

    /// Adds one operation to the batch.
    fn add(
        &self,
        py: Python<'_>,
        keyspace: Option<&Keyspace>,
        work: impl FnOnce(&mut terracedb::WriteBatch, &Engine) -> terracedb::Result<()> + Send,
    ) -> PyResult<()> {
        let slot = keyspace.map_or(&self.default, |keyspace| &keyspace.slot);
        detached(py, || {
            keyspace.map_or(Ok(()), |keyspace| check_same_store(&self.handle, keyspace))?;
            slot.with(|engine| self.batch.with(|batch| work(&mut batch.lock(), engine)))
        })
    }
}

#[pymethods]
impl WriteBatch {
    /// Adds a put. `ttl` (seconds or `timedelta`): the entry expires after this time.
    #[pyo3(signature = (key, value, *, ttl=None, keyspace=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        let (key, value) = (BytesLike::of(key, "key")?, BytesLike::of(value, "value")?);
        let options = entry_options(ttl)?;
        let (key, value): (&[u8], &[u8]) = (key.as_ref(), value.as_ref());
        self.add(py, keyspace.map(Bound::get), |batch, engine| {
            batch.put_opt(engine, key, value, &options)
        })
    }

    /// Adds a delete.
    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        let key = BytesLike::of(key, "key")?;
        let key: &[u8] = key.as_ref();
        self.add(py, keyspace.map(Bound::get), |batch, engine| batch.delete(engine, key))
    }

    /// Adds an operand of the keyspace's merge operator.
    #[pyo3(signature = (key, operand, *, keyspace=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        let (key, operand) = (BytesLike::of(key, "key")?, BytesLike::of(operand, "operand")?);
        let (key, operand): (&[u8], &[u8]) = (key.as_ref(), operand.as_ref());
        self.add(py, keyspace.map(Bound::get), |batch, engine| batch.merge(engine, key, operand))
    }

    /// Adds a delete of every key with `prefix`, or from `start` up to `stop` (exclusive).
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, keyspace=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        let range = KeyBounds::of(prefix, start, stop, (true, false))?;
        self.add(py, keyspace.map(Bound::get), |batch, engine| {
            batch.delete_range::<&[u8]>(engine, range.bounds())
        })
    }

    /// Removes every operation from the batch.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || {
            self.batch.with(|batch| {
                batch.lock().clear();
                Ok(())
            })
        })
    }

    /// Applies the batch, and empties it. After an error none of it is applied, and it is as before.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || {
            self.batch.with(|batch| {
                let mut batch = batch.lock();
                self.handle.with(|db| db.write_opt(&batch, &self.options))?;
                batch.clear();
                Ok(())
            })
        })
    }

    /// As `write`, without waiting: `None` once it is applied, or the seconds after which to try again.
    fn _try_write(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let tried = detached(py, || {
            self.batch.with(|batch| {
                let mut batch = batch.lock();
                let tried = self.handle.with(|db| db.try_write(&batch, &self.options))?;
                if tried == TryWrite::Done {
                    batch.clear();
                }
                Ok(tried)
            })
        })?;
        Ok(match tried {
            TryWrite::Done => None,
            TryWrite::Wait(time) => Some(time.as_secs_f64()),
        })
    }

    /// The bytes of the operations.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        detached(py, || self.batch.with(|batch| Ok(batch.lock().bytes())))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        detached(py, || self.batch.with(|batch| Ok(batch.lock().len())))
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.put(py, key, value, None, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.delete(py, key, None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, *_arguments))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _arguments: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        match kind.is_none() {
            true => self.write(py),
            false => self.clear(py),
        }
    }
}
