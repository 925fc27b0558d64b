//! An event log with retention: one range delete removes all events before a date, whatever their number,
//! and compaction frees their space.
//!
//! ```sh
//! cargo run --example delete_range
//! ```

use std::error::Error;

use terracedb::Db;
use terracedb::stats::format_bytes;

/// Bytes of all tables.
fn space(db: &Db) -> u64 {
    db.statistics().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path()).memory(64 << 20).open()?;
    let events = db.create_keyspace("events")?;
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
    println!("18,000 events deleted by writing {} bytes", db.statistics().user_bytes - written);

    assert_eq!(events.get("2025-09/00007")?, None);
    assert_eq!(events.iter()?.count(), 6000);
    assert!(
        snapshot.get(&events, "2025-09/00007")?.is_some(),
        "a snapshot still reads deleted events"
    );
    // A range delete does not affect later writes.
    events.put("2025-01/late", "an event that arrived late")?;
    assert_eq!(events.iter()?.count(), 6001);
    drop(snapshot);

    // Compaction drops a table without reading it if a range delete covers all of it.
    events.delete_range("2025-02".."2026")?;
    db.compact()?;
    assert_eq!(events.iter()?.count(), 1);
    println!(
        "compaction shrank the tables from {} to {}",
        format_bytes(before),
        format_bytes(space(&db))
    );
    assert!(space(&db) < before / 2);
    Ok(())
}
