//! A secondary index that always agrees with its data: a batch over two keyspaces becomes visible as a
//! whole, and a crash leaves all of it or nothing.
//!
//! ```sh
//! cargo run --example batch
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terracedb::{Db, Keyspace, Result, WriteBatch};

const MOVES: usize = 20_000;

/// Moves Ada from town to town, and updates the index of residents in the same batch.
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
    let (users, residents) = (db.create_keyspace("users")?, db.create_keyspace("residents")?);
    users.put("ada", "London")?;
    residents.put("London/ada", "")?;

    let done = AtomicBool::new(false);
    let checks = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let result = travel(&db, &users, &residents);
            done.store(true, Ordering::Release);
            result
        });
        let mut checks = 0u64;
        while !done.load(Ordering::Acquire) {
            // A snapshot reads both keyspaces at one sequence number.
            let snapshot = db.snapshot();
            let town = snapshot.get(&users, "ada")?.unwrap_or_default();
            let places = snapshot.iter(&residents)?.collect::<Result<Vec<_>>>()?;
            let keys: Vec<_> = places.iter().map(|(key, _)| &key[..]).collect();
            assert_eq!(keys, [&[&town[..], b"/ada"].concat()[..]]);
            checks += 1;
        }
        let ended = writer.join().map_err(|_| terracedb::Error::invalid("writer"))?;
        ended.map(|()| checks)
    })?;
    println!("{MOVES} moves, {checks} checks: the index always agreed");
    Ok(())
}
