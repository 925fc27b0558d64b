//! `terrace compact`.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use terracedb::{Db, Error, Result, format_bytes};

use crate::config::{Config, Flags};
use crate::output::Output;
use crate::progress::Progress;
use crate::{Outcome, place};

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory, or a configuration file that names it
    store: std::path::PathBuf,
    /// Only this keyspace
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// The first key
    #[arg(long, value_name = "KEY", requires = "keyspace")]
    from: Option<String>,
    /// The first key to leave alone
    #[arg(long, value_name = "KEY", requires = "keyspace")]
    to: Option<String>,
    /// Keys are hexadecimal digits
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    flags: Flags,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let bound =
        |text: &Option<String>| text.as_ref().map(|text| place::bytes(text, args.hex)).transpose();
    let (from, to) = (bound(&args.from)?, bound(&args.to)?);
    if let (Some(from), Some(to)) = (&from, &to)
        && from >= to
    {
        return Err(Error::invalid("--to").expected("a key after --from"));
    }
    let db = Config::of_store(&args.store, &args.flags)?.open(false)?;
    let start = Instant::now();
    let compaction = match &args.keyspace {
        None => db.start_compaction()?,
        Some(name) => {
            let keyspace = place::existing(&db, "--keyspace", name)?;
            match (from, to) {
                (Some(from), Some(to)) => keyspace.start_compaction(from..to)?,
                (Some(from), None) => keyspace.start_compaction(from..)?,
                (None, Some(to)) => keyspace.start_compaction(..to)?,
                (None, None) => keyspace.start_compaction::<&[u8]>(..)?,
            }
        }
    };
    // Only now: what is still in the log was flushed when the compaction began.
    let before = table_bytes(&db);
    let bar = Progress::of_bytes("compact");
    while !compaction.is_finished() {
        let progress = compaction.progress();
        if progress.bytes_total > 0 {
            bar.show(progress.bytes_total - progress.bytes_left, Some(progress.bytes_total));
        }
        thread::sleep(LOOK);
    }
    compaction.wait()?;
    drop(bar);
    report(&db, before, start.elapsed(), args.json)
}

/// Bytes of all tables.
fn table_bytes(db: &Db) -> u64 {
    db.statistics().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum()
}

fn report(db: &Db, before: u64, elapsed: Duration, json: bool) -> Result<Outcome> {
    let (after, merges) = (table_bytes(db), db.statistics().compaction);
    let mut out = Output::new();
    if json {
        out.line(json!({
            "table_bytes_before": before,
            "table_bytes": after,
            "bytes_read": merges.bytes_read(),
            "bytes_written": merges.bytes_written(),
            "seconds": elapsed.as_secs_f64(),
        }))?;
    } else {
        out.line(format_args!(
            "tables of {} became {}: {} read, {} written, in {:.3} s",
            format_bytes(before),
            format_bytes(after),
            format_bytes(merges.bytes_read()),
            format_bytes(merges.bytes_written()),
            elapsed.as_secs_f64()
        ))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}
