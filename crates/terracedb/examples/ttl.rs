//! Sessions with a time to live (TTL): no read returns an expired value, and compaction frees its space.
//!
//! ```sh
//! cargo run --example ttl
//! ```

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use terracedb::{Db, EntryOptions, Expiry};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path()).memory(64 << 20).open()?;
    let sessions = db.create_keyspace("sessions")?;

    sessions.put("root", "never ends")?;
    sessions.put_opt("ada", "today", &EntryOptions::new().ttl(Duration::from_secs(24 * 3600)))?;
    let a_moment = EntryOptions::new().ttl(Duration::from_millis(1));
    for guest in 0..1000 {
        sessions.put_opt(format!("guest {guest}"), "a moment", &a_moment)?;
    }
    assert_eq!(sessions.expiry("root")?, Some(Expiry::Never));
    assert!(matches!(sessions.expiry("ada")?, Some(Expiry::At(_))));

    sleep(Duration::from_millis(20));
    assert_eq!(sessions.get("guest 7")?, None);
    assert_eq!(sessions.expiry("guest 7")?, None);
    assert_eq!(sessions.iter()?.count(), 2, "scans skip expired values, too");

    // To extend a session, write it again.
    sessions.put_opt("ada", "today", &EntryOptions::new().ttl(Duration::from_secs(48 * 3600)))?;

    db.compact()?;
    let statistics = db.statistics();
    let entries: u64 = statistics.keyspaces.iter().map(|keyspace| keyspace.table_entries).sum();
    println!("{entries} of 1003 entries are left");
    assert_eq!(entries, 2);
    Ok(())
}
