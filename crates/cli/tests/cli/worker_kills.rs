//! A host under load and its worker, killed by kill -9 at random points: every acknowledged write is there
//! after each kill, files of dead attempts are removed, and no id comes back.

use std::collections::{BTreeMap, BTreeSet};

use base::Rng;

use crate::serve_admin::{body, free};
use crate::serve_client::*;
use crate::support::*;
use crate::worker::WorkerProcess;

/// Kills in the default tests, and in a long test.
const KILLS: usize = 10;
const KILLS_LONG: usize = 200;

const KEYS: u64 = 3000;

/// Writes of one batch.
const BATCH: usize = 200;

/// The values that a key may have.
#[derive(Clone, Default)]
struct Known {
    /// Written and acknowledged.
    acknowledged: Option<Vec<u8>>,
    /// Sent later, and not acknowledged.
    sent: Vec<Vec<u8>>,
}

struct Load {
    rng: Rng,
    known: BTreeMap<Vec<u8>, Known>,
    writes: u64,
}

impl Load {
    /// Sends a batch of writes. Reads as many replies as `read`; the host may be killed before the others.
    fn batch(&mut self, client: &mut Client, read: usize) {
        let mut sent = Vec::new();
        for _ in 0..BATCH {
            self.writes += 1;
            let key = format!("key{:05}", self.rng.below(KEYS)).into_bytes();
            let mut value = vec![0; 1000 + self.rng.below(1000) as usize];
            self.rng.fill(&mut value);
            value[..8].copy_from_slice(&self.writes.to_le_bytes());
            let known = self.known.entry(key.clone()).or_default();
            known.sent.push(value.clone());
            if client.try_send(&[b"SET", &key, &value]).is_err() {
                break;
            }
            sent.push((key, value));
        }
        for (key, value) in sent.into_iter().take(read) {
            match client.try_read() {
                Ok(reply) => assert_eq!(reply, ok()),
                Err(_) => return,
            }
            let known = self.known.get_mut(&key).unwrap();
            // Everything sent before it is older.
            let at = known.sent.iter().position(|it| *it == value).unwrap();
            known.sent.drain(..=at);
            known.acknowledged = Some(value);
        }
    }

    /// Every key has its acknowledged value, or one that was sent later.
    fn verify(&mut self, client: &mut Client) {
        for (key, known) in &mut self.known {
            let found = match client.call(&[b"GET", key]) {
                Reply::Bulk(value) => Some(value),
                Reply::Null => None,
                other => panic!("{other:?}"),
            };
            let is_right = found == known.acknowledged
                || found.as_ref().is_some_and(|found| known.sent.contains(found));
            assert!(is_right, "{}: {:?}", String::from_utf8_lossy(key), found.map(|it| it.len()));
            // A write that is there stays.
            *known = Known { acknowledged: found, sent: Vec::new() };
        }
    }
}

/// A counter of the worker in the server's metrics.
fn count_of(metrics: &str, name: &str) -> u64 {
    let family = format!("terrace_worker_{name}_total{{");
    let found = metrics.lines().find(|line| line.starts_with(&family));
    found.and_then(|line| line.rsplit(' ').next()).expect(metrics).parse().unwrap()
}

/// The ids of table and value files in `directory`.
fn ids(directory: &Path) -> BTreeSet<u64> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let id = |name: &str| table::parse_file_name(name).or(table::parse_values_file_name(name));
    files.filter_map(|name| id(name.to_str()?)).map(|id| id.0).collect()
}

fn kills(count: usize) {
    let (rng, seed) = Rng::from_env();
    let scratch = Scratch::new();
    let data = scratch.path("store");
    fs::create_dir(&data).unwrap();
    let socket = format!("unix:{}", scratch.arg("w"));
    let (place, root) = (format!("remote={socket}"), format!("store={}", data.display()));
    let start_worker = |number: usize| {
        // With the store's directory, and without.
        let args = ["--listen", &*socket, "--root", &*root];
        WorkerProcess::start(&args[..if number.is_multiple_of(2) { 4 } else { 2 }]).0
    };
    let start_host = || {
        let admin = free();
        let admin_text = admin.to_string();
        let options = ["--compaction", &*place, "--admin", &admin_text];
        (Server::start(&data, &options), admin)
    };
    let mut load = Load { rng, known: BTreeMap::new(), writes: 0 };
    let (mut worker, (mut host, mut admin)) = (start_worker(0), start_host());
    let mut merges = 0;
    let (mut present, mut gone) = (BTreeSet::new(), BTreeSet::new());
    for kill in 0..count {
        let mut client = host.client();
        for _ in 0..5 + load.rng.below(20) {
            load.batch(&mut client, BATCH);
        }
        let (host_dies, worker_dies) = match load.rng.below(3) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        // In the middle of a batch.
        let read = load.rng.below(BATCH as u64) as usize;
        load.batch(&mut client, read);
        if worker_dies {
            drop(worker);
            worker = start_worker(kill + 1);
        }
        if host_dies {
            drop(client);
            merges += count_of(&body(admin, "/metrics"), "jobs");
            // Kills it.
            drop(host);
            let now = ids(&data);
            assert!(now.is_disjoint(&gone), "seed {seed}, kill {kill}: an id came back");
            gone.extend(present.difference(&now));
            present = now;
            (host, admin) = start_host();
        } else {
            // The rest of the replies.
            for _ in read..BATCH {
                assert_eq!(client.try_read().unwrap(), ok());
            }
        }
        load.verify(&mut host.client());
    }
    let metrics = body(admin, "/metrics");
    merges += count_of(&metrics, "jobs");
    assert!(merges > 0, "no worker merged: {metrics}");
    for name in ["read_bytes", "written_bytes", "link_bytes", "cpu_microseconds"] {
        let is_counted = count_of(&metrics, name) > 0;
        assert!(is_counted || count_of(&metrics, "jobs") == 0, "{name}: {metrics}");
    }
    // Without its worker the host goes on, and tells why merges came back.
    drop(worker);
    let mut client = host.client();
    while !body(admin, "/metrics").contains("terrace_worker_failures_total{worker=") {
        load.batch(&mut client, BATCH);
    }
    load.verify(&mut client);
    assert_eq!(host.stop(), Some(0));
    // Attempts of dead hosts are over: their files go at the next open, which finds nothing else to remove.
    let open = || terracedb::Db::builder(&data).memory(64 << 20).open().unwrap();
    drop(open());
    let db = open();
    assert_eq!(db.recovery().orphans_removed, 0, "seed {seed}");
    db.flush().unwrap();
    db.wait_until_settled().unwrap();
    let tables: usize = db.statistics().keyspaces.iter().map(|it| it.tables).sum();
    assert!(tables > 0);
    drop(db);
    terrace(&["check", data.to_str().unwrap()]).good();
    let files = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
    let is_table =
        |name: &&std::ffi::OsString| table::parse_file_name(&name.to_string_lossy()).is_some();
    assert_eq!(files.collect::<Vec<_>>().iter().filter(is_table).count(), tables, "seed {seed}");
}

#[test]
fn acknowledged_writes_survive_kills_of_host_and_worker() {
    kills(KILLS);
}

#[test]
#[ignore = "minutes: 200 kills"]
fn acknowledged_writes_survive_kills_of_host_and_worker_for_long() {
    kills(KILLS_LONG);
}
