//! An index that always agrees with its table: a batch becomes visible as a whole, over keyspaces,
//! and after a crash is there as a whole or not at all.
//!
//! ```sh
//! cargo run --example batch
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terracedb::{Db, Keyspace, Result, WriteBatch};

const MOVES: usize = 20_000;

/// Moves Ada from town to town, with the index of who lives where.
fn travel(db: &Db, users: &Keyspace, residents: &Keyspace) -> Result<()> {
    let towns = ["London", "Paris", "Turin"];
    let mut batch = WriteBatch::new();
    for (from, to) in towns.iter().cycle().zip(towns.iter().cycle().skip(1)).take(MOVES) {
        batch.clear();
        batch.put(users, "ada", to)?;
        batch.delete(residents, format!("{from}/ada"))?;
        batch.put(residents, format!("{to}/ada"), "")?;
        db.write(&batch)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path()).memory(64 << 20).open()?;
    let (users, residents) = (db.keyspace("users")?, db.keyspace("residents")?);
    users.put("ada", "London")?;
    residents.put("London/ada", "")?;

    let done = AtomicBool::new(false);
    let looks = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let result = travel(&db, &users, &residents);
            done.store(true, Ordering::Release);
            result
        });
        let mut looks = 0u64;
        while !done.load(Ordering::Acquire) {
            // A snapshot reads both keyspaces at one moment.
            let snapshot = db.snapshot();
            let town = snapshot.get(&users, "ada")?.unwrap_or_default();
            let places = snapshot.iter(&residents)?.collect::<Result<Vec<_>>>()?;
            let keys: Vec<_> = places.iter().map(|(key, _)| &key[..]).collect();
            assert_eq!(keys, [&[&town[..], b"/ada"].concat()[..]]);
            looks += 1;
        }
        let ended = writer.join().map_err(|_| terracedb::Error::invalid("writer"))?;
        ended.map(|()| looks)
    })?;
    println!("{MOVES} moves, looked at {looks} times, always in one place");
    Ok(())
}
