//! Statistics of keyspaces as JSON.

use serde_json::{Value, json};
use terracedb::stats::{KeyspaceStatistics, LevelStatistics, LookupStatistics, WalkStatistics};

/// A keyspace as `stats` and `keyspace list` print it in JSON.
pub(crate) fn keyspace_to_json(keyspace: &KeyspaceStatistics) -> Value {
    json!({
        "name": keyspace.name,
        "kind": keyspace.kind,
        "tables": keyspace.tables,
        "damaged_tables": keyspace.damaged_tables,
        "table_bytes": keyspace.table_bytes,
        "table_entries": keyspace.table_entries,
        "runs": keyspace.runs,
        "memtables": keyspace.memtables,
        "memtable_bytes": keyspace.memtable_bytes,
        "unflushed_bytes": keyspace.unflushed_bytes,
        "pinned_bytes": keyspace.pinned_bytes,
        "filter_bytes": keyspace.filter_bytes,
        "metadata_bytes": keyspace.metadata_bytes,
        "entries": keyspace.entries(),
        "user_bytes": keyspace.user_bytes,
        "flush_bytes": keyspace.flush_bytes,
        "merge_bytes": keyspace.merge_bytes,
        "base_merges": keyspace.base_merges,
        "base_cycles": keyspace.base_cycles,
        "dropped_entries": keyspace.dropped_entries,
        "write_amplification": keyspace.write_amplification(),
        "lookups": lookups_to_json(&keyspace.lookups),
        "walks": walks_to_json(&keyspace.walks),
        "value_files": keyspace.value_files,
        "value_file_bytes": keyspace.value_file_bytes,
        "live_value_bytes": keyspace.live_value_bytes,
        "evicted_entries": keyspace.evicted_entries,
        "evicted_bytes": keyspace.evicted_bytes,
        "retained_bytes": keyspace.retained_bytes,
        "index_entries": keyspace.index_entries,
        "index_tombstones": keyspace.index_tombstones,
        "index_bytes": keyspace.index_bytes,
        "index_bytes_per_entry": (keyspace.index_entries > 0)
            .then(|| keyspace.index_bytes as f64 / keyspace.index_entries as f64),
        "levels": keyspace.levels.iter().map(level_to_json).collect::<Vec<_>>(),
    })
}

fn lookups_to_json(lookups: &LookupStatistics) -> Value {
    json!({
        "hits": lookups.hits,
        "misses": lookups.misses,
        "hit_reads": lookups.hit_reads,
        "miss_reads": lookups.miss_reads,
        "hit_false_reads": lookups.hit_false_reads,
        "miss_false_reads": lookups.miss_false_reads,
    })
}

fn walks_to_json(walks: &WalkStatistics) -> Value {
    json!({
        "seeks": walks.seeks,
        "seek_runs": walks.seek_runs,
        "device_reads": walks.device_reads,
        "stepped_over": walks.stepped_over,
        "dead_spans": walks.dead_spans,
        "jumps": walks.jumps,
    })
}

fn level_to_json(level: &LevelStatistics) -> Value {
    json!({
        "level": level.level,
        "runs": level.runs,
        "tables": level.tables,
        "bytes": level.bytes,
        "entries": level.entries,
        "deletes": level.deletes,
    })
}
