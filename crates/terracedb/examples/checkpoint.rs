//! A second store that holds what the first does now, in no time and no space: a checkpoint.
//!
//! `cargo run --example checkpoint`

#![allow(clippy::print_stdout, reason = "an example speaks")]

use terracedb::{Db, Result, format_bytes};

fn main() -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("terracedb-checkpoint-{}", std::process::id()));
    let result = run(&directory);
    // Best effort: the system clears its temporary files too.
    drop(std::fs::remove_dir_all(&directory));
    result
}

fn run(directory: &std::path::Path) -> Result<()> {
    let db = Db::builder(directory.join("shop")).memory(64 << 20).open()?;
    let orders = db.keyspace("orders")?;
    for number in 0..50_000u32 {
        orders.put(number.to_be_bytes(), format!("order {number}"))?;
    }

    db.flush()?;

    // Tables are shared with the store, by hard links; writes go on meanwhile.
    let place = directory.join("shop as it was");
    let report = db.checkpoint(&place)?;
    orders.put(7u32.to_be_bytes(), "order 7, cancelled")?;
    println!(
        "{} shared, {} copied, in {:?}",
        format_bytes(report.bytes_linked),
        format_bytes(report.bytes_copied + report.log_bytes),
        report.elapsed
    );

    // It is a store like any other, and goes its own way.
    let copy = Db::builder(&place).memory(64 << 20).open()?;
    let order = copy.keyspace("orders")?.get(7u32.to_be_bytes())?;
    assert_eq!(order.as_deref(), Some(&b"order 7"[..]));
    Ok(())
}
