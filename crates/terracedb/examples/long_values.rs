//! Long values: they lie apart from their keys, and merges do not copy them.
//!
//! `cargo run --example long_values`

#![allow(clippy::print_stdout, reason = "an example speaks")]

use terracedb::{Db, Result, format_bytes};

fn main() -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("terracedb-long_values-{}", std::process::id()));
    let result = run(&directory);
    // Best effort: the system clears its temporary files too.
    drop(std::fs::remove_dir_all(&directory));
    result
}

fn run(directory: &std::path::Path) -> Result<()> {
    let db = Db::builder(directory).memory(64 << 20).open()?;
    let pictures = db.keyspace("pictures")?;
    // From 16 KiB on a value goes to a value file when it is flushed; its key keeps a pointer of 32 bytes.
    let picture = |number: u32| number.to_be_bytes().repeat(25_000);
    for number in 0..50u32 {
        pictures.put(format!("picture {number:03}"), picture(number))?;
    }
    db.flush()?;

    // Reads show nothing of it.
    assert_eq!(pictures.get("picture 007")?.as_deref(), Some(&picture(7)[..]));
    for keyspace in db.statistics().keyspaces {
        println!(
            "{} of keys and pointers, {} of values in {} files",
            format_bytes(keyspace.table_bytes),
            format_bytes(keyspace.value_file_bytes),
            keyspace.value_files
        );
        assert!(keyspace.live_value_bytes > 0);
    }

    // Values that are overwritten or deleted are dead in their file, until what lives in it is collected.
    pictures.delete_range("picture 000".."picture 040")?;
    db.compact()?;
    for keyspace in db.statistics().keyspaces {
        println!("{} of values alive", format_bytes(keyspace.live_value_bytes));
    }
    assert_eq!(pictures.iter()?.count(), 10);
    Ok(())
}
