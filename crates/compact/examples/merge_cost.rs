//! Measures merges: `cargo run --release -p terrace-compact --example merge_cost [full|half|none]`.
//!
//! One job merges runs of tables with keys of 16 bytes and values of 400, half of which is random. The
//! argument sets the overlap of runs: `full`: every run covers all keys; `half`: all but one run cover one
//! half of the keys; `none`: each run has its own key range. Then the outcome is verified. Times are
//! processor time of the process. The medium is a directory under the system's temporary directory.

use std::sync::Arc;

use base::{
    Account, Codec, EntryKind, Error, KeyspaceId, Result, Rng, Seqno, StoreId, TableId, Trailer,
};
use media::{FileMedium, FileOptions, Medium, Purpose};
use rustix::time::{ClockId, clock_gettime};
use table::{NoDictionaries, Spec, Writer};
use terrace_compact::job::{Input, InputRun, Job, Output};
use terrace_compact::{Env, Horizon, KeyRange, Operators, run, verify};

const STORE: StoreId = StoreId(1);
const KEYSPACE: KeyspaceId = KeyspaceId(1);
const RUNS: u64 = 4;
const ENTRIES: u64 = 120_000;
const VALUE_BYTES: usize = 400;

/// Processor time of this process, seconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"0000000000000000";
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// First number and count of the keys of a run.
fn numbers(overlap: &str, run: u64) -> Result<(u64, u64)> {
    let all = 1_000_000_000;
    match overlap {
        "full" => Ok((0, all)),
        "half" if run == 0 => Ok((0, all)),
        "half" => Ok((0, all / 2)),
        "none" => Ok((run * all / RUNS, all / RUNS)),
        _ => Err(Error::invalid("overlap").expected("full, half or none").got(overlap)),
    }
}

fn write(medium: &Arc<dyn Medium>, run: u64, overlap: &str, account: &Account) -> Result<Input> {
    let table = TableId(1 + run);
    let spec = Spec {
        store: STORE,
        table,
        keyspace: KEYSPACE,
        codec: Codec::Lz4,
        level: 0,
        dictionary: None,
        filter_bits: table::FILTER_BITS_DEFAULT,
        layout: table::Layout::Sorted,
        purpose: Purpose::Flush,
        leave: table::Leave::Nothing,
    };
    let mut rng = Rng::new(run);
    let (first, count) = numbers(overlap, run)?;
    let mut keys: Vec<_> = (0..ENTRIES).map(|_| first + rng.below(count)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut writer = Writer::create(medium, spec, account)?;
    let mut value = [b'x'; VALUE_BYTES];
    for number in keys {
        let (noise, _) = value.split_at_mut(VALUE_BYTES / 2);
        rng.fill(noise);
        let seqno = Seqno::new(1 + run * ENTRIES + rng.below(ENTRIES));
        writer.add(&key(number), Trailer::new(seqno, EntryKind::Put), &value)?;
    }
    let summary = writer.finish()?;
    let (id, file_bytes, digest) = (summary.table, summary.file_bytes, summary.digest);
    Ok(Input { id, file_bytes, digest, bounds: KeyRange::all(), seqno: None })
}

fn main() -> Result<()> {
    let overlap = std::env::args().nth(1).unwrap_or_else(|| "full".to_owned());
    let directory = tempfile::tempdir().map_err(|e| Error::io("create a directory", "tmp", e))?;
    let options = FileOptions::default();
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::open(directory.path(), options)?);
    let account = Account::unlimited("example");
    let mut inputs = Vec::new();
    for run in (0..RUNS).rev() {
        inputs.push(InputRun { tables: vec![write(&medium, run, &overlap, &account)?] });
    }
    let job = Job {
        id: 1,
        epoch: 1,
        part: 0,
        store: STORE,
        keyspace: KEYSPACE,
        inputs,
        bounds: KeyRange::all(),
        horizon: Horizon::new(vec![Seqno::new(RUNS * ENTRIES + 1)]),
        now_ms: 1,
        older: Vec::new(),
        output: Output {
            codec: Codec::Lz4,
            level: 0,
            dictionary: None,
            filter_bits: table::FILTER_BITS_DEFAULT,
            layout: table::Layout::Sorted,
            table_bytes_max: 64 << 20,
            ids: TableId(100)..TableId(200),
        },
        operator: None,
        hot: Vec::new(),
        values: Default::default(),
    };
    let env = Env {
        medium: Arc::clone(&medium),
        dictionaries: Arc::new(NoDictionaries),
        operators: Arc::new(Operators::new()),
        account: account.clone(),
        tables: account.clone(),
        read_bytes: 8 << 20,
        value_bytes_max: base::limits::VALUE_BYTES_MAX,
        engine: None,
        sums_entries: false,
    };
    for _ in 0..5 {
        let start = now();
        let outcome = run(job.clone(), &env)?;
        let merged = now() - start;
        let raw: u64 = outcome.tables.iter().map(|table| table.properties.raw_bytes).sum();
        let (read, written) = (outcome.bytes_read, outcome.bytes_written());
        let (entries, passed) = (outcome.counts.kept, outcome.pages_passed);
        let start = now();
        verify(&job, outcome, &env, &account)?;
        let verified = now() - start;
        println!(
            "{overlap}: {:.0} raw MB per second, {:.0} ns an entry of {entries}; {:.1} MB read, \
             {:.1} MB written, {passed} pages passed; verified in {:.1} % of the time; at most \
             {:.1} MiB of memory",
            raw as f64 / 1e6 / merged,
            merged * 1e9 / entries as f64,
            read as f64 / 1e6,
            written as f64 / 1e6,
            100.0 * verified / merged,
            account.peak() as f64 / (1u64 << 20) as f64,
        );
        job.discard_outputs(&*medium)?;
    }
    Ok(())
}
