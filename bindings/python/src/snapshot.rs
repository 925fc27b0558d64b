//! The Python class `Snapshot`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use terracedb::{Keyspace as Engine, Snapshot as EngineSnapshot};

use crate::arguments::{BytesLike, KeyBounds, keys_of};
use crate::errors::detached;
use crate::handle::{Handle, Slot};
use crate::iterator::{EntryIterator, Parts, Source};
use crate::keyspace::{Keyspace, check_same_store, value_or_none, values_list};

/// One state of a store, for reads of any keyspace. Writes after it do not appear. Versions that it sees are
/// kept until it is closed: use it as a context manager.
#[pyclass(frozen, module = "terracedb", name = "Snapshot")]
pub(crate) struct Snapshot {
    handle: Arc<Handle>,
    default: Arc<Slot<Engine>>,
    snapshot: Arc<Slot<EngineSnapshot>>,
}

impl Snapshot {
    pub(crate) fn new(
        py: Python<'_>,
        handle: Arc<Handle>,
        default: Arc<Slot<Engine>>,
    ) -> PyResult<Self> {
        let snapshot = detached(py, || handle.slot(|db| Ok(db.snapshot())))?;
        Ok(Self { handle, default, snapshot })
    }

    fn read<T: Send>(
        &self,
        py: Python<'_>,
        keyspace: Option<&Keyspace>,
        work: impl FnOnce(&EngineSnapshot, &Engine) -> terracedb::Result<T> + Send,
    ) -> PyResult<T> {
        let slot = keyspace.map_or(&self.default, |keyspace| &keyspace.slot);
        detached(py, || {
            keyspace.map_or(Ok(()), |keyspace| check_same_store(&self.handle, keyspace))?;
            slot.with(|engine| self.snapshot.with(|snapshot| work(snapshot, engine)))
        })
    }
}

#[pymethods]
impl Snapshot {
    /// The value of `key`, or `default`.
    #[pyo3(signature = (key, default=None, *, keyspace=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        keyspace: Option<&Bound<'py, Keyspace>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = BytesLike::of(key, "key")?;
        let key: &[u8] = key.as_ref();
        let read = |snapshot: &EngineSnapshot, engine: &Engine| snapshot.get(engine, key);
        let value = self.read(py, keyspace.map(Bound::get), read)?;
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
        let read = |snapshot: &EngineSnapshot, engine: &Engine| snapshot.multi_get(engine, &keys);
        values_list(py, self.read(py, keyspace.map(Bound::get), read)?)
    }

    /// As `Keyspace.iterator`.
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
        let source = self.read(py, keyspace.map(Bound::get), |snapshot, engine| {
            self.handle.slot(|_| {
                if engine.hashed_policy().is_some() && range.is_all() {
                    return snapshot.entries(engine).map(Source::Hashed);
                }
                snapshot.range::<&[u8]>(engine, range.bounds()).map(Source::Ordered)
            })
        })?;
        Ok(EntryIterator::new(source, Parts::of(include_key, include_value), reverse))
    }

    /// Ends the snapshot: merges may drop the versions that it saw.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.snapshot.close());
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
