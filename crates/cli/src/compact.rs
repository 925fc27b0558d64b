//! `terrace compact`: compacts a store, a keyspace or a key range, and waits until it is done.

use std::thread;
use std::time::{Duration, Instant};

use base::{format_bytes, format_count};
use serde_json::json;
use terracedb::{Db, Result};

use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{print_result, report_to_stderr};
use crate::progress::Progress;
use crate::shared_args::{
    OutputArgs, StoreArgs, decode_optional_key, existing_keyspace, must_ascend,
};

/// Time between two updates of the progress bar.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Compact only this keyspace
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// The first key of the range
    #[arg(long, value_name = "KEY", requires = "keyspace")]
    from: Option<String>,
    /// The end of the range: the first key that is not part of it
    #[arg(long, value_name = "KEY", requires = "keyspace")]
    to: Option<String>,
    /// Read keys as hexadecimal digits
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let from = decode_optional_key(args.from.as_ref(), args.hex)?;
    let to = decode_optional_key(args.to.as_ref(), args.hex)?;
    must_ascend(from.as_ref(), to.as_ref())?;
    let _section = interrupt::Section::begin();
    let db = args.store.open()?;
    let start = Instant::now();
    let compaction = match &args.keyspace {
        None => db.start_compaction()?,
        Some(name) => {
            let keyspace = existing_keyspace(&db, "--keyspace", name)?;
            match (from, to) {
                (Some(from), Some(to)) => keyspace.start_compaction(from..to)?,
                (Some(from), None) => keyspace.start_compaction(from..)?,
                (None, Some(to)) => keyspace.start_compaction(..to)?,
                (None, None) => keyspace.start_compaction::<&[u8]>(..)?,
            }
        }
    };
    // Measured after the start, because starting a compaction flushes the memtables to tables.
    let bytes_before = table_bytes(&db);
    let bar = Progress::of_bytes("compact");
    while !compaction.is_finished() {
        // Closing the store removes the files of the merges that are not done.
        interrupt::check("compaction")?;
        let progress = compaction.progress();
        if progress.bytes_total > 0 {
            let done = progress.bytes_total - progress.bytes_left;
            bar.show(done, Some(progress.bytes_total));
        }
        thread::sleep(UPDATE_INTERVAL);
    }
    compaction.wait()?;
    drop(bar);
    report(&db, args, bytes_before, start.elapsed())
}

/// Bytes of all tables.
fn table_bytes(db: &Db) -> u64 {
    db.statistics().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum()
}

fn report(db: &Db, args: &Args, bytes_before: u64, elapsed: Duration) -> Result<Outcome> {
    let (bytes_after, statistics) = (table_bytes(db), db.statistics());
    let is_chosen = |name: &String| args.keyspace.as_ref().is_none_or(|chosen| chosen == name);
    let keyspaces = statistics.keyspaces.iter().filter(|keyspace| is_chosen(&keyspace.name));
    let damaged: usize = keyspaces.map(|keyspace| keyspace.damaged_tables).sum();
    let compaction = statistics.compaction;
    let object = json!({
        "table_bytes_before": bytes_before,
        "table_bytes": bytes_after,
        "bytes_read": compaction.bytes_read(),
        "bytes_written": compaction.bytes_written(),
        "seconds": elapsed.as_secs_f64(),
        "damaged_tables": damaged,
    });
    let text = format_args!(
        "tables of {} compacted to {}: {} read, {} written, in {:.3} s",
        format_bytes(bytes_before),
        format_bytes(bytes_after),
        format_bytes(compaction.bytes_read()),
        format_bytes(compaction.bytes_written()),
        elapsed.as_secs_f64()
    );
    print_result(args.output.json, &object, text)?;
    if damaged > 0 {
        report_to_stderr(format_args!(
            "{} left out: `terrace check DIR` names it, and `terrace repair DIR` replaces it",
            format_count(damaged, "damaged table")
        ));
    }
    Ok(Outcome::good_if(damaged == 0))
}
