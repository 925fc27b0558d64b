//! What can be typed.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use terracedb::{Codec, Error, ErrorKind, parse_bytes};
use workload::Distribution;
use workload::bench::Name;
use workload::trace::Format;

use crate::config::Flags;
use crate::place::Place;
use crate::{
    calibrate, compact, completions, config, delete_range, ingest, keyspace, plan, scrub, stats,
    time,
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
    /// Measure a store with customary workloads, every read verified
    Bench(Box<Bench>),
    /// Replay a trace as a cache would see it: get, and on a miss put
    Replay(Replay),
    /// Say what DRAM and SCM would buy a workload, in hits, time, dollars and watts
    Plan(plan::Args),
    /// Print the value of a key
    Get(Get),
    /// Set a key to a value
    Put(Put),
    /// Remove a key
    Delete(Delete),
    /// Remove every key of a range, as one operation
    DeleteRange(delete_range::Args),
    /// Print keys and values in order
    Scan(Scan),
    /// Add sorted keys in bulk, from a file or standard input
    Ingest(ingest::Args),
    /// List, make and drop keyspaces
    Keyspace {
        #[command(subcommand)]
        command: keyspace::Command,
    },
    /// Show what a store holds: memory, keyspaces, log, merges
    Stats(stats::Args),
    /// Merge tables now, and give back the space of what was overwritten or deleted
    Compact(compact::Args),
    /// Show what is in a table, log segment or manifest file
    Inspect(Inspect),
    /// Verify every checksum and invariant of a store that is not open
    Check(Check),
    /// Read every table of a store and verify each page, as an open store does by itself
    Scrub(scrub::Args),
    /// Make a store of what can still be read of a damaged one
    Repair(Repair),
    /// Make a second store that holds what a store does now, sharing its files
    Checkpoint(Checkpoint),
    /// Back a store up, and look after backups
    Backup {
        #[command(subcommand)]
        command: BackupCommand,
    },
    /// Make a directory the store that a backup is of
    Restore(Restore),
    /// Measure a device: latency, bandwidth by threads and size, unit of writing, mixes
    Calibrate(calibrate::Args),
    /// Show, check and document settings
    Config {
        #[command(subcommand)]
        command: config::Command,
    },
    /// Print a script that completes commands and options in a shell
    Completions(completions::Args),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Back a store up, copying what the repository has not got
    Create(BackupCreate),
    /// List backups, oldest first: number, time, size, label
    List(BackupList),
    /// Read all of a backup, and check the store that it is
    Verify(BackupVerify),
    /// Delete a backup, and the files that no other has
    Delete(BackupDelete),
    /// Delete all but the newest backups of each store
    Prune(BackupPrune),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CodecName {
    None,
    Lz4,
    Zstd,
}

impl From<CodecName> for Codec {
    fn from(name: CodecName) -> Self {
        match name {
            CodecName::None => Self::None,
            CodecName::Lz4 => Self::Lz4,
            CodecName::Zstd => Self::Zstd,
        }
    }
}

/// What `bench` does beside running workloads.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// Run one workload over a list of tier configurations, side by side
    Tiers(crate::bench::Tiers),
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// Workloads, run in this order on one store
    #[arg(required = true, value_name = "NAME", value_parser = one_of(Name::ALL, Name::name))]
    pub(crate) names: Vec<Name>,
    /// Where the store is, or is to be created [default: a directory that is removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Keys that fills and loads write, and others expect [default: 1000000, or those of --trace]
    #[arg(long, value_name = "N")]
    pub(crate) num: Option<u64>,
    /// Operations of all but fills and loads, without --duration [default: --num, or those of --trace]
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// Bytes of a key [default: the first workload's: 16; ycsb 24, mixgraph and blobmeta 48, chat 27,
    /// hivecache 24]
    #[arg(long, value_name = "B")]
    pub(crate) key_size: Option<usize>,
    /// Bytes of a value [default: the workload's: 100; ycsb 1000; other mixes vary]
    #[arg(long, value_name = "B")]
    pub(crate) value_size: Option<usize>,
    /// What compression makes of a value, as a part of it
    #[arg(long, value_name = "R", default_value_t = 0.5)]
    pub(crate) compression_ratio: f64,
    /// Threads
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub(crate) threads: usize,
    /// Lookups in flight in each thread, in multireadrandom
    #[arg(long, value_name = "D", default_value_t = 32)]
    pub(crate) depth: usize,
    /// Entries read after each seek, in seekrandom
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) entries: usize,
    /// Entries put together in one write, in fills and overwrite
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) batch: usize,
    /// Seconds after which a workload ends; fills always write --num keys
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Operations per second to offer, over all threads, however long the store takes: latency
    /// counts from when each was to begin; those closer than a millisecond come in bunches
    /// [default: as many as the store takes]
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<f64>,
    /// The same for the writer of readwhilewriting
    #[arg(long, value_name = "N")]
    pub(crate) write_rate: Option<f64>,
    /// Print throughput, the worst latency, stalls, bytes written and space every S seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) report_interval: Option<Duration>,
    /// After each workload, wait until the store has no background work left, and count it in
    #[arg(long)]
    pub(crate) settle: bool,
    /// After the last workload, read the whole store and check it against all that was written
    #[arg(long)]
    pub(crate) verify: bool,
    /// How all but fills pick keys: uniform, zipfian, zipfian:THETA, latest
    /// [default: a mix's own way, else uniform]
    #[arg(long, value_name = "NAME", value_parser = distribution)]
    pub(crate) distribution: Option<Distribution>,
    #[command(flatten)]
    pub(crate) replayed: crate::bench::Replayed,
    /// Make every write durable before it returns
    #[arg(long)]
    pub(crate) sync: bool,
    /// Use the store in --data as an earlier fill with the same options left it
    #[arg(long, requires = "data")]
    pub(crate) existing: bool,
    /// What all random choices follow from
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Write the statistics at the end to this file, for `terrace plan --stats`
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: Flags,
    /// Print one JSON object a workload, each on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// The trace: plain, .xz or .zst
    pub(crate) file: PathBuf,
    /// What the trace's bytes mean [default: by its name, which ends with that]
    #[arg(long, value_name = "NAME", value_parser = one_of(Format::ALL, Format::name))]
    pub(crate) format: Option<Format>,
    /// Where the store is, or is to be created; what it holds stays and counts
    /// [default: a directory that is removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Bytes of a value, whatever the trace says [default: the trace's sizes, else 100]
    #[arg(long, value_name = "B")]
    pub(crate) value_size: Option<usize>,
    /// Records to load first, with --format ycsb [default: the file's recordcount]
    #[arg(long, value_name = "N")]
    pub(crate) records: Option<u64>,
    /// Operations to run, with --format ycsb [default: the file's operationcount]
    #[arg(long, value_name = "N")]
    pub(crate) operations: Option<u64>,
    /// What random choices follow from, with --format ycsb
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Stop after this many accesses
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Write the statistics at the end to this file, for `terrace plan --stats`
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: Flags,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
    /// Print the value alone, without the end of a line
    #[arg(long, conflicts_with = "hex")]
    pub(crate) raw: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
    /// The value; `-` reads it from standard input, every byte of it
    #[arg(allow_negative_numbers = true)]
    pub(crate) value: String,
    /// Remove it by itself after this time, as in 90s, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The first key
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) from: Option<String>,
    /// The first key not to print
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) to: Option<String>,
    /// Only keys that begin so
    #[arg(
        long,
        value_name = "KEY",
        allow_negative_numbers = true,
        conflicts_with_all = ["from", "to"]
    )]
    pub(crate) prefix: Option<String>,
    /// Print at most this many
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    pub(crate) limit: usize,
    /// Last key first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Print keys alone
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Print only how many there are
    #[arg(long)]
    pub(crate) count: bool,
    /// Print one JSON object a line, of text or of hexadecimal digits
    #[arg(long, conflicts_with_all = ["keys_only", "count"])]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    /// What the file is
    pub(crate) kind: FileKind,
    /// The file, in the directory of its store
    pub(crate) file: PathBuf,
    /// Show every page of a table too
    #[arg(long)]
    pub(crate) pages: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FileKind {
    Table,
    Log,
    Manifest,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The store's directory, or a configuration file that names it
    #[arg(value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Repair {
    /// The store's directory, or a configuration file that names it
    #[arg(value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// Change nothing: only say what would be done and what is lost
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Checkpoint {
    /// The store's directory, or a configuration file that names it
    #[arg(value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// The new store's directory: none yet, or an empty one
    pub(crate) place: PathBuf,
    /// Flush first, so that there is little log to copy
    #[arg(long)]
    pub(crate) flush: bool,
    #[command(flatten)]
    pub(crate) engine: Flags,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackupCreate {
    /// The store's directory, or a configuration file that names it
    #[arg(value_name = "STORE")]
    pub(crate) dir: PathBuf,
    /// The directory of backups, made where there is none
    pub(crate) repository: PathBuf,
    /// What to call it
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) label: String,
    /// Read at most this much a second
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) rate: Option<u64>,
    #[command(flatten)]
    pub(crate) engine: Flags,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackupList {
    /// The directory of backups
    pub(crate) repository: PathBuf,
    /// Print one JSON object a backup
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackupVerify {
    /// The directory of backups
    pub(crate) repository: PathBuf,
    /// The backup's number
    pub(crate) id: u64,
    /// Read at most this much a second
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) rate: Option<u64>,
    /// Print one JSON object, as `check` does
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackupDelete {
    /// The directory of backups
    pub(crate) repository: PathBuf,
    /// The backup's number
    pub(crate) id: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackupPrune {
    /// The directory of backups
    pub(crate) repository: PathBuf,
    /// How many to keep of each store
    #[arg(long, value_name = "N")]
    pub(crate) keep: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// The directory of backups
    pub(crate) repository: PathBuf,
    /// The backup's number
    pub(crate) id: u64,
    /// The store's directory: none yet, or an empty one
    pub(crate) place: PathBuf,
    /// Read at most this much a second
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) rate: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// One of `all` by its name, which usage, help and errors list.
pub(crate) fn one_of<T, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.map(name)).try_map(|name| name.parse())
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| plain(&error))
}

pub(crate) fn distribution(text: &str) -> Result<Distribution, String> {
    text.parse().map_err(|error| plain(&error))
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    time::parse(text).ok_or_else(|| format!("expected {}", time::WRITTEN))
}

/// What an error says, less the kind where that goes without saying: who typed it reads it.
pub(crate) fn plain(error: &Error) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((_, rest)) if error.kind() == ErrorKind::Invalid => rest.to_owned(),
        _ => text,
    }
}
