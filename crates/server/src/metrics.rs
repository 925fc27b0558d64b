//! The metrics of the server and its store in the Prometheus text format.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::latency::{BOUNDS_US, Latency};
use crate::shared::Shared;

/// Writes a family of metrics: name, kind, help, and samples with their labels.
type Family<'a> = dyn FnMut(&str, &str, &str, Vec<(String, u64)>) + 'a;

/// The cold tables, if the store has an object store.
fn cold(statistics: &terracedb::stats::Statistics, family: &mut Family<'_>) {
    let Some(cold) = &statistics.cold else { return };
    let one = |value: u64| vec![(String::new(), value)];
    family("terrace_cold_tables", "gauge", "Tables in the object store.", one(cold.tables));
    family("terrace_cold_bytes", "gauge", "Bytes in the object store.", one(cold.bytes));
    for (name, help, value) in [
        ("reads", "Reads of cold tables that no cache answered.", cold.reads.reads),
        ("ranges", "Ranges asked of the object store.", cold.reads.ranges),
        ("range_bytes", "Bytes of these ranges.", cold.reads.bytes),
        ("range_failures", "Ranges that could not be read.", cold.reads.failures),
        ("uploads", "Tables uploaded.", cold.uploads),
        ("uploaded_bytes", "Bytes uploaded.", cold.uploaded_bytes),
        ("removals", "Tables removed from the object store.", cold.removals),
        ("failures", "Uploads and removals that failed.", cold.failures),
    ] {
        family(&format!("terrace_cold_{name}_total"), "counter", help, one(value));
    }
}

/// The lanes of the log, and the collection of its segments with resident entries.
fn resident(statistics: &terracedb::stats::Statistics, family: &mut Family<'_>) {
    let log = &statistics.log_collection;
    let lanes = log.lanes.iter();
    let queues = lanes.map(|it| (format!("{{lane=\"{}\"}}", it.lane.0), it.queue)).collect();
    family("terrace_log_lane_queue", "gauge", "Batches that wait for a lane's leader.", queues);
    let index = statistics.keyspaces.iter().map(|keyspace| keyspace.index_bytes).sum();
    let index = vec![(String::new(), index)];
    family("terrace_resident_index_bytes", "gauge", "Indexes of resident keyspaces.", index);
    let entries = statistics.keyspaces.iter().map(|keyspace| keyspace.index_entries).sum();
    let one = |value: u64| vec![(String::new(), value)];
    family("terrace_resident_index_entries", "gauge", "Entries of these indexes.", one(entries));
    if let Some(age) = log.newest_index_checkpoint_age {
        let help = "Age of the newest checkpoint of the indexes.";
        family("terrace_index_checkpoint_age_seconds", "gauge", help, one(age.as_secs()));
    }
    let help = "Bytes of the log behind the newest checkpoint of the indexes, which an open reads.";
    family("terrace_replay_log_bytes", "gauge", help, one(log.replay_log_bytes));
    let generations = [("writers", &log.writers), ("survivors", &log.survivors)];
    let of = |part: &str, value: u64, name: &str| {
        (format!("{{generation=\"{name}\",part=\"{part}\"}}"), value)
    };
    let sizes = generations
        .iter()
        .flat_map(|(name, it)| [of("all", it.bytes, name), of("live", it.live_bytes, name)]);
    let help = "Log segments with resident entries, and their live bytes.";
    family("terrace_resident_log_bytes", "gauge", help, sizes.collect());
    for (name, help, value) in [
        ("segments", "Log segments collected.", log.collected_segments),
        ("entries", "Entries that the collector moved.", log.moved_entries),
        ("bytes", "Bytes that the collector wrote.", log.moved_bytes),
    ] {
        let name = format!("terrace_log_collected_{name}_total");
        family(&name, "counter", help, vec![(String::new(), value)]);
    }
}

