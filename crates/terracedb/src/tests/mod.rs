//! Tests of the lower crates that need a whole open store and access to its internals.

mod check;
mod check_order;
mod commit;
mod ingest;
mod piece_weight;
mod replay;
mod rows;
mod transaction;
mod transaction_commit;
mod warm_outputs;

/// Options of the compaction planner with which no merge is due.
fn without_merges() -> compact::plan::Options {
    compact::plan::Options {
        fanout: 1000,
        settled_runs: 1000,
        space_max: 1000.0,
        settled_space: 1000.0,
        deletes_share: 1000.0,
        ..compact::plan::Options::default()
    }
}
