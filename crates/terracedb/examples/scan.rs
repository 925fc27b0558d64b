//! Ordered reads: ranges, prefixes, backward iteration, and a cursor with seeks.
//!
//! ```sh
//! cargo run --example scan
//! ```

use std::error::Error;

use terracedb::{Db, Result};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path()).memory(64 << 20).open()?;
    let events = db.create_keyspace("events")?;
    for day in 1..=28 {
        for hour in 0..24 {
            // Keys are ordered bytewise: numbers need leading zeros to sort by value.
            events.put(format!("2025-02-{day:02}T{hour:02}"), format!("{}", day * hour))?;
        }
    }

    let noon = events.range("2025-02-14".."2025-02-15")?.nth(12).transpose()?;
    assert_eq!(noon.map(|(key, _)| key).as_deref(), Some(&b"2025-02-14T12"[..]));

    let first_days = events.prefix("2025-02-0")?.collect::<Result<Vec<_>>>()?;
    assert_eq!(first_days.len(), 9 * 24);

    // The newest three: backward iteration reads only the end of the keyspace.
    let newest = events.iter()?.rev().take(3).collect::<Result<Vec<_>>>()?;
    for (key, value) in &newest {
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    assert_eq!(newest.first().map(|(key, _)| &key[..]), Some(&b"2025-02-28T23"[..]));

    // The first event of every day: the cursor seeks past the others.
    let mut cursor = events.cursor()?;
    let mut days = 0;
    let mut found = cursor.seek_to_first()?;
    while found {
        days += 1;
        let day = cursor.key().and_then(|key| key.get(..10)).unwrap_or_default();
        let next_day = [day, b"U"].concat();
        found = cursor.seek(next_day)?;
    }
    assert_eq!(days, 28);
    println!("{days} days");
    Ok(())
}
