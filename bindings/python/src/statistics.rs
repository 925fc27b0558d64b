//! Statistics as a `dict`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use terracedb::stats::{Counts, KeyspaceStatistics, MissCurve, Purpose, Statistics};

/// A `dict` of the fields of a struct under their own names.
macro_rules! fields {
    ($py:expr, $of:expr, $($field:ident),+ $(,)?) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), $of.$field)?;)+
        dict
    }};
}

/// The fields that a program or a person reads first. The names are those of the Rust structs.
pub(crate) fn as_dict<'py>(py: Python<'py>, of: &Statistics) -> PyResult<Bound<'py, PyDict>> {
    let dict = fields!(
        py,
        of,
        writes,
        user_bytes,
        transactions,
        transaction_conflicts,
        flushes,
        flush_bytes,
        flush_failures,
        log_bytes,
        pages_damaged,
        damages,
        snapshots,
        read_steps,
        device_backend,
    );
    dict.set_item("write_amplification", of.write_amplification())?;
    dict.set_item("stalled_seconds", of.stalled.as_secs_f64())?;
    dict.set_item("poisoned", &of.poisoned)?;
    dict.set_item("blocked", &of.blocked)?;
    let hits = &of.hits;
    dict.set_item("hits", fields!(py, hits, memtable, row, page, scm, flash, absent))?;
    let memory = &of.memory;
    let used = fields!(py, memory, limit, budget, used, spare, reclaimed, refused, metadata);
    let components = PyDict::new(py);
    for component in &memory.components {
        components.set_item(component.name, component.used)?;
    }
    used.set_item("components", components)?;
    dict.set_item("memory", used)?;
    let device = PyDict::new(py);
    let mut total = Counts::default();
    for purpose in Purpose::ALL {
        total = total + of.device.of(purpose);
    }
    for (name, value) in [
        ("read_ops", total.read_ops),
        ("read_bytes", total.read_bytes),
        ("write_ops", total.write_ops),
        ("write_bytes", total.write_bytes),
        ("syncs", total.syncs),
    ] {
        device.set_item(name, value)?;
    }
    dict.set_item("device", device)?;
    let log = &of.log;
    dict.set_item(
        "log",
        fields!(py, log, records, groups, syncs, record_bytes, body_bytes, padding_bytes),
    )?;
    let merges = &of.compaction;
    let merged = fields!(py, merges, running, done, failed, cancelled, moved, dropped, debt_bytes);
    merged.set_item("failing", &merges.failing)?;
    dict.set_item("compaction", merged)?;
    let keyspaces = PyDict::new(py);
    for keyspace in &of.keyspaces {
        keyspaces.set_item(&keyspace.name, keyspace_dict(py, keyspace)?)?;
    }
    dict.set_item("keyspaces", keyspaces)?;
    Ok(dict)
}

fn keyspace_dict<'py>(py: Python<'py>, of: &KeyspaceStatistics) -> PyResult<Bound<'py, PyDict>> {
    let dict = fields!(
        py,
        of,
        memtables,
        memtable_bytes,
        unflushed_bytes,
        tables,
        table_bytes,
        table_entries,
        damaged_tables,
        value_files,
        value_file_bytes,
        evicted_entries,
        runs,
        filter_bytes,
        metadata_bytes,
    );
    dict.set_item("kind", &of.kind)?;
    dict.set_item("write_amplification", of.write_amplification())?;
    Ok(dict)
}

/// The points of a miss curve: `(bytes, miss ratio)`.
pub(crate) fn miss_ratio<'py>(py: Python<'py>, curve: &MissCurve) -> PyResult<Bound<'py, PyList>> {
    let points = curve.points.iter().map(|it| (it.bytes, curve.miss_ratio(it.bytes as f64)));
    PyList::new(py, points.collect::<Vec<_>>())
}
