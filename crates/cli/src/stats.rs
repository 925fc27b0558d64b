//! `terrace stats`: the statistics of a store as text and as JSON.
//!
//! The command opens the store itself, and counters start at zero when a store is opened. So its output shows
//! the contents of the store, the recovery, and the compaction debt. `bench` and `replay` write the JSON
//! after a run, with the counters of that run.

mod cold;
mod compaction;
mod keyspace;

use std::fs;
use std::path::Path;

use base::{format_bytes, format_count};
use serde_json::{Value, json};
use terracedb::recovery::Recovery;
use terracedb::scm::ScmCalibration;
use terracedb::stats::{Memory, MissCurve, MissPoint, RowSetStatistics, ScmStatus, Statistics};
use terracedb::{Db, Error, Result};

use crate::log_stats;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::shared_args::{OutputArgs, ReadOnlyArgs, StoreArgs};

pub(crate) use keyspace::keyspace_to_json;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    access: ReadOnlyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = args.store.open_to_read(&args.access)?;
    let statistics = db.statistics();
    let mut out = Output::new();
    if args.output.json {
        out.line(to_json(&db, &statistics))?;
    } else {
        print(&db, &statistics, &mut out)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn print(db: &Db, statistics: &Statistics, out: &mut Output) -> Result<()> {
    print_keyspaces(statistics, out)?;
    print_devices(statistics, out)?;
    print_row_cache(statistics, out)?;
    if let Some(scm) = &statistics.scm {
        print_scm(scm, out)?;
    }
    if let Some(cold) = &statistics.cold {
        cold::print(cold, out)?;
    }
    let recovery = db.recovery();
    out.line(format_args!(
        "opened in {:.3} s: {} from {} of log",
        recovery.elapsed.as_secs_f64(),
        format_count(recovery.log_records, "batch"),
        format_bytes(recovery.log_bytes)
    ))?;
    for warning in warnings(recovery, statistics) {
        out.line(format_args!("warning: {warning}"))?;
    }
    out.line(format_args!("\n{}", statistics.memory))
}

/// The table of keyspaces, their levels and their value files.
fn print_keyspaces(statistics: &Statistics, out: &mut Output) -> Result<()> {
    out.line(format_args!(
        "{:<20} {:>7} {:>12} {:>14} {:>5} {:>12}",
        "keyspace", "tables", "bytes", "entries", "runs", "memtables"
    ))?;
    for keyspace in &statistics.keyspaces {
        out.line(format_args!(
            "{:<20} {:>7} {:>12} {:>14} {:>5} {:>12}",
            keyspace.name,
            keyspace.tables,
            format_bytes(keyspace.table_bytes),
            keyspace.table_entries,
            keyspace.runs,
            format_bytes(keyspace.memtable_bytes),
        ))?;
        if keyspace.index_bytes > 0 {
            let entries = keyspace.index_entries.max(1) as f64;
            out.line(format_args!(
                "  {}: {} in the log, {} of them tombstones, index {}, {:.2} B of memory an entry",
                keyspace.kind,
                format_count(keyspace.index_entries, "entry"),
                keyspace.index_tombstones,
                format_bytes(keyspace.index_bytes),
                keyspace.index_bytes as f64 / entries,
            ))?;
        } else if keyspace.kind != "ordered" {
            let entries = keyspace.entries().max(1) as f64;
            out.line(format_args!(
                "  {}: index {}, filters {}, {:.2} B of memory an entry",
                keyspace.kind,
                format_bytes(keyspace.pinned_bytes.saturating_sub(keyspace.filter_bytes)),
                format_bytes(keyspace.filter_bytes),
                keyspace.pinned_bytes as f64 / entries,
            ))?;
        }
        for level in &keyspace.levels {
            out.line(format_args!(
                "{:<20} {:>7} {:>12} {:>14} {:>5}",
                format!("  level {}", level.level),
                level.tables,
                format_bytes(level.bytes),
                level.entries,
                level.runs,
            ))?;
        }
        if keyspace.value_files > 0 {
            out.line(format_args!(
                "  separated values: {} of {}, {} of it live",
                format_count(keyspace.value_files, "file"),
                format_bytes(keyspace.value_file_bytes),
                format_bytes(keyspace.live_value_bytes)
            ))?;
        }
        if keyspace.evicted_entries > 0 {
            out.line(format_args!(
                "  evicted: {} of {}, {} retained",
                format_count(keyspace.evicted_entries, "entry"),
                format_bytes(keyspace.evicted_bytes),
                format_bytes(keyspace.retained_bytes)
            ))?;
        }
    }
    Ok(())
}

/// The log, the device and the compaction debt.
fn print_devices(statistics: &Statistics, out: &mut Output) -> Result<()> {
    out.line(format_args!(
        "\nlog {} in {}, device backend {}",
        format_bytes(statistics.log_bytes),
        format_count(statistics.log.segments_live, "segment"),
        statistics.device_backend
    ))?;
    log_stats::print_lanes(&statistics.log_collection, out)?;
    if let Some(space) = statistics.device_space {
        let (free, total) = (format_bytes(space.free), format_bytes(space.total));
        out.line(format_args!("{free} free of {total} on the device"))?;
    }
    let compaction = &statistics.compaction;
    out.line(format_args!(
        "compaction debt {}, {} running",
        format_bytes(compaction.debt_bytes),
        format_count(compaction.running, "merge")
    ))?;
    for worker in &compaction.workers {
        out.line(format_args!(
            "worker {}: {} done, {} running, {} read, {} written, {} over the link, {:.3} s of processor",
            worker.address,
            format_count(worker.jobs, "merge"),
            worker.running,
            format_bytes(worker.bytes_read),
            format_bytes(worker.bytes_written),
            format_bytes(worker.link_bytes),
            worker.cpu.as_secs_f64(),
        ))?;
        for (reason, count) in &worker.failures {
            out.line(format_args!("    {}: {reason}", format_count(*count, "failure")))?;
        }
    }
    Ok(())
}

/// The row cache in DRAM, and gets of keys without a value.
fn print_row_cache(statistics: &Statistics, out: &mut Output) -> Result<()> {
    let rows = &statistics.rows;
    out.line(format_args!(
        "row cache: {} in {}, {} answered, {} admitted, {} refused",
        format_count(rows.rows, "row"),
        format_bytes(rows.bytes + rows.index_bytes),
        format_count(statistics.hits.row, "get"),
        format_count(rows.fills, "row"),
        rows.refused.sum()
    ))?;
    out.line(format_args!(
        "{} of missing keys, {} of them read pages",
        format_count(statistics.hits.absent, "get"),
        statistics.hits.absent_searched
    ))
}

fn print_scm(scm: &ScmStatus, out: &mut Output) -> Result<()> {
    let counts = &scm.counts;
    out.line(format_args!(
        "SCM tier {} ({}{}), {}: {} of {} in use, {} restored",
        scm.place,
        scm.backend,
        scm.emulated.map(|profile| format!(", emulated {profile}")).unwrap_or_default(),
        scm.placement,
        format_bytes(counts.resident * 4096),
        format_bytes(counts.slots * 4096),
        format_count(counts.restored, "page"),
    ))?;
    let rows = &counts.rows;
    if rows.slots > 0 {
        out.line(format_args!(
            "    {} in {} of at most {}, {} answered",
            format_count(rows.rows, "row"),
            format_bytes(rows.slots * 4096),
            format_bytes(rows.slots_max * 4096),
            format_count(rows.hits, "get"),
        ))?;
    }
    let Some(calibration) = scm.calibration.as_ref().filter(|found| found.ignored.is_none()) else {
        return Ok(());
    };
    out.line(format_args!(
        "    calibrated by {}: {:.1} us per page read, {:.1} us per page write, {} in flight",
        calibration.file,
        f64::from(scm.prior_read_nanos) / 1e3,
        f64::from(scm.prior_write_nanos) / 1e3,
        format_count(scm.writes_in_flight, "write"),
    ))
}

/// Conditions that an operator should act on.
fn warnings(recovery: &Recovery, statistics: &Statistics) -> Vec<String> {
    let Statistics { flush_failing, poisoned, blocked, compaction, .. } = statistics;
    let mut warnings: Vec<_> = recovery
        .damaged_tables
        .iter()
        .map(|error| format!("a table is unreadable: {error}"))
        .collect();
    let by_copy = recovery.read_by_copy.iter();
    warnings.extend(by_copy.map(|error| format!("a page was read from its copy: {error}")));
    warnings
        .extend(recovery.log_damage.iter().map(|error| format!("the log was damaged: {error}")));
    warnings.extend(flush_failing.iter().map(|why| format!("flushes fail: {why}")));
    warnings.extend(poisoned.iter().map(|why| format!("the store refuses writes: {why}")));
    warnings.extend(blocked.iter().map(|why| format!("writers wait: {why}")));
    warnings.extend(statistics.clock.trouble());
    warnings.extend(compaction.failing.iter().map(|why| format!("compaction fails: {why}")));
    let cold = statistics.cold.iter().filter_map(|cold| cold.error.as_ref());
    warnings.extend(cold.map(|error| format!("no table moves to the object store: {error}")));
    let scm = statistics.scm.iter().filter_map(|scm| scm.failure.as_ref());
    warnings.extend(scm.map(|why| format!("the SCM tier is off: {why}")));
    let calibrations = statistics.scm.iter().filter_map(|scm| scm.calibration.as_ref());
    warnings.extend(calibrations.filter_map(|ScmCalibration { file, ignored, .. }| {
        let why = ignored.as_ref()?;
        Some(format!("{file} is not used, calibrate again: {why}"))
    }));
    let slow = statistics.scm.iter().filter(|scm| scm.slow).map(|scm| scm.counts.passed);
    let slow = slow.map(|reads| format_count(reads, "read"));
    warnings.extend(
        slow.map(|reads| format!("the SCM tier is slower than flash: {reads} bypassed it")),
    );
    warnings.extend(statistics.damaged.iter().map(|problem| format!("damage: {problem}")));
    if compaction.damaged_tables > 0 {
        let count = format_count(compaction.damaged_tables, "damaged table");
        warnings.push(format!("quarantined, left out of merges: {count}"));
    }
    warnings
}

pub(crate) fn to_json(db: &Db, statistics: &Statistics) -> Value {
    let recovery = db.recovery();
    json!({
        "keyspaces": statistics.keyspaces.iter().map(keyspace_to_json).collect::<Vec<_>>(),
        "log": log_stats::log_to_json(statistics),
        "device_backend": statistics.device_backend,
        "device_space": statistics.device_space.map(|space| {
            json!({ "total": space.total, "free": space.free })
        }),
        "hits": hits_to_json(statistics),
        "written_through_pages": statistics.cache.written,
        "rows": rows_to_json(statistics),
        "curves": curves_to_json(statistics),
        "scm": statistics.scm.as_ref().map(scm_to_json),
        "cold": statistics.cold.as_ref().map(cold::to_json),
        "compaction": compaction::compaction_to_json(&statistics.compaction),
        "recovery": {
            "seconds": recovery.elapsed.as_secs_f64(),
            "log_records": recovery.log_records,
            "log_bytes": recovery.log_bytes,
            "log_torn": recovery.log_torn,
            "orphans_removed": recovery.orphans_removed,
            "manifest_repairs": recovery.manifest_repairs,
        },
        "scrub": {
            "last_began_ms": statistics.scrub.last_began_ms,
            "running": statistics.scrub.running,
        },
        "warnings": warnings(recovery, statistics),
        "memory": memory_to_json(&statistics.memory),
    })
}

/// Gets by the place of their value.
fn hits_to_json(statistics: &Statistics) -> Value {
    let hits = &statistics.hits;
    json!({
        "memtable": hits.memtable,
        "row": hits.row,
        "page": hits.page,
        "scm": hits.scm,
        "flash": hits.flash,
        "absent": hits.absent,
        "absent_searched": hits.absent_searched,
    })
}

/// Miss-ratio curves and their lookups, the input of `terrace plan --stats`.
fn curves_to_json(statistics: &Statistics) -> Value {
    let hits = &statistics.hits;
    let curve = |curve: &MissCurve| {
        let point = |point: &MissPoint| json!({ "bytes": point.bytes, "misses": point.misses });
        let points = curve.points.iter().map(point).collect::<Vec<_>>();
        json!({ "accesses": curve.accesses, "points": points })
    };
    // Lookups that no memtable answered. The page curve includes the pages read for missing keys, and no
    // pages for lookups that a cached row in DRAM or SCM answered.
    let operations = hits.row + hits.page + hits.scm + hits.flash + hits.absent_searched;
    json!({
        "operations": operations,
        "row_hits": hits.row + statistics.scm.as_ref().map_or(0, |scm| scm.counts.rows.hits),
        "rows": curve(&statistics.row_curve),
        "pages": curve(&statistics.page_curve),
    })
}

/// Writes the statistics to `path`, in the form of `terrace stats --json`.
///
/// # Errors
/// `Io` if the file cannot be written.
pub(crate) fn save(db: &Db, path: &Path) -> Result<()> {
    let text = format!("{}\n", to_json(db, &db.statistics()));
    fs::write(path, text).map_err(|error| Error::io("write", path.display(), error))
}

fn rows_to_json(statistics: &Statistics) -> Value {
    let rows = &statistics.rows;
    json!({
        "rows": rows.rows,
        "bytes": rows.bytes,
        "free_bytes": rows.free_bytes,
        "index_bytes": rows.index_bytes,
        "bytes_max": rows.bytes_max,
        "fills": rows.fills,
        "recalled": rows.recalled,
        "renewed": rows.renewed,
        "ahead": rows.ahead,
        "packed": rows.packed,
        "kept": rows.kept,
        "evicted": rows.evicted,
        "refused": {
            "large": rows.refused.large,
            "written": rows.refused.written,
            "seldom": rows.refused.seldom,
            "memory": rows.refused.memory,
            "busy": rows.refused.busy,
        },
        "chunks_given_back": rows.chunks_given_back,
    })
}

fn scm_to_json(scm: &ScmStatus) -> Value {
    let counts = &scm.counts;
    let refused = &counts.refused;
    json!({
        "place": scm.place,
        "backend": scm.backend,
        "emulated": scm.emulated,
        "wait_cpu_seconds": scm.wait_cpu_seconds,
        "byte_addressable": scm.byte_addressable,
        "persistence": scm.persistence,
        "placement": scm.placement,
        "failure": scm.failure,
        "slow": scm.slow,
        "calibration": scm.calibration.as_ref().map(|calibration| json!({
            "file": calibration.file,
            "measured_unix_ms": calibration.measured_unix_ms,
            "ignored": calibration.ignored,
        })),
        "prior_read_nanos": scm.prior_read_nanos,
        "prior_write_nanos": scm.prior_write_nanos,
        "writes_in_flight": scm.writes_in_flight,
        "slots": counts.slots,
        "resident": counts.resident,
        "restored": counts.restored,
        "hits_data": counts.hits_data,
        "hits_meta": counts.hits_meta,
        "misses": counts.misses,
        "busy": counts.busy,
        "passed": counts.passed,
        "offered": counts.offered,
        "admitted": counts.admitted,
        "refused": {
            "cold": refused.cold,
            "budget": refused.budget,
            "churn": refused.churn,
            "busy": refused.busy,
            "dead": refused.dead,
            "kind": refused.kind,
            "place": refused.place,
            "slow": refused.slow,
        },
        "kept": counts.kept,
        "late": counts.late,
        "reclaimed": counts.reclaimed,
        "demoted": counts.demoted,
        "carried": counts.carried,
        "promoted": counts.promoted,
        "dropped": counts.dropped,
        "unburied": counts.unpurged,
        "damaged": counts.damaged,
        "scrubbed": counts.scrubbed,
        "bytes_written": counts.bytes_written,
        "bytes_written_map": counts.bytes_written_map,
        "flash_nanos": counts.flash_nanos,
        "hit_nanos": counts.hit_nanos,
        "write_nanos": counts.write_nanos,
        "rows": scm_rows_to_json(&counts.rows),
    })
}

fn scm_rows_to_json(rows: &RowSetStatistics) -> Value {
    json!({
        "rows": rows.rows,
        "slots": rows.slots,
        "slots_max": rows.slots_max,
        "hits": rows.hits,
        "demoted": rows.demoted,
        "kept": rows.kept,
        "evicted": rows.evicted,
        "dropped": rows.dropped,
        "missed": rows.missed,
        "missed_pages": rows.missed_pages,
        "refused": {
            "busy": rows.refused_busy,
            "cold": rows.refused_cold,
            "budget": rows.refused_budget,
            "written": rows.refused_written,
            "place": rows.refused_place,
        },
        "damaged": rows.damaged,
        "bytes_written": rows.bytes_written,
    })
}

fn memory_to_json(memory: &Memory) -> Value {
    let component = |component: &terracedb::stats::AccountUsage| {
        json!({
            "name": component.name,
            "used": component.used,
            "peak": component.peak,
            "cap": component.cap,
        })
    };
    json!({
        "limit": memory.limit,
        "budget": memory.budget,
        "used": memory.used,
        "spare": memory.spare,
        "reclaimed": memory.reclaimed,
        "refused": memory.refused,
        "metadata": memory.metadata,
        "pressure": memory.pressure(),
        "components": memory.components.iter().map(component).collect::<Vec<_>>(),
    })
}
