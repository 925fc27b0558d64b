//! Change settings of an open store, and listen to its events.
//!
//! `cargo run --example settings`

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use terracedb::events::{Event, Listener};
use terracedb::{Codec, Db, Durability, Result};

/// Records flushes and merges as lines. The thread that does the work calls the listener, so it must be fast.
#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

impl Listener for Diary {
    fn event(&self, event: &Event) {
        if matches!(event, Event::FlushEnded { .. } | Event::CompactionEnded { .. })
            && let Ok(mut lines) = self.0.lock()
        {
            lines.push(event.to_string());
        }
    }
}

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("terracedb-settings-{}", std::process::id()));
    let result = run(&directory);
    // An error is ignored: the operating system clears its temporary directory as well.
    drop(std::fs::remove_dir_all(&directory));
    result
}

fn run(directory: &std::path::Path) -> Result<()> {
    let diary = Arc::new(Diary::default());
    let db = Db::builder(directory).memory(64 << 20).listener(diary.clone()).open()?;
    let logs = db.create_keyspace("logs")?;
    for number in 0..20_000u32 {
        logs.put(number.to_be_bytes(), format!("line {number}"))?;
    }
    db.flush()?;

    // All of these changes apply, or none; from the next write, flush and merge on.
    let settings = db.change_settings(|settings| {
        settings.durability = Durability::Interval;
        settings.sync_interval = Duration::from_millis(10);
        settings.codec = Codec::Zstd;
        settings.compaction_rate = 50 << 20;
    })?;
    assert_eq!(settings.codec, Codec::Zstd);
    logs.put("last", "line")?;
    db.compact()?;

    // An invalid value is refused by an error that names the setting, and nothing changes.
    let refused = db.change_settings(|settings| settings.sync_interval = Duration::ZERO);
    assert!(refused.is_err());
    println!("refused: {:?}", refused.map(drop));
    assert_eq!(db.settings().sync_interval, Duration::from_millis(10));

    let lines = diary.0.lock().map(|lines| lines.clone()).unwrap_or_default();
    assert!(!lines.is_empty());
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}
