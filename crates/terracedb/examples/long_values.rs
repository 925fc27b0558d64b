//! Key-value separation: long values are stored in value files, and merges do not copy them.
//!
//! `cargo run --example long_values`

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use terracedb::stats::format_bytes;
use terracedb::{Db, Result};

fn main() -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("terracedb-long_values-{}", std::process::id()));
    let result = run(&directory);
    // An error is ignored: the operating system clears its temporary directory as well.
    drop(std::fs::remove_dir_all(&directory));
    result
}

fn run(directory: &std::path::Path) -> Result<()> {
    let db = Db::builder(directory).memory(64 << 20).open()?;
    let pictures = db.create_keyspace("pictures")?;
    // A flush writes values of 16 KiB and more to a value file; the table stores a pointer of 32 bytes.
    let picture = |number: u32| number.to_be_bytes().repeat(25_000);
    for number in 0..50u32 {
        pictures.put(format!("picture {number:03}"), picture(number))?;
    }
    db.flush()?;

    // Reads return the value as if it were stored with its key.
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

    // Overwritten and deleted values stay in their file until a collection copies the live values out.
    pictures.delete_range("picture 000".."picture 040")?;
    db.compact()?;
    for keyspace in db.statistics().keyspaces {
        println!("{} of live values", format_bytes(keyspace.live_value_bytes));
    }
    assert_eq!(pictures.iter()?.count(), 10);
    Ok(())
}
