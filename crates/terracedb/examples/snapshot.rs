//! A report during writes: a snapshot reads a consistent state and does not block writers.
//!
//! ```sh
//! cargo run --example snapshot
//! ```

use std::error::Error;
use std::thread;

use terracedb::{Db, Result, Snapshot};

/// The sum over all accounts.
fn total(snapshot: &Snapshot, accounts: &terracedb::Keyspace) -> Result<u64> {
    let mut total = 0;
    for entry in snapshot.iter(accounts)? {
        let (_, balance) = entry?;
        total += std::str::from_utf8(&balance).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    }
    Ok(total)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path()).memory(64 << 20).open()?;
    let accounts = db.create_keyspace("accounts")?;
    for account in 0..1000 {
        accounts.put(format!("{account:04}"), "100")?;
    }

    let evening = db.snapshot();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for account in 0..1000 {
                accounts.put(format!("{account:04}"), "0")?;
            }
            accounts.delete("0000")
        });
        // Concurrent writes do not change the total.
        for _ in 0..3 {
            assert_eq!(total(&evening, &accounts)?, 100_000);
        }
        writer.join().map_err(|_| terracedb::Error::invalid("writer"))?
    })?;

    // Compaction keeps the versions that a snapshot reads.
    db.compact()?;
    assert_eq!(total(&evening, &accounts)?, 100_000);
    assert_eq!(evening.get(&accounts, "0000")?.as_deref(), Some(&b"100"[..]));
    assert_eq!(total(&db.snapshot(), &accounts)?, 0);
    println!("in the evening: {}, now: {}", total(&evening, &accounts)?, 0);
    drop(evening);
    assert_eq!(db.statistics().snapshots, 0);
    Ok(())
}
