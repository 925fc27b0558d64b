//! The Python class `Transaction`.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use terracedb::{Keyspace as Engine, Transaction as EngineTransaction, WriteOptions};

use crate::arguments::{BytesLike, KeyBounds, entry_options, keys_of};
use crate::errors::detached;
use crate::handle::{Handle, Slot, closed};
use crate::iterator::{EntryIterator, Parts, Source};
use crate::keyspace::{Keyspace, check_same_store, value_or_none, values_list};

/// Reads one state of the store and its own writes, which other readers see after `commit`. The commit
/// raises `ConflictError` if another write changed a key that it read. As a context manager it is committed
/// at the end of the block, and rolled back if the block raises.
#[pyclass(frozen, module = "terracedb", name = "Transaction")]
pub(crate) struct Transaction {
    handle: Arc<Handle>,
    default: Arc<Slot<Engine>>,
    transaction: Arc<Slot<EngineTransaction>>,
    options: WriteOptions,
}

impl Transaction {
    pub(crate) fn new(
        py: Python<'_>,
        handle: Arc<Handle>,
        default: Arc<Slot<Engine>>,
        options: WriteOptions,
    ) -> PyResult<Self> {
        let transaction = detached(py, || handle.slot(|db| Ok(db.transaction())))?;
        Ok(Self { handle, default, transaction, options })
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        keyspace: Option<&Bound<'_, Keyspace>>,
        work: impl FnOnce(&mut EngineTransaction, &Engine) -> terracedb::Result<T> + Send,
    ) -> PyResult<T> {
        let keyspace = keyspace.map(Bound::get);
        let slot = keyspace.map_or(&self.default, |keyspace| &keyspace.slot);
        detached(py, || {
            keyspace.map_or(Ok(()), |keyspace| check_same_store(&self.handle, keyspace))?;
            slot.with(|engine| self.transaction.with_mut(|transaction| work(transaction, engine)))
        })
    }
}

#[pymethods]
impl Transaction {
    /// The value of `key`, or `default`. With `tracked=False` another write to it is no conflict.
    #[pyo3(signature = (key, default=None, *, tracked=true, keyspace=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        tracked: bool,
        keyspace: Option<&Bound<'py, Keyspace>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = BytesLike::of(key, "key")?;
        let key: &[u8] = key.as_ref();
        let value = self.run(py, keyspace, |transaction, engine| match tracked {
            true => transaction.get(engine, key),
            false => transaction.get_untracked(engine, key),
        })?;
        Ok(value_or_none(py, value).map(Bound::into_any).or(default))
    }

    /// The values of many keys, in their order; `None` for a key without one.
    #[pyo3(signature = (keys, *, keyspace=None))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        keyspace: Option<&Bound<'py, Keyspace>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys = keys_of(keys)?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let values =
            self.run(py, keyspace, |transaction, engine| transaction.multi_get(engine, &keys))?;
        values_list(py, values)
    }

    /// Sets `key` to `value`.
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
        self.run(py, keyspace, |transaction, engine| {
            transaction.put_opt(engine, key, value, &options)
        })
    }

    /// Deletes `key`.
    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        let key = BytesLike::of(key, "key")?;
        let key: &[u8] = key.as_ref();
        self.run(py, keyspace, |transaction, engine| transaction.delete(engine, key))
    }

    /// Hands `operand` to the keyspace's merge operator.
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
        self.run(py, keyspace, |transaction, engine| transaction.merge(engine, key, operand))
    }

    /// Deletes every key with `prefix`, or from `start` up to `stop` (exclusive).
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
        self.run(py, keyspace, |transaction, engine| {
            transaction.delete_range::<&[u8]>(engine, range.bounds())
        })
    }

    /// As `Keyspace.iterator`: another write to a key of the range is a conflict.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false, include_start=true,
        include_stop=false, include_key=true, include_value=true, keyspace=None))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of plyvel's iterator")]
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the keyword arguments of plyvel's iterator"
    )]
    fn iterator(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        include_start: bool,
        include_stop: bool,
        include_key: bool,
        include_value: bool,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<EntryIterator> {
        let range = KeyBounds::of(prefix, start, stop, (include_start, include_stop))?;
        let source = self.run(py, keyspace, |transaction, engine| {
            self.handle.slot(|_| {
                transaction.range::<&[u8]>(engine, range.bounds()).map(Source::Transaction)
            })
        })?;
        Ok(EntryIterator::new(source, Parts::of(include_key, include_value), reverse))
    }

    /// Makes the writes visible, all at once. Raises `ConflictError` and writes nothing if another write
    /// changed a key that the transaction had read.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.transaction.take()?.ok_or_else(closed)?.commit_opt(&self.options))
    }

    /// Discards the writes.
    fn rollback(&self, py: Python<'_>) {
        py.detach(|| self.transaction.close());
    }

    /// The number of keys that it has written.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        detached(py, || self.transaction.with(|transaction| Ok(transaction.len())))
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, key, None, true, None)?
            .ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
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

    fn __contains__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<bool> {
        Ok(self.get(py, key, None, true, None)?.is_some())
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
        if !kind.is_none() {
            self.rollback(py);
            return Ok(());
        }
        // The block may have ended the transaction itself.
        detached(py, || {
            let transaction = self.transaction.take()?;
            transaction.map_or(Ok(()), |transaction| transaction.commit_opt(&self.options))
        })
    }
}
