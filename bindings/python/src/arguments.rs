//! Arguments of calls: bytes-like keys and values, sizes, times, options.

use std::ops::Bound as Edge;
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use terracedb::hashed::HashedPolicy;
use terracedb::operators::{Append, I64Add, I64AddSaturating, U64Max, U64Min};
use terracedb::stats::parse_bytes;
use terracedb::{Codec, Durability, EntryOptions, KeyspaceOptions, PutOptions, WriteOptions};

use crate::errors::exception;

/// A key or a value: a `bytes` object is used in place, since it cannot change; any other buffer is copied.
pub(crate) enum BytesLike<'py> {
    Shared(Bound<'py, PyBytes>),
    Copied(Vec<u8>),
}

impl AsRef<[u8]> for BytesLike<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes.as_bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

impl<'py> BytesLike<'py> {
    /// The bytes of `object`, which the error calls `name`.
    pub(crate) fn of(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Shared(bytes.clone()));
        }
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(format!("{name} must be bytes, not str: encode it")));
        }
        let wrong = |_| match object.get_type().name() {
            Ok(kind) => PyTypeError::new_err(format!("{name} must be bytes-like, not {kind}")),
            Err(error) => error,
        };
        PyBuffer::<u8>::get(object).map_err(wrong)?.to_vec(object.py()).map(Self::Copied)
    }

    /// As [`BytesLike::of`], for an optional argument.
    pub(crate) fn maybe(object: Option<&Bound<'py, PyAny>>, name: &str) -> PyResult<Option<Self>> {
        object.map(|object| Self::of(object, name)).transpose()
    }
}

/// The keys of `iterable`, in its order.
pub(crate) fn keys_of<'py>(iterable: &Bound<'py, PyAny>) -> PyResult<Vec<BytesLike<'py>>> {
    iterable.try_iter()?.map(|key| BytesLike::of(&key?, "a key")).collect()
}

/// A number of bytes: an `int`, or text such as `"64MiB"`.
pub(crate) fn size_of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    if let Ok(text) = object.cast::<PyString>() {
        return parse_bytes(text.to_str()?).map_err(|error| exception(object.py(), &error));
    }
    let wrong = |_| PyTypeError::new_err(format!("{name} must be an int or text such as '64MiB'"));
    object.extract().map_err(wrong)
}

/// A time from now: a number of seconds, or a `timedelta`.
fn seconds_of(object: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = match object.call_method0("total_seconds") {
        Ok(seconds) => seconds.extract()?,
        Err(_) => object
            .extract()
            .map_err(|_| PyTypeError::new_err("ttl must be seconds or a timedelta"))?,
    };
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("ttl must be 0 or more seconds, not {seconds}")))
}

pub(crate) fn durability_of(name: &str) -> PyResult<Durability> {
    match name {
        "none" => Ok(Durability::None),
        "interval" => Ok(Durability::Interval),
        "sync" => Ok(Durability::Sync),
        "unlogged" => Ok(Durability::Unlogged),
        _ => Err(PyValueError::new_err(format!(
            "durability must be 'none', 'interval', 'sync' or 'unlogged', not {name:?}"
        ))),
    }
}

pub(crate) fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::None => "none",
        Durability::Interval => "interval",
        Durability::Sync => "sync",
        Durability::Unlogged => "unlogged",
    }
}

pub(crate) fn codec_of(name: &str) -> PyResult<Codec> {
    match name {
        "none" => Ok(Codec::None),
        "lz4" => Ok(Codec::Lz4),
        "zstd" => Ok(Codec::Zstd),
        "deflate" => Ok(Codec::Deflate),
        _ => Err(PyValueError::new_err(format!(
            "codec must be 'none', 'lz4', 'zstd' or 'deflate', not {name:?}"
        ))),
    }
}

pub(crate) fn write_options(durability: Option<&str>) -> PyResult<WriteOptions> {
    Ok(match durability {
        Some(name) => WriteOptions::new().durability(durability_of(name)?),
        None => WriteOptions::new(),
    })
}

