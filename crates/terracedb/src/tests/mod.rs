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
