//! Manual compaction of a key range or a whole store, with progress.
//!
//! `cargo run --example compaction`

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Duration;

use terracedb::stats::format_bytes;
use terracedb::{Db, Result};

fn main() -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("terracedb-compaction-{}", std::process::id()));
    let result = run(&directory);
    // An error is ignored: the operating system clears its temporary directory as well.
    drop(std::fs::remove_dir_all(&directory));
    result
}

fn run(directory: &std::path::Path) -> Result<()> {
    let db = Db::builder(directory).memory(64 << 20).open()?;
    let events = db.create_keyspace("events")?;
    for round in 0..4u32 {
        for number in 0..20_000u32 {
            events.put(number.to_be_bytes(), format!("round {round} of event {number}"))?;
        }
        events.flush()?;
    }
    let table_bytes = || db.statistics().keyspaces.iter().map(|it| it.table_bytes).sum::<u64>();
    let before = table_bytes();

    // A store compacts in the background. Compact a range by hand to free its space at once, for example
    // after a large delete.
    events.delete_range(..5_000u32.to_be_bytes())?;
    events.compact_range(..5_000u32.to_be_bytes())?;

    // Compact everything and print the progress. Dropping a `Compaction` cancels it.
    let compaction = db.start_compaction()?;
    while !compaction.is_finished() {
        let progress = compaction.progress();
        println!(
            "{} of {} left",
            format_bytes(progress.bytes_left),
            format_bytes(progress.bytes_total)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    compaction.wait()?;
    assert_eq!(events.iter()?.count(), 15_000);
    assert!(table_bytes() < before);
    println!(
        "compaction shrank the tables from {} to {}",
        format_bytes(before),
        format_bytes(table_bytes())
    );
    Ok(())
}
