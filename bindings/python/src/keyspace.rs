//! The Python class `Keyspace`: a mapping from bytes to bytes.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use terracedb::{Db, Error, Keyspace as Engine, Result};

use crate::arguments::{
    BytesLike, KeyBounds, durability_name, keys_of, put_options, write_options,
};
use crate::batch::WriteBatch;
use crate::errors::{detached, exception};
use crate::handle::{Handle, Slot};
use crate::iterator::{EntryIterator, Parts, Source};
use crate::queue::ReadQueue;

/// A named set of keys and values of a store. It is a `MutableMapping` from bytes to bytes; keys and values
/// may be given as any bytes-like object.
#[pyclass(frozen, subclass, mapping, weakref, module = "terracedb", name = "Keyspace")]
pub(crate) struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) slot: Arc<Slot<Engine>>,
    name: String,
}

/// The value as Python has it.
pub(crate) fn value_or_none<'py>(
    py: Python<'py>,
    value: Option<Bytes>,
) -> Option<Bound<'py, PyBytes>> {
    value.map(|value| PyBytes::new(py, &value))
}

/// The values of a multi-get as a list; the first error is raised.
pub(crate) fn values_list<'py>(
    py: Python<'py>,
    values: Vec<Result<Option<Bytes>>>,
) -> PyResult<Bound<'py, PyList>> {
    let values = values.into_iter().collect::<Result<Vec<_>>>();
    let values = values.map_err(|error| exception(py, &error))?;
    PyList::new(py, values.into_iter().map(|value| value_or_none(py, value)))
}

impl Keyspace {
    pub(crate) fn new(handle: Arc<Handle>, slot: Arc<Slot<Engine>>, name: String) -> Self {
        Self { handle, slot, name }
    }

    fn get_bytes(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Bytes>> {
        detached(py, || self.slot.with(|keyspace| keyspace.get(key)))
    }

    fn iterate(&self, py: Python<'_>, parts: Parts) -> PyResult<EntryIterator> {
        self.iterate_range(py, &KeyBounds::ALL, parts, false)
    }

    fn iterate_range(
        &self,
        py: Python<'_>,
        range: &KeyBounds,
        parts: Parts,
        reverse: bool,
    ) -> PyResult<EntryIterator> {
        let source = detached(py, || {
            self.handle.slot(|_| self.slot.with(|keyspace| source_of(keyspace, range)))
        })?;
        Ok(EntryIterator::new(source, parts, reverse))
    }
}

/// An iterator over a range of an ordered keyspace, or over all entries of a hashed one.
fn source_of(keyspace: &Engine, range: &KeyBounds) -> Result<Source> {
    if keyspace.hashed_policy().is_some() && range.is_all() {
        return keyspace.entries().map(Source::Hashed);
    }
    keyspace.range::<&[u8]>(range.bounds()).map(Source::Ordered)
}

#[pymethods]
impl Keyspace {
    /// The name of the keyspace.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The merge policy of a hashed keyspace as text, such as ``'keep'``; `None` for an ordered one.
    #[getter]
    fn hashed(&self, py: Python<'_>) -> PyResult<Option<String>> {
        detached(py, || {
            self.slot.with(|keyspace| Ok(keyspace.hashed_policy().map(ToString::to_string)))
        })
    }

    /// The value of `key`, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = BytesLike::of(key, "key")?;
        let value = self.get_bytes(py, key.as_ref())?;
        Ok(value_or_none(py, value).map(Bound::into_any).or(default))
    }

