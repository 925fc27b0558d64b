//! A program that must not block: one thread waits for sockets, timers and the store together.
//!
//! Reads go through a read queue, whose descriptor is readable when one may have ended. Writes are tried
//! again after the time that the store names. A thread of its own syncs, once for all writes before it.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use terracedb::polling::TryWrite;
use terracedb::{Db, Durability, WriteBatch, WriteOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::builder(dir.path()).open()?;
    let users = db.open_or_create_keyspace("users")?;

    // Writes.
    let options = WriteOptions::new().durability(Durability::Interval);
    for number in 0..1000_u32 {
        let mut batch = WriteBatch::new();
        batch.put(&users, number.to_be_bytes(), format!("user {number}"))?;
        while let TryWrite::Wait(time) = db.try_write(&batch, &options)? {
            // An async program serves others during this time.
            std::thread::sleep(time);
        }
    }
    let (done, synced) = mpsc::channel();
    let syncing = db.clone();
    std::thread::spawn(move || done.send(syncing.sync()));
    synced.recv_timeout(Duration::from_secs(60))??;
    db.flush()?;

    // Reads.
    let mut queue = db.read_queue(64)?;
    let (mut next, mut found, mut results) = (0_u32, 0, Vec::new());
    while found < 1000 {
        while next < 1000 && queue.room() > 0 {
            users.submit(&mut queue, next.to_be_bytes(), u64::from(next))?;
            next += 1;
        }
        // Passes the reads to the device, and takes those that ended.
        if queue.poll_all(&mut results)? == 0 {
            let descriptor = queue.descriptor()?.ok_or("files tell when a read ends")?;
            // Sockets stand beside it. The timeout is that of the program's timers.
            let mut waited_for = [PollFd::new(&descriptor, PollFlags::IN)];
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut waited_for, Some(&second))?;
        }
        for read in results.drain(..) {
            assert!(read.result?.is_some());
            found += 1;
        }
    }
    println!("{found} users found");
    Ok(())
}
