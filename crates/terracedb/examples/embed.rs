//! A store embedded in a program: open, write, close, open again.
//!
//! ```sh
//! cargo run --example embed
//! ```

use std::error::Error;

use terracedb::stats::format_bytes;
use terracedb::{Db, Durability, Resources, WriteOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("shop");

    // One number bounds the memory of all stores that share these resources.
    let resources = Resources::builder().memory(64 << 20).build()?;
    let db = Db::builder(&path).resources(&resources).open()?;
    assert!(db.recovery().created);
    let users = db.create_keyspace("users")?;

    // Default durability: the write survives the death of the process, but perhaps not a power cut.
    users.put("ada", "London")?;
    // Acknowledged only when it is durable on the device.
    users.put_opt("grace", "New York", &WriteOptions::new().durability(Durability::Sync))?;
    assert_eq!(users.get("ada")?.as_deref(), Some(&b"London"[..]));
    assert_eq!(users.get("alan")?, None);

    // A multi-get keeps many device reads in flight.
    let found = users.multi_get(&["ada", "alan", "grace"])?;
    let found = found.into_iter().collect::<terracedb::Result<Vec<_>>>()?;
    assert_eq!(found.iter().filter(|value| value.is_some()).count(), 2);

    // The store closes when its last handle is dropped.
    drop((users, db));
    let db = Db::builder(&path).resources(&resources).create_if_missing(false).open()?;
    let users = db.keyspace("users")?;
    assert_eq!(users.get("grace")?.as_deref(), Some(&b"New York"[..]));
    println!("recovered {} batches in {:?}", db.recovery().log_records, db.recovery().elapsed);

    let memory = db.statistics().memory;
    println!("{} of {} in use", format_bytes(memory.used), format_bytes(memory.limit));
    assert!(memory.used <= memory.limit);
    Ok(())
}
