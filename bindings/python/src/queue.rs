//! The Python class `ReadQueue`, under `get_async`: reads that are submitted and polled.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;
use terracedb::ReadQueue as EngineQueue;

use crate::arguments::BytesLike;
use crate::errors::{detached, exception};
use crate::handle::{Handle, Slot};
use crate::keyspace::{Keyspace, check_same_store, value_or_none};

/// Gets in flight, and those that have ended.
#[pyclass(frozen, module = "terracedb", name = "ReadQueue")]
pub(crate) struct ReadQueue {
    handle: Arc<Handle>,
    queue: Arc<Slot<Mutex<EngineQueue>>>,
}

impl ReadQueue {
    pub(crate) fn new(py: Python<'_>, handle: Arc<Handle>, depth: usize) -> PyResult<Self> {
        let queue = detached(py, || handle.slot(|db| db.read_queue(depth).map(Mutex::new)))?;
        Ok(Self { handle, queue })
    }
}

#[pymethods]
impl ReadQueue {
    /// Starts a get whose result carries `token`. False if the queue is full.
    fn submit(
        &self,
        py: Python<'_>,
        keyspace: &Bound<'_, Keyspace>,
        key: &Bound<'_, PyAny>,
        token: u64,
    ) -> PyResult<bool> {
        let (keyspace, key) = (keyspace.get(), BytesLike::of(key, "key")?);
        let key: &[u8] = key.as_ref();
        detached(py, || {
            check_same_store(&self.handle, keyspace)?;
            keyspace.slot.with(|engine| {
                self.queue.with(|queue| {
                    let mut queue = queue.lock();
                    if queue.room() == 0 {
                        return Ok(false);
                    }
                    engine.submit(&mut queue, key, token).map(|()| true)
                })
            })
        })
    }

    /// Passes submitted gets to the device, and returns those that have ended: `(token, value, error)`.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let done = detached(py, || {
            self.queue.with(|queue| {
                let mut done = Vec::new();
                queue.lock().poll_all(&mut done)?;
                Ok(done)
            })
        })?;
        let results = PyList::empty(py);
        for read in done {
            let (value, error) = match read.result {
                Ok(value) => (value_or_none(py, value), None),
                Err(error) => (None, Some(exception(py, &error).into_value(py))),
            };
            results.append((read.token, value, error))?;
        }
        Ok(results)
    }

    /// The gets in flight.
    fn in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        detached(py, || self.queue.with(|queue| Ok(queue.lock().in_flight())))
    }

    /// A file descriptor that is readable when a get may have ended; `None` if the device cannot tell.
    fn fileno(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        detached(py, || {
            self.queue.with(|queue| {
                let mut queue = queue.lock();
                Ok(queue.descriptor()?.map(|descriptor| descriptor.as_raw_fd()))
            })
        })
    }

    /// Ends the queue, and the gets in flight with it.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.queue.close());
    }
}
