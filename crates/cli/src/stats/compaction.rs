//! Statistics of compaction as JSON.

use serde_json::{Value, json};
use terracedb::compaction::Decision;
use terracedb::stats::{CompactionStatistics, WorkerStatistics};

pub(super) fn compaction_to_json(compaction: &CompactionStatistics) -> Value {
    json!({
        "debt_bytes": compaction.debt_bytes,
        "running": compaction.running,
        "damaged_tables": compaction.damaged_tables,
        "local_jobs": compaction.done - compaction.remote,
        "remote_jobs": compaction.remote,
        "fallbacks": compaction.fallbacks,
        "host_cpu_seconds": compaction.host_cpu.as_secs_f64(),
        "verified_bytes": compaction.verified_bytes,
        "decisions": compaction.decisions.iter().map(decision_to_json).collect::<Vec<_>>(),
        "workers": compaction.workers.iter().map(worker_to_json).collect::<Vec<_>>(),
    })
}

/// The reasons for the place of a merge.
fn decision_to_json(decision: &Decision) -> Value {
    json!({
        "bytes": decision.job.bytes,
        "codec": format!("{:?}", decision.job.codec).to_lowercase(),
        "urgent": decision.job.is_urgent,
        "place": decision.place.name(),
        "worker": decision.worker,
        "why": decision.why,
        "local_seconds": decision.local_seconds,
        "compress_seconds": decision.compress_seconds,
        "remote_seconds": decision.remote_seconds,
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
        "host_cpu_seconds": worker.host_cpu.as_secs_f64(),
        "compressed_blocks": worker.compressed_blocks,
        "compressed_bytes": worker.compressed_bytes,
        "verified": worker.verified,
        "cpu_seconds": worker.cpu.as_secs_f64(),
        "failures": failures.map(|(why, count)| json!({ "reason": why, "count": count }))
            .collect::<Vec<_>>(),
        "last_failure": worker.last_failure,
    })
}
