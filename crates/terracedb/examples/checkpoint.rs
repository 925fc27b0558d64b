//! A checkpoint: a second store with the current state of the first, made of hard links in little time.
//!
//! `cargo run --example checkpoint`

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use terracedb::stats::format_bytes;
use terracedb::{Db, Result};

fn main() -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("terracedb-checkpoint-{}", std::process::id()));
    let result = run(&directory);
    // An error is ignored: the operating system clears its temporary directory as well.
    drop(std::fs::remove_dir_all(&directory));
    result
}

fn run(directory: &std::path::Path) -> Result<()> {
    let db = Db::builder(directory.join("shop")).memory(64 << 20).open()?;
    let orders = db.create_keyspace("orders")?;
    for number in 0..50_000u32 {
        orders.put(number.to_be_bytes(), format!("order {number}"))?;
    }

    db.flush()?;

    // The checkpoint hard-links the tables; writes go on meanwhile.
    let target = directory.join("shop before the cancellation");
    let report = db.checkpoint(&target)?;
    orders.put(7u32.to_be_bytes(), "order 7, cancelled")?;
    println!(
        "{} shared, {} copied, in {:?}",
        format_bytes(report.bytes_linked),
        format_bytes(report.bytes_copied + report.log_bytes),
        report.elapsed
    );

    // The checkpoint is an independent store: later writes to the first do not appear in it.
    let copy = Db::builder(&target).memory(64 << 20).open()?;
    let order = copy.keyspace("orders")?.get(7u32.to_be_bytes())?;
    assert_eq!(order.as_deref(), Some(&b"order 7"[..]));
    Ok(())
}
