//! The integration tests of `terracedb`, one module per subject, linked as one binary.
//!
//! Tests that need a process of their own are apart: `processes` (starts and kills child processes), `scm`
//! (a signal handler) and `memory` (resident memory of a process). A test here must not change
//! process-wide state: environment variables, signal handlers, the panic hook, the current directory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;

mod all_kinds;
mod api;
mod backup;
mod backup_faults;
mod carried;
mod checkpoint;
mod closing;
mod cold;
mod collecting;
mod collecting_orders;
mod compaction;
mod compaction_space;
mod concurrency;
mod crash;
mod damage;
mod damage_kinds;
mod deletes;
mod dictionary;
mod expiry;
mod extract;
mod faults;
mod faults_anywhere;
mod full_lanes;
mod golden_store;
mod golden_windows;
mod hashed;
mod held_filters;
mod hot_pages;
mod index_checkpoints;
mod keep_counters;
mod keyspace_files;
mod log_device_failures;
mod log_devices;
mod log_files;
mod log_start;
mod lost_file_names;
mod memory_pressure;
mod merging;
mod model;
mod names;
mod offload;
mod pops;
mod range_bounds;
mod range_deletes;
mod read_only;
mod read_path;
mod reopening;
mod repair;
mod repair_faults;
mod repair_values;
mod resident;
mod resident_crashes;
mod resident_damage;
mod resource_limits;
mod rows;
mod scrub;
mod seek_reads;
mod settings;
mod space;
mod superseded;
mod transactions;
mod transactions_random;
mod unblocked;
mod values;
mod watchdog;
mod window_discards;
mod windows;
mod write_through;
