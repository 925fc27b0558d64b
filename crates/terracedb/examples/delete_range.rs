//! A log of events with an end: what is older than a date goes in one operation, however much it is,
//! and its space comes back.
//!
//! ```sh
//! cargo run --example delete_range
//! ```

use std::error::Error;

use terracedb::{Db, format_bytes};

/// Bytes of all tables.
fn space(db: &Db) -> u64 {
    db.statistics().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path()).memory(64 << 20).open()?;
    let events = db.keyspace("events")?;
    for month in 1..=12 {
        for number in 0..2000 {
            let key = format!("2025-{month:02}/{number:05}");
            events.put(key, format!("event {number} of month {month}"))?;
        }
    }
    db.flush()?;
    let before = space(&db);

    let snapshot = db.snapshot();
    let written = db.statistics().user_bytes;
    events.delete_range(.."2025-10")?;
    println!("18,000 events removed by {} bytes", db.statistics().user_bytes - written);

    assert_eq!(events.get("2025-09/00007")?, None);
    assert_eq!(events.iter()?.count(), 6000);
    assert!(snapshot.get(&events, "2025-09/00007")?.is_some(), "a snapshot reads them still");
    // What is written after it stays.
    events.put("2025-01/late", "an event that came late")?;
    assert_eq!(events.iter()?.count(), 6001);
    drop(snapshot);

    // Tables of which nothing is left go as a whole.
    events.delete_range("2025-02".."2026")?;
    db.compact()?;
    assert_eq!(events.iter()?.count(), 1);
    println!("{} of tables became {}", format_bytes(before), format_bytes(space(&db)));
    assert!(space(&db) < before / 2);
    Ok(())
}
