//! Errors of the store as Python exceptions: the classes of `terracedb._errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use terracedb::{Error, ErrorKind, Retry};

/// The module that defines the exceptions. They are Python classes because some have two bases, such as
/// `NotFoundError(Error, KeyError)`.
static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// The name of the exception class of `kind`.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Retry => "RetryError",
        ErrorKind::Invalid => "InvalidError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::AlreadyExists => "AlreadyExistsError",
        ErrorKind::Locked => "LockedError",
        ErrorKind::PermissionDenied => "PermissionDeniedError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::NoSpace => "NoSpaceError",
        ErrorKind::Poisoned => "PoisonedError",
        ErrorKind::Closed => "ClosedError",
        ErrorKind::Conflict => "ConflictError",
        _ => "Error",
    }
}

/// `error` as an exception object.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let built = || -> PyResult<PyErr> {
        let classes = CLASSES
            .get_or_try_init(py, || PyModule::import(py, "terracedb._errors").map(Bound::unbind))?;
        let named = PyDict::new(py);
        let retry = match error.when_to_retry() {
            Retry::Now => "now",
            Retry::Later => "later",
            _ => "never",
        };
        named.set_item("retry", retry)?;
        named.set_item("place", error.place())?;
        let class = classes.bind(py).getattr(class_name(error.kind()))?;
        Ok(PyErr::from_value(class.call((error.to_string(),), Some(&named))?))
    };
    built().unwrap_or_else(|failed| failed)
}

/// Runs `work` without the interpreter lock, and raises its error.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> terracedb::Result<T> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| exception(py, &error))
}