    /// Sets `key` to `value`. `ttl` (seconds or `timedelta`): the entry expires after this time.
    /// `durability` (``'none'``, ``'interval'``, ``'sync'``, ``'unlogged'``): in place of the store's.
    #[pyo3(signature = (key, value, *, ttl=None, durability=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (key, value) = (BytesLike::of(key, "key")?, BytesLike::of(value, "value")?);
        let options = put_options(ttl, durability)?;
        let (key, value): (&[u8], &[u8]) = (key.as_ref(), value.as_ref());
        detached(py, || self.slot.with(|keyspace| keyspace.put_opt(key, value, &options)))
    }

    /// Deletes `key`, whether it has a value or not.
    #[pyo3(signature = (key, *, durability=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let key = BytesLike::of(key, "key")?;
        let options = write_options(durability)?;
        let key: &[u8] = key.as_ref();
        detached(py, || self.slot.with(|keyspace| keyspace.delete_opt(key, &options)))
    }

    /// Deletes every key with `prefix`, or from `start` up to `stop` (exclusive), by one write.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, durability=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let range = KeyBounds::of(prefix, start, stop, (true, false))?;
        let options = write_options(durability)?;
        detached(py, || {
            self.slot.with(|keyspace| keyspace.delete_range_opt::<&[u8]>(range.bounds(), &options))
        })
    }

    /// Hands `operand` to the keyspace's merge operator, without reading the value.
    #[pyo3(signature = (key, operand, *, durability=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (key, operand) = (BytesLike::of(key, "key")?, BytesLike::of(operand, "operand")?);
        let options = write_options(durability)?;
        let (key, operand): (&[u8], &[u8]) = (key.as_ref(), operand.as_ref());
        detached(py, || self.slot.with(|keyspace| keyspace.merge_opt(key, operand, &options)))
    }

    /// The Unix time in seconds at which `key` expires; `None` if it does not, or has no value.
    fn expires_at(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let key = BytesLike::of(key, "key")?;
        let key: &[u8] = key.as_ref();
        let expiry = detached(py, || self.slot.with(|keyspace| keyspace.expiry(key)))?;
        Ok(match expiry {
            Some(terracedb::Expiry::At(time)) => {
                time.duration_since(std::time::UNIX_EPOCH).ok().map(|time| time.as_secs_f64())
            }
            _ => None,
        })
    }

    /// The values of many keys, in their order: many device reads are in flight at once. A key without a
    /// value gives `None`.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys = keys_of(keys)?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        values_list(py, detached(py, || self.slot.with(|keyspace| keyspace.multi_get(&keys)))?)
    }

    /// As `multi_get`, into the three buffers of an Arrow `large_binary` array: validity bits, 64-bit
    /// offsets, values.
    fn _multi_get_buffers<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let keys = keys_of(keys)?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let (valid, offsets, data) = detached(py, || {
            let values = self.slot.with(|keyspace| keyspace.multi_get(&keys))?;
            let mut valid = vec![0_u8; keys.len().div_ceil(8)];
            let mut offsets = Vec::with_capacity(8 * (keys.len() + 1));
            let mut data = Vec::new();
            offsets.extend_from_slice(&0_i64.to_le_bytes());
            for (number, value) in values.into_iter().enumerate() {
                if let Some(value) = value? {
                    data.extend_from_slice(&value);
                    if let Some(byte) = valid.get_mut(number / 8) {
                        *byte |= 1 << (number % 8);
                    }
                }
                offsets.extend_from_slice(&(data.len() as i64).to_le_bytes());
            }
            Ok((valid, offsets, data))
        })?;
        let buffer = |bytes: &[u8]| PyBytes::new(py, bytes);
        (keys.len(), buffer(&valid), buffer(&offsets), buffer(&data)).into_pyobject(py)
    }

    /// Iterates over entries in key order. `prefix`, or `start` and `stop`, bound the keys. By default
    /// `start` is included and `stop` is not. A hashed keyspace has no key order: it takes no bounds and no
    /// `reverse`.
    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false, include_start=true,
        include_stop=false, include_key=true, include_value=true))]
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
    ) -> PyResult<EntryIterator> {
        let range = KeyBounds::of(prefix, start, stop, (include_start, include_stop))?;
        self.iterate_range(py, &range, Parts::of(include_key, include_value), reverse)
    }

    /// Writes that are applied together or not at all. As a context manager it is written at the end of the
    /// block, unless the block raises.
    #[pyo3(signature = (*, durability=None))]
    fn write_batch(slf: PyRef<'_, Self>, durability: Option<&str>) -> PyResult<WriteBatch> {
        let options = write_options(durability)?;
        let py = slf.py();
        let (handle, slot) = (Arc::clone(&slf.handle), Arc::clone(&slf.slot));
        WriteBatch::new(py, handle, slot, options)
    }

    /// As `get`, from asyncio: reads of many tasks are at the device together.
    #[pyo3(signature = (key, default=None))]
    fn get_async<'py>(
        slf: Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terracedb._aio")?.call_method1("get", (&slf, key, default))
    }

    /// As `put`, from asyncio: a write stall delays this task alone.
    #[pyo3(signature = (key, value, *, ttl=None, durability=None))]
    fn put_async<'py>(
        slf: Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        ttl: Option<&Bound<'py, PyAny>>,
        durability: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let aio = slf.py().import("terracedb._aio")?;
        aio.call_method1("put", (&slf, key, value, ttl, durability))
    }

    /// As `delete`, from asyncio.
    #[pyo3(signature = (key, *, durability=None))]
    fn delete_async<'py>(
        slf: Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        durability: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("terracedb._aio")?.call_method1("delete", (&slf, key, durability))
    }

    #[pyo3(signature = (*, depth))]
    fn _read_queue(&self, py: Python<'_>, depth: usize) -> PyResult<ReadQueue> {
        ReadQueue::new(py, Arc::clone(&self.handle), depth)
    }

    /// A number that the open store has for itself.
    #[getter]
    fn _store_id(&self) -> usize {
        Arc::as_ptr(&self.handle) as usize
    }

    /// The store's default durability.
    #[getter]
    fn _durability(&self, py: Python<'_>) -> PyResult<&'static str> {
        detached(py, || self.handle.with(|db| Ok(durability_name(db.settings().durability))))
    }

    fn _sync(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.handle.with(Db::sync))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if key.is_instance_of::<PyList>() || key.is_instance_of::<PyTuple>() {
            return self.multi_get(py, key).map(Bound::into_any);
        }
        let bytes = BytesLike::of(key, "key")?;
        let value = self.get_bytes(py, bytes.as_ref())?;
        value_or_none(py, value)
            .map(Bound::into_any)
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
        if !self.__contains__(py, key)? {
            return Err(PyKeyError::new_err(key.clone().unbind()));
        }
        self.delete(py, key, None)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = BytesLike::of(key, "key")?;
        Ok(self.get_bytes(py, key.as_ref())?.is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<EntryIterator> {
        self.iterate(py, Parts::Keys)
    }

    /// The number of entries. It reads all of them: `stats()` has an estimate at no cost.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        detached(py, || {
            self.slot.with(|keyspace| {
                let mut count = 0;
                for entry in keyspace.entries()? {
                    entry?;
                    count += 1;
                }
                Ok(count)
            })
        })
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        detached(py, || {
            self.slot.with(|keyspace| keyspace.entries()?.next().transpose().map(|it| it.is_some()))
        })
    }

    fn __repr__(&self) -> String {
        format!("<terracedb.Keyspace {:?}>", self.name)
    }
}

/// Refuses a keyspace of another store.
pub(crate) fn check_same_store(handle: &Arc<Handle>, keyspace: &Keyspace) -> Result<()> {
    match Arc::ptr_eq(handle, &keyspace.handle) {
        true => Ok(()),
        false => Err(Error::invalid("keyspace").expected("one of the same open store")),
    }
}