/// The metrics, from the statistics of the store and the counters of the server.
pub(crate) fn metrics(shared: &Shared) -> String {
    let statistics = shared.keys.db.statistics();
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, u64)>| {
        // Writing to a string cannot fail.
        let _written = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _written = writeln!(text, "{name}{labels} {value}");
        }
    };
    let one = |value: u64| vec![(String::new(), value)];
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &shared.counts;
    family("terrace_connected_clients", "gauge", "Clients.", one(shared.clients.count() as u64));
    for (name, help, counter) in [
        ("connections", "Connections accepted.", &counts.connections),
        ("connections_rejected", "Connections refused by a limit.", &counts.rejected),
        ("connections_cut_off", "Connections ended at a buffer limit.", &counts.cut_off),
        ("commands", "Commands executed.", &counts.commands),
        ("command_errors", "Commands that replied with an error.", &counts.failed),
        ("network_input_bytes", "Bytes read from clients.", &counts.input_bytes),
        ("network_output_bytes", "Bytes of replies.", &counts.output_bytes),
        ("keys_expired", "Keys deleted because they expired.", &shared.keys.expired),
    ] {
        family(&format!("terrace_{name}_total"), "counter", help, one(load(counter)));
    }
    let databases = (0..crate::keys::DATABASES).map(|number| {
        let count = u64::try_from(shared.keys.count(number)).unwrap_or(0);
        (format!("{{database=\"{number}\"}}"), count)
    });
    family("terrace_keys", "gauge", "Keys, with those not swept yet.", databases.collect());
    let hits = &statistics.hits;
    let tiers = [
        ("memtable", hits.memtable),
        ("row", hits.row),
        ("page", hits.page),
        ("scm", hits.scm),
        ("flash", hits.flash),
        ("absent", hits.absent),
    ];
    let tiers = tiers.map(|(tier, count)| (format!("{{tier=\"{tier}\"}}"), count)).to_vec();
    family("terrace_lookups_total", "counter", "Lookups by the place of the value.", tiers);
    let memory = &statistics.memory;
    family("terrace_memory_limit_bytes", "gauge", "The memory limit.", one(memory.limit));
    let components = memory.components.iter();
    let components =
        components.map(|part| (format!("{{component=\"{}\"}}", part.name), part.used)).collect();
    family("terrace_memory_bytes", "gauge", "Memory in use by component.", components);
    family("terrace_log_bytes", "gauge", "The write-ahead log.", one(statistics.log_bytes));
    resident(&statistics, &mut family);
    cold(&statistics, &mut family);
    let compaction = &statistics.compaction;
    let running = compaction.running as u64;
    family("terrace_compactions_running", "gauge", "Merges that run.", one(running));
    for (name, help, value) in [
        ("compactions", "Merges that ended.", compaction.done),
        ("compactions_failed", "Merges that failed.", compaction.failed),
        ("compaction_read_bytes", "Bytes that merges read.", compaction.bytes_read()),
        ("compaction_written_bytes", "Bytes that merges wrote.", compaction.bytes_written()),
        ("compaction_fallbacks", "Merges that came back from workers.", compaction.fallbacks),
        ("flushes", "Memtables flushed.", statistics.flushes),
        ("flush_bytes", "Bytes that flushes wrote.", statistics.flush_bytes),
        ("user_bytes", "Bytes of keys and values written.", statistics.user_bytes),
    ] {
        family(&format!("terrace_{name}_total"), "counter", help, one(value));
    }
    let workers = |value: fn(&terracedb::stats::WorkerStatistics) -> u64| {
        let workers = compaction.workers.iter();
        workers.map(|it| (format!("{{worker=\"{}\"}}", label(&it.address)), value(it))).collect()
    };
    type Counter = fn(&terracedb::stats::WorkerStatistics) -> u64;
    let counters: [(&str, &str, Counter); 8] = [
        ("jobs", "Merges by worker.", |it| it.jobs),
        ("read_bytes", "Bytes of inputs by worker.", |it| it.bytes_read),
        ("written_bytes", "Bytes of outputs by worker.", |it| it.bytes_written),
        ("link_bytes", "Bytes over the link by worker.", |it| it.link_bytes),
        ("compressed_bytes", "Bytes of blocks compressed by worker.", |it| it.compressed_bytes),
        ("verified", "Outcomes of others verified by worker.", |it| it.verified),
        ("cpu_microseconds", "Processor time by worker.", |it| it.cpu.as_micros() as u64),
        ("host_cpu_microseconds", "Processor time of the host by worker.", |it| {
            it.host_cpu.as_micros() as u64
        }),
    ];
    for (name, help, counter) in counters {
        let name = format!("terrace_worker_{name}_total");
        family(&name, "counter", help, workers(counter));
    }
    let failures = compaction.workers.iter().flat_map(|it| {
        let label = label(&it.address);
        it.failures.iter().map(move |(reason, count)| {
            (format!("{{worker=\"{label}\",reason=\"{reason}\"}}"), *count)
        })
    });
    let failures = failures.collect();
    family("terrace_worker_failures_total", "counter", "Attempts that failed by worker.", failures);
    let running = workers(|worker| worker.running as u64);
    family("terrace_worker_running", "gauge", "Merges that run, by worker.", running);
    let debt = compaction.debt_bytes;
    family("terrace_compaction_debt_bytes", "gauge", "Bytes to compact.", one(debt));
    let keyspaces = statistics.keyspaces.iter();
    let keyspaces = keyspaces
        .map(|keyspace| {
            (format!("{{keyspace=\"{}\"}}", label(&keyspace.name)), keyspace.table_bytes)
        })
        .collect();
    family("terrace_table_bytes", "gauge", "Tables by keyspace.", keyspaces);
    let evicted = statistics.keyspaces.iter();
    let evicted = evicted
        .map(|it| (format!("{{keyspace=\"{}\"}}", label(&it.name)), it.evicted_entries))
        .collect();
    family("terrace_evicted_entries_total", "counter", "Entries that windows evicted.", evicted);
    let poisoned = u64::from(statistics.poisoned.is_some());
    family("terrace_writes_refused", "gauge", "1 if the store refuses writes.", one(poisoned));
    latency(&shared.counts.latency, &mut text);
    text
}

/// The text of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The histogram of the times of commands.
fn latency(latency: &Latency, text: &mut String) {
    let name = "terrace_command_duration_seconds";
    let _written =
        writeln!(text, "# HELP {name} Time of commands in the server.\n# TYPE {name} histogram");
    let mut sum = 0;
    let counts = latency.counts();
    for (count, bound) in counts.iter().zip(BOUNDS_US) {
        sum += count;
        let seconds = Duration::from_micros(bound).as_secs_f64();
        let _written = writeln!(text, "{name}_bucket{{le=\"{seconds}\"}} {sum}");
    }
    let total: u64 = counts.iter().sum();
    let _written = writeln!(
        text,
        "{name}_bucket{{le=\"+Inf\"}} {total}\n{name}_sum {}\n{name}_count {total}",
        latency.sum().as_secs_f64()
    );
}
