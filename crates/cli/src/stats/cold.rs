//! Statistics of cold tables as text and as JSON.

use base::{format_bytes, format_count};
use serde_json::{Value, json};
use terracedb::Result;
use terracedb::stats::ColdStatistics;

use crate::output::Output;

pub(super) fn print(cold: &ColdStatistics, out: &mut Output) -> Result<()> {
    out.line(format_args!(
        "object store: {} of {}; read {} in {} for {}; uploaded {}, removed {}",
        format_count(cold.tables, "table"),
        format_bytes(cold.bytes),
        format_bytes(cold.reads.bytes),
        format_count(cold.reads.ranges, "range"),
        format_count(cold.reads.reads, "read"),
        format_count(cold.uploads, "table"),
        format_count(cold.removals, "table"),
    ))
}

pub(super) fn to_json(cold: &ColdStatistics) -> Value {
    json!({
        "tables": cold.tables,
        "bytes": cold.bytes,
        "reads": cold.reads.reads,
        "ranges": cold.reads.ranges,
        "range_bytes": cold.reads.bytes,
        "range_failures": cold.reads.failures,
        "uploads": cold.uploads,
        "uploaded_bytes": cold.uploaded_bytes,
        "removals": cold.removals,
        "failures": cold.failures,
        "error": cold.error.as_ref().map(ToString::to_string),
    })
}
