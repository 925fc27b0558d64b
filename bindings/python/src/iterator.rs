//! Iterators over entries. One call reads a batch of entries without the interpreter lock, and later calls
//! return them one by one.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use terracedb::hashed::Entries;
use terracedb::iter::TransactionIter;
use terracedb::{Error, Iter, Result};

use crate::errors::exception;
use crate::handle::Slot;

/// Bounds of a batch. It begins with one entry and doubles, so that a seek for one entry reads no more.
const BATCH_ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 256 << 10;

/// An iterator of the engine.
pub(crate) enum Source {
    Ordered(Iter),
    Hashed(Entries),
    Transaction(TransactionIter),
}

impl Source {
    fn step(&mut self, reverse: bool) -> Option<Result<(Bytes, Bytes)>> {
        match (self, reverse) {
            (Self::Ordered(iter), false) => iter.next(),
            (Self::Ordered(iter), true) => iter.next_back(),
            (Self::Transaction(iter), false) => iter.next(),
            (Self::Transaction(iter), true) => iter.next_back(),
            (Self::Hashed(entries), false) => entries.next(),
            (Self::Hashed(_), true) => Some(Err(Error::invalid("reverse iteration")
                .expected("an ordered keyspace: a hashed one has no key order"))),
        }
    }
}

/// Which parts of the entries an iterator returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    Keys,
    Values,
    Both,
}

impl Parts {
    /// The parts for plyvel's arguments; neither is as both.
    pub(crate) fn of(include_key: bool, include_value: bool) -> Self {
        match (include_key, include_value) {
            (true, false) => Self::Keys,
            (false, true) => Self::Values,
            _ => Self::Both,
        }
    }
}

/// An iterator over the entries of a keyspace, in key order unless the keyspace is hashed. It reads one
/// state: later writes do not appear.
#[pyclass(frozen, module = "terracedb", name = "EntryIterator")]
pub(crate) struct EntryIterator {
    source: Arc<Slot<Source>>,
    ahead: Mutex<Ahead>,
    parts: Parts,
    reverse: bool,
}

/// Entries that were read and not returned, the error behind them, and the size of the next batch.
struct Ahead {
    entries: VecDeque<(Bytes, Bytes)>,
    failed: Option<Error>,
    ended: bool,
    next_batch: usize,
}

impl EntryIterator {
    pub(crate) fn new(source: Arc<Slot<Source>>, parts: Parts, reverse: bool) -> Self {
        let ahead = Ahead { entries: VecDeque::new(), failed: None, ended: false, next_batch: 1 };
        Self { source, ahead: Mutex::new(ahead), parts, reverse }
    }

    fn next_entry(&self) -> Result<Option<(Bytes, Bytes)>> {
        let ahead = &mut *self.ahead.lock();
        if let Some(entry) = ahead.entries.pop_front() {
            return Ok(Some(entry));
        }
        if let Some(error) = ahead.failed.take() {
            ahead.ended = true;
            return Err(error);
        }
        if ahead.ended {
            return Ok(None);
        }
        self.source.with_mut(|source| {
            let mut bytes = 0;
            while ahead.entries.len() < ahead.next_batch && bytes < BATCH_BYTES_MAX {
                match source.step(self.reverse) {
                    Some(Ok((key, value))) => {
                        bytes += key.len() + value.len();
                        ahead.entries.push_back((key, value));
                    }
                    Some(Err(error)) => {
                        ahead.failed = Some(error);
                        break;
                    }
                    None => {
                        ahead.ended = true;
                        break;
                    }
                }
            }
            Ok(())
        })?;
        ahead.next_batch = BATCH_ENTRIES_MAX.min(2 * ahead.next_batch);
        match (ahead.entries.pop_front(), ahead.failed.is_some()) {
            (None, true) => {
                ahead.ended = true;
                ahead.failed.take().map_or(Ok(None), Err)
            }
            (entry, _) => Ok(entry),
        }
    }
}

#[pymethods]
impl EntryIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Entries at hand are returned without giving up the interpreter lock. No thread waits for it while
        // it holds `ahead`.
        let at_hand = self.ahead.try_lock().and_then(|mut ahead| ahead.entries.pop_front());
        let entry = match at_hand {
            Some(entry) => Some(entry),
            None => py.detach(|| self.next_entry()).map_err(|error| exception(py, &error))?,
        };
        let Some((key, value)) = entry else { return Ok(None) };
        Ok(Some(match self.parts {
            Parts::Keys => PyBytes::new(py, &key).into_any(),
            Parts::Values => PyBytes::new(py, &value).into_any(),
            Parts::Both => {
                PyTuple::new(py, [PyBytes::new(py, &key), PyBytes::new(py, &value)])?.into_any()
            }
        }))
    }

    /// Ends the iterator, and gives back the state that it holds.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let ahead = &mut *self.ahead.lock();
            *ahead = Ahead { entries: VecDeque::new(), failed: None, ended: true, next_batch: 1 };
            self.source.close();
        });
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