pub(crate) fn put_options(
    ttl: Option<&Bound<'_, PyAny>>,
    durability: Option<&str>,
) -> PyResult<PutOptions> {
    let write = write_options(durability)?;
    Ok(match ttl {
        Some(ttl) => write.ttl(seconds_of(ttl)?),
        None => PutOptions::from(write),
    })
}

pub(crate) fn entry_options(ttl: Option<&Bound<'_, PyAny>>) -> PyResult<EntryOptions> {
    Ok(match ttl {
        Some(ttl) => EntryOptions::new().ttl(seconds_of(ttl)?),
        None => EntryOptions::new(),
    })
}

/// The options of a keyspace that is created.
pub(crate) fn keyspace_options(
    py: Python<'_>,
    hashed: Option<&str>,
    merge_operator: Option<&str>,
    base_filter_bits: Option<u8>,
) -> PyResult<KeyspaceOptions> {
    let mut options = KeyspaceOptions::new();
    if let Some(policy) = hashed {
        let policy: HashedPolicy = policy.parse().map_err(|error| exception(py, &error))?;
        options = options.hashed(policy);
    }
    if let Some(name) = merge_operator {
        options = options.merge_operator(operator_name(name));
    }
    if let Some(bits) = base_filter_bits {
        options = options.base_filter_bits(bits);
    }
    Ok(options)
}

/// The stored name of a merge operator that has a short one.
fn operator_name(name: &str) -> &str {
    match name {
        "append" => Append::NAME,
        "i64-add" => I64Add::NAME,
        "i64-add-saturating" => I64AddSaturating::NAME,
        "u64-max" => U64Max::NAME,
        "u64-min" => U64Min::NAME,
        other => other,
    }
}

/// The bounds of the keys of an iterator or of a range delete.
pub(crate) struct KeyBounds {
    lower: Edge<Vec<u8>>,
    upper: Edge<Vec<u8>>,
}

impl KeyBounds {
    /// Every key.
    pub(crate) const ALL: Self = Self { lower: Edge::Unbounded, upper: Edge::Unbounded };

    /// The keys with `prefix`, or those between `start` and `stop`.
    pub(crate) fn of(
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        (include_start, include_stop): (bool, bool),
    ) -> PyResult<Self> {
        let edge = |key: Option<&Bound<'_, PyAny>>, name, is_included| -> PyResult<_> {
            Ok(match BytesLike::maybe(key, name)? {
                None => Edge::Unbounded,
                Some(key) if is_included => Edge::Included(key.as_ref().to_vec()),
                Some(key) => Edge::Excluded(key.as_ref().to_vec()),
            })
        };
        let Some(prefix) = BytesLike::maybe(prefix, "prefix")? else {
            let lower = edge(start, "start", include_start)?;
            return Ok(Self { lower, upper: edge(stop, "stop", include_stop)? });
        };
        if start.is_some() || stop.is_some() {
            return Err(PyValueError::new_err("give a prefix, or start and stop, not both"));
        }
        let upper = after_prefix(prefix.as_ref()).map_or(Edge::Unbounded, Edge::Excluded);
        Ok(Self { lower: Edge::Included(prefix.as_ref().to_vec()), upper })
    }

    pub(crate) fn is_all(&self) -> bool {
        (&self.lower, &self.upper) == (&Edge::Unbounded, &Edge::Unbounded)
    }

    /// The bounds as the engine takes them. An empty prefix is no lower bound: a key has a byte at least.
    pub(crate) fn bounds(&self) -> (Edge<&[u8]>, Edge<&[u8]>) {
        let lower = self.lower.as_ref().map(Vec::as_slice);
        let lower = if lower == Edge::Included(&[][..]) { Edge::Unbounded } else { lower };
        (lower, self.upper.as_ref().map(Vec::as_slice))
    }
}

/// The least string behind every one with `prefix`; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}
