//! Backing a store up while it is written, checking the backup, and restoring it elsewhere.
//!
//! `cargo run --example backup`

#![allow(clippy::print_stdout, reason = "an example speaks")]

use terracedb::{Backup, Db, Result, format_bytes};

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("terracedb-backup-{}", std::process::id()));
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

    // The first backup copies everything, later ones what is new.
    let backups = Backup::open(directory.join("backups"))?.rate(100 << 20);
    let monday = backups.create(&db, "monday")?;
    orders.put(7u32.to_be_bytes(), "order 7, cancelled")?;
    let tuesday = backups.create(&db, "tuesday")?;
    assert!(tuesday.bytes_copied < monday.bytes_copied);
    for backup in backups.list()?.backups {
        let (all, own) = (format_bytes(backup.bytes), format_bytes(backup.unique_bytes));
        println!("backup {} `{}`: {all}, {own} of its own", backup.id, backup.label);
    }

    // A backup that is never verified is a hope.
    let checked = backups.verify(monday.id)?;
    assert!(checked.is_clean(), "{:?}", checked.problems);

    // Each restores to the store as it was.
    for (backup, expected) in [(monday, "order 7"), (tuesday, "order 7, cancelled")] {
        let place = directory.join(format!("restored {}", backup.id));
        backups.restore(backup.id, &place)?;
        let restored = Db::builder(&place).memory(64 << 20).open()?;
        let order = restored.keyspace("orders")?.get(7u32.to_be_bytes())?;
        assert_eq!(order.as_deref(), Some(expected.as_bytes()));
    }

    let pruned = backups.prune(1)?;
    println!("backup {:?} deleted: {} back", pruned.backups, format_bytes(pruned.bytes));

    // For a copy on the same file system a checkpoint is quicker: it shares the files.
    let checkpoint = db.checkpoint(directory.join("tuesday's shop"))?;
    println!(
        "a checkpoint of {} took {:?} and {} of its own",
        format_bytes(checkpoint.bytes_linked),
        checkpoint.elapsed,
        format_bytes(checkpoint.log_bytes)
    );
    Ok(())
}
