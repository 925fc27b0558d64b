//! Statistics of compaction as JSON.

use serde_json::{Value, json};
use terracedb::stats::{CompactionStatistics, WorkerStatistics};

pub(super) fn compaction_to_json(compaction: &CompactionStatistics) -> Value {
    json!({
        "debt_bytes": compaction.debt_bytes,
        "running": compaction.running,
        "damaged_tables": compaction.damaged_tables,
        "local_jobs": compaction.done - compaction.remote,
        "remote_jobs": compaction.remote,
        "fallbacks": compaction.fallbacks,
        "workers": compaction.workers.iter().map(worker_to_json).collect::<Vec<_>>(),
    })
}

fn worker_to_json(worker: &WorkerStatistics) -> Value {
    let failures = worker.failures.iter();
    json!({
        "address": worker.address,
        "running": worker.running,
        "jobs": worker.jobs,
        "bytes_read": worker.bytes_read,
        "bytes_written": worker.bytes_written,
        "link_bytes": worker.link_bytes,
        "cpu_seconds": worker.cpu.as_secs_f64(),
        "failures": failures.map(|(why, count)| json!({ "reason": why, "count": count }))
            .collect::<Vec<_>>(),
        "last_failure": worker.last_failure,
    })
}
