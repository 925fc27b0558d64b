//! The command line: every command with its arguments. The arguments of a command stand in its module.

use clap::{Parser, Subcommand};

use crate::{
    backup, bench, calibrate, check, compact, completions, config, delete_range, dump, entries,
    ingest, inspect, keyspace, load, log, plan, repair, replay, scrub, serve, shell, stats,
    transfer, worker,
};

/// A key-value store for machines with little DRAM.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Benchmark a store with standard workloads and verify every read
    Bench(Box<bench::Args>),
    /// Replay a cache trace: each access is a get, and a put if the get misses
    Replay(replay::Args),
    /// Predict hit ratios, latency, cost and power of a workload for sizes of DRAM and SCM
    Plan(plan::Args),
    /// Serve a store to clients of the Redis protocol
    Serve(serve::Args),
    /// Add the keys of Redis to a store: those of a dump file, or of a running server
    Import(transfer::ImportArgs),
    /// Write the keys of a store as commands of the Redis protocol, for redis-cli --pipe
    Export(transfer::ExportArgs),
    /// Print the value of a key
    Get(entries::GetArgs),
    /// Set the value of a key
    Put(entries::PutArgs),
    /// Delete a key
    Delete(entries::DeleteArgs),
    /// Delete every key of a range in one operation
    DeleteRange(delete_range::Args),
    /// Print keys and values in key order; those of a hashed keyspace have no order
    Scan(entries::ScanArgs),
    /// Run several commands in one opening of a store, from a terminal with history or from a pipe
    Shell(Box<shell::Args>),
    /// Add sorted keys in bulk, from a file or standard input
    Ingest(ingest::Args),
    /// Add rows in any order (tsv, csv, jsonl), or all of a dump
    Load(Box<load::Args>),
    /// Write every keyspace with its options and expiries to a file, for `load`
    Dump(dump::Args),
    /// List, create and drop keyspaces
    Keyspace {
        #[command(subcommand)]
        command: keyspace::Command,
    },
    /// Move the log of a store
    Log {
        #[command(subcommand)]
        command: log::Command,
    },
    /// Show the statistics of a store: memory, keyspaces, log, compaction
    Stats(stats::Args),
    /// Compact tables now, and free the space of overwritten and deleted entries
    Compact(compact::Args),
    /// Show the contents of a table, log segment or manifest file
    Inspect(inspect::Args),
    /// Verify every checksum and invariant of a store
    Check(check::Args),
    /// Read every table of a store and verify each page; an open store does so in the background
    Scrub(scrub::Args),
    /// Repair a damaged store: keep everything that can still be read
    Repair(repair::Args),
    /// Create a consistent copy of a store that shares its files
    Checkpoint(backup::CheckpointArgs),
    /// Create, list, verify and delete backups
    Backup {
        #[command(subcommand)]
        command: backup::Command,
    },
    /// Restore a backup to a new directory
    Restore(backup::RestoreArgs),
    /// Copy a store, or the backup of a repository, to a new directory
    Clone(backup::CloneArgs),
    /// Measure a device: latency, bandwidth by threads and access size, write unit, read-write mixes
    Calibrate(calibrate::Args),
    /// Run merges of stores in this process, for hosts that name it in --compaction
    Worker(worker::Args),
    /// Show, check and document settings
    Config {
        #[command(subcommand)]
        command: config::Command,
    },
    /// Print a shell script that completes commands and options
    Completions(completions::Args),
    /// Print the help of every command as Markdown
    #[command(hide = true)]
    Reference,
}
