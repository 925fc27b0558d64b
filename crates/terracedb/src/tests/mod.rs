//! Tests of the crates below that need a whole store around them.

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
