//! Back up a store during writes, verify the backup, and restore it to another directory.
//!
//! `cargo run --example backup`

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use terracedb::stats::format_bytes;
use terracedb::tools::Backup;
use terracedb::{Db, Result};

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("terracedb-backup-{}", std::process::id()));
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

    // The first backup copies every file, later backups only the new ones.
    let backups = Backup::open(directory.join("backups"))?.rate(100 << 20);
    let monday = backups.create(&db, "monday")?;
    orders.put(7u32.to_be_bytes(), "order 7, cancelled")?;
    let tuesday = backups.create(&db, "tuesday")?;
    assert!(tuesday.bytes_copied < monday.bytes_copied);
    for backup in backups.list()?.backups {
        let (all, own) = (format_bytes(backup.bytes), format_bytes(backup.unique_bytes));
        println!("backup {} `{}`: {all}, {own} in no other backup", backup.id, backup.label);
    }

    // Verify reads every file of the backup and checks its digest.
    let checked = backups.verify(monday.id)?;
    assert!(checked.is_clean(), "{:?}", checked.problems);

    // Each backup restores the state of its time.
    for (backup, expected) in [(monday, "order 7"), (tuesday, "order 7, cancelled")] {
        let target = directory.join(format!("restored {}", backup.id));
        backups.restore(backup.id, &target)?;
        let restored = Db::builder(&target).memory(64 << 20).open()?;
        let order = restored.keyspace("orders")?.get(7u32.to_be_bytes())?;
        assert_eq!(order.as_deref(), Some(expected.as_bytes()));
    }

    let pruned = backups.prune(1)?;
    println!("deleted backups {:?}, freed {}", pruned.backups, format_bytes(pruned.bytes));

    // On the same file system a checkpoint is faster than a backup: it hard-links the files.
    let checkpoint = db.checkpoint(directory.join("tuesday's shop"))?;
    println!(
        "a checkpoint linked {} in {:?} and copied {} of log",
        format_bytes(checkpoint.bytes_linked),
        checkpoint.elapsed,
        format_bytes(checkpoint.log_bytes)
    );
    Ok(())
}
