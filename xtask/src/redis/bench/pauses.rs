//! Latencies of gets while a large value is deleted, a backup runs or all data is merged: by
//! [`Load::read_paced`], at a rate far below what the server can do, with the data in memory.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::load::{Client, Load, Protocol, percentile};
use super::peer::Peer;
use crate::{Result, command};

const MEMORY: u64 = 1 << 30;
const VALUE_BYTES: usize = 1000;
/// Gets of one connection follow one another at this distance.
const DISTANCE: Duration = Duration::from_millis(1);
const CONNECTIONS: usize = 4;
/// Fields that one HSET writes.
const FIELDS: usize = 1000;

/// What runs beside the gets.
#[derive(Clone, Copy, PartialEq)]
enum Event {
    Nothing,
    Delete,
    Backup,
    Merge,
}

impl Event {
    const ALL: [Self; 4] = [Self::Nothing, Self::Delete, Self::Backup, Self::Merge];

    const fn name(self, is_redis: bool) -> &'static str {
        match (self, is_redis) {
            (Self::Nothing, _) => "nothing",
            (Self::Delete, _) => "DEL of a large hash",
            (Self::Backup, true) => "BGSAVE",
            (Self::Backup, false) => "`terrace backup create`",
            (Self::Merge, true) => "BGREWRITEAOF",
            (Self::Merge, false) => "KV.COMPACT of all keys, written twice",
        }
    }
}

/// A server with data, which events happen to.
struct Subject<'a> {
    load: Load<'a>,
    peer: &'a Peer,
    program: &'a Path,
    is_redis: bool,
    members: usize,
}

pub(super) fn run(program: &Path, is_quick: bool) -> Result {
    let tools = crate::redis::programs().ok_or("redis-bench needs redis-server")?;
    let (keys, members) = if is_quick { (20_000, 100_000) } else { (200_000, 1_000_000) };
    let mut lines = Vec::new();
    for is_redis in [true, false] {
        let peer = if is_redis { Peer::redis(&tools)? } else { Peer::terrace(program, MEMORY)? };
        let protocol = Protocol::Redis;
        let load = Load { port: &peer.port, protocol, keys, value_bytes: VALUE_BYTES };
        load.fill()?;
        let subject = Subject { load, peer: &peer, program, is_redis, members };
        for event in Event::ALL {
            subject.prepare(event)?;
            lines.push(subject.line(event)?);
        }
    }
    println!("\nThe large hash has {members} members.");
    println!("\n| beside the gets | server | takes, s | P50 | P99 | P99.9 | longest, ms |");
    println!("|---|---|---|---|---|---|---|");
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

impl Subject<'_> {
    /// Writes what the event needs.
    fn prepare(&self, event: Event) -> Result {
        if event == Event::Merge {
            self.load.fill()?;
        }
        if event == Event::Delete {
            let mut client = Client::connect(&self.peer.port)?;
            for from in (0..self.members).step_by(FIELDS) {
                let mut words = vec!["HSET".to_owned(), "large".to_owned()];
                for member in from..from + FIELDS {
                    words.extend([format!("member:{member:08}"), format!("value:{member:010}")]);
                }
                client.call(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
            }
        }
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    }

    /// A line of the table.
    fn line(&self, event: Event) -> Result<String> {
        let ends = AtomicBool::new(false);
        let (took, latencies) = std::thread::scope(|scope| -> Result<_> {
            let gets = scope.spawn(|| {
                let read = self.load.read_paced(CONNECTIONS, DISTANCE, &ends);
                read.map_err(|error| error.to_string())
            });
            let begun = Instant::now();
            let happened = self.happen(event);
            let took = begun.elapsed();
            // Work that the event left to the background counts, too.
            std::thread::sleep(Duration::from_secs(2));
            ends.store(true, Relaxed);
            let latencies = gets.join().map_err(|_| "a reader panicked")??;
            happened.map(|()| (took, latencies))
        })?;
        let shown = [50.0, 99.0, 99.9, 100.0]
            .map(|share| format!("{:.2}", percentile(&latencies, share).as_secs_f64() * 1e3));
        let server = if self.is_redis { "redis-server" } else { "`terrace serve`" };
        let (name, took) = (event.name(self.is_redis), took.as_secs_f64());
        Ok(format!("| {name} | {server} | {took:.2} | {} |", shown.join(" | ")))
    }

    /// Runs the event to its end.
    fn happen(&self, event: Event) -> Result {
        let mut client = Client::connect(&self.peer.port)?;
        match (event, self.is_redis) {
            (Event::Nothing, _) => std::thread::sleep(Duration::from_secs(5)),
            (Event::Delete, _) => drop(client.call(&["DEL", "large"])?),
            (Event::Backup, true) => {
                client.call(&["BGSAVE"])?;
                client.wait_for_info("persistence", "rdb_bgsave_in_progress:0")?;
            }
            (Event::Merge, true) => {
                client.call(&["BGREWRITEAOF"])?;
                client.wait_for_info("persistence", "aof_rewrite_in_progress:0")?;
            }
            (Event::Merge, false) => drop(client.call(&["KV.COMPACT"])?),
            (Event::Backup, false) => {
                let mut backup = Command::new(self.program);
                let repository = self.peer.data.join("backups");
                backup.args(["backup", "create"]).args([self.peer.store(), repository]);
                command::output(backup)?;
            }
        }
        Ok(())
    }
}
