//! Merging by hand: a part of a keyspace, or all of it, watched or called off.
//!
//! `cargo run --example compaction`

#![allow(clippy::print_stdout, reason = "an example speaks")]

use std::time::Duration;

use terracedb::{Db, Result, format_bytes};

fn main() -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("terracedb-compaction-{}", std::process::id()));
    let result = run(&directory);
    // Best effort: the system clears its temporary files too.
    drop(std::fs::remove_dir_all(&directory));
    result
}

fn run(directory: &std::path::Path) -> Result<()> {
    let db = Db::builder(directory).memory(64 << 20).open()?;
    let events = db.keyspace("events")?;
    for round in 0..4u32 {
        for number in 0..20_000u32 {
            events.put(number.to_be_bytes(), format!("round {round} of event {number}"))?;
        }
        events.flush()?;
    }
    let held = || db.statistics().keyspaces.iter().map(|it| it.table_bytes).sum::<u64>();
    let before = held();

    // A store merges by itself. Who deleted much and wants the space back now has a range merged.
    events.delete_range(..5_000u32.to_be_bytes())?;
    events.compact_range(..5_000u32.to_be_bytes())?;

    // The rest, without waiting in the dark. A compaction that is dropped is called off.
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
    assert!(held() < before);
    println!("{} of tables became {}", format_bytes(before), format_bytes(held()));
    Ok(())
}
